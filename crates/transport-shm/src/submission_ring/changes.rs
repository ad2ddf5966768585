//! Changes of a file's attributes: in the record that makes the file, or in a record of their own.
//!
//! Each attribute has a place in the record, and a bit in the record's state says that it counts.
//! It is written before the bit is set and never again, so the daemon reads what one call said,
//! whatever the process does. What has a bit already, and what would count in another order than
//! it was asked for, takes a further record.
//!
//! While a file has its content in an object that its process has made, that object tells when it
//! was modified. So its process sets the time there.

use core::{
    cell::Cell,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use mayfly_sys::arch::Moment;
use mayfly_transport::Certain;
use mayfly_types::{FileId, OpenRef, Timestamp};
use mayfly_wire::{SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_UID};

use super::{
    LATEST, RECORD_CHANGES, RECORD_CLOSED, RECORD_OPENED, RECORD_SUBMITTED, RECORDS, Record,
    SubmissionRing,
    name_table::{NameState, NameTables, Print, Seen},
    record::{PATH_WORDS, word_of},
    state::State,
};

const OWNER: u32 = SET_UID | SET_GID;
const ATIME: u32 = SET_ATIME | SET_ATIME_NOW;
const MTIME: u32 = SET_MTIME | SET_MTIME_NOW;
/// What may be changed so.
const KNOWN: u32 = SET_MODE | OWNER | ATIME | MTIME;
/// So often an attribute is added to a record that the daemon, or another thread that closes the
/// file, changes meanwhile.
const ADD_TRIES: u32 = 3;

/// The attributes of a file to change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Which of the others count (`mayfly_wire::SET_*`, but the length).
    pub which: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access time. With `SET_ATIME_NOW` it is when the processor's counter said these seconds.
    pub atime: Timestamp,
    /// Modification time, in the same way.
    pub mtime: Timestamp,
    /// When and where they are changed.
    pub moment: Moment,
}

/// Which file's attributes are changed.
#[derive(Debug, Clone, Copy)]
pub enum Changed<'a> {
    /// The one of this name, from the directory that is delegated.
    Name(&'a [u8]),
    /// The same, if nothing waits about that name.
    Known(&'a [u8]),
    /// The one that this description is of, which this process has made without asking.
    Open(OpenRef),
}

/// How a change was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submission {
    /// With a record that was there.
    Joined,
    /// In a record of its own.
    Record,
}

/// Where a record has them.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Attributes {
    mode: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    atime_ns: AtomicU32,
    mtime_ns: AtomicU32,
    reserved: AtomicU32,
    atime_seconds: AtomicU64,
    mtime_seconds: AtomicU64,
    /// When they were last changed, by the processor's counter.
    cycles: AtomicU64,
}

impl Attributes {
    pub(super) fn write(&self, changes: &Changes) {
        let Changes { which, mode, uid, gid, atime, mtime, moment } = *changes;
        let seconds = |now: u32, time: Timestamp| {
            if which & now == 0 { time.seconds as u64 } else { moment.cycles }
        };
        if which & SET_MODE != 0 {
            self.mode.store(mode, Relaxed);
        }
        if which & SET_UID != 0 {
            self.uid.store(uid, Relaxed);
        }
        if which & SET_GID != 0 {
            self.gid.store(gid, Relaxed);
        }
        if which & ATIME != 0 {
            self.atime_ns.store(atime.nanoseconds, Relaxed);
            self.atime_seconds.store(seconds(SET_ATIME_NOW, atime), Relaxed);
        }
        if which & MTIME != 0 {
            self.mtime_ns.store(mtime.nanoseconds, Relaxed);
            self.mtime_seconds.store(seconds(SET_MTIME_NOW, mtime), Relaxed);
        }
        self.cycles.store(moment.cycles, Relaxed);
    }

    /// They were not changed later than the record says of the file itself.
    pub(super) fn forget_time(&self) {
        self.cycles.store(0, Relaxed);
    }

    /// Permission bits, owner and group, which were others `before`.
    pub(super) fn owner_after(&self, which: u32, before: (u32, u32, u32)) -> (u32, u32, u32) {
        let changed = |set: u32, to: &AtomicU32, before: u32| {
            if which & set == 0 { before } else { to.load(Relaxed) }
        };
        let (mode, uid, gid) = before;
        (
            changed(SET_MODE, &self.mode, mode) & 0o7777,
            changed(SET_UID, &self.uid, uid),
            changed(SET_GID, &self.gid, gid),
        )
    }

    #[cfg(feature = "server")]
    pub(super) fn read(&self, which: u32) -> Changes {
        let time = |seconds: &AtomicU64, nanoseconds: &AtomicU32| Timestamp {
            seconds: seconds.load(Relaxed) as i64,
            nanoseconds: nanoseconds.load(Relaxed),
        };
        Changes {
            which: which & KNOWN,
            mode: self.mode.load(Relaxed),
            uid: self.uid.load(Relaxed),
            gid: self.gid.load(Relaxed),
            atime: time(&self.atime_seconds, &self.atime_ns),
            mtime: time(&self.mtime_seconds, &self.mtime_ns),
            moment: Moment { cycles: self.cycles.load(Relaxed), processor: 0 },
        }
    }
}

impl Record {
    /// Whether the record is about a regular file, which has its name after it.
    fn is_of_file(&self) -> bool {
        let kind = State(self.state.load(Relaxed)).kind();
        matches!(kind, RECORD_SUBMITTED | RECORD_CLOSED | RECORD_OPENED | RECORD_CHANGES)
    }

