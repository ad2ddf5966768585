//! Code that is known to have no system calls of its own: a table in a file of the node's run
//! directory, so that an exec looks through no program and no library twice.
//!
//! [`SLOTS`] words of the beginnings of build ids, which are sums already. A slot is written once,
//! by any process; when two write one at the same time, one of the two is not known. What finds no
//! slot is looked through each time.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words of the table.
pub const SLOTS: usize = 4096;
/// Bytes of the file.
pub const BYTES: usize = SLOTS * size_of::<u64>();
/// Its name in the run directory.
pub const NAME: &str = "plain";
/// Slots that are looked at for one key.
const PROBES: usize = 8;

/// What stands for a key; `None` for one that is no build id of a usual length.
#[must_use]
pub fn word_of(key: &[u8]) -> Option<u64> {
    let word = u64::from_le_bytes(*key.first_chunk()?);
    (word != 0).then_some(word)
}

fn places(word: u64) -> impl Iterator<Item = usize> {
    let first = word as usize;
    (0..PROBES).map(move |probe| first.wrapping_add(probe) % SLOTS)
}

/// Is it known?
#[must_use]
pub fn has(table: &[AtomicU64], word: u64) -> bool {
    places(word)
        .any(|place| table.get(place).is_some_and(|slot| slot.load(Ordering::Relaxed) == word))
}

/// Where it may be written to be known.
#[must_use]
pub fn room_for(table: &[AtomicU64], word: u64) -> Option<usize> {
    places(word)
        .find(|place| table.get(*place).is_some_and(|slot| slot.load(Ordering::Relaxed) == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_known_until_there_is_no_room() {
        let table = [const { AtomicU64::new(0) }; SLOTS];
        assert_eq!((word_of(b"short"), word_of(&[0; 20])), (None, None));
        let words = (0..=PROBES as u64).map(|high| 7 | (high + 1) << 32);
        for (number, word) in words.enumerate() {
            assert!(!has(&table, word));
            let place = room_for(&table, word);
            assert_eq!(place, (number < PROBES).then_some(7 + number));
            if let Some(place) = place {
                table[place].store(word, Ordering::Relaxed);
                assert!(has(&table, word));
            }
        }
        assert_eq!(room_for(&table, u64::MAX), Some(SLOTS - 1));
    }
}
