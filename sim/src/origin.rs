//! Runs of nodes whose root shows a directory outside, which is slow, fails, and is changed by
//! others ([`external`]), through keepers that may die ([`keeper`]).
//!
//! What files contain are *marks*, each written once, by a program inside or by somebody outside.
//! So a content tells by itself how it has come about, and [`judge`] needs no order of all
//! operations.

pub mod client;
pub mod external;
pub mod judge;
pub mod keeper;
pub mod plan;
pub mod run;

use mayfly_daemon::Planted;
pub use plan::Plan;
pub use run::{Outcome, run};

/// How to run a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Print what happens.
    pub trace: bool,
    /// A bug that must be found.
    pub bug: Option<Bug>,
}

/// Bugs that are put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The keeper says that a flush was done which was not.
    LosesFlushes,
    /// The keeper puts a file in its place without a look at what is there.
    FlushesUnseen,
    /// The keeper says that a directory is as it was.
    SeesNothing,
    /// The keeper says that bytes are there before it has written them.
    TellsEarly,
    /// The keeper's notes of what it has put are lost when it dies.
    ForgetsNotes,
    /// The keeper takes what was changed for calls that failed for others' changes.
    TakesOwnForOthers,
    /// The daemons have one.
    Daemon(Planted),
}

/// Bytes of a mark.
pub const MARK_BYTES: usize = 1024;
/// Marks from here on are written outside.
pub const OF_OTHERS: u32 = 1 << 30;
/// Each program has so many.
pub const MARKS_OF_PROGRAM: u32 = 10_000;

/// What a file contains.
pub type Content = Vec<u32>;

/// The bytes of a content.
#[must_use]
pub fn bytes_of(content: &[u32]) -> Vec<u8> {
    content.iter().flat_map(|mark| mark.to_le_bytes().repeat(MARK_BYTES / 4)).collect()
}

/// The content of bytes; nothing when a part of a mark is another one.
#[must_use]
pub fn content_of(bytes: &[u8]) -> Option<Content> {
    let marks = bytes.chunks(MARK_BYTES).map(|block| {
        let mark: [u8; 4] = block.get(..4)?.try_into().ok()?;
        let whole = block.len() == MARK_BYTES && block.chunks(4).all(|word| word == mark);
        whole.then(|| u32::from_le_bytes(mark)).filter(|mark| *mark != 0)
    });
    marks.collect()
}

/// The directory in which a path is.
#[must_use]
pub fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