    /// Has these change with the record, if nothing has been executed of it. `time_object` sets
    /// times of the object that has the content.
    fn add_changes(&self, changes: &Changes, time_object: &mut dyn FnMut(OpenRef) -> bool) -> bool {
        let mut changes = *changes;
        let state = State(self.state.load(SeqCst));
        if state.is_started() && changes.which & (ATIME | MTIME) != 0 {
            let is_known = state.kind() != RECORD_CHANGES && state.is_in_object();
            if !is_known || state.is_taken() || !time_object(self.promise()) {
                return false;
            }
            changes.which &= !MTIME;
        }
        for _ in 0..ADD_TRIES {
            let state = State(self.state.load(SeqCst));
            if state.is_taken() || !goes_with(state.changes(), changes.which) {
                return false;
            }
            if changes.which == 0 {
                return true;
            }
            self.attributes.write(&changes);
            if self.change(state, state.and_changes(changes.which)) {
                return true;
            }
        }
        false
    }
}

/// Whether `more` can be changed by the record that changes `which`.
fn goes_with(which: u32, more: u32) -> bool {
    let fields = [SET_MODE, SET_UID, SET_GID, ATIME, MTIME];
    let twice = fields.iter().any(|field| which & field != 0 && more & field != 0);
    // A change of owner takes bits from the mode that was there before.
    let too_late = which & SET_MODE != 0 && more & OWNER != 0;
    !twice && !too_late
}

impl SubmissionRing {
    /// Submits a change of attributes; `None` when it is to be asked for. `certain` says, of a name
    /// that is claimed, and that nothing waits about, whether it is a regular file's that has no
    /// other name, and which attributes its record has; with a description, whether of this file.
    /// It is asked for the path from the directory that is delegated, whose identity comes first.
    /// One thread at a time.
    #[must_use]
    pub fn submit_changes(
        &self,
        given: (&NameTables, u32),
        changed: Changed<'_>,
        changes: &Changes,
        certain: impl FnOnce(FileId, &[u8]) -> Certain,
    ) -> Option<Submission> {
        self.submit_changes_with(given, changed, changes, (certain, &mut |_| false))
    }

    /// The same of files in whose objects `time_object` can set these times, too: those that were
    /// made for the file of a promised description.
    #[must_use]
    pub fn submit_changes_with(
        &self,
        (tables, delegation): (&NameTables, u32),
        changed: Changed<'_>,
        changes: &Changes,
        (certain, time_object): (
            impl FnOnce(FileId, &[u8]) -> Certain,
            &mut dyn FnMut(OpenRef) -> bool,
        ),
    ) -> Option<Submission> {
        if changes.which & !KNOWN != 0 || changes.which == 0 {
            return None;
        }
        let mut room = [[0; 8]; PATH_WORDS];
        let (path, open) = match changed {
            Changed::Name(path) | Changed::Known(path) => (path, None),
            Changed::Open(open) => {
                let place = self.made_lately(open)?;
                // Whatever the file is called by now.
                if self.records[place].add_changes(changes, time_object) {
                    return Some(Submission::Joined);
                }
                (self.records[place].path(&mut room), Some(open))
            }
        };
        let (names, print, count) = (self.names(tables), Print::of(path), self.count());
        let joins = !matches!(changed, Changed::Known(_));
        if let Some(Seen::Claimed(place)) = names.seen(print)
            && joins
            && self.is_file_of_own(print, place, open, count)
            && self.records[place].add_changes(changes, time_object)
        {
            return Some(Submission::Joined);
        }
        // Whether an object has the times. Then none may be added to the record later.
        let started = Cell::new(false);
        let may = |before: Seen| {
            let certain = match before {
                Seen::Claimed(place) if joins && self.is_file_of_own(print, place, open, count) => {
                    match State(self.records[place].state.load(Relaxed)).is_started() {
                        true => Certain::AllButTimes,
                        false => Certain::All,
                    }
                }
                Seen::Claimed(_) => Certain::Nothing,
                _ => certain(FileId(self.directory.load(Relaxed)), path),
            };
            started.set(certain == Certain::AllButTimes);
            match certain {
                Certain::All => true,
                Certain::AllButTimes => changes.which & (ATIME | MTIME) == 0,
                Certain::Nothing => false,
            }
        };
        let is_plain = (Some(NameState::Plain), Some(NameState::Plain));
        let write = |record: &Record| record.write_changes(path, open, changes, started.get());
        self.submit_if((tables, delegation), path, is_plain, (may, write))
            .map(|_| Submission::Record)
    }

    /// Whether the record of a place, which has claimed the name, waits and is about a regular
    /// file, that of the description if there is one.
    pub(super) fn is_file_of_own(
        &self,
        print: Print,
        place: usize,
        open: Option<OpenRef>,
        count: u32,
    ) -> bool {
        let record = &self.records[place];
        self.own_state(print, place, count) == Some(Some(NameState::Plain))
            && record.is_of_file()
            && open.is_none_or(|open| record.of_open.load(Relaxed) == word_of(open))
    }

    /// The place of the record that made the file of a description, if that was lately; it may be
    /// executed.
    fn made_lately(&self, open: OpenRef) -> Option<usize> {
        let count = self.count();
        (1..=LATEST).map(|back| count.wrapping_sub(back) as usize % RECORDS).find(|place| {
            let record = &self.records[*place];
            let kind = State(record.state.load(Relaxed)).kind();
            matches!(kind, RECORD_SUBMITTED | RECORD_OPENED)
                && record.of_open.load(Relaxed) == word_of(open)
        })
    }
}

#[cfg(all(test, feature = "server"))]
mod tests;
