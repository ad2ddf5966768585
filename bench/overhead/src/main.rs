//! What an instance costs a program that has nothing to do with it: nanoseconds a call, and time at
//! exec, beside the same program without the library.
//!
//! The two sides take turns within one run; figures of different runs do not compare. Medians and
//! the span of all rounds are printed, since the machine may be shared.
//!
//! `cargo build --release -p mayfly-cli && cargo run --release -p overhead`

mod calls;
mod exec;
mod instance;

use std::process::Command;

use anyhow::Result;

use instance::Instance;

/// Rounds of each side; medians are printed.
const ROUNDS: usize = 9;

/// Whether a process runs in the instance.
#[derive(Clone, Copy)]
pub(crate) enum Side<'i> {
    Without,
    With(&'i Instance),
}

impl Side<'_> {
    /// A command that runs on this side.
    pub(crate) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Side::With(instance) = self {
            command.envs(instance.environment.iter().map(|(name, value)| (name, value)));
        }
        command
    }
}

fn main() -> Result<()> {
    if let Some(name) = std::env::args().nth(1) {
        return calls::child(&name);
    }
    let instance = Instance::start()?;
    print_head("ns a call");
    for call in calls::CALLS {
        print_row(call.says, &take_turns(&instance, |side| calls::nanos(call, side))?);
    }
    print_head("us for an exec");
    for program in exec::PROGRAMS {
        if std::path::Path::new(program).is_file() {
            print_row(program, &take_turns(&instance, |side| exec::micros(program, side))?);
        }
    }
    Ok(())
}

/// Results of the two sides, sorted.
struct Turns {
    without: Vec<f64>,
    with: Vec<f64>,
}

fn take_turns(instance: &Instance, measure: impl Fn(Side<'_>) -> Result<f64>) -> Result<Turns> {
    let mut turns = Turns { without: Vec::new(), with: Vec::new() };
    for _ in 0..ROUNDS {
        turns.without.push(measure(Side::Without)?);
        turns.with.push(measure(Side::With(instance))?);
    }
    turns.without.sort_by(f64::total_cmp);
    turns.with.sort_by(f64::total_cmp);
    Ok(turns)
}

fn print_head(unit: &str) {
    println!("{unit:38} {:>24} {:>24} {:>8}", "without", "with", "more");
}

fn print_row(name: &str, turns: &Turns) {
    let span = |sorted: &[f64]| match (sorted.first(), sorted.last()) {
        (Some(least), Some(most)) => format!("{:8.1} ({least:.1}-{most:.1})", median(sorted)),
        _ => String::new(),
    };
    let more = median(&turns.with) - median(&turns.without);
    println!("{name:38} {:>24} {:>24} {more:8.1}", span(&turns.without), span(&turns.with));
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
