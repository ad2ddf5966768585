//! Which names a delegated directory has.
//!
//! A table of *prints*: a slot for each name, found by open addressing. The daemon alone writes it:
//! all names when it delegates the directory, and each that comes or goes later. A process looks
//! names up in it without asking. What it finds holds as long as the delegation that it posts
//! under, since the daemon takes that back before anybody else changes a name, and of what the
//! process has posted itself it knows better ([`super::Posts::standing`]).
//!
//! A print has 61 bits of a hash, and stands for its name: that a name which is not there has the
//! print of one that is happens once in 10¹³ looks into a full table.

#[cfg(feature = "server")]
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use crate::words;

/// Most slots of a table.
pub const SLOTS_MAX: usize = 1 << 17;
/// Fewest.
#[cfg(feature = "server")]
const SLOTS_MIN: usize = 1 << 8;

/// Nothing was here since the table was laid out.
const EMPTY: u64 = 0;
/// What was here is gone; others may follow.
#[cfg(feature = "server")]
const GONE: u64 = 1;
/// In a slot's word: the name may be removed without asking.
const PLAIN: u64 = 1;
/// Part of every print, so that none is one of the above.
const TAKEN: u64 = 4;

/// What stands for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print(u64);

impl Print {
    /// The print of a name: multiplications and shifts on eight bytes at a time, as MurmurHash's
    /// finish has them, so that two names of one word never have the same before bits are left out.
    #[must_use]
    pub fn of(name: &[u8]) -> Print {
        let hash = words::of(name).fold(name.len() as u64, |hash, word| mixed(hash ^ word));
        Print(hash & !3 | TAKEN)
    }

    /// The word that says how the name stands.
    pub(super) fn word(self, standing: Standing) -> u64 {
        self.0 | if standing == Standing::Plain { PLAIN } else { 0 }
    }

    /// How the name stands, if the word is about it.
    pub(super) fn in_word(self, word: u64) -> Option<Standing> {
        let standing = if word & PLAIN == 0 { Standing::Asked } else { Standing::Plain };
        (word & !PLAIN == self.0).then_some(standing)
    }

    fn slot(self, slots: usize) -> usize {
        (self.0 >> 40) as usize & (slots - 1)
    }
}

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

/// How a name stands that is, or may be, there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is there, and no directory.
    Plain,
    /// Whoever wants something of it asks.
    Asked,
}

/// A table of names.
#[repr(C)]
#[derive(Debug)]
pub struct Names {
    /// Slots in use, a power of two; 0: none.
    slots: AtomicU32,
    apart: [AtomicU32; 15],
    words: [AtomicU64; SLOTS_MAX],
}

impl Names {
    fn words(&self) -> &[AtomicU64] {
        let slots = self.slots.load(Acquire) as usize;
        let slots = if slots.is_power_of_two() { slots.min(SLOTS_MAX) } else { 0 };
        &self.words[..slots]
    }

    /// How a name stands; none when it is not there.
    #[must_use]
    pub fn find(&self, print: Print) -> Option<Standing> {
        let words = self.words();
        for at in probes(print, words.len()) {
            match words[at].load(Relaxed) {
                EMPTY => return None,
                word => {
                    if let Some(standing) = print.in_word(word) {
                        return Some(standing);
                    }
                }
            }
        }
        // A full table, or none, tells nothing.
        Some(Standing::Asked)
    }
}

fn probes(print: Print, slots: usize) -> impl Iterator<Item = usize> {
    let first = if slots == 0 { 0 } else { print.slot(slots) };
    (0..slots).map(move |step| (first + step) & (slots - 1))
}

/// What the daemon knows of a table that it keeps.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Names.
    live: usize,
    /// Slots that are not empty.
    used: usize,
}

#[cfg(feature = "server")]
impl Names {
    /// Lays out an empty table that has room for `names`; false when that is too many.
    #[must_use]
    pub fn lay_out(&self, tally: &mut Tally, names: usize) -> bool {
        let slots = (names.saturating_mul(2)).next_power_of_two().max(SLOTS_MIN);
        if slots > SLOTS_MAX {
            return false;
        }
        *tally = Tally::default();
        for word in &self.words[..slots] {
            word.store(EMPTY, Relaxed);
        }
        self.slots.store(slots as u32, Release);
        true
    }

