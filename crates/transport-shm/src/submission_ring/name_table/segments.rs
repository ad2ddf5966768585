//! The daemon's side of the name tables: which segments a table has, what is in them, and what
//! happens when one is full.
//!
//! The daemon finds names by its own copy of what the head of a table says. What stands in the
//! slots is anybody's; it is bounded by their number.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use super::{
    CLAIMED_ENTERED, DEPTH_MAX, EMPTY, IN_USE, NameState, NameTable, NameTables, Print, REMOVED,
    SEGMENT_SLOTS, SEGMENTS, Seen, Segment, Slot, Slots, TRIES,
};
use crate::raw;

/// Fewest slots of a table.
const SLOTS_MIN: usize = 1 << 9;
/// So many segments that no table has any more keep their memory for the next one: 1 MiB.
const SPARE_MAX: usize = 8;

/// Segments are full at so many different numbers of names, since all of them have about the same
/// number, and would be divided one upon the other.
const LIMITS: usize = 16;

/// Segments that no table has.
#[derive(Debug, Default)]
pub struct Spare {
    /// Those that had names, and have their memory still.
    used: Vec<u16>,
    /// The others.
    clean: Vec<u16>,
}

impl Spare {
    /// All of them, while nothing is delegated. What they had is given back.
    #[must_use]
    pub fn all(tables: &NameTables) -> Spare {
        give_back(&tables.segments);
        Spare { used: Vec::new(), clean: (0..SEGMENTS as u16).rev().collect() }
    }

    fn take(&mut self) -> Option<u16> {
        self.used.pop().or_else(|| self.clean.pop())
    }

    /// Takes the segments of a table that nobody uses any more.
    pub fn take_in(&mut self, tally: Tally) {
        self.used.extend(tally.held.into_iter().map(|held| held.segment));
    }

    /// Whether memory may be given back.
    #[must_use]
    pub fn has_too_many(&self) -> bool {
        self.used.len() > SPARE_MAX
    }

    /// Gives the memory of some segments back, as long as there are too many that have it.
    pub fn give_back(&mut self, tables: &NameTables, at_most: usize) {
        for _ in 0..at_most.min(self.used.len().saturating_sub(SPARE_MAX)) {
            let Some(segment) = self.used.pop() else { break };
            let place = usize::from(segment);
            give_back(&tables.segments[place..=place]);
            self.clean.push(segment);
        }
    }
}

/// Gives the memory of segments back, if that can be done: each is laid out anew before it is used.
fn give_back(segments: &[Segment]) {
    // SAFETY: the segments consist of atomics, of which zeros are a value.
    unsafe { raw::give_back(segments.as_ptr().cast(), size_of_val(segments)) };
}

/// A segment of a table.
#[derive(Debug)]
struct Held {
    segment: u16,
    /// So many bits of a part lead to it.
    depth: u32,
    /// Slots that are not empty, or more.
    used: usize,
    /// With so many there is no room for more.
    limit: usize,
    /// It is among those that are crowded.
    crowded: bool,
}

/// What the daemon knows of a table.
#[derive(Debug, Default)]
pub struct Tally {
    /// Slots in use of each segment.
    slots: usize,
    /// Its segments.
    held: Vec<Held>,
    /// Which of these is meant, by the bits of a part that count.
    parts: Vec<u16>,
    /// Those that should be laid out anew.
    crowded: Vec<usize>,
}

impl Held {
    fn new(segment: u16, depth: u32) -> Held {
        Held { segment, depth, used: 0, limit: 0, crowded: false }
    }

    /// With so many slots that are not empty there is no room for more, of so many in use.
    fn limit(&self, slots: usize) -> usize {
        let most = slots / 4 * 3;
        if slots < SEGMENT_SLOTS || self.depth == DEPTH_MAX {
            return most;
        }
        most - usize::from(self.segment) % LIMITS * (SEGMENT_SLOTS / 4 / LIMITS)
    }
}

