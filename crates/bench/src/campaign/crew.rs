//! The workers of one target, started before any clock and reused by all phases.
//!
//! They are in a process group of their own, so that Ctrl-C reaches only the command, which then
//! ends them: a worker that dies in the middle of a call says nothing useful.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};

use super::interrupt::Interrupt;
use crate::{
    worker::WORKER,
    workloads::step::{GO, Reply, Share, Task},
};

/// How soon an interrupt is noticed.
const GLANCE: Duration = Duration::from_millis(100);

/// What came from a worker: its line, or why there is none.
type Heard = (usize, Option<String>);

struct Member {
    process: Child,
    input: ChildStdin,
}

/// The workers of one target.
pub(super) struct Crew {
    label: String,
    members: Vec<Member>,
    heard: Receiver<Heard>,
    interrupt: Interrupt,
}

impl Crew {
    /// Starts `count` workers with `environment` besides the inherited one.
    pub(super) fn start(
        label: &str,
        count: u32,
        environment: &[(&'static str, OsString)],
        interrupt: &Interrupt,
    ) -> Result<Crew> {
        let (say, heard) = channel();
        let mut crew = Crew {
            label: label.to_owned(),
            members: Vec::new(),
            heard,
            interrupt: interrupt.clone(),
        };
        for index in 0..count as usize {
            crew.members.push(start(index, environment, say.clone()).context("starting a worker")?);
        }
        Ok(crew)
    }

    /// Process ids of the first `count` workers.
    pub(super) fn pids(&self, count: u32) -> Vec<u32> {
        self.members.iter().take(count as usize).map(|member| member.process.id()).collect()
    }

    /// Has the first `task.procs` workers prepare their share.
    pub(super) fn prepare(&mut self, task: &Task) -> Result<()> {
        for rank in 0..task.procs {
            let text = serde_json::to_string(&Task { rank, ..task.clone() })?;
            self.say(rank, &text)?;
        }
        for reply in self.hear(task.procs)? {
            if !matches!(reply, Reply::Ready) {
                bail!("{}: a worker answers out of turn", self.label);
            }
        }
        Ok(())
    }

    /// Lets them start, and waits for the last.
    pub(super) fn go(&mut self, procs: u32) -> Result<Vec<Share>> {
        for rank in 0..procs {
            self.say(rank, GO)?;
        }
        let replies = self.hear(procs)?;
        let share = |reply| match reply {
            Reply::Done(share) => Ok(*share),
            _ => Err(anyhow!("{}: a worker answers out of turn", self.label)),
        };
        replies.into_iter().map(share).collect()
    }

    fn say(&mut self, rank: u32, line: &str) -> Result<()> {
        let member = self.members.get_mut(rank as usize).context("there are fewer workers")?;
        writeln!(member.input, "{line}").with_context(|| format!("{}: a worker died", self.label))
    }

    /// One word of each of the first `procs` workers.
    fn hear(&mut self, procs: u32) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(procs as usize);
        while replies.len() < procs as usize {
            self.interrupt.check()?;
            match self.heard.recv_timeout(GLANCE) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("{}: all workers died", self.label),
                Ok((rank, line)) => replies.push(self.understand(rank, line)?),
            }
        }
        Ok(replies)
    }

    fn understand(&mut self, rank: usize, line: Option<String>) -> Result<Reply> {
        let Some(line) = line else {
            let status = self.members[rank].process.wait()?;
            bail!("{}: worker {rank} died ({status})", self.label);
        };
        match serde_json::from_str(&line).with_context(|| format!("{line:?} is no answer"))? {
            Reply::Failed(why) => bail!("{}: {why}", self.label),
            reply => Ok(reply),
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It fails for those that are gone, which is what is wanted.
            let _ = member.process.kill();
        }
        for member in &mut self.members {
            let _ = member.process.wait();
        }
    }
}

fn start(
    index: usize,
    environment: &[(&'static str, OsString)],
    say: Sender<Heard>,
) -> Result<Member> {
    let mut process = Command::new(std::env::current_exe()?)
        .arg(WORKER)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let input = process.stdin.take().context("a pipe was asked for")?;
    let output = process.stdout.take().context("a pipe was asked for")?;
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            if say.send((index, line.ok())).is_err() {
                return;
            }
        }
        // Nobody listens any more when the crew is dismissed.
        let _ = say.send((index, None));
    });
    Ok(Member { process, input })
}
