//! What the suites that run the product as a user would have in common.
//!
//! A suite works in a [`Scratch`], a directory of its own that also serves as `TMPDIR` and
//! `XDG_RUNTIME_DIR` of everything it starts, so that what is left behind is found by looking
//! there. Commands are [`Job`]s: they have a deadline, write to files and not to pipes (a daemon
//! that outlives them then holds nothing open), and carry a mark in their environment by which all
//! their descendants are found and ended. [`Tree`] compares what two runs left, [`Instance`] drives
//! a started file system, [`leftovers`] looks for what should be gone.
//!
//! Nothing here uses a crate of the product: the suites see only the `mayfly` command.

pub mod binary;
pub mod instance;
pub mod job;
pub mod launcher;
pub mod leftovers;
pub mod port;
pub mod process;
pub mod random;
pub mod scratch;
pub mod skip;
pub mod tree;
pub mod turn;

pub use instance::{Counts, Instance};
pub use job::{Job, Outcome, Running};
pub use random::Random;
pub use scratch::Scratch;
pub use tree::Tree;
pub use turn::Turn;
