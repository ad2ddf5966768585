//! The directory of which this process has found last that all its names are in the records.
//!
//! Where there are origins, or several shards, a name that is not there takes looking up the record
//! of its directory, and whether that is spread. As long as the records have the same version, that
//! is as it was: a program that looks for its libraries, or for headers, in many places finds out
//! once. The place is read and written as in [`super::ways`].

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use mayfly_types::FileId;

/// Places, a power of two.
const PLACES: u64 = 4;

#[derive(Debug, Default)]
struct Place {
    /// Odd while somebody writes, and another number after each time.
    turn: AtomicU64,
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
        let turn = place.turn.load(Acquire);
        let same = turn.is_multiple_of(2)
            && place.directory.load(Relaxed) == directory.0
            && place.version.load(Relaxed) == version;
        let until = place.until.load(Relaxed);
        // All reads are done before the turn is looked at again.
        fence(Acquire);
        // No directory has the number that is there at first.
        let same = same && directory != FileId::NONE && place.turn.load(Relaxed) == turn;
        same && (until == u64::MAX || now() < until)
    }

    /// Remembers it until then, unless somebody else remembers something there.
    pub(super) fn remember(&self, directory: FileId, version: u64, until: u64) {
        let Some(place) = self.place(directory) else { return };
        let turn = place.turn.load(Relaxed);
        let odd = turn.wrapping_add(1);
        if !turn.is_multiple_of(2)
            || place.turn.compare_exchange(turn, odd, Relaxed, Relaxed).is_err()
        {
            return;
        }
        // The odd turn is seen before anything that is written under it.
        fence(Release);
        place.directory.store(directory.0, Relaxed);
        place.version.store(version, Relaxed);
        place.until.store(until, Relaxed);
        place.turn.store(odd.wrapping_add(1), Release);
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
            place.turn.fetch_add(1, Relaxed);
        }
        assert!(!whole.recall(FileId(5), 8, || 0));
        // Nor do two write it at the same time.
        whole.remember(FileId(5), 10, u64::MAX);
        for place in &whole.0 {
            place.turn.fetch_add(1, Relaxed);
        }
        assert!(whole.recall(FileId(5), 8, || 0));
    }
}
