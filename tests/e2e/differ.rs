//! Random sequences of POSIX calls return the same in a mount as on the local file system.
//!
//! One instance serves all seeds of a test, each in a directory of its own. A failure names the
//! seed and the first line that differs; `differ DIRECTORY SEED STEPS [unmapped]` plays it again.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Instance, Job, Random, Scratch, Turn, binary, process, skip};

const DIFFER: &str = env!("CARGO_BIN_EXE_differ");
const STEPS: u32 = 2000;
const DEADLINE: Duration = Duration::from_secs(120);

/// The first seeds are always the same, so that a failure on one machine is one on all.
fn seeds(fixed: u64, fresh: u64, purpose: &str) -> Vec<u64> {
    let mut random = Random::for_suite(purpose);
    let more = (0..fresh).map(|_| 1_000_000 + random.below(1 << 40));
    (1..=fixed).chain(more).collect()
}

/// How a seed is played: so many steps.
fn all_calls() -> Vec<String> {
    vec![STEPS.to_string()]
}

/// The same without mappings: a file of several nodes that is mapped is the mount's from then on
/// (docs/reference/semantics.md).
fn without_mappings() -> Vec<String> {
    vec![STEPS.to_string(), "unmapped".to_owned()]
}

fn native(scratch: &Scratch, seed: u64, how: &[String]) -> Result<Vec<u8>> {
    let directory = scratch.join(format!("native{seed}"));
    fs::create_dir(&directory)?;
    let job = Job::new(scratch, "native", DIFFER).args([directory.as_os_str()]);
    let outcome = job.args([seed.to_string()]).args(how).run_ok()?;
    fs::remove_dir_all(&directory)?;
    Ok(outcome.stdout)
}

