//! A daemon that is stopped keeps nobody but those who need it waiting.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Scratch, Turn, process};
use rustix::process::Signal;

/// More than the channel between supervisor and daemon holds.
const CROWD: u64 = 400;
/// How long `status` may take while the daemon is stopped. It needs milliseconds, and gets the
/// processor late while a crowd starts; one that waited for the daemon would wait for ever.
const STATUS_MAX: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(40);

/// Processes that attach, wait for the daemon, and are killed while they wait, when that is told.
const ATTACH_AND_DIE: &str = r#"
for i in $(seq "$CROWD"); do cat "$MAYFLY_MOUNT/file" & done
while [ ! -e "$TOLD" ]; do sleep 0.05; done
kill -9 $(jobs -p)
wait 2> /dev/null
true
"#;

fn start<'a>(scratch: &'a Scratch, name: &str) -> Result<(Instance<'a>, u32)> {
    let instance = Instance::start(scratch, name, &scratch.join("tmp/mount"))?;
    instance.shell("write", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
    let daemon = instance.daemon_pid()?;
    Ok((instance, daemon))
}

/// `status` answers quickly, says what is the matter, and fails; how many are attached.
fn expect_status_says_stopped(instance: &Instance<'_>, daemon: u32) -> Result<u64> {
    let start = Instant::now();
    let outcome = instance.command("status").args(["--json"]).run()?;
    ensure!(start.elapsed() < STATUS_MAX, "status took {:?}", start.elapsed());
    let error = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.code == 1, "status ended with {}", outcome.code);
    for word in ["does not answer", "is stopped", &format!("kill -CONT {daemon}")] {
        ensure!(error.contains(word), "status says nothing of {word:?}: {error}");
    }
    let json = Instance::read_status(&outcome)?;
    ensure!(json.get("state") == Some(&"stopped".into()), "the state is {:?}", json.get("state"));
    json.get("sessions").and_then(serde_json::Value::as_u64).context("no number of sessions")
}

/// Lets the crowd attach to a stopped daemon and die, and looks at `status` meanwhile and after.
fn crowd(scratch: &Scratch, instance: &Instance<'_>, daemon: u32) -> Result<()> {
    let told = scratch.join("told");
    let crowd = instance.shell("crowd", ATTACH_AND_DIE).env("CROWD", CROWD.to_string());
    let crowd = crowd.env("TOLD", &told).deadline(3 * PATIENCE).start()?;
    let deadline = Instant::now() + PATIENCE;
    let mut most = 0;
    while most < CROWD && Instant::now() < deadline {
        most = most.max(expect_status_says_stopped(instance, daemon)?);
    }
    fs::write(&told, "")?;
    let outcome = crowd.wait()?;
    fs::remove_file(&told)?;
    ensure!(outcome.code == 0, "the crowd ended with {}", outcome.code);
    ensure!(most >= CROWD, "only {most} processes were attached at a time");
    let deadline = Instant::now() + PATIENCE;
    while expect_status_says_stopped(instance, daemon)? > 0 {
        ensure!(Instant::now() < deadline, "dead processes count as attached");
    }
    Ok(())
}

fn expect_served(instance: &Instance<'_>) -> Result<()> {
    let read = instance.shell("read", r#"cat "$MAYFLY_MOUNT/file""#).run_ok()?;
    ensure!(read.stdout == b"text\n", "the file reads {:?}", read.stdout);
    instance.expect_nothing_held(PATIENCE)
}

#[test]
fn a_stopped_daemon_keeps_the_supervisor_from_nothing() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stopped")?;
    let before = Before::look();
    let (instance, daemon) = start(&scratch, "stopped")?;
    for _ in 0..2 {
        ensure!(process::signal(daemon, Signal::STOP), "the daemon is gone");
        crowd(&scratch, &instance, daemon)?;
        ensure!(process::signal(daemon, Signal::CONT), "the daemon is gone");
        expect_served(&instance)?;
        ensure!(instance.daemon_pid()? == daemon, "the daemon was replaced");
    }
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn a_daemon_killed_while_stopped_is_replaced() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stopped-kill")?;
    let (instance, daemon) = start(&scratch, "stopped-kill")?;
    ensure!(process::signal(daemon, Signal::STOP), "the daemon is gone");
    crowd(&scratch, &instance, daemon)?;
    ensure!(process::kill(daemon), "the daemon is gone");
    expect_served(&instance)?;
    instance.stop()
}

#[test]
fn an_instance_with_a_stopped_daemon_can_be_ended() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stopped-end")?;
    let before = Before::look();
    let (instance, daemon) = start(&scratch, "stopped-end")?;
    ensure!(process::signal(daemon, Signal::STOP), "the daemon is gone");
    crowd(&scratch, &instance, daemon)?;
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}