    /// Notes how a name stands; false when there is no room for it.
    #[must_use]
    pub fn put(&self, tally: &mut Tally, print: Print, standing: Standing) -> bool {
        let words = self.words();
        let new = print.word(standing);
        let mut free = None;
        for at in probes(print, words.len()) {
            match words[at].load(Relaxed) {
                EMPTY => {
                    let at = free.unwrap_or(at);
                    if free.is_none() {
                        if tally.used >= words.len() / 4 * 3 {
                            return false;
                        }
                        tally.used += 1;
                    }
                    tally.live += 1;
                    words[at].store(new, Relaxed);
                    return true;
                }
                GONE => free = free.or(Some(at)),
                word if print.in_word(word).is_some() => {
                    words[at].store(new, Relaxed);
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Notes that a name is gone.
    pub fn remove(&self, tally: &mut Tally, print: Print) {
        let words = self.words();
        for at in probes(print, words.len()) {
            match words[at].load(Relaxed) {
                EMPTY => return,
                word if print.in_word(word).is_some() => {
                    tally.live = tally.live.saturating_sub(1);
                    words[at].store(GONE, Relaxed);
                    return self.sweep(tally, at);
                }
                _ => {}
            }
        }
    }

    /// Slots of names that are gone are empty where nothing follows them.
    fn sweep(&self, tally: &mut Tally, last: usize) {
        let words = self.words();
        let slots = words.len();
        if words[(last + 1) & (slots - 1)].load(Relaxed) != EMPTY {
            return;
        }
        for back in 0..slots {
            let word = &words[(last + slots - back) & (slots - 1)];
            if word.load(Relaxed) != GONE {
                return;
            }
            word.store(EMPTY, Relaxed);
            tally.used = tally.used.saturating_sub(1);
        }
    }

    /// Lays the table out anew, with room for as many names again: nobody may be looking names up
    /// whose look still counts. False when there are too many.
    #[must_use]
    pub fn grow(&self, tally: &mut Tally) -> bool {
        let words = self.words().iter().map(|word| word.load(Relaxed));
        let kept: Vec<u64> = words.filter(|word| word & TAKEN != 0).collect();
        if kept.len() > SLOTS_MAX / 8 * 5 {
            return false;
        }
        let room = (kept.len() * 2).min(SLOTS_MAX / 2);
        self.lay_out(tally, room)
            && kept.into_iter().all(|word| {
                let print = Print(word & !PLAIN);
                print.in_word(word).is_some_and(|standing| self.put(tally, print, standing))
            })
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn names() -> Box<Names> {
        // SAFETY: memory of that layout, from the allocator that the box gives it back to; it
        // consists of atomics, of which zeros are a value.
        unsafe {
            Box::from_raw(
                std::alloc::alloc_zeroed(std::alloc::Layout::new::<Names>()).cast::<Names>(),
            )
        }
    }

    fn print_of(number: u32) -> Print {
        Print::of(format!("file.{number:08}").as_bytes())
    }

    #[test]
    fn a_table_that_was_not_laid_out_tells_nothing() {
        let names = names();
        assert_eq!(names.find(print_of(1)), Some(Standing::Asked));
        names.slots.store(3, Relaxed);
        assert_eq!(names.find(print_of(1)), Some(Standing::Asked));
        names.slots.store(u32::MAX, Relaxed);
        assert_eq!(names.find(print_of(1)), Some(Standing::Asked));
    }

    #[test]
    fn names_of_one_directory_have_prints_of_their_own() {
        let mut prints: Vec<u64> = (0..1_000_000).map(|number| print_of(number).0).collect();
        prints.extend((0..1_000_000).map(|number| Print::of(format!("{number}").as_bytes()).0));
        prints.sort_unstable();
        assert!(prints.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_table_takes_three_names_for_four_slots_and_grows() {
        let (names, mut tally) = (names(), Tally::default());
        assert!(names.lay_out(&mut tally, 0));
        let mut put = 0;
        while put < 60_000 {
            if names.put(&mut tally, print_of(put), Standing::Plain) {
                put += 1;
            } else {
                assert!(names.grow(&mut tally), "{put} names");
            }
        }
        assert!((0..put).all(|number| names.find(print_of(number)) == Some(Standing::Plain)));
        assert!((put..2 * put).all(|number| names.find(print_of(number)).is_none()));
        while names.put(&mut tally, print_of(put), Standing::Plain) {
            put += 1;
        }
        assert!(!names.grow(&mut tally), "{put} names are too many");
    }

    #[test]
    fn names_that_come_and_go_leave_no_trace() {
        let (names, mut tally) = (names(), Tally::default());
        assert!(names.lay_out(&mut tally, 0));
        for round in 0..1000 {
            let numbers = round * 100..round * 100 + 100;
            for number in numbers.clone() {
                if !names.put(&mut tally, print_of(number), Standing::Plain) {
                    assert!(names.grow(&mut tally));
                    assert!(names.put(&mut tally, print_of(number), Standing::Plain));
                }
            }
            numbers.for_each(|number| names.remove(&mut tally, print_of(number)));
        }
        assert!(names.words().len() <= 1024, "it did not grow for what is gone");
        assert_eq!((tally.live, tally.used), (0, 0));
    }

    proptest! {
        #[test]
        fn a_table_tells_what_a_map_would(
            steps in prop::collection::vec((0..400_u32, 0..3_u8), 1..2000),
        ) {
            let (names, mut tally) = (names(), Tally::default());
            prop_assert!(names.lay_out(&mut tally, 0));
            let mut model = HashMap::new();
            for (number, what) in steps {
                let print = print_of(number);
                let standing = match what {
                    0 => None,
                    1 => Some(Standing::Plain),
                    _ => Some(Standing::Asked),
                };
                match standing {
                    Some(standing) => {
                        if !names.put(&mut tally, print, standing) {
                            prop_assert!(names.grow(&mut tally));
                            prop_assert!(names.put(&mut tally, print, standing));
                        }
                        model.insert(number, standing);
                    }
                    None => {
                        names.remove(&mut tally, print);
                        model.remove(&number);
                    }
                }
                prop_assert_eq!(tally.live, model.len());
                prop_assert!(tally.used >= tally.live);
            }
            for number in 0..400 {
                prop_assert_eq!(names.find(print_of(number)), model.get(&number).copied());
            }
        }
    }
}
