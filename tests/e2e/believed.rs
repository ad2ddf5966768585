//! What the kernel of a mount believes under a lease is true, whoever changes it.
//!
//! A program of the mount looks, so that its kernel believes what it sees; another process changes
//! it, and has returned; then the program looks again.

use std::fs;

use anyhow::{Result, ensure};
use mayfly_testkit::{Instance, Job, binary};
use mayfly_tests::mount::{Bench, server};

/// Runs a part of `believed.py` through the mount at `bench.mount`; the other process is in
/// `place`.
fn believes(bench: &Bench, instance: &str, mode: &str, place: &str) -> Result<()> {
    let program = binary::workspace().join("tests/apps/fuse/believed.py");
    let server = server(bench, &bench.mount)?.to_string();
    let job = Job::new(&bench.scratch, mode, "timeout").args(["-s", "KILL", "120", "python3"]);
    let job = job.args([program.as_os_str(), mode.as_ref(), binary::mayfly()?.as_os_str()]);
    let job = job.args([instance]).args([&bench.mount]).args([&server]).args([place]);
    let outcome = job.run_ok()?;
    ensure!(outcome.stdout.ends_with(b"done\n"), "it ended early");
    Ok(())
}

/// The same for a preloaded process.
fn beside_a_preloaded_process(name: &str, mode: &str) -> Result<()> {
    let Some(bench) = Bench::new(name)? else { return Ok(()) };
    let instance = bench.start("both")?;
    believes(&bench, "fuse", mode, "")?;
    bench.finish(&instance)
}

#[test]
fn what_preloaded_programs_change_in_any_way_is_seen_through_the_mount_when_they_have_returned()
-> Result<()> {
    beside_a_preloaded_process("believed", "changes")
}

#[test]
fn a_directory_that_is_moved_or_removed_leads_nowhere_through_the_mount() -> Result<()> {
    beside_a_preloaded_process("believedways", "directories")
}

#[test]
fn what_is_made_and_removed_without_asking_is_seen_through_the_mount_at_once() -> Result<()> {
    beside_a_preloaded_process("believedsub", "submitted")
}

#[test]
fn while_nothing_changes_the_kernel_answers_by_itself() -> Result<()> {
    beside_a_preloaded_process("believedasks", "asks")
}

#[test]
fn nothing_old_is_seen_through_a_mount_whose_process_stands_still_and_goes_on() -> Result<()> {
    beside_a_preloaded_process("believedstop", "stopped")
}

#[test]
fn what_is_changed_through_one_mount_is_seen_through_another_at_once() -> Result<()> {
    let Some(bench) = Bench::new("believed2")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let point = bench.scratch.join("point");
    fs::create_dir(&point)?;
    instance.command("mount").args([&point]).run_ok()?;
    for mode in ["changes", "directories"] {
        let made = bench.mount.join(mode);
        fs::create_dir(&made)?;
        believes(&bench, "fuse", mode, &point.to_string_lossy())?;
        bench.outside("rm -rf $M/*")?;
    }
    bench.finish(&instance)
}

#[test]
fn what_programs_of_another_node_change_is_seen_through_the_mount_at_once() -> Result<()> {
    let Some(mut bench) = Bench::new("believednodes")? else { return Ok(()) };
    let instance = Instance::named(&bench.scratch, "believednodes")?;
    instance.command("start").args(["--nodes", "local:2"]).run_ok()?;
    let point = bench.scratch.join("point");
    fs::create_dir(&point)?;
    instance.command("mount").args(["--node", "0"]).args([&point]).run_ok()?;
    bench.mount = point;
    for mode in ["changes", "directories"] {
        believes(&bench, "believednodes", mode, "1")?;
        bench.outside("rm -rf $M/*")?;
    }
    instance.stop()?;
    bench.expect_nothing()
}
