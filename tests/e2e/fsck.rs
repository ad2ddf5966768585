//! `mayfly fsck`: nothing is left of clients and daemons that were killed, and what is wrong is
//! found, named and, if it is an object of nobody, removed.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Outcome, Random, Scratch, Turn, process};
use rustix::process::Signal;
use serde_json::Value;

/// How long daemons that come back may take to take up what they left, and to hear whose processes
/// are gone.
const PATIENCE: Duration = Duration::from_secs(30);

fn fsck(instance: &Instance<'_>, options: &[&str]) -> Result<(Value, Outcome)> {
    let outcome = instance.command("fsck").args(["--json"]).args(options).run()?;
    let told = serde_json::from_slice(&outcome.stdout);
    let text = || String::from_utf8_lossy(&outcome.stderr).into_owned();
    Ok((told.with_context(text)?, outcome))
}

fn expect_nothing_wrong(instance: &Instance<'_>) -> Result<Value> {
    let (told, outcome) = fsck(instance, &[])?;
    ensure!(outcome.code == 0, "{told:#}");
    Ok(told)
}

/// Nothing is wrong, and of none of these kinds something is left.
fn wait_until_none(instance: &Instance<'_>, kinds: &[&str]) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (told, outcome) = fsck(instance, &[])?;
        let is_left = |kind: &&str| number(&told, &format!("/looked_at/{kind}")) > 0;
        if outcome.code == 0 && !kinds.iter().any(is_left) {
            return Ok(told);
        }
        ensure!(Instant::now() < deadline, "not gone after {PATIENCE:?}: {kinds:?} of {told:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn number(told: &Value, path: &str) -> u64 {
    told.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// Makes, renames, links, removes, writes small, large and striped files, for ever.
const MIX: &str = r#"
import os, random, sys
os.chdir(os.environ["MAYFLY_MOUNT"])
dice = random.Random(int(sys.argv[1]))
for name in "abc":
    os.makedirs(name, exist_ok=True)
def path():
    return dice.choice("abc") + "/" + str(dice.randrange(40))
def write(mode):
    with open(path(), mode) as file:
        for _ in range(dice.randrange(4)):
            file.write(os.urandom(dice.choice([10, 3000, 9000, 300000])))
def hold():
    file = open(path(), "ab")
    os.remove(file.name)
    file.write(bytes(200000))
    kept.append(file)
    del kept[:-3]
kept = []
acts = [
    lambda: write("wb"), lambda: write("ab"), lambda: write("r+b"), hold,
    *[lambda: os.remove(path())] * 2,
    lambda: os.rename(path(), path()), lambda: os.link(path(), path()),
    *[lambda: os.truncate(path(), dice.choice([0, 100, 5000, 430000, 700000, 5000000]))] * 6,
    lambda: os.mkdir(path() + "d"), lambda: os.rmdir(path() + "d"),
    lambda: os.rename(path() + "d", path() + "d"), lambda: os.symlink("x", path()),
    lambda: os.listdir(dice.choice("abc")),
]
print("ready", flush=True)
while True:
    try:
        dice.choice(acts)()
    except OSError:
        pass
"#;

const NODES: usize = 4;

fn start<'a>(scratch: &'a Scratch, name: &str, options: &[&str]) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    instance.command("start").args(options).run_ok()?;
    Ok(instance)
}

/// Kills daemons until it is over; returns how many.
fn kill_daemons(instance: &Instance<'_>, random: &mut Random, over: &AtomicBool) -> u32 {
    let mut kills = 0;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(random.pause(200, 1200));
        let node = random.below(NODES as u64) as usize;
        let Ok(pid) = instance.daemon_pid_of(node) else { continue };
        kills += u32::from(process::kill(pid));
    }
    kills
}

/// One program on each node.
fn start_programs(scratch: &Scratch, instance: &Instance<'_>, random: &mut Random) -> Result<()> {
    let script = scratch.join("mix.py");
    fs::write(&script, MIX)?;
    for node in 0..NODES {
        let seed = random.below(1 << 30).to_string();
        let label = format!("{}-{seed}-{node}", instance.name());
        let command = r#"exec python3 "$MIX" "$SEED""#;
        let job = instance.shell(&label, command).env("MAYFLY_NODE", node.to_string());
        // They are ended by their mark.
        drop(job.env("MIX", &script).env("SEED", seed).start()?);
    }
    Ok(())
}

fn kill_programs(scratch: &Scratch) {
    for client in process::marked(scratch.mark()) {
        if client.command.contains("mix.py") {
            process::kill(client.pid);
        }
    }
}

/// Programs on all nodes work for a while, are killed, and others come.
fn work(scratch: &Scratch, instance: &Instance<'_>, random: &mut Random) -> Result<()> {
    for _ in 0..4 {
        start_programs(scratch, instance, random)?;
        std::thread::sleep(random.pause(1500, 2500));
        kill_programs(scratch);
    }
    Ok(())
}

