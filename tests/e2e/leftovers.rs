//! An instance that has ended left nothing; one that idles costs nothing.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn run_leaves_no_process_memory_mount_or_directory() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("left-run")?;
    let before = Before::look();
    let script = r#"cd "$MAYFLY_MOUNT" && mkdir a && echo text > a/b && sleep 0.1 & wait; exit 5"#;
    let run =
        Job::new(&scratch, "run", binary::mayfly()?).args(["run", "--", "bash", "-c", script]);
    let outcome = run.run()?;
    ensure!(outcome.code == 5, "the command's status 5 became {}", outcome.code);
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn run_passes_a_signal_on_and_leaves_nothing() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("left-signal")?;
    let before = Before::look();
    let script = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done";
    let run =
        Job::new(&scratch, "run", binary::mayfly()?).args(["run", "--", "bash", "-c", script]);
    let running = run.start()?;
    let output = scratch.join("run.out");
    for _ in 0..500 {
        if !fs::read(&output)?.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = running.pid();
    ensure!(process::terminate(pid), "`mayfly run` ended too early");
    let outcome = running.wait()?;
    ensure!(outcome.code == 42, "the command's status 42 became {}", outcome.code);
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

/// As `scancel` and its like do.
#[test]
fn a_signal_to_every_process_of_a_job_leaves_its_command_the_file_system_until_it_ends()
-> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("left-all")?;
    let before = Before::look();
    // It gets the signal once more from `mayfly run`, which hands it on: before the trap ignores
    // it, or after. A shell whose trap ends it does not begin the trap again.
    let script = r#"cd "$MAYFLY_MOUNT"
        trap 'trap "" TERM; sleep 0.3; echo saved > last; cat last; exit' TERM
        sleep 60 & echo ready > file; cat file; wait; wait"#;
    let run =
        Job::new(&scratch, "run", binary::mayfly()?).args(["run", "--", "bash", "-c", script]);
    let running = run.start()?;
    while fs::read(scratch.join("run.out"))?.is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    for process in process::marked(scratch.mark()) {
        process::terminate(process.pid);
    }
    let outcome = running.wait()?;
    ensure!(outcome.stdout == b"ready\nsaved\n", "{}", String::from_utf8_lossy(&outcome.stdout));
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn an_instance_that_was_left_to_itself_ends_when_it_is_told_so_by_a_signal() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("left-term")?;
    let before = Before::look();
    let instance = Instance::start(&scratch, "left-term", &scratch.join("tmp/mount"))?;
    instance.shell("work", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
    for process in process::marked(scratch.mark()) {
        process::terminate(process.pid);
    }
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn start_and_stop_leave_no_process_memory_mount_or_directory() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("left-stop")?;
    let before = Before::look();
    let instance = Instance::start(&scratch, "left-stop", &scratch.join("tmp/mount"))?;
    instance
        .shell("work", r#"seq 1000 > "$MAYFLY_MOUNT/file" && wc -l < "$MAYFLY_MOUNT/file""#)
        .run_ok()?;
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn a_killed_run_leaves_nothing_once_its_command_ended() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("left-kill")?;
    let before = Before::look();
    let script = r#"echo text > "$MAYFLY_MOUNT/file"; echo ready; sleep 1"#;
    let run =
        Job::new(&scratch, "run", binary::mayfly()?).args(["run", "--", "bash", "-c", script]);
    let running = run.start()?;
    while fs::read(scratch.join("run.out"))?.is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    process::kill(running.pid());
    running.wait()?;
    before.expect_nothing_since(&scratch, &[], Duration::from_secs(15))
}

#[test]
fn an_idle_daemon_uses_no_processor_time() -> Result<()> {
    let _turn = Turn::alone()?;
    let scratch = Scratch::new("idle")?;
    let instance = Instance::start(&scratch, "idle", &scratch.join("mount"))?;
    instance.shell("work", r#"seq 1000 > "$MAYFLY_MOUNT/file""#).run_ok()?;
    let daemon = instance.daemon_pid()?;
    std::thread::sleep(Duration::from_millis(500));
    let used = || process::processor_time(daemon).context("the daemon is gone");
    let start = used()?;
    std::thread::sleep(Duration::from_secs(5));
    let spent = used()? - start;
    ensure!(spent < Duration::from_millis(20), "an idle daemon used {spent:?} in 5 s");
    instance.stop()
}
