//! Which names a delegated directory has.
//!
//! A table of *prints*: a slot for each name, found by open addressing, one table for all who have
//! the directory delegated. The daemon fills it when it delegates the directory, and notes each
//! name that comes or goes. A process that submits something about a name *claims* its slot first,
//! by a compare-and-swap: so of several processes one submits about a name, and the others ask. The
//! daemon releases the slot when what was submitted is committed.
//!
//! What a process finds holds as long as the delegation that it submits under. A claim of a process
//! that did not come to submit is taken back by it, and if it died, found by the first who asks.
//!
//! **A table consists of segments** of a fixed size, as in extendible hashing (Fagin et al., 1979):
//! some bits of a name's print say in which one it is found. A segment that is full is divided, and
//! the bit that tells the halves apart counts from then on, while the others stay as they are. So
//! the daemon never does more at a time than what one segment takes, however many names there are,
//! and a directory of few names has a part of one. All tables have their segments from one supply.
//!
//! **One slot for each name**: a new name takes the first slot of its row that was never used, and
//! slots become unused only when their segment is laid out anew, while nobody may submit. So two
//! who claim the same name meet at the same slot.
//!
//! **Directories inside** that were made by who submits, or that the daemon has looked into, are
//! *covered*: their names are in the table, too, each with the path that leads there from the
//! directory that is delegated. So a tree is made without asking. The slot of such a directory's
//! own name says that it is covered, and whether something may have been made in it; whoever
//! submits in it looks there first.
//!
//! A print stands for its name: 61 bits of a hash where the name may be removed without asking, 60
//! where it is a directory's that is submitted in, 54 where somebody has claimed it. That a name
//! which is not there has the print of one that is happens once in 10¹² looks into a table of a
//! million; the fewer bits only have it asked for.

#[cfg(feature = "server")]
mod segments;

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

#[cfg(feature = "server")]
pub use segments::{Entered, Reserved, Spare, Tally};

use super::RINGS;
use crate::words;

/// Slots of a segment.
const SEGMENT_SLOTS: usize = 1 << 14;
/// Segments of all tables: 64 MiB.
const SEGMENTS: usize = 1 << 9;
/// Of so many bits at most the lowest ones tell in which segment of its table a name is found.
const DEPTH_MAX: u32 = 7;
/// Most segments of a table: 16 MiB.
const PARTS_MAX: usize = 1 << DEPTH_MAX;
/// Most slots of a table.
pub const SLOTS_MAX: usize = SEGMENT_SLOTS * PARTS_MAX;
/// Longest row of slots that is looked through for a name.
const PROBES_MAX: usize = 1 << 10;
/// So often a slot is looked at again that others have changed meanwhile.
const TRIES: u32 = 16;

/// Nothing was here since the table was laid out.
const EMPTY: u64 = 0;
/// What was here is gone; others may follow.
const REMOVED: u64 = 3;
/// The bits that say how a name stands: claimed by who submitted the record of the place that
/// follows.
const KIND: u64 = 3;
/// Whoever wants something of the name asks.
const ASK_DAEMON: u64 = 1;
/// It is there, and no directory.
const PLAIN: u64 = 2;
/// It is a directory all of whose names are in the table; [`REMOVED`] has no print.
const DIRECTORY: u64 = 3;
/// With [`DIRECTORY`]: something may have been made in it.
const ENTERED: u64 = 1 << 2;
/// Below the part of the print that every word has: more of it where the name may be removed, the
/// place where it is claimed.
const DETAIL_BITS: u32 = 10;
const PLACE_SHIFT: u32 = 2;
/// With the place: the same as [`ENTERED`].
const CLAIMED_ENTERED: u64 = 1 << (DETAIL_BITS - 1);
/// Part of every print, so that no word is one of the above.
const IN_USE: u64 = 1 << 63;

/// What stands for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print(u64);

impl Print {
    /// The print of a name: multiplications and shifts on eight bytes at a time, as MurmurHash's
    /// finish has them, so that two names of one word never have the same before bits are left out.
    #[must_use]
    pub fn of(name: &[u8]) -> Print {
        let hash = words::of(name).fold(name.len() as u64, |hash, word| mixed(hash ^ word));
        Print(hash & !KIND | IN_USE)
    }

    /// The print, and how its name stands for who has submitted something about it.
    pub(super) fn with(self, name_state: Option<NameState>) -> u64 {
        match name_state {
            None => self.0,
            Some(NameState::AskDaemon | NameState::Covered) => self.0 | ASK_DAEMON,
            Some(NameState::Plain) => self.0 | PLAIN,
            Some(NameState::NewDirectory) => self.0 | DIRECTORY,
        }
    }

