//! Which names a delegated directory has.
//!
//! A table of *prints*: a slot for each name, found by open addressing, one table for all who have
//! the directory delegated. The daemon fills it when it delegates the directory, and notes each
//! name that comes or goes. A process that posts something about a name *claims* its slot first, by
//! a compare-and-swap: so of several processes one posts about a name, and the others ask. The
//! daemon releases the slot when what was posted is committed.
//!
//! What a process finds holds as long as the delegation that it posts under. A claim of a process
//! that did not come to post is taken back by it, and if it died, found by the first who asks.
//!
//! **One slot for each name**: a new name takes the first slot of its row that was never used, and
//! slots become unused only when the table is laid out anew, while nobody may post. So two who
//! claim the same name meet at the same slot.
//!
//! A print stands for its name: 61 bits of a hash where the name may be removed without asking,
//! 55 where somebody has claimed it. That a name which is not there has the print of one that is
//! happens once in 10¹³ looks into a full table; the fewer bits only have it asked for.

#[cfg(feature = "server")]
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire},
};

use crate::words;

/// Most slots of a table.
pub const SLOTS_MAX: usize = 1 << 17;
/// Fewest.
#[cfg(feature = "server")]
const SLOTS_MIN: usize = 1 << 9;
/// Longest row of slots that is looked through for a name.
const PROBES_MAX: usize = 1 << 10;
/// So often a slot is looked at again that others have changed meanwhile.
const TRIES: u32 = 16;

/// Nothing was here since the table was laid out.
const EMPTY: u64 = 0;
/// What was here is gone; others may follow.
const GONE: u64 = 3;
/// The bits that say how a name stands: claimed by who posted the record of the place that follows.
const KIND: u64 = 3;
/// Whoever wants something of the name asks.
const ASKED: u64 = 1;
/// It is there, and no directory.
const PLAIN: u64 = 2;
/// Below the part of the print that every word has: more of it where the name is plain, the place
/// where it is claimed.
const DETAIL_BITS: u32 = 9;
const PLACE_SHIFT: u32 = 2;
/// Part of every print, so that no word is one of the above.
const TAKEN: u64 = 1 << 63;

/// What stands for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print(u64);

impl Print {
    /// The print of a name: multiplications and shifts on eight bytes at a time, as MurmurHash's
    /// finish has them, so that two names of one word never have the same before bits are left out.
    #[must_use]
    pub fn of(name: &[u8]) -> Print {
        let hash = words::of(name).fold(name.len() as u64, |hash, word| mixed(hash ^ word));
        Print(hash & !KIND | TAKEN)
    }

    /// The print, and whether its name is there.
    pub(super) fn with(self, there: bool) -> u64 {
        self.0 | u64::from(there)
    }

    /// Whether the name is there, if the word is about it.
    pub(super) fn is_there(self, word: u64) -> Option<bool> {
        (word & !KIND == self.0).then_some(word & 1 != 0)
    }

    fn short(self) -> u64 {
        self.0 >> DETAIL_BITS << DETAIL_BITS
    }

    fn claimed(self, place: usize) -> u64 {
        self.short() | (place as u64) << PLACE_SHIFT
    }

    #[cfg(feature = "server")]
    fn standing(self, standing: Standing) -> u64 {
        match standing {
            Standing::Plain => self.0 | PLAIN,
            Standing::Asked => self.short() | ASKED,
        }
    }

    /// Is the word of a slot about this name?
    fn is_in(self, word: u64) -> bool {
        if word & KIND == PLAIN {
            word & !KIND == self.0
        } else {
            word >> DETAIL_BITS == self.0 >> DETAIL_BITS
        }
    }

    fn slot(self, slots: usize) -> usize {
        (self.0 >> 40) as usize & (slots - 1)
    }
}

const _: () = assert!(super::RECORDS <= 1 << (DETAIL_BITS - PLACE_SHIFT));

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

/// What a slot says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is not there.
    Absent,
    /// It is there, and no directory.
    Plain,
    /// Whoever wants something of it asks.
    Asked,
    /// Somebody has posted something about it, or is about to, with the record of that place.
    Claimed(usize),
}

/// The slot of a name, and the word that was there when it was looked at.
#[derive(Debug, Clone, Copy)]
struct Slot<'a> {
    word: &'a AtomicU64,
    seen: u64,
}

