//! `cargo xtask test`: every check and every suite, with one count at the end.
//!
//! Each step prints its output as it comes and a line with its time; a failed step does not keep
//! the others from running. The last line is `N passed, N failed, N skipped`: the tests of all
//! suites, where each check (formatting, clippy, tidy, …) is one test. A suite whose tools are
//! missing is skipped, and named with the reason before the count.

mod count;
mod packages;
mod remains;
mod step;
mod tools;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Result;
use mayfly_testkit::binary::{target_dir, workspace};

use self::count::Count;
use self::remains::Remains;
use self::step::Step;

/// Whether missing Debian packages, and suites from crates.io, may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Install {
    /// As root, or with sudo that asks nothing.
    WhereAllowed,
    /// Not at all.
    Never,
}

/// One step may take this long; the whole is meant to take 40 minutes at most on two cores.
const STEP_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Everything that has to do with one run of all steps.
#[derive(Debug)]
struct Session {
    /// Carried by all processes of this run, as a variable.
    mark: String,
    /// Where suites note what they skip.
    skips: PathBuf,
    remains: Remains,
    started: Instant,
    count: Count,
}

/// Runs all of it.
pub(crate) fn run(install: Install) -> Result<ExitCode> {
    let mut session = Session::new()?;
    session.say("packages");
    packages::ensure(install);
    tools::ensure(install);
    session.cargo_check("formatting", &["fmt", "--all", "--check"]);
    // The preload library is built apart: in one build with the rest, its parts would be given
    // features that need the standard library.
    let clippy = [
        "clippy",
        "--workspace",
        "--exclude",
        "mayfly-preload",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    session.cargo_check("clippy", &clippy);
    let preload = ["clippy", "--package", "mayfly-preload", "--quiet", "--", "-D", "warnings"];
    session.cargo_check("clippy of the preload library", &preload);
    session.check("tidy", crate::tidy::run);
    session.check_or_skip("cargo deny", crate::deny::run);
    session.cargo_check("release build", &["build", "--release", "--package", "mayfly-cli"]);
    // What starts instances comes last, and the preload library is built apart.
    let elsewhere = ["mayfly-tests", "differ", "histories", "mayfly-preload"];
    let excluded = elsewhere.iter().flat_map(|name| ["--exclude", name]);
    let unit: Vec<&str> = std::iter::once("--workspace").chain(excluded).collect();
    session.tests("unit tests, simulator and scaling study", &unit, &[]);
    session.tests(
        "program suite",
        &["--package", "mayfly-tests", "--package", "differ", "--package", "histories"],
        &[],
    );
    // What one shard does three do too; the suites that meet most of the daemon are enough to see.
    // The calls through a mount, which take a minute, are made with one shard and on four nodes,
    // and of the programs whose daemon is killed the build is made again.
    let not_mounted = ["--", "--skip", "single_calls_through_the_kernel"];
    let not_again = ["--skip", "unnoticed_by_git", "--skip", "unnoticed_by_python"];
    let again = ["calls", "crashes", "leftovers"].iter().flat_map(|suite| ["--test", suite]);
    let skipped = not_mounted.into_iter().chain(not_again);
    let again: Vec<&str> =
        ["--package", "mayfly-tests"].into_iter().chain(again).chain(skipped).collect();
    session.tests(
        "calls, crashes and leftovers on three shards",
        &again,
        &[("MAYFLY_SHARDS", "3")],
    );
    let again = ["--package", "mayfly-tests", "--test", "calls"];
    session.tests("calls on four nodes", &again, &[("MAYFLY_NODES", "local:4")]);
    // What a node asks others for, when it has nothing itself.
    let asked = ["--", "link", "listing", "append", "lock", "offset", "director", "mapping"];
    let again: Vec<&str> = again.into_iter().chain(asked).collect();
    session.tests(
        "calls from a node that stores nothing",
        &again,
        &[("MAYFLY_NODES", "local:4"), ("MAYFLY_SERVERS", "@[1-3]")],
    );
    let again = ["--package", "mayfly-tests", "--test", "programs", "--", "python", "bash"];
    session.tests("programs on four nodes", &again, &[("MAYFLY_NODES", "local:4")]);
    let remains = session.remains.expect_none(&session.mark);
    session.check("nothing is left behind", || remains);
    session.finish()
}

impl Session {
    fn new() -> Result<Self> {
        let number = std::process::id();
        let skips = target_dir().join(format!("skips-{number}"));
        std::fs::create_dir_all(target_dir())?;
        std::fs::write(&skips, "")?;
        let mark = format!("run-{number}");
        let remains = Remains::prepare()?;
        Ok(Self { mark, skips, remains, started: Instant::now(), count: Count::default() })
    }

    fn say(&self, what: &str) {
        println!("==> [{:5.0?} s] {what}", self.started.elapsed().as_secs());
    }

    /// A check inside this process, which counts as one test.
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        self.say(name);
        match check() {
            Ok(()) => self.count.passed += 1,
            Err(error) => self.fail(name, &format!("{error:#}")),
        }
    }

    fn check_or_skip(&mut self, name: &str, check: impl FnOnce() -> Result<crate::deny::Checked>) {
        self.say(name);
        match check() {
            Ok(crate::deny::Checked::Yes) => self.count.passed += 1,
            Ok(crate::deny::Checked::NotInstalled) => {
                self.count.skipped += 1;
                self.count.reasons.push(format!("SKIPPED {name}: not installed"));
            }
            Err(error) => self.fail(name, &format!("{error:#}")),
        }
    }

    /// A cargo command that counts as one test.
    fn cargo_check(&mut self, name: &str, arguments: &[&str]) {
        self.say(name);
        let step = Step::run(self.cargo(arguments), STEP_DEADLINE, |_| ());
        match step {
            Ok(step) if step.succeeded => self.count.passed += 1,
            Ok(_) => self.fail(name, "failed"),
            Err(error) => self.fail(name, &format!("{error:#}")),
        }
    }

    /// `cargo test`, whose tests are counted from its output, with these variables.
    fn tests(&mut self, name: &str, selection: &[&str], variables: &[(&str, &str)]) {
        self.say(name);
        let arguments: Vec<&str> =
            ["test", "--no-fail-fast"].iter().chain(selection).copied().collect();
        let mut found = Count::default();
        let mut command = self.cargo(&arguments);
        command.envs(variables.iter().copied());
        let step = Step::run(command, STEP_DEADLINE, |line| found.add_result_line(line));
        let failed = found.failed;
        self.count.add(found);
        match step {
            Ok(step) if step.succeeded || failed > 0 => {}
            Ok(_) => self.fail(name, "did not build, or ended early"),
            Err(error) => {
                remains::end_all(&self.mark);
                self.fail(name, &format!("{error:#}"));
            }
        }
    }

    fn fail(&mut self, name: &str, why: &str) {
        eprintln!("FAILED {name}: {why}");
        self.count.failed += 1;
        self.count.reasons.push(format!("FAILED {name}: {why}"));
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(workspace());
        command.env(remains::MARK, &self.mark).env("MAYFLY_TEST_SKIPS", &self.skips);
        command.envs(self.remains.environment());
        // A test's error is a sentence; its backtrace is that of the test runner.
        command.env("RUST_LIB_BACKTRACE", "0");
        command
    }

    fn finish(mut self) -> Result<ExitCode> {
        self.count.subtract_skips(&std::fs::read_to_string(&self.skips)?);
        std::fs::remove_file(&self.skips)?;
        self.say("done");
        for reason in &self.count.reasons {
            println!("{reason}");
        }
        println!("{}", self.count);
        Ok(if self.count.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
