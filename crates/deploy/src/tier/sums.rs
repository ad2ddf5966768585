//! What one node has of all origins, for `mayfly status` and its metrics.

use std::{collections::BTreeMap, path::Path};

use mayfly_transport_shm::Attachment;
use mayfly_wire::tier::TIER_STATUS;
use serde::Serialize;

use super::{OriginState, first_shard, try_ask};
use crate::Config;

/// Numbers by what they are of.
type By = BTreeMap<&'static str, u64>;

/// What a node has of all origins together, and has done for them since its daemon began.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TierSums {
    /// Files, directories and links that are known.
    pub files: u64,
    /// Files, by what they are: `dirty`, `pinned`, `fetching`.
    pub files_that_are: By,
    /// Bytes, by what they are: `cached`, `dirty`, `pinned`.
    pub bytes_that_are: By,
    /// Copies that were written beside what somebody had changed.
    pub conflicts: u64,
    /// What failed.
    pub errors: u64,
    /// Reads that the daemon was asked for, by where the bytes were: `here`, `outside`.
    pub reads: By,
    /// Their bytes.
    pub read_bytes: By,
    /// Files, by what was done: `fetched`, `flushed`, `evicted`.
    pub done: By,
    /// Their bytes.
    pub done_bytes: By,
}

impl TierSums {
    /// Nothing of an instance that has no origin, or of a daemon that does not tell.
    pub(crate) fn of(config: &Config, attached: &Attachment) -> Option<TierSums> {
        if config.options.origins.is_empty() {
            return None;
        }
        let shard = first_shard(config, config.node.unwrap_or(0)).ok()?;
        let told = try_ask(config, attached, (TIER_STATUS, shard), Path::new("")).ok()?;
        let mut sums = TierSums::default();
        told.state.origins.iter().for_each(|origin| sums.add(origin));
        Some(sums)
    }

    fn add(&mut self, of: &OriginState) {
        let counts = &of.counts;
        self.files += of.files;
        self.conflicts += of.conflicts;
        self.errors += of.errors;
        let files =
            [("dirty", of.dirty_files), ("pinned", of.pinned_files), ("fetching", of.fetching)];
        let bytes =
            [("cached", of.cached_bytes), ("dirty", of.dirty_bytes), ("pinned", of.pinned_bytes)];
        let reads = [("here", counts.reads_here), ("outside", counts.reads_outside)];
        let read = [("here", counts.read_here_bytes), ("outside", counts.read_outside_bytes)];
        let done = [
            ("fetched", counts.fetches),
            ("flushed", counts.flushes),
            ("evicted", counts.evictions),
        ];
        let moved = [
            ("fetched", counts.fetched_bytes),
            ("flushed", counts.flushed_bytes),
            ("evicted", counts.evicted_bytes),
        ];
        add_all(&mut self.files_that_are, &files);
        add_all(&mut self.bytes_that_are, &bytes);
        add_all(&mut self.reads, &reads);
        add_all(&mut self.read_bytes, &read);
        add_all(&mut self.done, &done);
        add_all(&mut self.done_bytes, &moved);
    }
}

fn add_all(to: &mut By, more: &[(&'static str, u64)]) {
    for (name, number) in more {
        *to.entry(name).or_default() += number;
    }
}
