//! Threads, their children and a signal handler that use descriptors at the same time; and the
//! threads of a daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
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

/// How often the threads of a process with such names went to sleep.
fn sleeps(pid: u32, name: &str) -> Result<u64> {
    let mut sleeps = 0;
    for task in fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.starts_with(name) {
            let status = fs::read_to_string(task.join("status"))?;
            let mut lines = status.lines();
            let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sleeps += count.context("no count of switches")?.trim().parse::<u64>()?;
        }
    }
    Ok(sleeps)
}

/// To wake it took 180 µs where two processors had other work, twelve times as long as the rest.
#[test]
fn who_asks_alone_wakes_no_thread_of_another_shard() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("shard-alone")?;
    let instance = Instance::named(&scratch, "shard-alone")?;
    let start = instance.command("start").args(["--mount"]).args([scratch.join("mount")]);
    start.args(["--names", "spread", "--access", "preload"]).env("MAYFLY_SHARDS", "3").run_ok()?;
    let pid = instance.daemon_pid()?;
    let before = sleeps(pid, "shard-")?;
    let script =
        "cd \"$MAYFLY_MOUNT\" && mkdir a && seq -f a/%g 2000 | xargs touch && ls -l a | wc -l";
    let outcome = instance.shell("names", script).deadline(DEADLINE).run_ok()?;
    ensure!(outcome.stdout == b"2001\n", "{}", String::from_utf8_lossy(&outcome.stdout));
    let slept = sleeps(pid, "shard-")? - before;
    ensure!(slept < 1000, "{slept} sleeps for 2000 files");
    instance.stop()
}
