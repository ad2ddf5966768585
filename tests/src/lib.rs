//! The program suite: unmodified programs, run natively and in a mount, with the same result. Seven
//! large ones leave trees that are compared; [`rows`] are small, and many.
//!
//! The scripts in `apps/` know nothing of Mayfly. Each works in the directory that `APP_DIR` names,
//! prints only what every run must print alike, and leaves a tree. [`program::Program`] runs a
//! script in an ordinary directory, moves that aside, and runs it again with the mount point at the
//! very same path, so that outputs and trees can be compared byte by byte, with no path to be
//! normalised.

pub mod calls;
pub mod hosts;
pub mod lines;
pub mod looks;
pub mod mount;
pub mod namespaces;
pub mod passable;
pub mod posix;
pub mod program;
pub mod rows;
pub mod slurm;
pub mod source;
pub mod stages;
pub mod suite;
pub mod verdicts;
