//! A command with a deadline, whose output goes to files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{Scratch, process};

/// How much of a command's output an error shows.
const TAIL_LINES: usize = 40;

/// A command to be run in a [`Scratch`].
#[derive(Debug)]
pub struct Job<'a> {
    scratch: &'a Scratch,
    name: String,
    command: Command,
    deadline: Duration,
}

/// What a command that ended left.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code, or 128 and the signal as shells say it.
    pub code: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Outcome {
    /// Its standard error as text.
    pub fn error(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// A command that was started and not yet waited for.
#[derive(Debug)]
pub struct Running<'a> {
    scratch: &'a Scratch,
    name: String,
    child: Child,
    started: Instant,
    deadline: Duration,
}

impl<'a> Job<'a> {
    /// The command `program`; `name` names its output files and appears in errors.
    pub fn new(scratch: &'a Scratch, name: &str, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.envs(scratch.environment()).current_dir(scratch.path()).stdin(Stdio::null());
        command.process_group(0);
        Self { scratch, name: name.to_owned(), command, deadline: Duration::from_secs(60) }
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, variable: &str, value: impl Into<OsString>) -> Self {
        self.command.env(variable, value.into());
        self
    }

    /// After this time the command and all it started are ended, and the run is an error.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Result<Running<'a>> {
        let stdout = File::create(output_path(self.scratch, &self.name, "out"))?;
        let stderr = File::create(output_path(self.scratch, &self.name, "err"))?;
        let command = self.command.stdout(stdout).stderr(stderr);
        let child =
            command.spawn().with_context(|| format!("starting {}: {command:?}", self.name))?;
        let started = Instant::now();
        let Self { scratch, name, deadline, .. } = self;
        Ok(Running { scratch, name, child, started, deadline })
    }

    /// Starts it and waits for its end.
    pub fn run(self) -> Result<Outcome> {
        self.start()?.wait()
    }

    /// Runs it; a status other than 0 is an error that shows the output's tail.
    pub fn run_ok(self) -> Result<Outcome> {
        let (scratch, name) = (self.scratch, self.name.clone());
        let outcome = self.run()?;
        ensure!(outcome.code == 0, "{name} exited with {}\n{}", outcome.code, tail(scratch, &name));
        Ok(outcome)
    }
}

impl Running<'_> {
    /// The process number of the command itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end; at the deadline everything with the suite's mark is ended.
    pub fn wait(mut self) -> Result<Outcome> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if self.started.elapsed() > self.deadline {
                process::end_marked(self.scratch.mark(), Duration::from_secs(5));
                self.child.wait()?;
                let output = tail(self.scratch, &self.name);
                bail!(
                    "{} was not over after {:?} and was ended\n{output}",
                    self.name,
                    self.deadline
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok(Outcome {
            code: shell_code(status),
            stdout: fs::read(output_path(self.scratch, &self.name, "out"))?,
            stderr: fs::read(output_path(self.scratch, &self.name, "err"))?,
            elapsed: self.started.elapsed(),
        })
    }
}

fn shell_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn output_path(scratch: &Scratch, name: &str, stream: &str) -> PathBuf {
    scratch.join(format!("{name}.{stream}"))
}

/// The last lines of what the command `name` has written so far.
pub fn tail(scratch: &Scratch, name: &str) -> String {
    ["out", "err"].map(|stream| tail_of(&output_path(scratch, name, stream), stream)).concat()
}

fn tail_of(path: &Path, stream: &str) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!(
        "--- std{stream}, last {} of {} lines\n{}\n",
        shown.len(),
        lines.len(),
        shown.join("\n")
    )
}
