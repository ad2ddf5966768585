//! `cargo xtask test`: every check and every suite, with one count at the end.
//!
//! Each step prints its output as it comes and a line with its time; a failed step does not keep
//! the others from running. Suites that start instances run side by side, and their lines mix. The
//! last line is `N passed, N failed, N skipped`: the tests of all suites, where each check
//! (formatting, clippy, tidy, …) is one test. A suite whose tools are missing is skipped, and named
//! with the reason before the count.

mod count;
mod packages;
mod remains;
mod step;
mod tools;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
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
const STEP_DEADLINE: Duration = Duration::from_secs(45 * 60);

/// Those whose tests start instances. They are always built together: each selection of packages
/// has features of its own for what they use, which would be built again.
const OF_INSTANCES: &[&str] =
    &["--package", "mayfly-tests", "--package", "differ", "--package", "histories"];

/// All of their tests.
const PROGRAMS: Tests<'_> =
    Tests { name: "program suite", packages: OF_INSTANCES, which: &[], variables: &[] };

/// What has tests that are run apart from those of the other packages.
const ELSEWHERE: [&str; 4] = ["mayfly-tests", "differ", "histories", "mayfly-preload"];

/// What one shard does three do too, and four nodes; the suites that meet most of the daemon are
/// enough to see. The calls through a mount, which take minutes, are made with one shard and on
/// four nodes, and of the programs whose daemon is killed the build is made again.
const AGAIN: &[Tests<'_>] = &[
    Tests {
        name: "calls, crashes and leftovers on three shards",
        packages: OF_INSTANCES,
        which: &[
            "--test=calls",
            "--test=crashes",
            "--test=leftovers",
            "--",
            "--skip=single_calls_through_the_kernel",
            "--skip=unnoticed_by_git",
            "--skip=unnoticed_by_python",
        ],
        variables: &[("MAYFLY_SHARDS", "3")],
    },
    Tests {
        name: "calls on four nodes",
        packages: OF_INSTANCES,
        which: &["--test=calls"],
        variables: &[("MAYFLY_NODES", "local:4")],
    },
    // What a node asks others for, when it has nothing itself.
    Tests {
        name: "calls from a node that stores nothing",
        packages: OF_INSTANCES,
        which: &[
            "--test=calls",
            "--",
            "link",
            "listing",
            "append",
            "lock",
            "offset",
            "director",
            "mapping",
        ],
        variables: &[("MAYFLY_NODES", "local:4"), ("MAYFLY_SERVERS", "@[1-3]")],
    },
    Tests {
        name: "programs on four nodes",
        packages: OF_INSTANCES,
        which: &["--test=programs", "--test=tier_programs", "--", "python", "bash", "checkout"],
        variables: &[("MAYFLY_NODES", "local:4")],
    },
];

/// `cargo test` of some tests.
#[derive(Debug, Clone, Copy)]
struct Tests<'a> {
    name: &'a str,
    packages: &'a [&'a str],
    /// Which of them; none: all.
    which: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
}

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
    session.sources();
    session.check_or_skip("cargo deny", crate::deny::run);
    session.cargo_check("release build", &["build", "--release", "--package", "mayfly-cli"]);
    // What starts instances comes last, and the preload library is built apart.
    let excluded = ELSEWHERE.iter().flat_map(|name| ["--exclude", name]);
    let unit: Vec<&str> = std::iter::once("--workspace").chain(excluded).collect();
    let unit = Tests {
        name: "unit tests, simulator and scaling study",
        packages: &unit,
        which: &[],
        variables: &[],
    };
    session.side_by_side(&[&[unit]]);
    session.side_by_side(&[&[PROGRAMS], AGAIN]);
    session.nothing_is_left();
    session.finish()
}

/// What a change usually needs, in some minutes: the sources, the tests inside the crates, and some
/// real programs with a build for debuggers, on one node and on two.
pub(crate) fn run_quick() -> Result<ExitCode> {
    let mut session = Session::new()?;
    session.sources();
    session.cargo_check("build", &["build", "--package", "mayfly-cli"]);
    let excluded = ELSEWHERE.iter().flat_map(|name| ["--exclude", name]);
    let unit: Vec<&str> = std::iter::once("--workspace").chain(excluded).collect();
    let inside = Tests {
        name: "tests inside the crates",
        packages: &unit,
        which: &["--lib"],
        variables: &[],
    };
    session.side_by_side(&[&[inside]]);
    let built = target_dir().join("debug/mayfly");
    let program = ("MAYFLY_BIN", built.to_str().context("the path of the build is text")?);
    let one = Tests {
        name: "programs",
        packages: OF_INSTANCES,
        which: &["--test=programs", "--test=access", "--", "bash", "python", "env", "nothing_can"],
        variables: &[program],
    };
    let two = Tests {
        name: "calls on two nodes",
        packages: OF_INSTANCES,
        which: &["--test=calls", "--", "link", "append", "rename"],
        variables: &[program, ("MAYFLY_NODES", "local:2")],
    };
    session.side_by_side(&[&[one], &[two]]);
    session.nothing_is_left();
    session.finish()
}

impl Session {
    /// What the sources are checked for without being run.
    fn sources(&mut self) {
        self.cargo_check("formatting", &["fmt", "--all", "--check"]);
        self.check("tidy", crate::tidy::run);
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
        self.cargo_check("clippy", &clippy);
        let preload = ["clippy", "--package", "mayfly-preload", "--quiet", "--", "-D", "warnings"];
        self.cargo_check("clippy of the preload library", &preload);
    }

    fn nothing_is_left(&mut self) {
        let remains = self.remains.expect_none(&self.mark);
        self.check("nothing is left behind", || remains);
    }

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

    /// Rows of `cargo test`, one after the other in each row, whose tests are counted from their
    /// output. Tests that start instances take turns, so the rows do not hinder each other; while
    /// one row builds, or waits for its last test, the others go on.
    fn side_by_side(&mut self, rows: &[&[Tests<'_>]]) {
        let this = &*self;
        let run_row = |row: &[Tests<'_>]| -> Vec<(Count, Option<String>)> {
            row.iter().map(|tests| this.tests(tests)).collect()
        };
        let ends: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = rows.iter().map(|row| scope.spawn(|| run_row(row))).collect();
            running.into_iter().map(|row| row.join().expect("no panic")).collect()
        });
        let of = rows.iter().flat_map(|row| row.iter()).zip(ends.into_iter().flatten());
        for (tests, (count, failure)) in of {
            self.count.add(count);
            if let Some(why) = failure {
                self.fail(tests.name, &why);
            }
        }
    }

    /// One of them: what was counted, and why it failed if no test says it.
    fn tests(&self, tests: &Tests<'_>) -> (Count, Option<String>) {
        self.say(tests.name);
        let mut found = Count::default();
        let mut command = self.cargo(&["test", "--no-fail-fast"]);
        command.args(tests.packages).args(tests.which).envs(tests.variables.iter().copied());
        let of_step = format!("{}-{}", self.mark, tests.name);
        command.env(remains::STEP, &of_step);
        let step = Step::run(command, STEP_DEADLINE, |line| found.add_result_line(line));
        self.say(&format!("{} is over", tests.name));
        found.reasons.iter_mut().for_each(|reason| *reason = format!("{reason} ({})", tests.name));
        let failure = match step {
            Ok(step) if step.succeeded || found.failed > 0 => None,
            Ok(_) => Some("did not build, or ended early".to_owned()),
            Err(error) => {
                remains::end_all(remains::STEP, &of_step);
                Some(format!("{error:#}"))
            }
        };
        (found, failure)
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