impl Tally {
    /// In which of the segments a name is found.
    fn find(&self, print: Print) -> Option<usize> {
        let mask = self.parts.len().checked_sub(1)?;
        Some(usize::from(self.parts[print.part() & mask]))
    }

    fn has_room(&self, at: usize) -> bool {
        self.held[at].used < self.held[at].limit
    }

    /// A slot is not empty any more.
    fn count(&mut self, at: usize) {
        let held = &mut self.held[at];
        held.used += 1;
        if held.used >= held.limit && !held.crowded {
            held.crowded = true;
            self.crowded.push(at);
        }
    }

    /// Whether the table should be laid out anew somewhere.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        !self.crowded.is_empty()
    }

    /// Adds a segment for the names of another one that have the next bit.
    fn divide(&mut self, at: usize, segment: u16) -> usize {
        let depth = self.held[at].depth;
        if self.parts.len() == 1 << depth {
            self.parts.extend_from_within(..);
        }
        let new = self.held.len();
        self.held.push(Held::new(segment, depth + 1));
        self.held[at].depth = depth + 1;
        for (part, held) in self.parts.iter_mut().enumerate() {
            if usize::from(*held) == at && part >> depth & 1 == 1 {
                *held = new as u16;
            }
        }
        new
    }
}

impl Slot<'_> {
    fn is_asked(&self) -> bool {
        self.seen() == Seen::There(NameState::AskDaemon)
    }
}

impl<'a> Slots<'a> {
    fn in_use(self) -> impl Iterator<Item = &'a AtomicU64> {
        self.words[..=self.mask].iter()
    }
}

/// What became of the wish that nobody submits about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// Nobody does, and nobody has.
    Done,
    /// Somebody may have, or be about to; or in the directory of that name.
    Claimed,
    /// There is no room for the name.
    Full,
}

/// How a directory inside stands in whose names something is going to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// Its names are in the table.
    Covered,
    /// Somebody has submitted something about the directory, or is about to.
    Claimed,
    /// Its names are not in the table.
    Uncovered,
}

