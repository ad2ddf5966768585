//! What the shards of a daemon tell each other without a message: counters.
//!
//! Each shard writes its own row at the end of a batch and reads the others' when somebody asks for
//! the node's numbers. The rows are hints for humans and for the capacity of the node; nothing else
//! of the file system rests on them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardTotals {
    pub(crate) open_files: AtomicU64,
    pub(crate) locks: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) directories: AtomicU64,
    pub(crate) orphans: AtomicU64,
    pub(crate) objects: AtomicU64,
    pub(crate) used_bytes: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// Number of its last commit.
    pub(crate) transactions: AtomicU64,
}

/// The counters of all shards of a daemon.
#[derive(Debug)]
pub struct Totals {
    rows: Vec<ShardTotals>,
}

impl Totals {
    /// For `shards` shards, at least one.
    #[must_use]
    pub fn new(shards: u32) -> Totals {
        Totals { rows: (0..shards.max(1)).map(|_| ShardTotals::default()).collect() }
    }

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.rows.len() as u32
    }

    pub(crate) fn of(&self, own: u32) -> &ShardTotals {
        &self.rows[own as usize]
    }

    /// The sum of a counter over all shards but one.
    pub(crate) fn others(&self, own: u32, counter: impl Fn(&ShardTotals) -> &AtomicU64) -> u64 {
        let others = self.rows.iter().enumerate().filter(|(other, _)| *other != own as usize);
        others.map(|(_, row)| counter(row).load(Relaxed)).sum()
    }
}
