//! Where the ways led that this process has gone ([`mayfly_records::way`]).
//!
//! The hash of a way says its place. Another way with the same place replaces it. Who finds that
//! somebody writes there ([`Turn`]) walks the way instead.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mayfly_records::way::Way;
use mayfly_types::FileId;

use super::turn::Turn;

/// Places, a power of two.
const PLACES: usize = 8;
/// Words of the longest way that is remembered, 160 bytes.
const PATH_WORDS: usize = 20;

#[derive(Debug, Default)]
struct Place {
    turn: Turn,
    moves: AtomicU64,
    start: AtomicU64,
    directory: AtomicU64,
    /// By the processors' counter: from then on it may lead elsewhere.
    until: AtomicU64,
    /// Length of the path; no way is so short that it has none.
    bytes: AtomicU64,
    path: [AtomicU64; PATH_WORDS],
}

/// The places.
#[derive(Debug, Default)]
pub(super) struct Ways([Place; PLACES]);

impl Ways {
    fn place(&self, way: Way<'_>) -> Option<&Place> {
        if way.path.len() > PATH_WORDS * 8 {
            return None;
        }
        let mixed = words(way.path).fold(way.start.0, |mixed, word| {
            (mixed.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        self.0.get((mixed >> (64 - PLACES.ilog2())) as usize)
    }

    /// Where `way` led, if it still does when the processors' counter says `now`.
    pub(super) fn recall(&self, way: Way<'_>, now: impl FnOnce() -> u64) -> Option<FileId> {
        let place = self.place(way)?;
        let (same, directory, until) = place.turn.read(|| {
            let directory = FileId(place.directory.load(Relaxed));
            (place.has(way), directory, place.until.load(Relaxed))
        })?;
        (same && (until == u64::MAX || now() < until)).then_some(directory)
    }

    /// Remembers that `way` leads to `directory` until then, unless somebody else remembers
    /// something there.
    pub(super) fn remember(&self, way: Way<'_>, directory: FileId, until: u64) {
        let Some(place) = self.place(way) else { return };
        place.turn.write(|| place.write(way, directory, until));
    }
}

impl Place {
    fn has(&self, way: Way<'_>) -> bool {
        self.moves.load(Relaxed) == way.moves
            && self.start.load(Relaxed) == way.start.0
            && self.bytes.load(Relaxed) == way.path.len() as u64
            && words(way.path).zip(&self.path).all(|(word, there)| there.load(Relaxed) == word)
    }

    fn write(&self, way: Way<'_>, directory: FileId, until: u64) {
        self.moves.store(way.moves, Relaxed);
        self.start.store(way.start.0, Relaxed);
        self.directory.store(directory.0, Relaxed);
        self.until.store(until, Relaxed);
        self.bytes.store(way.path.len() as u64, Relaxed);
        for (word, there) in words(way.path).zip(&self.path) {
            there.store(word, Relaxed);
        }
    }
}

/// The bytes of a path as words. The last word has some bytes of the word before it as well. A path
/// that is shorter than a word is filled up with zeros.
fn words(path: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = path.as_chunks::<8>();
    let last = match (rest, path.last_chunk::<8>()) {
        ([], _) => None,
        (_, Some(last)) => Some(*last),
        (rest, None) => {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            Some(last)
        }
    };
    whole.iter().copied().chain(last).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(path: &[u8], moves: u64) -> Way<'_> {
        Way { moves, start: FileId::ROOT, path }
    }

    #[test]
    fn a_way_leads_where_it_led_until_a_directory_moves() {
        let ways = Ways::default();
        for path in [&b"a/"[..], b"/exactly", b"runs/of/a/model/", &[b'x'; 160]] {
            assert_eq!(ways.recall(way(path, 1), || 0), None);
            ways.remember(way(path, 1), FileId(7), u64::MAX);
            assert_eq!(ways.recall(way(path, 1), || 0), Some(FileId(7)));
            assert_eq!(ways.recall(way(path, 2), || 0), None);
            let elsewhere = Way { start: FileId(9), ..way(path, 1) };
            assert_eq!(ways.recall(elsewhere, || 0), None);
        }
    }

    #[test]
    fn ways_of_one_place_are_told_apart_by_every_byte() {
        let path = *b"some/way/of/33/bytes/is/this/one/";
        for at in 0..path.len() {
            let (ways, mut other) = (Ways::default(), path);
            other[at] ^= 1;
            let place = &ways.0[0];
            place.write(way(&path, 1), FileId(7), u64::MAX);
            assert!(place.has(way(&path, 1)));
            assert!(!place.has(way(&other, 1)));
            assert!(!place.has(way(&path[..at], 1)));
        }
    }

    #[test]
    fn a_way_that_is_too_long_is_not_remembered() {
        let ways = Ways::default();
        let long = [b'x'; 161];
        ways.remember(way(&long, 1), FileId(7), u64::MAX);
        assert_eq!(ways.recall(way(&long, 1), || 0), None);
    }

    #[test]
    fn what_somebody_writes_is_not_recalled() {
        let ways = Ways::default();
        ways.remember(way(b"a/", 1), FileId(7), u64::MAX);
        for place in &ways.0 {
            place.turn.0.fetch_add(1, Relaxed);
        }
        assert_eq!(ways.recall(way(b"a/", 1), || 0), None);
        // Nor do two write it at the same time.
        ways.remember(way(b"a/", 1), FileId(8), u64::MAX);
        for place in &ways.0 {
            place.turn.0.fetch_add(1, Relaxed);
        }
        assert_eq!(ways.recall(way(b"a/", 1), || 0), Some(FileId(7)));
    }

    #[test]
    fn a_way_is_recalled_until_its_time_is_over() {
        let ways = Ways::default();
        ways.remember(way(b"a/", 1), FileId(7), 100);
        assert_eq!(ways.recall(way(b"a/", 1), || 99), Some(FileId(7)));
        assert_eq!(ways.recall(way(b"a/", 1), || 100), None);
    }
}