    /// The same, if the word is about the name; none when that is to be asked for.
    pub(super) fn state_in(self, word: u64) -> Option<Option<NameState>> {
        if word & !KIND != self.0 {
            return None;
        }
        match word & KIND {
            ASK_DAEMON => None,
            PLAIN => Some(Some(NameState::Plain)),
            DIRECTORY => Some(Some(NameState::NewDirectory)),
            _ => Some(None),
        }
    }

    fn short(self) -> u64 {
        self.0 >> DETAIL_BITS << DETAIL_BITS
    }

    fn claimed(self, place: usize) -> u64 {
        self.short() | (place as u64) << PLACE_SHIFT
    }

    #[cfg(feature = "server")]
    fn word_for(self, name_state: NameState) -> u64 {
        match name_state {
            NameState::AskDaemon => self.short() | ASK_DAEMON,
            NameState::Covered => self.0 | ENTERED | DIRECTORY,
            NameState::NewDirectory => self.0 & !ENTERED | DIRECTORY,
            name_state @ NameState::Plain => self.with(Some(name_state)),
        }
    }

    /// Is the word of a slot about this name?
    fn is_in(self, word: u64) -> bool {
        let differs = word ^ self.0;
        match word & KIND {
            PLAIN => differs & !KIND == 0,
            DIRECTORY => differs & !(KIND | ENTERED) == 0,
            _ => differs >> DETAIL_BITS == 0,
        }
    }

    /// The slot where the row of its name begins, lowest bits first.
    fn slot(self) -> usize {
        (self.0 >> SLOT_SHIFT) as usize
    }

    /// What of it tells in which segment its name is found, lowest bits first.
    fn part(self) -> usize {
        (self.0 >> PART_SHIFT) as usize
    }
}

/// The bits of a print above this one are its slot.
const SLOT_SHIFT: u32 = 40;
/// Those above this one are its part.
const PART_SHIFT: u32 = SLOT_SHIFT + SEGMENT_SLOTS.ilog2();

const _: () = assert!(super::RECORDS << PLACE_SHIFT <= CLAIMED_ENTERED as usize);
const _: () = assert!(PART_SHIFT + DEPTH_MAX < u64::BITS - 1 && SLOT_SHIFT >= DETAIL_BITS);

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

/// How a name stands that is, or may be, there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameState {
    /// It is there, and no directory.
    Plain,
    /// It is a directory in which nothing was made; its names are going to be in the table.
    NewDirectory,
    /// It is a directory all of whose names are in the table.
    Covered,
    /// Whoever wants something of it asks.
    AskDaemon,
}

/// What a slot says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is not there.
    Absent,
    /// It is there, and so.
    There(NameState),
    /// Somebody has submitted something about it, or is about to, with the record of that place.
    Claimed(usize),
    /// The same of a directory that is covered, and in which something may have been made.
    Entered(usize),
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
                PLAIN => Seen::There(NameState::Plain),
                DIRECTORY if word & ENTERED != 0 => Seen::There(NameState::Covered),
                DIRECTORY => Seen::There(NameState::NewDirectory),
                ASK_DAEMON => Seen::There(NameState::AskDaemon),
                _ if word & CLAIMED_ENTERED != 0 => Seen::Entered(place_in(word)),
                _ => Seen::Claimed(place_in(word)),
            },
        }
    }

    fn change(self, to: u64) -> bool {
        self.word.compare_exchange(self.seen, to, AcqRel, Acquire).is_ok()
    }

    /// Something may have been made in this directory from now on.
    fn enter(self) -> bool {
        match self.seen & KIND {
            DIRECTORY => self.change(self.seen | ENTERED),
            _ => self.change(self.seen | CLAIMED_ENTERED),
        }
    }
}

/// The place of a record that has claimed a name, in its word.
fn place_in(word: u64) -> usize {
    (word >> PLACE_SHIFT) as usize % super::RECORDS
}

/// A name that is claimed for a record.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    slot: Slot<'a>,
    claimed: u64,
}

impl Claim<'_> {
    /// How the name stood before.
    pub(super) fn before(&self) -> Seen {
        self.slot.seen()
    }

    /// The record was not submitted.
    pub(super) fn give_up(self) {
        // Others may have passed the slot.
        let before = if self.slot.seen == EMPTY { REMOVED } else { self.slot.seen };
        let slot = |seen| Slot { seen, ..self.slot };
        if !slot(self.claimed).change(before) {
            // The daemon has noted how the name stands meanwhile, or made something in it.
            let entered = if before & KIND == DIRECTORY { before | ENTERED } else { before };
            let _ = slot(self.claimed | CLAIMED_ENTERED).change(entered);
        }
    }
}

