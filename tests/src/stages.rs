//! What the suites of staging have in common.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Instance, Job, Outcome, Scratch, binary, skip};
use serde_json::Value;

/// What is not over by then never will be.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An instance, and what is staged.
pub struct Bench<'a> {
    /// Where its files are.
    pub scratch: &'a Scratch,
    /// What is staged into, and out of.
    pub instance: Instance<'a>,
}

impl<'a> Bench<'a> {
    /// Starts one, with these options of `mayfly start`.
    ///
    /// # Errors
    /// It was not so, and how it was.
    pub fn start(scratch: &'a Scratch, name: &str, options: &[&str]) -> Result<Bench<'a>> {
        let instance = Instance::start_with(scratch, name, &scratch.join("mount"), options)?;
        Ok(Bench { scratch, instance })
    }

    /// `mayfly stage DIRECTION`, with journals of this suite's own.
    ///
    /// # Errors
    /// It was not so, and how it was.
    pub fn job(&self, direction: &str, arguments: &[&str]) -> Result<Job<'a>> {
        let job = Job::new(self.scratch, &format!("stage-{direction}"), binary::mayfly()?)
            .env("XDG_STATE_HOME", self.scratch.join("state"))
            .args(["stage", direction, "--name", self.instance.name()]);
        Ok(job.args(arguments))
    }

    /// The same, which has to do all of it.
    ///
    /// # Errors
    /// It was not so, and how it was.
    pub fn stage(&self, direction: &str, arguments: &[&str]) -> Result<Outcome> {
        self.job(direction, arguments)?.run_ok()
    }

    /// The last event, of a stage that ended with `code`.
    ///
    /// # Errors
    /// It was not so, and how it was.
    pub fn counted(&self, code: i32, direction: &str, arguments: &[&str]) -> Result<Value> {
        let outcome = self.job(direction, arguments)?.args(["--json"]).run()?;
        let events = events(&outcome)?;
        let last = events.last().context("no events")?.clone();
        ensure!(outcome.code == code, "status {}: {last}", outcome.code);
        Ok(last)
    }

    /// The path of a file of the suite, as text.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.scratch.join(name).to_string_lossy().into_owned()
    }
}

/// What was told with `--json`.
///
/// # Errors
/// It was not so, and how it was.
pub fn events(outcome: &Outcome) -> Result<Vec<Value>> {
    let text = String::from_utf8(outcome.stdout.clone())?;
    text.lines().map(|line| serde_json::from_str(line).context("an event is JSON")).collect()
}

/// What `apps/staging.py` says.
///
/// # Errors
/// It was not so, and how it was.
pub fn staging(scratch: &Scratch, arguments: &[&str]) -> Result<String> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/staging.py");
    let job = Job::new(scratch, "staging", "python3").args([program]).args(arguments);
    Ok(String::from_utf8(job.run_ok()?.stdout)?)
}

/// Are two trees the same, but for the time of looking?
///
/// # Errors
/// It was not so, and how it was.
pub fn expect_same(bench: &Bench<'_>, one: &str, other: &str) -> Result<()> {
    let [one, other] = [one, other].map(|name| bench.path(name));
    let described = [&one, &other].map(|path| staging(bench.scratch, &["describe", path]));
    let [Ok(first), Ok(second)] = &described else { bail!("{described:?}") };
    for (left, right) in first.lines().zip(second.lines()) {
        ensure!(left == right, "{one}: {left}\n{other}: {right}");
    }
    ensure!(first.lines().count() == second.lines().count(), "{one} or {other} has more");
    Ok(())
}

/// Has the instance one node, since nobody asked for more?
#[must_use]
pub fn is_one_node() -> bool {
    std::env::var_os("MAYFLY_NODES").is_none()
}

/// Can trees be made and described?
#[must_use]
pub fn has_python() -> bool {
    skip::unless_installed("staging", &["python3"], "python3")
}

/// Waits until `what` holds.
///
/// # Errors
/// It was not so, and how it was.
pub fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = std::time::Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(std::time::Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
