//! Plays a random sequence of POSIX calls in a directory and prints what each returned.
//!
//! Run with the same seed natively and on an instance, the two outputs must be the same. Only what
//! a file system promises is printed: no inode numbers, no times but those that were set, no sizes
//! of directories. `differ DIRECTORY SEED STEPS [unmapped]`.
//!
//! `differ DIRECTORY SEED follow` plays a step for each line that it reads and ends with the input.
//! Several of them in one directory, taking turns, are a sequence too, of several processes with
//! descriptors of their own.
//!
//! All calls go through libc, which is where an unmodified program's calls go through.

mod calls;
mod more;
mod play;
mod random;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (maps, arguments) = match arguments.split_last() {
        Some((last, before)) if last == "unmapped" => (false, before),
        _ => (true, arguments.as_slice()),
    };
    let [_, directory, seed, steps] = arguments else {
        eprintln!("usage: differ DIRECTORY SEED STEPS|follow [unmapped]");
        return ExitCode::from(2);
    };
    let Ok(seed) = seed.parse() else {
        eprintln!("differ: SEED is a number");
        return ExitCode::from(2);
    };
    if let Err(error) = std::env::set_current_dir(directory) {
        eprintln!("differ: {directory}: {error}");
        return ExitCode::FAILURE;
    }
    if steps == "follow" {
        return follow(play::Player::following(seed));
    }
    let Ok(steps) = steps.parse() else {
        eprintln!("differ: STEPS is a number or `follow`");
        return ExitCode::from(2);
    };
    play::Player::new(seed, maps).play(steps);
    ExitCode::SUCCESS
}

/// One step for each line; what it printed is complete before the next one is read.
fn follow(mut player: play::Player) -> ExitCode {
    for line in std::io::stdin().lines() {
        if line.is_err() {
            return ExitCode::FAILURE;
        }
        println!("{}", player.step());
        if std::io::stdout().flush().is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
