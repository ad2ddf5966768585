//! `--durability none`: nothing outlives the daemon, and nobody is left waiting for it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process};

const PATIENCE: Duration = Duration::from_secs(20);

/// Works, waits for the daemon's death, then shows what calls get: on a new path, on an open file
/// with an object, on a path that was there, and in a wait for a lock that began before.
const OUTLIVE: &str = r#"
cd "$MAYFLY_MOUNT" && seq 1000 > small && dd if=/dev/zero of=big bs=1M count=4 2> /dev/null
exec 5<> big 6< small
flock -x 5
flock -x small sleep 60 & exec 7< small
sleep 0.3
flock -x small true 2> "$FLAG.lock" & waiter=$!
sleep 0.3
echo ready > "$FLAG.ready"
while [ ! -e "$FLAG.died" ]; do sleep 0.05; done
SECONDS=0
{ echo > "$MAYFLY_MOUNT/new"; } 2> "$FLAG.1"
{ echo text >&5; } 2> "$FLAG.2"
{ read -r line < "$MAYFLY_MOUNT/small"; } 2> "$FLAG.3"
for at in 1 2 3; do
    [[ "$(< "$FLAG.$at")" == *"Input/output error"* ]] && echo "$at: EIO"
done
wait $waiter; echo "waiter failed: $(($? != 0))"
[ $SECONDS -lt 3 ] && echo quickly
exit 7
"#;
const WHAT_EACH_GETS: &str = "\
1: EIO
2: EIO
3: EIO
waiter failed: 1
quickly";

#[test]
fn a_lost_instance_fails_every_call_at_once_and_says_so() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("volatile")?;
    let before = Before::look();
    let flag = scratch.join("flag");
    let arguments = ["run", "--name", "volatile", "--durability", "none", "--", "bash", "-c"];
    let run = Job::new(&scratch, "run", binary::mayfly()?).args(arguments).args([OUTLIVE]);
    let running = run.env("FLAG", &flag).start()?;
    let deadline = Instant::now() + PATIENCE;
    while !flag.with_extension("ready").exists() {
        ensure!(Instant::now() < deadline, "the command does not get ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    let instance = Instance::named(&scratch, "volatile")?;
    ensure!(process::kill(instance.daemon_pid()?), "the daemon is gone");
    let status = lost_status(&instance)?;
    ensure!(status.contains("is lost"), "status does not say it: {status}");
    fs::write(flag.with_extension("died"), "")?;
    let outcome = running.wait()?;
    let (found, error) = (text(&outcome.stdout), text(&outcome.stderr));
    ensure!(found == WHAT_EACH_GETS, "{found}\n{error}");
    ensure!(outcome.code == 7, "the command's status 7 became {}", outcome.code);
    ensure!(error.contains("was lost before its end"), "run does not say it: {error}");
    process::end_marked(scratch.mark(), PATIENCE);
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// What `status` complains of, once it has noticed.
fn lost_status(instance: &Instance<'_>) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let outcome = instance.command("status").args(["--json"]).run()?;
        let state = Instance::read_status(&outcome).ok().and_then(|s| s.get("state").cloned());
        if state == Some("lost".into()) {
            ensure!(outcome.code == 1, "status ended with {}", outcome.code);
            return Ok(text(&outcome.stderr));
        }
        ensure!(Instant::now() < deadline, "the state is still {state:?}");
    }
}

#[test]
fn a_lost_instance_saves_nothing_and_can_be_stopped() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("volatile-stop")?;
    let before = Before::look();
    let instance = Instance::named(&scratch, "lost")?;
    instance.command("start").args(["--durability", "none"]).run_ok()?;
    instance.shell("write", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
    ensure!(process::kill(instance.daemon_pid()?), "the daemon is gone");
    lost_status(&instance)?;
    let stop = instance.command("stop").run_ok()?;
    ensure!(text(&stop.stderr).contains("was lost"), "{}", text(&stop.stderr));
    // The command ends when it is known that nothing is left to be saved.
    let kill = r#"kill -9 $(pgrep -f "__daemon $MAYFLY_RUN")
        until "$MAYFLY" status --name saving --json | grep -q '"lost"'; do sleep 0.05; done"#;
    let target = scratch.join("saved");
    let target = target.to_str().context("a path of this suite is text")?;
    let arguments = ["run", "--name", "saving", "--durability", "none", "--save", target];
    let job = Job::new(&scratch, "save", binary::mayfly()?).args(arguments);
    let job = job.args(["--", "bash", "-c", kill]).env("MAYFLY", binary::mayfly()?);
    let outcome = job.run()?;
    let error = text(&outcome.stderr);
    ensure!(outcome.code == 1 && error.contains("nothing is saved"), "{}: {error}", outcome.code);
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}