fn mounted(
    scratch: &Scratch,
    instance: &Instance<'_>,
    seed: u64,
    how: &[String],
) -> Result<Vec<u8>> {
    let how = how.join(" ");
    let script = format!(
        r#"d="$MAYFLY_MOUNT/{seed}"; mkdir "$d" && "$DIFFER" "$d" {seed} {how} && rm -r "$d""#
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
    play_as(&all_calls(), scratch, instance, seeds)
}

fn play_as(
    how: &[String],
    scratch: &Scratch,
    instance: &Instance<'_>,
    seeds: &[u64],
) -> Result<()> {
    for &seed in seeds {
        expect_same(seed, &native(scratch, seed, how)?, &mounted(scratch, instance, seed, how)?)?;
    }
    Ok(())
}

#[test]
fn random_calls_return_what_the_local_file_system_returns() -> Result<()> {
    let _turn = Turn::take()?;
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
    let _turn = Turn::take()?;
    let scratch = Scratch::new("fdiffer")?;
    let instance = Instance::named(&scratch, "fdiffer")?;
    let start = instance.command("start").args(["--access", "fuse", "--mount"]);
    start.args([scratch.join("mount")]).run_ok()?;
    play(&scratch, &instance, &seeds(8, 4, "random calls through the mount"))?;
    instance.expect_nothing_held(Duration::from_secs(10))?;
    instance.stop()
}

/// A process that plays a step when it is told to.
struct Follower {
    child: Child,
    steps: ChildStdin,
    results: BufReader<ChildStdout>,
}

impl Follower {
    fn start(
        scratch: &Scratch,
        directory: &Path,
        seed: u64,
        attach: Option<&Instance<'_>>,
    ) -> Result<Follower> {
        let mayfly = binary::mayfly()?;
        let mut command = Command::new("bash");
        // What is started after `eval` is served.
        let script = r#"test -z "$2" || eval "$("$1" env --name "$2")"; shift 2; exec "$0" "$@""#;
        let name = attach.map_or("", Instance::name);
        command.args(["-c".as_ref(), script.as_ref(), DIFFER.as_ref(), mayfly.as_os_str()]);
        command.arg(name).arg(directory).args([&seed.to_string(), "follow"]);
        command.envs(scratch.environment()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let steps = child.stdin.take().context("piped")?;
        let results = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Follower { child, steps, results })
    }

    fn step(&mut self) -> Result<String> {
        writeln!(self.steps)?;
        let mut line = String::new();
        self.results.read_line(&mut line)?;
        Ok(line)
    }

    fn end(mut self) -> Result<()> {
        drop(self.steps);
        ensure!(self.child.wait()?.success(), "a player failed");
        Ok(())
    }
}

/// Turns in random order; what each step returned. Where there is an instance, every second player
/// is preloaded.
fn play_together(scratch: &Scratch, seed: u64, on: Option<&Instance<'_>>) -> Result<Vec<String>> {
    const PLAYERS: u64 = 4;
    let directory = scratch.join("mount").join(seed.to_string());
    fs::create_dir_all(&directory)?;
    let player = |number: u64| {
        let attach = on.filter(|_| number.is_multiple_of(2));
        let seed = seed * PLAYERS + number;
        Follower::start(scratch, &directory, seed, attach).map(|one| (number, one))
    };
    let mut players: Vec<_> = (0..PLAYERS).map(player).collect::<Result<_>>()?;
    let mut turns = seed;
    let mut results = Vec::new();
    for _ in 0..STEPS {
        turns = turns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let (number, player) = &mut players[(turns >> 33) as usize % PLAYERS as usize];
        results.push(format!("{number}: {}", player.step()?));
    }
    if let Some(instance) = on {
        let sessions = instance.counts()?.sessions;
        ensure!(sessions == PLAYERS / 2, "{sessions} of {PLAYERS} players are preloaded");
    }
    players.into_iter().try_for_each(|(_, player)| player.end())?;
    Ok(results)
}

#[test]
fn preloaded_programs_and_those_of_the_mount_together_see_what_a_local_file_system_shows()
-> Result<()> {
    if !skip::unless_mountable("random calls on both ways") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("mixed")?;
    let seeds = seeds(6, 3, "random calls on both ways");
    let native = |seed: &u64| play_together(&scratch, *seed, None);
    let natively: Vec<_> = seeds.iter().map(native).collect::<Result<_>>()?;
    fs::remove_dir_all(scratch.join("mount"))?;
    let instance = Instance::named(&scratch, "mixed")?;
    let start = instance.command("start").args(["--access", "both", "--mount"]);
    start.args([scratch.join("mount")]).run_ok()?;
    for (seed, native) in seeds.iter().zip(natively) {
        let mixed = play_together(&scratch, *seed, Some(&instance))?;
        for (step, (one, two)) in native.iter().zip(&mixed).enumerate() {
            ensure!(one == two, "seed {seed}, step {step}\n  natively: {one}  mixed:    {two}");
        }
    }
    instance.expect_nothing_held(Duration::from_secs(10))?;
    instance.stop()
}

#[test]
fn random_calls_do_not_notice_that_the_daemon_is_killed_every_200_ms() -> Result<()> {
    let _turn = Turn::take()?;
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

/// Random calls on the first node of four while the daemon of one of them is killed.
fn play_beside_a_dying_node(node: usize, options: &[&str], how: &[String]) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("ndiffer")?;
    let instance = Instance::named(&scratch, "ndiffer")?;
    instance.command("start").args(["--nodes", "local:4"]).args(options).run_ok()?;
    let seeds = seeds(4, 2, "random calls beside a dying node");
    let (over, mut kills) = (AtomicBool::new(false), 0);
    let played = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(150));
                kills +=
                    instance.daemon_pid_of(node).map_or(0, |pid| u32::from(process::kill(pid)));
            }
        });
        let played = play_as(how, &scratch, &instance, &seeds);
        over.store(true, Ordering::Relaxed);
        played
    });
    eprintln!("the daemon of node {node} was killed {kills} times");
    played?;
    ensure!(kills >= 5, "only {kills} kills: too short a test");
    let run_root = scratch.join("run/mayfly");
    for name in ["ndiffer", "ndiffer@1", "ndiffer@2", "ndiffer@3"] {
        let log = fs::read_to_string(run_root.join(name).join("log"))?;
        let is_broken = |line: &&str| line.contains(" ERROR ") && line.contains(": operation:");
        let broken: Vec<&str> = log.lines().filter(is_broken).collect();
        ensure!(broken.is_empty(), "{name}: {}", broken.join("\n"));
    }
    instance.expect_nothing_held(Duration::from_secs(10))?;
    instance.stop()
}

#[test]
fn random_calls_over_nodes_do_not_notice_that_another_node_is_killed() -> Result<()> {
    play_beside_a_dying_node(1, &[], &all_calls())
}

#[test]
fn random_calls_over_nodes_do_not_notice_that_their_own_node_is_killed() -> Result<()> {
    play_beside_a_dying_node(0, &[], &all_calls())
}

#[test]
fn random_calls_on_striped_files_do_not_notice_that_a_node_is_killed() -> Result<()> {
    for node in [1, 0] {
        let options = ["--layout", "stripe", "--chunk-size", "64K"];
        play_beside_a_dying_node(node, &options, &without_mappings())?;
    }
    Ok(())
}

#[test]
fn random_calls_on_local_files_do_not_notice_that_a_node_is_killed() -> Result<()> {
    for node in [1, 0] {
        play_beside_a_dying_node(node, &["--layout", "local"], &all_calls())?;
    }
    Ok(())
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
