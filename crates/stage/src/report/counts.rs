//! What has been done so far.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// What has been done. Bytes are those of contents.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Files, links and pipes copied; with `--dry-run` those that would be.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Directories made or looked through.
    pub directories: u64,
    /// Files found as they are at the destination.
    pub unchanged: u64,
    /// Names removed at the destination.
    pub deleted: u64,
    /// What was left out on purpose, and named.
    pub left_out: u64,
    /// Files that were skipped, and named, since somebody had them open for writing.
    pub open: u64,
    /// Those that are waited for, at the moment.
    pub waiting: u64,
    /// What could not be done.
    pub failed: u64,
}

/// The same, while threads count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) directories: AtomicU64,
    pub(crate) unchanged: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(super) left_out: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Counts {
    /// Takes in what was done elsewhere.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.directories += other.directories;
        self.unchanged += other.unchanged;
        self.deleted += other.deleted;
    }
}

impl Counts {
    /// Takes in a whole stage, what went wrong in it as well.
    pub(crate) fn add_with_failures(&mut self, other: &Counts) {
        self.add(other);
        self.failed += other.failed;
    }
}

impl Counters {
    /// The same; what went wrong is counted where it is told.
    pub(crate) fn add(&self, other: &Counts) {
        self.files.fetch_add(other.files, Relaxed);
        self.bytes.fetch_add(other.bytes, Relaxed);
        self.directories.fetch_add(other.directories, Relaxed);
        self.unchanged.fetch_add(other.unchanged, Relaxed);
        self.deleted.fetch_add(other.deleted, Relaxed);
    }

    /// What was counted since the last call.
    pub(crate) fn take(&self) -> Counts {
        let counts = self.now();
        let all = [&self.files, &self.bytes, &self.directories, &self.unchanged, &self.deleted];
        all.iter().for_each(|counter| counter.store(0, Relaxed));
        counts
    }

    pub(crate) fn now(&self) -> Counts {
        Counts {
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            directories: self.directories.load(Relaxed),
            unchanged: self.unchanged.load(Relaxed),
            deleted: self.deleted.load(Relaxed),
            left_out: self.left_out.load(Relaxed),
            open: self.open.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