impl<'a> NameTable<'a> {
    fn held_slots(&self, tally: &Tally, at: usize) -> Slots<'a> {
        let words = &self.segments[usize::from(tally.held[at].segment)].0;
        Slots { words, mask: tally.slots - 1 }
    }

    /// The slot of a name, as a client finds it, and in which of the segments it is.
    fn look(&self, tally: &Tally, print: Print) -> Option<(Slot<'a>, usize)> {
        let at = tally.find(print)?;
        self.held_slots(tally, at).look(print).map(|slot| (slot, at))
    }

    /// Lays out an empty table that is to have so many names, while nobody may submit; false when
    /// there is no memory for it.
    #[must_use]
    pub fn lay_out(&self, tally: &mut Tally, spare: &mut Spare, names: usize) -> bool {
        spare.take_in(core::mem::take(tally));
        let Some(segment) = spare.take() else { return false };
        tally.held = vec![Held::new(segment, 0)];
        tally.parts = vec![0];
        tally.slots = slots_for(names.saturating_mul(2));
        self.clear(tally, 0);
        self.show(tally);
        true
    }

    fn clear(&self, tally: &mut Tally, at: usize) {
        self.held_slots(tally, at).in_use().for_each(|word| word.store(EMPTY, Relaxed));
        let held = &mut tally.held[at];
        (held.used, held.limit) = (0, held.limit(tally.slots));
    }

    /// Says to clients where the names are, while nobody may submit.
    fn show(&self, tally: &Tally) {
        for (segment, at) in self.head.segments.iter().zip(&tally.parts) {
            segment.store(tally.held[usize::from(*at)].segment.into(), Relaxed);
        }
        self.head.mask.store(tally.parts.len() as u32 - 1, Relaxed);
        self.head.slots.store(tally.slots as u32, Release);
    }

    /// Notes how a name stands, while nobody may submit about it; false when there is no room for
    /// it.
    #[must_use]
    pub fn put(&self, tally: &mut Tally, print: Print, name_state: NameState) -> bool {
        let word = print.word_for(name_state);
        for _ in 0..TRIES {
            let Some((slot, at)) = self.look(tally, print) else { break };
            if slot.seen != EMPTY {
                slot.word.store(word, Release);
                return true;
            }
            if !tally.has_room(at) {
                return false;
            }
            if slot.change(word) {
                tally.count(at);
                return true;
            }
        }
        false
    }

    /// Notes that a name is to be asked for, beside those who submit, unless one of them has
    /// claimed it.
    pub fn reserve(&self, tally: &mut Tally, print: Print) -> Reserved {
        for _ in 0..TRIES {
            let Some((slot, at)) = self.look(tally, print) else { break };
            match slot.seen() {
                Seen::There(NameState::AskDaemon) => return Reserved::Done,
                Seen::Claimed(_)
                | Seen::Entered(_)
                | Seen::There(NameState::NewDirectory | NameState::Covered) => {
                    return Reserved::Claimed;
                }
                Seen::Absent if !tally.has_room(at) => return Reserved::Full,
                Seen::Absent | Seen::There(_) => {}
            }
            if slot.change(print.word_for(NameState::AskDaemon)) {
                if slot.seen == EMPTY {
                    tally.count(at);
                }
                return Reserved::Done;
            }
        }
        Reserved::Full
    }

    /// How the name of a directory stands in whose names something is going to change: what is made
    /// there by asking is something that is in it.
    pub fn enter(&self, tally: &Tally, print: Print) -> Entered {
        for _ in 0..TRIES {
            let Some((slot, _)) = self.look(tally, print) else { break };
            match slot.seen() {
                Seen::Absent | Seen::There(NameState::AskDaemon | NameState::Plain) => break,
                Seen::There(NameState::Covered) | Seen::Entered(_) => return Entered::Covered,
                Seen::Claimed(_) => return Entered::Claimed,
                Seen::There(NameState::NewDirectory) => {}
            }
            if slot.enter() {
                return Entered::Covered;
            }
        }
        Entered::Uncovered
    }

    /// The same where the name is claimed, while nobody may submit and what was submitted is
    /// executed: from its commit on the directory is covered, if it is there.
    pub fn enter_claimed(&self, tally: &Tally, print: Print) -> bool {
        for _ in 0..TRIES {
            match self.look(tally, print) {
                Some((slot, _)) if matches!(slot.seen(), Seen::Claimed(_)) => {
                    if slot.enter() {
                        return true;
                    }
                }
                _ => break,
            }
        }
        self.enter(tally, print) == Entered::Covered
    }

    /// Whether names of the directory are in the table, or are going to be when something is made
    /// in it.
    pub fn covers(&self, tally: &Tally, print: Print) -> bool {
        let slot = self.look(tally, print);
        slot.is_some_and(|(slot, _)| {
            use NameState::{Covered, NewDirectory};
            matches!(slot.seen(), Seen::There(Covered | NewDirectory) | Seen::Entered(_))
        })
    }

    /// Whether a name is one that is to be asked for.
    pub fn is_asked(&self, tally: &Tally, print: Print) -> bool {
        self.look(tally, print).is_some_and(|(slot, _)| slot.is_asked())
    }

    /// Has a covered directory be one that is to be asked for; whether it is covered.
    pub fn leave(&self, tally: &Tally, print: Print) -> bool {
        self.look(tally, print).is_some_and(|(slot, _)| {
            slot.seen() == Seen::There(NameState::Covered)
                && slot.change(print.word_for(NameState::AskDaemon))
        })
    }

    /// A directory whose name is to be asked for stands so from now on: its names are in the table.
    pub fn cover(&self, tally: &Tally, print: Print, name_state: NameState) -> bool {
        self.look(tally, print)
            .is_some_and(|(slot, _)| slot.is_asked() && slot.change(print.word_for(name_state)))
    }

    /// How a name stands that the record of a place was about, now that this is committed; none: it
    /// is gone. Whoever has submitted another record about it keeps it.
    pub fn release(
        &self,
        tally: &mut Tally,
        print: Print,
        place: usize,
        name_state: Option<NameState>,
    ) {
        let Some(at) = tally.find(print) else { return };
        if name_state.is_some() {
            // Its slot may have been new.
            tally.count(at);
        }
        for _ in 0..TRIES {
            let Some(slot) = self.held_slots(tally, at).look(print) else { return };
            let name_state = match name_state {
                Some(NameState::NewDirectory) if slot.seen & CLAIMED_ENTERED != 0 => {
                    Some(NameState::Covered)
                }
                name_state => name_state,
            };
            let is_claimed = slot.seen & !CLAIMED_ENTERED == print.claimed(place);
            // Its process may be submitting another record about it at this moment, or in it.
            if !is_claimed
                || slot.change(name_state.map_or(REMOVED, |name_state| print.word_for(name_state)))
            {
                return;
            }
        }
    }

    /// Notes that a name is gone which nobody may submit about.
    pub fn remove(&self, tally: &Tally, print: Print) {
        if let Some((slot, _)) = self.look(tally, print).filter(|(slot, _)| slot.seen != EMPTY) {
            slot.word.store(REMOVED, Release);
        }
    }

    /// Notes how a name stands, and makes room for it where there is none, while nobody may submit:
    /// what was submitted keeps its claims. False when there is none to be had.
    #[must_use]
    pub fn add(
        &self,
        tally: &mut Tally,
        spare: &mut Spare,
        (print, name_state): (Print, NameState),
    ) -> bool {
        self.put(tally, print, name_state)
            || self.make_room(tally, spare, print) && self.put(tally, print, name_state)
    }

    fn make_room(&self, tally: &mut Tally, spare: &mut Spare, print: Print) -> bool {
        tally.find(print).is_some_and(|at| self.lay_out_again(tally, spare, at))
    }

    /// The same where the table is crowded, in at most so many of its segments.
    #[must_use]
    pub fn relieve(&self, tally: &mut Tally, spare: &mut Spare, at_most: usize) -> bool {
        for _ in 0..at_most {
            let Some(at) = tally.crowded.pop() else { break };
            tally.held[at].crowded = false;
            if !tally.has_room(at) && !self.lay_out_again(tally, spare, at) {
                return false;
            }
        }
        true
    }

    /// Lays a segment out anew, without what is gone; one that has too many names for that is
    /// divided.
    fn lay_out_again(&self, tally: &mut Tally, spare: &mut Spare, at: usize) -> bool {
        let words = self.held_slots(tally, at).in_use().map(|word| word.load(Relaxed));
        let words: Vec<u64> = words.collect();
        let is_kept = |word: &&u64| **word & IN_USE != 0;
        let kept = words.iter().filter(is_kept).count();
        let mut new = at;
        if tally.slots < SEGMENT_SLOTS {
            tally.slots = slots_for(kept * 4);
        } else if kept > tally.held[at].limit - SEGMENT_SLOTS / 8 {
            let free = if tally.held[at].depth < DEPTH_MAX { spare.take() } else { None };
            let Some(segment) = free else { return false };
            new = tally.divide(at, segment);
            self.clear(tally, new);
        }
        self.clear(tally, at);
        self.show(tally);
        let bit = tally.held[at].depth.saturating_sub(1);
        let halves = [at, new].map(|half| self.held_slots(tally, half));
        let mut used = [0; 2];
        for &word in words.iter().filter(is_kept) {
            let half = Print(word).part() >> bit & 1;
            let mut row = halves[half].row(Print(word));
            let Some(empty) = row.find(|slot| slot.load(Relaxed) == EMPTY) else { return false };
            empty.store(word, Relaxed);
            used[half] += 1;
        }
        tally.held[at].used += used[0];
        tally.held[new].used += used[1];
        true
    }
}

/// Slots of a segment of which so many may be wanted.
fn slots_for(slots: usize) -> usize {
    slots.clamp(SLOTS_MIN, SEGMENT_SLOTS).next_power_of_two()
}

#[cfg(test)]
mod tests;