impl Slot<'_> {
    fn seen(self) -> Seen {
        match self.seen {
            EMPTY => Seen::Absent,
            word => match word & KIND {
                PLAIN => Seen::Plain,
                ASKED => Seen::Asked,
                _ => Seen::Claimed((word >> PLACE_SHIFT) as usize % super::RECORDS),
            },
        }
    }

    fn change(self, to: u64) -> bool {
        self.word.compare_exchange(self.seen, to, AcqRel, Acquire).is_ok()
    }
}

/// A name that is claimed for a record.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    slot: Slot<'a>,
    claimed: u64,
}

impl Claim<'_> {
    /// The record was not posted.
    pub(super) fn give_up(self) {
        // Others may have passed the slot.
        let before = if self.slot.seen == EMPTY { GONE } else { self.slot.seen };
        let slot = Slot { seen: self.claimed, ..self.slot };
        // The daemon may have noted how the name stands meanwhile.
        let _ = slot.change(before);
    }
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

    /// The slot of a name, or the one that it takes if it is new; none when the table tells
    /// nothing.
    fn look(&self, print: Print) -> Option<Slot<'_>> {
        let words = self.words();
        probes(print, words.len()).find_map(|at| {
            let word = &words[at];
            let seen = word.load(Acquire);
            (seen == EMPTY || print.is_in(seen)).then_some(Slot { word, seen })
        })
    }

    /// Claims a name for the record of a place, if `may` says so of how it stands.
    pub(super) fn claim(
        &self,
        print: Print,
        place: usize,
        may: impl Fn(Seen) -> bool,
    ) -> Option<Claim<'_>> {
        let claimed = print.claimed(place);
        for _ in 0..TRIES {
            let slot = self.look(print)?;
            if !may(slot.seen()) {
                return None;
            }
            if slot.change(claimed) {
                return Some(Claim { slot, claimed });
            }
        }
        None
    }
}

fn probes(print: Print, slots: usize) -> impl Iterator<Item = usize> {
    let first = if slots == 0 { 0 } else { print.slot(slots) };
    (0..slots.min(PROBES_MAX)).map(move |step| (first + step) & (slots - 1))
}

/// What the daemon knows of a table.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Slots that are not empty, or more.
    used: usize,
}

/// What became of the wish that nobody posts about a name.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// Nobody does, and nobody has.
    Done,
    /// Somebody may have, or be about to.
    Claimed,
    /// There is no room for the name.
    Full,
}

#[cfg(feature = "server")]
impl Names {
    /// Lays out an empty table that has room for `names`, while nobody may post; false when that is
    /// too many.
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

    fn has_room(&self, tally: &Tally) -> bool {
        tally.used < self.words().len() / 4 * 3
    }

    /// Whether the table should be laid out anew.
    #[must_use]
    pub fn is_crowded(&self, tally: &Tally) -> bool {
        !self.has_room(tally)
    }

    /// Notes how a name stands, while nobody may post about it; false when there is no room for it.
    #[must_use]
    pub fn put(&self, tally: &mut Tally, print: Print, standing: Standing) -> bool {
        self.put_word(tally, print, print.standing(standing))
    }

    fn put_word(&self, tally: &mut Tally, print: Print, word: u64) -> bool {
        for _ in 0..TRIES {
            let Some(slot) = self.look(print) else { break };
            if slot.seen != EMPTY {
                slot.word.store(word, Release);
                return true;
            }
            if !self.has_room(tally) {
                return false;
            }
            if slot.change(word) {
                tally.used += 1;
                return true;
            }
        }
        false
    }

    /// Notes that a name is to be asked for, beside those who post, unless one of them has claimed
    /// it.
    pub fn reserve(&self, tally: &mut Tally, print: Print) -> Reserved {
        for _ in 0..TRIES {
            let Some(slot) = self.look(print) else { break };
            match slot.seen() {
                Seen::Asked => return Reserved::Done,
                Seen::Claimed(_) => return Reserved::Claimed,
                Seen::Absent if !self.has_room(tally) => return Reserved::Full,
                Seen::Absent | Seen::Plain => {}
            }
            if slot.change(print.standing(Standing::Asked)) {
                tally.used += usize::from(slot.seen == EMPTY);
                return Reserved::Done;
            }
        }
        Reserved::Full
    }

