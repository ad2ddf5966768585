//! What a call through the mount costs, and what is left to the mount to do with it.

use std::fs;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::skip;
use mayfly_tests::mount::{Bench, server};

/// How often the thread that a process began with has gone to sleep.
fn sleeps(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/task/{process}/status"))?;
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(count.context("no count of switches")?.trim().parse()?)
}

/// The thread that waits for the end of a mount once polled the device, and the kernel woke it for
/// each request: that took longer than the request.
#[test]
fn a_call_through_the_mount_wakes_nobody_but_a_thread_that_serves() -> Result<()> {
    const CALLS: u64 = 2_000;
    let Some(bench) = Bench::new("woken")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let (name, server) = (bench.mount.join("name"), server(&bench, &bench.mount)?);
    fs::write(&name, "")?;
    let before = sleeps(server)?;
    for _ in 0..CALLS {
        fs::metadata(&name)?;
    }
    let woken = sleeps(server)? - before;
    ensure!(woken < CALLS / 20, "the waiting thread was woken {woken} times by {CALLS} calls");
    bench.finish(&instance)
}

/// The kernel leaves it to the mount, and asks for no attributes before.
#[test]
fn a_change_of_owner_or_length_takes_the_set_id_bits_away() -> Result<()> {
    const NEEDED: [&str; 1] = ["setpriv"];
    let Some(bench) = Bench::new("setid")? else { return Ok(()) };
    if !skip::unless_installed("fuse: set-id bits", &NEEDED, "util-linux") {
        return Ok(());
    }
    let instance = bench.start("both")?;
    // Root keeps them when it cuts a file, who has not its rights does not.
    let script = r#"cd "$M"; echo text > file
        if [ "$(id -u)" = 0 ]; then plain="setpriv --inh-caps=-fsetid --bounding-set=-fsetid"; fi
        mode() { stat -c %a file; }
        chmod 6755 file; chown "$(id -u):$(id -g)" file; mode
        chmod 6755 file; $plain truncate -s 2 file; mode
        chmod 4644 file; $plain sh -c ': > file'; mode
        chmod 0644 file; $plain truncate -s 0 file; mode"#;
    let modes = bench.outside(script)?;
    ensure!(modes == "755\n755\n644\n644\n", "the modes are {modes:?}");
    bench.finish(&instance)
}
