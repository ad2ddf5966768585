//! The Python package: its wheel is built, installed, and its own tests are run with it.
//!
//! The environment in which that happens has what the tests use, in the versions of
//! `python/tests/requirements.txt`, and is kept from run to run.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Outcome, Scratch, Turn, binary, skip};

const SUITE: &str = "Python package";
/// pip fetches some 300 MB the first time.
const INSTALL_DEADLINE: Duration = Duration::from_secs(1200);
const BUILD_DEADLINE: Duration = Duration::from_secs(1800);
const TESTS_DEADLINE: Duration = Duration::from_secs(900);
/// What pip says when it has no index, or cannot reach it.
const NO_INDEX: [&str; 4] =
    ["Could not find a version", "No matching distribution", "new connection", "name resolution"];

/// An environment of Python's, with its programs.
struct Environment {
    root: PathBuf,
}

impl Environment {
    /// One with everything in it that the tests use; none when it cannot be made here.
    fn ready(scratch: &Scratch) -> Result<Option<Environment>> {
        let root = binary::target_dir().join("test-input/python");
        let wanted = binary::workspace().join("python/tests/requirements.txt");
        let has = root.join("requirements.txt");
        let environment = Environment { root };
        if fs::read(&has).is_ok_and(|there| Some(there) == fs::read(&wanted).ok()) {
            return Ok(Some(environment));
        }
        fs::create_dir_all(&environment.root)?;
        let make = Job::new(scratch, "venv", "python3").args(["-m", "venv", "--clear"]);
        let made = make.args([&environment.root]).deadline(INSTALL_DEADLINE).run()?;
        if made.code != 0 {
            skip::note(SUITE, &format!("no environment: {}; on Debian: python3-venv", said(&made)));
            return Ok(None);
        }
        let install = environment.pip(scratch, "install").args(["--quiet", "--requirement"]);
        let installed = install.args([&wanted]).deadline(INSTALL_DEADLINE).run()?;
        let told = said(&installed);
        if installed.code != 0 && NO_INDEX.iter().any(|words| told.contains(words)) {
            skip::note(SUITE, &format!("pip cannot get what the tests use: {told}"));
            return Ok(None);
        }
        ensure!(installed.code == 0, "pip install: {told}");
        fs::copy(&wanted, &has)?;
        Ok(Some(environment))
    }

    fn program<'a>(&self, scratch: &'a Scratch, label: &str, name: &str) -> Result<Job<'a>> {
        let own = self.root.join("bin");
        let inherited = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([own.clone()].into_iter().chain(env::split_paths(&inherited)))?;
        Ok(Job::new(scratch, label, own.join(name)).env("PATH", path))
    }

    fn pip<'a>(&self, scratch: &'a Scratch, command: &str) -> Job<'a> {
        let python = Job::new(scratch, &format!("pip-{command}"), self.root.join("bin/python"));
        python.args(["-m", "pip", command, "--disable-pip-version-check"])
    }

    /// Builds the wheel, with the program under test in it.
    fn wheel(&self, scratch: &Scratch) -> Result<PathBuf> {
        let wheels = scratch.join("wheels");
        let build = self.program(scratch, "wheel", "pip")?.args(["wheel", "--no-deps"]);
        let build = build.args(["--disable-pip-version-check", "--no-build-isolation", "-w"]);
        let build = build.args([&wheels, &binary::workspace().join("python")]);
        let build = build.env("MAYFLY_PROGRAM", binary::mayfly()?);
        let build = build.env("CARGO_TARGET_DIR", binary::target_dir());
        build.deadline(BUILD_DEADLINE).run_ok()?;
        let mut made = fs::read_dir(&wheels)?;
        Ok(made.next().context("pip has made no wheel")??.path())
    }

    fn install(&self, scratch: &Scratch, wheel: &Path) -> Result<()> {
        let install = self.pip(scratch, "install").args(["--no-deps", "--force-reinstall"]);
        install.args([wheel]).deadline(INSTALL_DEADLINE).run_ok().map(drop)
    }
}

fn said(outcome: &Outcome) -> String {
    let text = [outcome.stdout.as_slice(), &outcome.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}

fn has_python(scratch: &Scratch) -> Result<bool> {
    if !skip::unless_installed(SUITE, &["python3", "cargo"], "python3 python3-venv") {
        return Ok(false);
    }
    let words = "import sys; sys.exit(sys.version_info < (3, 11))";
    let new = Job::new(scratch, "version", "python3").args(["-c", words]).run()?.code == 0;
    if !new {
        skip::note(SUITE, "python3 is older than 3.11");
    }
    Ok(new)
}

#[test]
fn the_python_package_is_built_installed_and_does_what_its_tests_say() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("py")?;
    if !has_python(&scratch)? {
        return Ok(());
    }
    let Some(environment) = Environment::ready(&scratch)? else { return Ok(()) };
    environment.install(&scratch, &environment.wheel(&scratch)?)?;
    let tests = binary::workspace().join("python/tests");
    // PyPI has no wheel of torch without the libraries of graphics processors, some gigabytes.
    let job = environment.program(&scratch, "pytest", "pytest")?.args(["-q", "-rs", "-m"]);
    let job = job.args(["not torch", "-p", "no:cacheprovider"]).args([&tests]);
    let outcome = job.deadline(TESTS_DEADLINE).run_ok()?;
    let told = String::from_utf8_lossy(&outcome.stdout).into_owned();
    ensure!(
        !told.contains("SKIPPED"),
        "a test was skipped, but all that it needs is there: {told}"
    );
    let shipped = environment.program(&scratch, "shipped", "mayfly")?.args(["--version"]);
    let version = shipped.run_ok()?.stdout;
    ensure!(version.starts_with(b"mayfly "), "the shipped program says {version:?}");
    Ok(())
}
