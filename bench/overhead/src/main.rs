//! What an instance costs a program that has nothing to do with it: nanoseconds a call, and time at
//! exec, beside the same program without the library.
//!
//! The two sides take turns within one run; figures of different runs do not compare. A machine
//! that is shared is slower for seconds at a time, by more than what is looked for here. So a round
//! is short, and what is "more" is the median of the rounds' differences, with its quartiles, not
//! the difference of two medians.
//!
//! `cargo build --release -p mayfly-cli && cargo run --release -p overhead`

mod calls;
mod exec;
mod instance;

use std::process::Command;

use anyhow::Result;

use instance::Instance;

/// Rounds of each side, each in a process of its own.
const ROUNDS: usize = 41;

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

/// Results of the two sides and of each round's difference, sorted.
struct Turns {
    without: Vec<f64>,
    with: Vec<f64>,
    more: Vec<f64>,
}

fn take_turns(instance: &Instance, measure: impl Fn(Side<'_>) -> Result<f64>) -> Result<Turns> {
    let mut turns = Turns { without: Vec::new(), with: Vec::new(), more: Vec::new() };
    for round in 0..ROUNDS {
        let (without, with);
        if round % 2 == 0 {
            without = measure(Side::Without)?;
            with = measure(Side::With(instance))?;
        } else {
            with = measure(Side::With(instance))?;
            without = measure(Side::Without)?;
        }
        turns.without.push(without);
        turns.with.push(with);
        turns.more.push(with - without);
    }
    for figures in [&mut turns.without, &mut turns.with, &mut turns.more] {
        figures.sort_by(f64::total_cmp);
    }
    Ok(turns)
}

fn print_head(unit: &str) {
    println!("{unit:36} {:>26} {:>26} {:>24}", "without", "with", "more");
}

fn print_row(name: &str, turns: &Turns) {
    println!(
        "{name:36} {:>26} {:>26} {:>24}",
        with_quartiles(&turns.without),
        with_quartiles(&turns.with),
        with_quartiles(&turns.more)
    );
}

/// The median, and in brackets the quartiles.
fn with_quartiles(sorted: &[f64]) -> String {
    let at = |part: usize| sorted.get(sorted.len() * part / 4).copied().unwrap_or(f64::NAN);
    format!("{:.1} ({:.1} to {:.1})", at(2), at(1), at(3))
}