/// A part of a table.
#[repr(C, align(4096))]
#[derive(Debug)]
struct Segment([AtomicU64; SEGMENT_SLOTS]);

/// Where the names of a directory are found.
#[repr(C, align(64))]
#[derive(Debug)]
struct Head {
    /// Slots in use of each of its segments, a power of two; 0: none.
    slots: AtomicU32,
    /// Which bits of a print's part count.
    mask: AtomicU32,
    padding: [AtomicU32; 14],
    /// By these bits the number of the segment.
    segments: [AtomicU32; PARTS_MAX],
}

/// The name tables, one for each directory that is delegated.
#[repr(C)]
#[derive(Debug)]
pub struct NameTables {
    heads: [Head; RINGS],
    segments: [Segment; SEGMENTS],
}

impl NameTables {
    /// The table with this number.
    #[must_use]
    pub fn names(&self, table: usize) -> NameTable<'_> {
        NameTable { head: &self.heads[table % RINGS], segments: &self.segments }
    }
}

/// A name table.
#[derive(Debug, Clone, Copy)]
pub struct NameTable<'a> {
    head: &'a Head,
    segments: &'a [Segment; SEGMENTS],
}

impl<'a> NameTable<'a> {
    /// The slots among which a name has its own; none when the table tells nothing.
    fn slots(&self, print: Print) -> Option<Slots<'a>> {
        let slots = self.head.slots.load(Acquire) as usize;
        let part = print.part() & self.head.mask.load(Relaxed) as usize;
        let segment = self.head.segments[part % PARTS_MAX].load(Relaxed) as usize;
        let words = &self.segments[segment % SEGMENTS].0;
        (slots != 0).then(|| Slots { words, mask: (slots - 1) % SEGMENT_SLOTS })
    }

    /// Claims a name for the record of a place, if `may` says so of how it stands.
    pub(super) fn claim(
        &self,
        print: Print,
        place: usize,
        may: impl Fn(Seen) -> bool,
    ) -> Option<Claim<'a>> {
        let claimed = print.claimed(place);
        for _ in 0..TRIES {
            let slot = self.slots(print)?.look(print)?;
            if !may(slot.seen()) {
                return None;
            }
            if slot.change(claimed) {
                return Some(Claim { slot, claimed });
            }
        }
        None
    }

    /// How a name stands; none when the table tells nothing of it.
    pub(super) fn seen(&self, print: Print) -> Option<Seen> {
        Some(self.slots(print)?.look(print)?.seen())
    }

    /// Whether something may be submitted in the directory with this name: all of its names are in
    /// the table, and from here on something may be in it. `made` says whether the record of a
    /// place makes it, for the one who asks.
    pub(super) fn leads_into(&self, print: Print, made: impl Fn(usize) -> bool) -> bool {
        for _ in 0..TRIES {
            let Some(slot) = self.slots(print).and_then(|slots| slots.look(print)) else { break };
            match slot.seen() {
                Seen::There(NameState::Covered) => return true,
                Seen::Entered(place) => return made(place),
                Seen::There(NameState::NewDirectory) => {}
                Seen::Claimed(place) if made(place) => {}
                _ => break,
            }
            if slot.enter() {
                return true;
            }
        }
        false
    }
}

/// The slots in use of a segment.
#[derive(Debug, Clone, Copy)]
struct Slots<'a> {
    words: &'a [AtomicU64; SEGMENT_SLOTS],
    /// One less than their number.
    mask: usize,
}

impl<'a> Slots<'a> {
    /// The row of a name.
    fn row(self, print: Print) -> impl Iterator<Item = &'a AtomicU64> {
        let first = print.slot();
        let steps = PROBES_MAX.min(self.mask + 1);
        (0..steps).map(move |step| &self.words[(first + step) & (self.mask % SEGMENT_SLOTS)])
    }

    /// The slot of a name, or the one that it takes if it is new; none when these tell nothing.
    fn look(self, print: Print) -> Option<Slot<'a>> {
        self.row(print).find_map(|word| {
            let seen = word.load(Acquire);
            (seen == EMPTY || print.is_in(seen)).then_some(Slot { word, seen })
        })
    }
}

// What `docs/design/shm.md` states.
const _: () = assert!(size_of::<Head>() == 576);
const _: () = assert!(core::mem::offset_of!(NameTables, segments) == 36_864);
const _: () = assert!(size_of::<NameTables>() == 36_864 + 512 * 131_072);
