//! What tests of the mount have in common.
//!
//! A program of such a test without the variables of an instance is one that somebody started
//! elsewhere: it reaches the files through the kernel only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process, skip};

/// How long what must come may take.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Everything a test needs, if the machine can mount.
pub struct Bench {
    _turn: Turn,
    /// Its own directory.
    pub scratch: Scratch,
    before: Before,
    /// Where instances are mounted.
    pub mount: PathBuf,
}

impl Bench {
    /// `None` after saying why.
    pub fn new(name: &str) -> Result<Option<Bench>> {
        Self::in_turn(name, Turn::take)
    }

    /// The same for who makes namespaces: a copy of the mounts keeps those of other tests alive.
    pub fn alone(name: &str) -> Result<Option<Bench>> {
        Self::in_turn(name, Turn::alone)
    }

    fn in_turn(name: &str, turn: fn() -> Result<Turn>) -> Result<Option<Bench>> {
        if !skip::unless_mountable(&format!("fuse: {name}")) {
            return Ok(None);
        }
        let turn = turn()?;
        let scratch = Scratch::new(name)?;
        let mount = scratch.join("tmp/mount");
        Ok(Some(Bench { _turn: turn, scratch, before: Before::look(), mount }))
    }

    /// An instance that is mounted.
    pub fn start(&self, access: &str) -> Result<Instance<'_>> {
        self.start_with(access, &[])
    }

    /// The same with further options.
    pub fn start_with(&self, access: &str, options: &[&str]) -> Result<Instance<'_>> {
        let instance = Instance::named(&self.scratch, "fuse")?;
        let start = instance.command("start").args(["--access", access]).args(options);
        start.args(["--mount"]).args([&self.mount]).run_ok()?;
        Ok(instance)
    }

    /// A program outside, with `$M` for the mount point; its output.
    pub fn outside(&self, script: &str) -> Result<String> {
        let job = Job::new(&self.scratch, "outside", "bash").args(["-ec", script]);
        let outcome = job.env("M", self.mount.clone()).run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
    }

    /// A C program of the tests.
    pub fn compile(&self, source: &str, options: &[&str]) -> Result<PathBuf> {
        let program = self.scratch.join(source.replace('.', "-"));
        let source = binary::workspace().join("tests/apps/fuse").join(source);
        let job = Job::new(&self.scratch, "cc", "gcc").args(["-O1", "-Wall", "-o"]);
        job.args([&program, &source]).args(options).run_ok()?;
        Ok(program)
    }

    /// Ends the instance, of which nothing may be left.
    pub fn finish(&self, instance: &Instance<'_>) -> Result<()> {
        instance.expect_nothing_held(PATIENCE)?;
        instance.stop()?;
        self.expect_nothing()
    }

    /// Fails if something is left.
    pub fn expect_nothing(&self) -> Result<()> {
        self.before.expect_nothing_since(&self.scratch, &[], PATIENCE)
    }

    /// Is the instance mounted at its mount point?
    pub fn is_mounted(&self) -> bool {
        is_mounted(&self.mount)
    }
}

/// Is something mounted at `point`?
pub fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let point = point.to_string_lossy();
    table.lines().any(|line| line.split(' ').nth(1) == Some(&point))
}

/// What a preloaded shell prints in the instance.
pub fn inside(instance: &Instance<'_>, script: &str) -> Result<String> {
    let outcome = instance.shell("inside", &format!("cd \"$MAYFLY_MOUNT\"; {script}")).run_ok()?;
    Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
}

/// Waits for something that must come.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < deadline, "not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The process that serves the mount at `point`.
pub fn server(bench: &Bench, point: &Path) -> Result<u32> {
    let point = point.to_string_lossy().into_owned();
    let is_it = |process: &process::Marked| {
        process.command.contains(" __fuse ") && process.command.ends_with(&point)
    };
    let server = process::marked(bench.scratch.mark()).into_iter().find(is_it);
    Ok(server.context("nobody serves the mount")?.pid)
}
