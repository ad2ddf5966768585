//! Random sequences of POSIX calls return the same in a mount as on the local file system.
//!
//! One instance serves all seeds of a test, each in a directory of its own. A failure names the
//! seed and the first line that differs; `differ DIRECTORY SEED STEPS` plays it again.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use mayfly_testkit::{Exclusive, Instance, Job, Random, Scratch, process, skip};

const DIFFER: &str = env!("CARGO_BIN_EXE_differ");
const STEPS: u32 = 2000;
const DEADLINE: Duration = Duration::from_secs(120);

/// The first seeds are always the same, so that a failure on one machine is one on all.
fn seeds(fixed: u64, fresh: u64, purpose: &str) -> Vec<u64> {
    let mut random = Random::for_suite(purpose);
    let more = (0..fresh).map(|_| 1_000_000 + random.below(1 << 40));
    (1..=fixed).chain(more).collect()
}

fn native(scratch: &Scratch, seed: u64) -> Result<Vec<u8>> {
    let directory = scratch.join(format!("native{seed}"));
    fs::create_dir(&directory)?;
    let job = Job::new(scratch, "native", DIFFER).args([directory.as_os_str()]);
    let outcome = job.args([seed.to_string(), STEPS.to_string()]).run_ok()?;
    fs::remove_dir_all(&directory)?;
    Ok(outcome.stdout)
}

fn mounted(scratch: &Scratch, instance: &Instance<'_>, seed: u64) -> Result<Vec<u8>> {
    let script = format!(
        r#"d="$MAYFLY_MOUNT/{seed}"; mkdir "$d" && "$DIFFER" "$d" {seed} {STEPS} && rm -r "$d""#
    );
    let outcome =
        instance.shell("mounted", &script).env("DIFFER", DIFFER).deadline(DEADLINE).run()?;
    if outcome.code != 0 {
        let last = outcome.stdout.split(|byte| *byte == b'\n').rev().nth(1).unwrap_or_default();
        bail!(
            "seed {seed}: exit status {} after {}\n{}{}",
            outcome.code,
            String::from_utf8_lossy(last),
            String::from_utf8_lossy(&outcome.stderr),
            mayfly_testkit::job::tail(scratch, "mounted")
        );
    }
    Ok(outcome.stdout)
}

fn expect_same(seed: u64, native: &[u8], mounted: &[u8]) -> Result<()> {
    let (here, there) = (String::from_utf8_lossy(native), String::from_utf8_lossy(mounted));
    for (one, two) in here.lines().zip(there.lines()) {
        ensure!(one == two, "seed {seed}\n  natively:     {one}\n  in the mount: {two}");
    }
    ensure!(here.len() == there.len(), "seed {seed}: one output is longer");
    ensure!(here.lines().count() > STEPS as usize / 2, "seed {seed}: played too little");
    Ok(())
}

fn play(scratch: &Scratch, instance: &Instance<'_>, seeds: &[u64]) -> Result<()> {
    for &seed in seeds {
        expect_same(seed, &native(scratch, seed)?, &mounted(scratch, instance, seed)?)?;
    }
    Ok(())
}

#[test]
fn random_calls_return_what_the_local_file_system_returns() -> Result<()> {
    let _turn = Exclusive::take()?;
    let scratch = Scratch::new("differ")?;
    let instance = Instance::start(&scratch, "differ", &scratch.join("mount"))?;
    play(&scratch, &instance, &seeds(30, 10, "random calls"))?;
    instance.expect_nothing_held(Duration::from_secs(10))?;
    instance.stop()
}

#[test]
fn random_calls_through_the_mount_return_what_the_local_file_system_returns() -> Result<()> {
    if !skip::unless_mountable("random calls through the mount") {
        return Ok(());
    }
    let _turn = Exclusive::take()?;
    let scratch = Scratch::new("fdiffer")?;
    let instance = Instance::named(&scratch, "fdiffer")?;
    let start = instance.command("start").args(["--access", "fuse", "--mount"]);
    start.args([scratch.join("mount")]).run_ok()?;
    play(&scratch, &instance, &seeds(8, 4, "random calls through the mount"))?;
    instance.expect_nothing_held(Duration::from_secs(10))?;
    instance.stop()
}

#[test]
fn random_calls_do_not_notice_that_the_daemon_is_killed_every_200_ms() -> Result<()> {
    let _turn = Exclusive::take()?;
    let scratch = Scratch::new("kdiffer")?;
    let instance = Instance::start(&scratch, "kdiffer", &scratch.join("mount"))?;
    let seeds = seeds(12, 4, "random calls beside a dying daemon");
    let (over, mut kills) = (AtomicBool::new(false), 0);
    let played = std::thread::scope(|scope| {
        scope.spawn(|| kills = kill_every_200_ms(&scratch, &over));
        let played = play(&scratch, &instance, &seeds);
        over.store(true, Ordering::Relaxed);
        played
    });
    eprintln!("the daemon was killed {kills} times");
    played?;
    ensure!(kills >= 5, "only {kills} kills: too short a test");
    instance.expect_nothing_held(Duration::from_secs(10))?;
    instance.stop()
}

/// Finds the daemon by its command line: `status` would ask the daemon, and wait for it.
fn kill_every_200_ms(scratch: &Scratch, over: &AtomicBool) -> u32 {
    let mut kills = 0;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(200));
        let marked = process::marked(scratch.mark());
        let daemons = marked.iter().filter(|process| {
            let ours = process.executable.as_deref().and_then(Path::file_name);
            ours.is_some() && process.command.contains(" __daemon ")
        });
        kills += daemons.map(|daemon| u32::from(process::kill(daemon.pid))).sum::<u32>();
    }
    kills
}