fn kills_leave_nothing(name: &str, options: &[&str]) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new(name)?;
    let mut random = Random::for_suite(name);
    let instance = start(&scratch, name, options)?;
    let over = AtomicBool::new(false);
    let mut beside = Random::for_suite("daemons beside");
    let kills = std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_daemons(&instance, &mut beside, &over));
        let worked = work(&scratch, &instance, &mut random);
        over.store(true, Ordering::Relaxed);
        let kills = killer.join().expect("the killer ends by itself");
        worked.map(|()| kills)
    })?;
    ensure!(kills >= 3, "only {kills} daemons were killed");
    let told = wait_until_none(&instance, &["descriptions"])?;
    ensure!(number(&told, "/looked_at/names") > 10, "{told:#}");
    instance.shell("rm", r#"cd "$MAYFLY_MOUNT" && rm -rf a b c"#).run_ok()?;
    wait_until_none(&instance, &["names", "files", "objects", "parts", "operations"])?;
    instance.stop()
}

#[test]
fn kills_leave_nothing_that_does_not_fit() -> Result<()> {
    kills_leave_nothing("fsck", &["--nodes", "local:4"])
}

#[test]
fn kills_leave_nothing_that_does_not_fit_of_striped_files() -> Result<()> {
    let options = ["--nodes", "local:4", "--layout", "stripe", "--chunk-size", "64K"];
    kills_leave_nothing("fsck-striped", &options)
}

#[test]
fn an_instance_at_work_is_not_called_wrong() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("fsck-busy")?;
    let mut random = Random::for_suite("fsck of a busy instance");
    let options = ["--nodes", "local:4", "--layout", "stripe", "--chunk-size", "64K"];
    let instance = start(&scratch, "busy", &options)?;
    start_programs(&scratch, &instance, &mut random)?;
    let (mut looks, mut times) = (0, 0);
    // Until something was in flux, which a second look has seen come to rest.
    while times < 6 || looks == times && times < 60 {
        std::thread::sleep(random.pause(300, 900));
        looks += number(&expect_nothing_wrong(&instance)?, "/looks");
        times += 1;
    }
    ensure!(looks > times, "nothing was ever in flux: the test shows nothing");
    kill_programs(&scratch);
    instance.stop()
}

/// The object directory of a node.
fn objects_of(instance: &Instance<'_>, node: usize) -> Result<PathBuf> {
    let status = instance.status()?;
    let directory = status.pointer(&format!("/nodes/{node}/object_dir")).and_then(Value::as_str);
    Ok(PathBuf::from(directory.with_context(|| format!("{status:#}"))?))
}

#[test]
fn an_object_of_nobody_is_found_named_and_removed() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("fsck-stray")?;
    let instance = start(&scratch, "stray", &["--nodes", "local:3"])?;
    let script =
        r#"cd "$MAYFLY_MOUNT" && for n in 1 2 3 4 5 6; do head -c 100000 /dev/zero > $n; done"#;
    instance.shell("fill", script).run_ok()?;
    expect_nothing_wrong(&instance)?;
    let place = objects_of(&instance, 2)?.join("42");
    fs::create_dir_all(&place)?;
    let stray = place.join("0000000000001142.7");
    fs::write(&stray, b"of nobody")?;
    let (told, outcome) = fsck(&instance, &[])?;
    ensure!(outcome.code == 1 && number(&told, "/wrong/object") == 1, "{told:#}");
    let what = told.pointer("/found/0/what").and_then(Value::as_str).unwrap_or_default();
    ensure!(what.contains("node 2") && what.contains("42/0000000000001142.7"), "{what}");
    ensure!(stray.exists(), "looking changes nothing");
    let (told, outcome) = fsck(&instance, &["--repair"])?;
    ensure!(outcome.code == 0, "{told:#}");
    let removed = told.pointer("/removed/0/object").and_then(Value::as_str);
    ensure!(removed == Some("42/0000000000001142.7") && !stray.exists(), "{told:#}");
    let table = instance.command("fsck").run_ok()?;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    ensure!(table.contains("3 nodes") && table.contains("nothing is wrong"), "{table}");
    let kept = instance.shell("sum", r#"cd "$MAYFLY_MOUNT" && cat ? | wc -c"#).run_ok()?;
    ensure!(kept.stdout.trim_ascii() == b"600000", "{kept:?}");
    instance.stop()
}

#[test]
fn what_cannot_be_looked_at_is_told_apart_from_what_is_wrong() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("fsck-unseen")?;
    let instance = start(&scratch, "unseen", &["--nodes", "local:2", "--deadline", "2"])?;
    let stopped = instance.daemon_pid_of(1)?;
    ensure!(process::signal(stopped, Signal::STOP));
    let outcome = instance.command("fsck").run()?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code == 2 && error.contains("node 1"), "{} {error}", outcome.code);
    ensure!(process::signal(stopped, Signal::CONT));
    expect_nothing_wrong(&instance)?;
    instance.stop()?;
    let outcome = instance.command("fsck").run()?;
    ensure!(outcome.code == 2, "there is no instance any more: {}", outcome.code);
    Ok(())
}
