//! What the preload library costs a program that has nothing to do with it: nanoseconds a call, and
//! time at exec, beside the same program without the library.
//!
//! The library measured has known answers in place of a file system, so that the figures are of the
//! machinery alone. The two sides take turns within one run: figures of different runs do not
//! compare.

mod calls;
mod exec;

use mayfly_hosttest::Mode;

/// Rounds of each side; medians are printed.
const ROUNDS: usize = 9;

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        calls::child(&name);
        return;
    }
    println!("{:34} {:>10} {:>10} {:>10}", "ns a call", "without", "with", "more");
    for call in calls::CALLS {
        let (without, with) = take_turns(|mode| calls::nanos(call, mode));
        print_row(call.says, without, with);
    }
    println!("{:34} {:>10} {:>10} {:>10}", "us for an exec", "without", "with", "more");
    for program in exec::PROGRAMS {
        if !std::path::Path::new(program).is_file() {
            continue;
        }
        let (without, with) = take_turns(|mode| exec::micros(program, mode));
        print_row(program, without, with);
    }
    println!("{:34} {:>10} {:>10} {:>10}", "us for an exec", "preloaded", "audited", "more");
    for program in exec::PROGRAMS {
        if !std::path::Path::new(program).is_file() {
            continue;
        }
        let sides = [Mode::All, Mode::Audited];
        let (preloaded, audited) = take_turns_of(sides, |mode| exec::micros(program, mode));
        print_row(program, preloaded, audited);
    }
}

/// Medians without and with the library.
fn take_turns(measure: impl Fn(Mode) -> f64) -> (f64, f64) {
    take_turns_of([Mode::Without, Mode::Some], measure)
}

/// Medians of the two sides.
fn take_turns_of([one, other]: [Mode; 2], measure: impl Fn(Mode) -> f64) -> (f64, f64) {
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (measure(one), measure(other))).collect();
    let side = |pick: fn(&(f64, f64)) -> f64| median(rounds.iter().map(pick).collect());
    (side(|round| round.0), side(|round| round.1))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print_row(name: &str, without: f64, with: f64) {
    println!("{name:34} {without:10.1} {with:10.1} {:10.1}", with - without);
}