    /// How a name stands that the record of a place was about, now that this is committed; none: it
    /// is gone. Whoever has posted another record about it keeps it.
    pub fn release(
        &self,
        tally: &mut Tally,
        print: Print,
        place: usize,
        standing: Option<Standing>,
    ) {
        // Its slot may have been new.
        tally.used += usize::from(standing.is_some());
        let Some(slot) = self.look(print) else { return };
        if slot.seen == print.claimed(place) {
            // Its process may be posting another record about it at this moment.
            let _ = slot.change(standing.map_or(GONE, |standing| print.standing(standing)));
        }
    }

    /// Notes that a name is gone which nobody may post about.
    pub fn remove(&self, print: Print) {
        if let Some(slot) = self.look(print).filter(|slot| slot.seen != EMPTY) {
            slot.word.store(GONE, Release);
        }
    }

    /// Lays the table out anew, with room for as many names again, while nobody may post: what was
    /// posted keeps its claims. False when there are too many.
    #[must_use]
    pub fn grow(&self, tally: &mut Tally) -> bool {
        let words = self.words().iter().map(|word| word.load(Relaxed));
        let kept: Vec<u64> = words.filter(|word| word & TAKEN != 0).collect();
        if kept.len() > SLOTS_MAX / 8 * 5 {
            return false;
        }
        let room = (kept.len() * 2).min(SLOTS_MAX / 2);
        self.lay_out(tally, room)
            && kept.into_iter().all(|word| self.put_word(tally, Print(word & !KIND), word))
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

    fn laid_out() -> (Box<Names>, Tally) {
        let (names, mut tally) = (names(), Tally::default());
        assert!(names.lay_out(&mut tally, 0));
        (names, tally)
    }

    fn print_of(number: u32) -> Print {
        Print::of(format!("file.{number:08}").as_bytes())
    }

    fn seen(names: &Names, number: u32) -> Option<Seen> {
        names.look(print_of(number)).map(Slot::seen)
    }

    fn claim(names: &Names, number: u32, place: usize, from: Seen) -> bool {
        names.claim(print_of(number), place, |seen| seen == from).is_some()
    }

    #[test]
    fn a_table_that_was_not_laid_out_tells_nothing() {
        let names = names();
        assert_eq!(seen(&names, 1), None);
        names.slots.store(3, Relaxed);
        assert_eq!(seen(&names, 1), None);
        names.slots.store(u32::MAX, Relaxed);
        assert_eq!(seen(&names, 1), None);
        assert!(!claim(&names, 1, 0, Seen::Absent));
    }

    #[test]
    fn names_of_one_directory_have_prints_of_their_own() {
        let mut prints: Vec<u64> = (0..1_000_000).map(|number| print_of(number).0).collect();
        prints.extend((0..1_000_000).map(|number| Print::of(format!("{number}").as_bytes()).0));
        prints.sort_unstable();
        assert!(prints.windows(2).all(|pair| pair[0] >> DETAIL_BITS != pair[1] >> DETAIL_BITS));
    }

    #[test]
    fn a_table_takes_three_names_for_four_slots_and_grows() {
        let (names, mut tally) = laid_out();
        let mut put = 0;
        while put < 60_000 {
            if names.put(&mut tally, print_of(put), Standing::Plain) {
                put += 1;
            } else {
                assert!(names.grow(&mut tally), "{put} names");
            }
        }
        assert!((0..put).all(|number| seen(&names, number) == Some(Seen::Plain)));
        assert!((put..2 * put).all(|number| seen(&names, number) == Some(Seen::Absent)));
        while names.put(&mut tally, print_of(put), Standing::Plain) {
            put += 1;
        }
        assert!(!names.grow(&mut tally), "{put} names are too many");
    }

    #[test]
    fn names_that_come_and_go_leave_a_small_table() {
        let (names, mut tally) = laid_out();
        for round in 0..1000 {
            let numbers = round * 100..round * 100 + 100;
            for number in numbers.clone() {
                assert!(claim(&names, number, 5, Seen::Absent));
                names.release(&mut tally, print_of(number), 5, Some(Standing::Plain));
            }
            for number in numbers {
                assert!(claim(&names, number, 6, Seen::Plain));
                names.release(&mut tally, print_of(number), 6, None);
            }
            if names.is_crowded(&tally) {
                assert!(names.grow(&mut tally));
            }
        }
        assert!(names.words().len() <= 1024, "it did not grow for what is gone");
    }

    #[test]
    fn a_claim_is_given_up_released_or_taken_over() {
        let (names, mut tally) = laid_out();
        let print = print_of(1);
        let first = names.claim(print, 3, |seen| seen == Seen::Absent).expect("nobody has it");
        assert_eq!(names.reserve(&mut tally, print), Reserved::Claimed);
        first.give_up();
        assert_eq!(seen(&names, 1), Some(Seen::Absent));
        assert!(claim(&names, 1, 4, Seen::Absent) && claim(&names, 1, 5, Seen::Claimed(4)));
        names.release(&mut tally, print, 4, Some(Standing::Plain));
        assert_eq!(seen(&names, 1), Some(Seen::Claimed(5)), "by a later record");
        assert!(names.grow(&mut tally));
        assert_eq!(seen(&names, 1), Some(Seen::Claimed(5)), "in another table, too");
        names.release(&mut tally, print, 5, Some(Standing::Plain));
        let second = names.claim(print, 6, |seen| seen == Seen::Plain).expect("nobody has it");
        assert!(names.put(&mut tally, print, Standing::Asked));
        second.give_up();
        assert_eq!(seen(&names, 1), Some(Seen::Asked), "the daemon said so meanwhile");
        assert_eq!(names.reserve(&mut tally, print), Reserved::Done);
    }

    #[test]
    fn of_several_who_claim_a_name_one_has_it() {
        const THREADS: usize = 4;
        const NAMES: u32 = 30_000;
        let (names, mut tally) = (names(), Tally::default());
        assert!(names.lay_out(&mut tally, NAMES as usize));
        for number in (0..NAMES).step_by(3) {
            assert!(names.put(&mut tally, print_of(number), Standing::Plain));
            names.remove(print_of(number));
        }
        let names = &*names;
        let claimed: Vec<Vec<bool>> = std::thread::scope(|scope| {
            let claiming = |thread: usize| {
                move || {
                    (0..NAMES).map(|number| claim(names, number, thread, Seen::Absent)).collect()
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|at| scope.spawn(claiming(at))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        for number in 0..NAMES {
            let has = |thread: &usize| claimed[*thread][number as usize];
            let owners: Vec<_> = (0..THREADS).filter(has).collect();
            assert_eq!(owners.len(), 1, "{number}: {owners:?}");
            assert_eq!(seen(names, number), Some(Seen::Claimed(owners[0])));
        }
    }

    proptest! {
        #[test]
        fn a_table_tells_what_a_map_would(
            steps in prop::collection::vec((0..400_u32, 0..5_u8), 1..2000),
        ) {
            let (names, mut tally) = laid_out();
            let mut model: HashMap<u32, Seen> = HashMap::new();
            for (number, what) in steps {
                let print = print_of(number);
                let was = model.get(&number).copied().unwrap_or(Seen::Absent);
                match (what, was) {
                    (0, Seen::Asked) => {
                        names.remove(print);
                        model.remove(&number);
                    }
                    (0, Seen::Claimed(place)) => {
                        names.release(&mut tally, print, place, None);
                        model.remove(&number);
                    }
                    (1, Seen::Claimed(place)) => {
                        names.release(&mut tally, print, place, Some(Standing::Plain));
                        model.insert(number, Seen::Plain);
                    }
                    (2, _) => {
                        let mut reserved = names.reserve(&mut tally, print);
                        if reserved == Reserved::Full {
                            prop_assert!(names.grow(&mut tally));
                            reserved = names.reserve(&mut tally, print);
                        }
                        let claimed = matches!(was, Seen::Claimed(_));
                        prop_assert_eq!(reserved == Reserved::Claimed, claimed);
                        if !claimed {
                            model.insert(number, Seen::Asked);
                        }
                    }
                    (3, was) if was != Seen::Asked => {
                        prop_assert!(claim(&names, number, number as usize % 64, was));
                        model.insert(number, Seen::Claimed(number as usize % 64));
                    }
                    (_, Seen::Asked) => {
                        prop_assert!(names.put(&mut tally, print, Standing::Plain));
                        model.insert(number, Seen::Plain);
                    }
                    _ => {}
                }
                if names.is_crowded(&tally) {
                    prop_assert!(names.grow(&mut tally));
                }
            }
            for number in 0..400 {
                let is = model.get(&number).copied().unwrap_or(Seen::Absent);
                prop_assert_eq!(seen(&names, number), Some(is));
            }
        }
    }
}
