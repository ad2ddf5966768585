//! How the way of waiting holds: metadata of one to sixteen processes, free and pinned, with and
//! without other load, beside the local file system under the same conditions.
//!
//! `cargo build --release -p mayfly-cli && TMPDIR=/dev/shm cargo run --release -p waiting`
//!
//! With a word behind it (`-- apart`) only the conditions whose name has that in it.
//!
//! Each row has an instance of its own. *Free*: everybody runs where the kernel puts them.
//! *Together*: the daemon and all processes on one processor. *Apart*: the daemon on one processor,
//! all processes on another. *Bound*: all processes on one processor, the daemon free. *Loaded*: as
//! many threads as there are processors do nothing but burn processor time meanwhile, free to run
//! anywhere.

mod load;
mod measured;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Scratch};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::load::Load;
use crate::measured::Measured;

const PROCESSES: &[usize] = &[1, 2, 4, 16];
/// Files and directories in a row are made and removed without waiting for the daemon's answers:
/// what is waited for is a place in a ring. In trees of small directories most is asked for.
const PHASES: &[&str] = &["empty/own", "dirs/shared", "tree"];
const RUNS: &str = "5";
/// Of all processes together: what is looked up in does not grow with their number. A phase takes
/// 30 ms or more, so that each of sixteen processes has several of the scheduler's slices.
const FILES: &str = "64000";
const DEADLINE: Duration = Duration::from_secs(1200);

/// Who runs where.
struct Placement {
    says: &'static str,
    daemon: Option<usize>,
    processes: Option<usize>,
}

const PLACEMENTS: &[Placement] = &[
    Placement { says: "free", daemon: None, processes: None },
    Placement { says: "together", daemon: Some(1), processes: Some(1) },
    Placement { says: "apart", daemon: Some(0), processes: Some(1) },
    Placement { says: "bound", daemon: None, processes: Some(1) },
];

fn main() -> Result<()> {
    ensure!(std::thread::available_parallelism()?.get() > 1, "one processor: nothing to choose");
    let scratch = Scratch::new("waiting")?;
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut rows = Vec::new();
    for placement in PLACEMENTS {
        for loaded in [false, true] {
            let says = format!("{}{}", placement.says, if loaded { ", loaded" } else { "" });
            if !says.contains(&wanted) {
                continue;
            }
            eprintln!("waiting: {says}");
            rows.push((says, row(&scratch, rows.len(), placement, loaded)?));
        }
    }
    print(&rows);
    Ok(())
}

/// Measures under one condition.
fn row(scratch: &Scratch, number: usize, placement: &Placement, loaded: bool) -> Result<Measured> {
    let instance = Instance::named(scratch, &format!("waiting{number}"))?;
    on(placement.daemon, || instance.command("start").run_ok())?;
    let (plain, json) = (scratch.join(format!("plain{number}")), scratch.join("figures.json"));
    std::fs::create_dir(&plain)?;
    let numbers: Vec<String> = PROCESSES.iter().map(ToString::to_string).collect();
    let phases: Vec<String> = PHASES.iter().map(|phase| format!("--phase {phase}")).collect();
    let script = format!(
        "exec '{}' bench --only instance=\"$MAYFLY_MOUNT\" --only plain='{}' --workload meta {} \
         --scaling strong --files {FILES} --runs {RUNS} --procs {} --json '{}'",
        mayfly_testkit::binary::mayfly()?.display(),
        plain.display(),
        phases.join(" "),
        numbers.join(","),
        json.display(),
    );
    let load = loaded.then(Load::start);
    let job = instance.shell("bench", &script).deadline(DEADLINE);
    on(placement.processes, || job.run_ok())?;
    drop(load);
    instance.stop()?;
    Measured::read(&json).context("what mayfly bench wrote")
}

/// Does something on one processor, or anywhere: what is started meanwhile stays there.
fn on<T>(processor: Option<usize>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None)?;
    if let Some(processor) = processor {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only)?;
    }
    let done = work();
    sched_setaffinity(None, &before)?;
    done
}

/// A table for each phase: thousand operations a second and the ratio to the local file system;
/// behind them what sixteen processes have of the best number of processes.
fn print(rows: &[(String, Measured)]) {
    let Some((_, first)) = rows.first() else { return };
    for phase in first.phases() {
        println!("\n**{phase}**\n");
        let head: String = PROCESSES.iter().map(|count| format!(" {count} |")).collect();
        println!("| |{head} 16 of the best |");
        println!("|---|{}---:|", "---:|".repeat(PROCESSES.len()));
        for (says, measured) in rows {
            let figures: Vec<_> =
                PROCESSES.iter().filter_map(|count| measured.get(phase, *count)).collect();
            let cells: String = figures
                .iter()
                .map(|figure| format!(" {:.0} ({:.2}) |", figure.rate / 1000.0, figure.ratio))
                .collect();
            let best = figures.iter().map(|figure| figure.rate).fold(0.0, f64::max);
            let most = figures.last().map_or(f64::NAN, |figure| figure.rate);
            println!("| {says} |{cells} {:.2} |", most / best);
        }
    }
}
