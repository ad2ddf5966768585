//! Threads, their children and a signal handler that use descriptors at the same time.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Job, Scratch, Turn, skip};
use mayfly_tests::program::apps_dir;

/// Steps of each thread, threads of each process, processes.
const MUCH: &str = "250 6 3";
/// What the first process says; it fails when another one has.
const WELL: &str = "1500 steps, 0 wrong\n";
const PATIENCE: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_secs(180);

fn compile(scratch: &Scratch) -> Result<PathBuf> {
    let program = scratch.join("threads");
    let job = Job::new(scratch, "cc", "gcc").args(["-O1", "-Wall", "-Werror", "-pthread", "-o"]);
    job.args([&program, &apps_dir().join("threads.c")]).run_ok()?;
    Ok(program)
}

/// Runs the program in an instance that was started with these options.
fn each_has_its_bytes(name: &str, options: &[&str], shards: &str) -> Result<()> {
    if !skip::unless_installed(name, &["gcc"], "gcc libc6-dev") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new(name)?;
    let program = compile(&scratch)?;
    let before = Before::look();
    let instance = Instance::named(&scratch, name)?;
    let start = instance.command("start").args(["--mount"]).args([scratch.join("mount")]);
    start.args(options).env("MAYFLY_SHARDS", shards).run_ok()?;
    let script = format!("cd \"$MAYFLY_MOUNT\" && exec '{}' {MUCH}", program.display());
    let outcome = instance.shell("threads", &script).deadline(DEADLINE).run_ok()?;
    let said = String::from_utf8_lossy(&outcome.stdout);
    ensure!(said == WELL, "{said}");
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn each_thread_has_its_bytes_by_every_descriptor() -> Result<()> {
    each_has_its_bytes("threads", &[], "1")
}

#[test]
fn each_thread_has_its_bytes_where_files_become_the_mounts() -> Result<()> {
    if !skip::unless_mountable("threads: mount") {
        return Ok(());
    }
    each_has_its_bytes("threads-mount", &["--access", "both"], "1")
}

#[test]
fn each_thread_has_its_bytes_with_two_shards() -> Result<()> {
    each_has_its_bytes("threads-shards", &[], "2")
}

#[test]
fn each_thread_has_its_bytes_on_two_nodes() -> Result<()> {
    each_has_its_bytes("threads-nodes", &["--nodes", "local:2"], "1")
}
