//! `cargo run --release -p micro -- instructions`: instructions of each part, counted by valgrind.
//! `cargo run --release -p micro -- round-trips`: nanoseconds of round trips between two threads.
//!
//! **Round trips** are timed in short stretches; the fastest tells what one costs while both
//! threads have a processor, the median what became of that on this machine.
//!
//! **Instructions.** A part is run twice with different counts, and the difference of the
//! instructions divided by that of the counts: what the start of a process costs falls out. The
//! figures are the same on a busy machine, so a regression shows; instructions of the kernel
//! are not among them.

use std::{process::Command, time::Instant};

use anyhow::{Context, Result, bail};
use micro::{lanes::RoundTrip, parts};

const FEW: u64 = 1_000;
const MANY: u64 = 11_000;
/// Round trips of a stretch.
const STRETCH: u128 = 500;
const STRETCHES: usize = 1_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["instructions"] => instructions(),
        ["round-trips"] => {
            round_trips();
            Ok(())
        }
        ["run", name, count] => run(name, count.parse()?),
        _ => bail!("usage: micro instructions | micro round-trips | micro run PART COUNT"),
    }
}

fn run(name: &str, count: u64) -> Result<()> {
    let part = parts().into_iter().find(|part| part.name == name);
    (part.with_context(|| format!("there is no part {name:?}"))?.run)(count);
    Ok(())
}

fn round_trips() {
    let pair = RoundTrip::new();
    let mut bytes = Vec::new();
    let mut kinds: [(&str, &mut dyn FnMut()); 3] = [
        ("ping", &mut || pair.ping()),
        ("stat", &mut || pair.stat()),
        ("read of 3,901 bytes", &mut || pair.read(&mut bytes)),
    ];
    let mut stretches = kinds.each_ref().map(|_| Vec::new());
    // By turns, so that what else goes on meets all of them.
    for _ in 0..STRETCHES {
        for ((_, round_trip), stretches) in kinds.iter_mut().zip(&mut stretches) {
            let start = Instant::now();
            (0..STRETCH).for_each(|_| round_trip());
            stretches.push(start.elapsed().as_nanos() / STRETCH);
        }
    }
    println!("| round trip | least, ns | median, ns |\n|---|---:|---:|");
    for ((name, _), stretches) in kinds.iter().zip(&mut stretches) {
        stretches.sort_unstable();
        println!("| {name} | {} | {} |", stretches[0], stretches[stretches.len() / 2]);
    }
}

fn instructions() -> Result<()> {
    println!("| part | instructions |\n|---|---:|");
    for part in parts() {
        let each = (counted(part.name, MANY)? - counted(part.name, FEW)?) / (MANY - FEW) as f64;
        println!("| {} | {each:.0} |", part.name);
    }
    Ok(())
}

fn counted(name: &str, count: u64) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["run", name, &count.to_string()])
        .output()
        .context("valgrind cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{name}: {said}");
    }
    let counted = said.lines().find_map(|line| {
        // Some versions of it align the columns.
        let (head, number) = line.rsplit_once("refs:")?;
        head.trim_end().ends_with('I').then_some(number)
    });
    let number = counted.with_context(|| format!("valgrind counted nothing: {said}"))?;
    Ok(number.trim().replace(',', "").parse::<u64>()? as f64)
}
