//! Locks of `fcntl` and `flock`, at the home of each file.
//!
//! `table.rs` knows who holds and who waits, `requests.rs` is what processes ask. Waits at several
//! shards that can never end are found by chasing edges (`deadlock.rs`).
//!
//! Invariants:
//! - A lock is held by a description or a process, and ends with it, whoever ends it.
//! - Who waits is answered once: when the lock is theirs, when they give up, or when they would
//!   wait for ever.

pub(crate) mod deadlock;
pub(crate) mod requests;
pub(crate) mod state;
pub(crate) mod table;

use crate::locks::{state::deadlock::DeadlockSearches, table::LockTable};

/// What a shard keeps in mind of locks.
pub(crate) struct Locks {
    /// Holders and waiters.
    pub(crate) table: LockTable,
    /// Searches for waits that can never end.
    pub(crate) deadlocks: DeadlockSearches,
}

impl Locks {
    /// Waits are numbered from here on: no earlier daemon's have these numbers.
    pub(crate) fn numbered_from(first: u64) -> Locks {
        Locks { table: LockTable::numbered_from(first), deadlocks: DeadlockSearches::default() }
    }
}
