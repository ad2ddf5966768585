//! What several processes do at the same time to few names, registers, a log and a lock is as if
//! they had done it one after the other, in an order that fits what each of them saw.
//!
//! The processes are real ones and note the times of their calls; `histories` looks for the order.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use histories::{Action, Event, State, check};
use mayfly_testkit::{Instance, Job, Random, Scratch, Turn, skip};

const RECORDER: &str = env!("CARGO_BIN_EXE_recorder");
const PROCESSES: usize = 4;
const OPERATIONS: u64 = 600;
/// Histories of one instance.
const ROUNDS: u64 = 2;
/// Rounds that are recorded, at most, to have so many in which enough happened at the same time.
const ATTEMPTS: u64 = 20;

/// How a rename is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moves {
    /// At one moment.
    AtOnce,
    /// For a moment under both names: where they belong to two shards.
    InHalves,
    /// At one moment; but the processes outside the library ask a kernel, which looks first.
    ByKernels,
}

/// Where a process does its part.
type Place<'p> = &'p dyn Fn(usize, &str) -> Result<Job<'p>>;

/// The events of one round, by their objects.
fn record(round: u64, seed: u64, place: Place<'_>) -> Result<BTreeMap<String, Vec<Event>>> {
    let process = |process: usize| {
        let numbers = format!("{} {PROCESSES} {OPERATIONS} {seed}", process + 1);
        place(process, &format!(r#"exec "$RECORDER" "$D/{round}" {numbers}"#))?.start()
    };
    place(0, &format!(r#"mkdir "$D/{round}""#))?.run_ok()?;
    let running = (0..PROCESSES).map(process).collect::<Result<Vec<_>>>()?;
    let mut events: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    for one in running {
        let outcome = one.wait()?;
        let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
        ensure!(outcome.code == 0, "seed {seed}: a process failed: {error}");
        for line in String::from_utf8_lossy(&outcome.stdout).lines() {
            let (object, event) = Event::parse(line).with_context(|| format!("`{line}`"))?;
            events.entry(object).or_default().push(event);
        }
    }
    Ok(events)
}

/// Records histories and looks for their orders. They must have been at the same time, or they say
/// nothing.
fn expect_linearizable(moves: Moves, place: Place<'_>) -> Result<()> {
    let mut random = Random::for_suite("histories");
    let mut rounds = 0;
    for attempt in 0..ATTEMPTS {
        let seed = random.below(1 << 40);
        let events = record(attempt, seed, place)?;
        ensure!(events.len() == 5, "objects: {:?}", events.keys());
        let overlaps: usize = events.values().map(|events| overlapping(events)).sum();
        rounds += u64::from(overlaps > 100);
        for (object, mut events) in events {
            match moves {
                Moves::AtOnce => {}
                Moves::InHalves => {
                    events = events.into_iter().flat_map(Event::in_halves).collect();
                }
                Moves::ByKernels => {
                    events = events.into_iter().flat_map(seen_by_its_process).collect();
                }
            }
            let first = State::first(&object).with_context(|| format!("an object {object}"))?;
            if let Err(why) = check(first, &events) {
                anyhow::bail!("{object}, seed {seed}: {why}");
            }
        }
        if rounds == ROUNDS {
            return Ok(());
        }
    }
    anyhow::bail!("in {ATTEMPTS} rounds hardly anything was at the same time")
}

/// The processes that are in the mount, without the library, where there is one.
fn in_the_mount(process: usize) -> bool {
    process % 2 == 1
}

/// A move of a process in the mount is what a kernel makes of it.
fn seen_by_its_process(event: Event) -> Vec<Event> {
    match event.action {
        Action::Rename(number, ..) if in_the_mount(number as usize - 1) => event.by_a_kernel(),
        _ => vec![event],
    }
}

/// How many events were called before an earlier one had returned.
fn overlapping(events: &[Event]) -> usize {
    let mut times: Vec<_> = events.iter().map(|event| (event.called, event.returned)).collect();
    times.sort_unstable();
    let mut last = 0;
    let overlaps = times.iter().filter(|(called, returned)| {
        let overlaps = *called < last;
        last = last.max(*returned);
        overlaps
    });
    overlaps.count()
}

/// On an instance started with these options; the processes whose numbers `outside` picks are in
/// the mount, without the library.
fn on_instance(options: &[&str], moves: Moves, outside: fn(usize) -> bool) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("hist")?;
    let mount = scratch.join("mount");
    let instance = Instance::named(&scratch, "hist")?;
    let start = instance.command("start").args(options).args(["--mount"]);
    start.args([mount.as_os_str()]).run_ok()?;
    let place = |process: usize, script: &str| {
        let label = format!("process-{process}");
        let job = if outside(process) {
            Job::new(&scratch, &label, "bash").args(["-c", &format!("D=\"$MOUNT\"; {script}")])
        } else {
            instance.shell(&label, &format!("D=\"$MAYFLY_MOUNT\"; {script}"))
        };
        // One node for each, where there are several.
        let job = job.env("MAYFLY_NODE", process.to_string()).env("MOUNT", mount.clone());
        Ok(job.env("RECORDER", RECORDER))
    };
    expect_linearizable(moves, &place)?;
    instance.stop()
}

/// Shows that the recorder, and the orders that the checker finds, fit a local file system.
#[test]
fn what_processes_do_at_the_same_time_on_a_local_disk_is_linearizable() -> Result<()> {
    let scratch = Scratch::new("hist")?;
    let place = |process: usize, script: &str| {
        let job = Job::new(&scratch, &format!("process-{process}"), "bash").args(["-c", script]);
        Ok(job.env("D", scratch.join("tmp")).env("RECORDER", RECORDER))
    };
    expect_linearizable(Moves::AtOnce, &place)
}

#[test]
fn what_processes_do_at_the_same_time_is_linearizable() -> Result<()> {
    on_instance(&[], Moves::AtOnce, |_| false)
}

#[test]
fn what_processes_do_at_the_same_time_on_three_shards_is_linearizable() -> Result<()> {
    on_instance(&["--shards", "3"], Moves::InHalves, |_| false)
}

#[test]
fn what_processes_of_four_nodes_do_at_the_same_time_is_linearizable() -> Result<()> {
    on_instance(&["--nodes", "local:4"], Moves::InHalves, |_| false)
}

/// The process of one node uses the chunk that they all use by itself, the others by requests.
#[test]
fn what_processes_of_four_nodes_do_to_a_striped_file_is_linearizable() -> Result<()> {
    let options = ["--nodes", "local:4", "--layout", "stripe", "--chunk-size", "64K"];
    on_instance(&options, Moves::InHalves, |_| false)
}

#[test]
fn what_preloaded_processes_and_those_of_the_mount_do_at_the_same_time_is_linearizable()
-> Result<()> {
    if !skip::unless_mountable("histories on both ways") {
        return Ok(());
    }
    on_instance(&["--access", "both"], Moves::ByKernels, in_the_mount)
}
