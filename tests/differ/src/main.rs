//! Plays a random sequence of POSIX calls in a directory and prints what each returned.
//!
//! Run with the same seed natively and on an instance, the two outputs must be the same. Only what
//! a file system promises is printed: no inode numbers, no times but those that were set, no sizes
//! of directories. `differ DIRECTORY SEED STEPS`.
//!
//! All calls go through libc, which is where an unmodified program's calls go through.

mod calls;
mod play;
mod random;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, seed, steps] = arguments.as_slice() else {
        eprintln!("usage: differ DIRECTORY SEED STEPS");
        return ExitCode::from(2);
    };
    let (Ok(seed), Ok(steps)) = (seed.parse(), steps.parse::<u32>()) else {
        eprintln!("differ: SEED and STEPS are numbers");
        return ExitCode::from(2);
    };
    if let Err(error) = std::env::set_current_dir(directory) {
        eprintln!("differ: {directory}: {error}");
        return ExitCode::FAILURE;
    }
    play::Player::new(seed).play(steps);
    ExitCode::SUCCESS
}
