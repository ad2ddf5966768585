//! The directory of which this process has found last that all its names are in the records.
//!
//! Where there are origins, or several shards, a name that is not there takes looking up the record
//! of its directory, and whether that is spread. As long as the records have the same version, that
//! is as it was: a program that looks for its libraries, or for headers, in many places finds out
//! once.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mayfly_types::FileId;

use super::turn::Turn;

/// Places, a power of two.
const PLACES: u64 = 4;

#[derive(Debug, Default)]
struct Place {
    turn: Turn,
    directory: AtomicU64,
    version: AtomicU64,
    /// By the processors' counter: from then on the names are not believed.
    until: AtomicU64,
}

/// The places.
#[derive(Debug, Default)]
pub(super) struct Whole([Place; PLACES as usize]);

impl Whole {
    fn place(&self, directory: FileId) -> Option<&Place> {
        self.0.get((directory.0 % PLACES) as usize)
    }

    /// Whether it was found in the records of this version, and holds when the processors' counter
    /// says `now`.
    pub(super) fn recall(
        &self,
        directory: FileId,
        version: u64,
        now: impl FnOnce() -> u64,
    ) -> bool {
        let Some(place) = self.place(directory) else { return false };
        let found = place.turn.read(|| {
            let known = (place.directory.load(Relaxed), place.version.load(Relaxed));
            (known == (directory.0, version), place.until.load(Relaxed))
        });
        // No directory has the number that is there at first.
        let (same, until) = found.filter(|_| directory != FileId::NONE).unwrap_or_default();
        same && (until == u64::MAX || now() < until)
    }

    /// Remembers it until then, unless somebody else remembers something there.
    pub(super) fn remember(&self, directory: FileId, version: u64, until: u64) {
        let Some(place) = self.place(directory) else { return };
        place.turn.write(|| {
            place.directory.store(directory.0, Relaxed);
            place.version.store(version, Relaxed);
            place.until.store(until, Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_a_directory_a_version_and_a_time() {
        let whole = Whole::default();
        assert!(!whole.recall(FileId::NONE, 0, || 0));
        assert!(!whole.recall(FileId(5), 8, || 0));
        whole.remember(FileId(5), 8, 100);
        assert!(whole.recall(FileId(5), 8, || 99));
        assert!(!whole.recall(FileId(5), 8, || 100));
        assert!(!whole.recall(FileId(5), 10, || 0));
        assert!(!whole.recall(FileId(9), 8, || 0));
        whole.remember(FileId(9), 8, u64::MAX);
        assert!(whole.recall(FileId(9), 8, || 0) && !whole.recall(FileId(5), 8, || 0));
    }

    #[test]
    fn what_somebody_writes_is_not_recalled() {
        let whole = Whole::default();
        whole.remember(FileId(5), 8, u64::MAX);
        for place in &whole.0 {
            place.turn.0.fetch_add(1, Relaxed);
        }
        assert!(!whole.recall(FileId(5), 8, || 0));
        // Nor do two write it at the same time.
        whole.remember(FileId(5), 10, u64::MAX);
        for place in &whole.0 {
            place.turn.0.fetch_add(1, Relaxed);
        }
        assert!(whole.recall(FileId(5), 8, || 0));
    }
}
