//! One command of the run: its output is passed on line by line, and its time is bounded.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// After the command's end, its last lines arrive within this time. What still holds the pipe then
/// is a process that was left behind, which another step complains about.
const DRAIN: Duration = Duration::from_secs(1);

/// A command that ended by itself.
#[derive(Debug)]
pub(super) struct Step {
    /// Whether its status was 0.
    pub(super) succeeded: bool,
}

impl Step {
    /// Runs `command` and shows each line of its standard output to `line` too. At the deadline it
    /// is ended.
    pub(super) fn run(
        mut command: Command,
        deadline: Duration,
        line: impl FnMut(&str),
    ) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let lines = read_lines(child.stdout.take().expect("the output was asked for"));
        let result = follow(&mut child, &lines, Instant::now() + deadline, line);
        if result.is_err() {
            // What it had started carries the run's mark, by which the caller finds it.
            child.kill()?;
            child.wait()?;
        }
        result
    }
}

fn read_lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn follow(
    child: &mut Child,
    lines: &Receiver<String>,
    deadline: Instant,
    mut line: impl FnMut(&str),
) -> Result<Step> {
    let mut ended = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(text) => {
                println!("{text}");
                line(&text);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) if ended.is_none() => {
                ended = Some((child.wait()?, Instant::now()));
            }
            Err(_) => {}
        }
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
        match ended {
            Some((status, since)) if since.elapsed() > DRAIN => {
                return Ok(Step { succeeded: status.success() });
            }
            None if Instant::now() > deadline => bail!("not over at its deadline, and ended"),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
