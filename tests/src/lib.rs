//! The program suite: seven unmodified programs, run natively and in a mount, with the same result.
//!
//! The scripts in `apps/` know nothing of Mayfly. Each works in the directory that `APP_DIR` names,
//! prints only what every run must print alike, and leaves a tree. [`program::Program`] runs a
//! script in an ordinary directory, moves that aside, and runs it again with the mount point at the
//! very same path, so that outputs and trees can be compared byte by byte, with no path to be
//! normalised.

pub mod calls;
pub mod posix;
pub mod program;
pub mod source;
pub mod suite;
