//! A started instance, seen through the `mayfly` command.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{Job, Outcome, Random, Scratch, binary, process};

/// What `status` says the clients hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Attached processes.
    pub sessions: u64,
    /// Open file descriptions.
    pub open_files: u64,
    /// Held locks.
    pub locks: u64,
}

impl Counts {
    /// Nobody is attached and nothing is held.
    pub const NONE: Self = Self { sessions: 0, open_files: 0, locks: 0 };
}

/// An instance by its name. `mayfly start` makes it, unless a `run` elsewhere does.
#[derive(Debug)]
pub struct Instance<'a> {
    scratch: &'a Scratch,
    mayfly: PathBuf,
    name: String,
}

impl<'a> Instance<'a> {
    /// The instance `name`, whoever starts it.
    pub fn named(scratch: &'a Scratch, name: &str) -> Result<Self> {
        Ok(Self { scratch, mayfly: binary::mayfly()?, name: name.to_owned() })
    }

    /// Starts it with its mount point at `mount`.
    pub fn start(scratch: &'a Scratch, name: &str, mount: &Path) -> Result<Self> {
        Self::start_with(scratch, name, mount, &[])
    }

    /// The same with further options.
    pub fn start_with(
        scratch: &'a Scratch,
        name: &str,
        mount: &Path,
        options: &[&str],
    ) -> Result<Self> {
        let instance = Self::named(scratch, name)?;
        let start = instance.command("start").args(options);
        start.args(["--mount".as_ref(), mount]).run_ok()?;
        Ok(instance)
    }

    /// Ends it.
    pub fn stop(&self) -> Result<()> {
        self.command("stop").run_ok().map(drop)
    }

    /// `mayfly SUBCOMMAND --name NAME`.
    pub fn command(&self, subcommand: &str) -> Job<'a> {
        let label = format!("{}-{subcommand}", self.name);
        let arguments = [subcommand, "--name", &self.name];
        Job::new(self.scratch, &label, &self.mayfly)
            .args(arguments)
            .deadline(Duration::from_secs(30))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A shell that is attached to the instance, by `mayfly env`, and runs `script` there.
    pub fn shell(&self, label: &str, script: &str) -> Job<'a> {
        // What is started after `eval` is served, the shell that evaluates is not.
        let attach = r#"eval "$("$0" env --name "$1")" && exec bash -c "$2""#;
        let job = Job::new(self.scratch, label, "bash").args(["-c", attach]);
        job.args([self.mayfly.as_os_str(), self.name.as_ref(), script.as_ref()])
    }

    /// Runs `script` on one node of the instance: its output, without white space around it.
    pub fn on_node(&self, node: usize, script: &str) -> Result<String> {
        let label = format!("{}-on-{node}", self.name);
        let outcome = self.shell(&label, script).env("MAYFLY_NODE", node.to_string()).run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).trim().to_owned())
    }

    /// What `mayfly status --json` prints.
    pub fn status(&self) -> Result<Value> {
        Self::read_status(&self.command("status").args(["--json"]).run_ok()?)
    }

    /// The same, of a `status` that was run.
    pub fn read_status(outcome: &Outcome) -> Result<Value> {
        serde_json::from_slice(&outcome.stdout).context("`mayfly status --json` printed no JSON")
    }

    /// The daemon's process number; of several nodes the first one's.
    pub fn daemon_pid(&self) -> Result<u32> {
        self.daemon_pid_of(0)
    }

    /// That of the daemon of one node.
    pub fn daemon_pid_of(&self, node: usize) -> Result<u32> {
        let status = self.status()?;
        let of = status.get("nodes").map_or(Some(&status), |nodes| nodes.get(node));
        let pid = number(of.context("there is no such node")?, "daemon_pid")?;
        u32::try_from(pid).context("daemon_pid is out of range")
    }

    /// Does `work` while the daemon is killed again and again; how often.
    pub fn beside_kills(&self, work: impl FnOnce() -> Result<()>) -> Result<u32> {
        let over = AtomicBool::new(false);
        let (kills, done) = std::thread::scope(|scope| {
            let killer = scope.spawn(|| self.kill_daemons(&over));
            let done = work();
            over.store(true, Ordering::Relaxed);
            (killer.join().expect("the killer does not panic"), done)
        });
        done.map(|()| kills)
    }

    fn kill_daemons(&self, over: &AtomicBool) -> u32 {
        let mut random = Random::for_suite(&self.name);
        let mut kills = 0;
        while !over.load(Ordering::Relaxed) {
            // While it is started again there is no status.
            let Ok(pid) = self.daemon_pid() else { continue };
            // It serves, and has time to get something done: where starting takes long, daemons
            // that were killed right then kept every request until its deadline.
            std::thread::sleep(random.pause(10, 150));
            kills += u32::from(process::kill(pid));
        }
        kills
    }

    /// What the clients hold now.
    pub fn counts(&self) -> Result<Counts> {
        let status = self.status()?;
        Ok(Counts {
            sessions: number(&status, "sessions")?,
            open_files: number(&status, "open_files")?,
            locks: number(&status, "locks")?,
        })
    }

    /// An error if the clients still hold something after `patience`.
    pub fn expect_nothing_held(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let counts = self.counts()?;
            if counts == Counts::NONE {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "still held after {patience:?}: {counts:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn number(status: &Value, field: &str) -> Result<u64> {
    let value = status.get(field).and_then(Value::as_u64);
    value.with_context(|| format!("`mayfly status --json` has no number {field}: {status}"))
}
