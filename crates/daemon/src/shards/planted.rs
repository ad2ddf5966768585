//! Bugs that the simulator puts in on purpose, to show that it finds them.
//!
//! Only with the feature `planted`, which the simulator alone asks for, can there be one. Without
//! it the compiler removes every trace of them.

#[cfg(feature = "planted")]
use std::cell::Cell;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// How far a directory is spread is not stored, so it goes back when a daemon restarts.
    WatermarkGoesBack,
    /// A seat keeps the names that it gives away.
    NamesAtBothOwners,
    /// A directory that is spread is delegated where it had its seat.
    DelegatedThoughSpread,
    /// Directories are and stay delegated while transactions over several shards have prepare
    /// locks.
    DelegatedBesidePrepareLocks,
    /// What is delegated is not recalled before names of it move.
    NotRecalledBeforeSpread,
    /// A change of attributes that was submitted with its file is not made.
    SubmittedChangeLost,
    /// The object is not taken that a process has made for a file that it has submitted.
    SubmittedObjectLost,
    /// A name that was submitted to move stays where it was.
    MovedNameStays,
    /// A second name that was submitted is not made.
    SubmittedLinkLost,
    /// Content is not there that was submitted for a file that had some.
    ReplacedContentLost,
    /// What was submitted to be added to a file is not.
    AddedContentLost,
    /// Who was told attributes of a file is not told that it changes.
    FileNotForgotten,
    /// A mount is not told of the change of a name that its kernel believes.
    MountNotTold,
    /// A close does not wait for what was written and is behind.
    CloseDoesNotWait,
    /// A daemon does not take up which files its predecessor had not written back.
    DirtyForgotten,
    /// When space is short, files go that are not written back.
    EvictsDirty,
    /// What was seen of an origin's directory is believed for ever.
    NeverLooksAgain,
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// All shards that this thread turns have this bug from now on.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}

/// Whether there is this bug.
#[cfg(feature = "planted")]
pub(crate) fn is_planted(bug: Planted) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether there is this bug.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is_planted(_bug: Planted) -> bool {
    false
}
