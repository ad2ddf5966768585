//! What a process knows by its ring and the name table alone.
//!
//! **A name that is not there**, in a delegated directory: the table has all names, and those that
//! others are about to make are claimed. So it is known, too, that a name is there; and any process
//! finds out about a name in a directory that somebody has delegated whether something waits about
//! it. If not, the records are right about it.
//!
//! **A file that was submitted** and is not executed yet.
//!
//! Its process knows all of it but when it is made. It says that itself, when it looks for the
//! first time, and the daemon keeps to it. Its identity is promised with the description, in whose
//! entry it stands.

use core::sync::atomic::{
    Ordering::{Acquire, Relaxed},
    fence,
};

use mayfly_types::{FileId, OpenRef, Timestamp};
use mayfly_wire::{SET_GID, SET_UID};

use super::{
    RECORD_CLOSED, RECORD_SUBMITTED, Record, SubmissionRing,
    name_table::{NameState, NameTable, NameTables, Print, Seen},
    record::PATH_WORDS,
    split,
    state::State,
};

/// Permission bits that a change of owner may take away.
const SET_ID_BITS: u32 = 0o6000;

/// What a look at a file tells that was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitting {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Content, bytes.
    pub bytes: usize,
}

/// The directories on a path to one, the first one first. One whose name is none is not found.
fn directories(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.chain([path.len()]).filter_map(|end| path.get(..end))
}

impl Record {
    pub(super) fn look(&self, state: State, now: Timestamp) -> Option<Submitting> {
        let bytes = state.content();
        let (mode, uid, gid) = self.owner_after(state)?;
        self.seen_seconds.store(now.seconds as u64, Relaxed);
        self.seen_ns.store(now.nanoseconds, Relaxed);
        self.seen_bytes.store(bytes as u32, Relaxed);
        let told = Submitting { mode, uid, gid, bytes };
        // What was changed so far has that time, too.
        self.attributes.forget_time();
        self.change(state, state.and_seen()).then_some(told)
    }

    /// Permission bits, owner and group of the file that the record makes. None where a change of
    /// owner takes bits away.
    fn owner_after(&self, state: State) -> Option<(u32, u32, u32)> {
        let (mode, uid, gid) = (&self.mode, &self.uid, &self.gid);
        let before = (mode.load(Relaxed) & 0o7777, uid.load(Relaxed), gid.load(Relaxed));
        let is_plain = before.0 & SET_ID_BITS == 0 || state.changes() & (SET_UID | SET_GID) == 0;
        is_plain.then(|| self.attributes.owner_after(state.changes(), before))
    }

    /// Whether a look at the file tells all of it: nobody has executed the record, and its process
    /// has not looked. What was changed so far has the time of the look then, which is later.
    fn may_be_told(&self, state: State) -> bool {
        !(state.is_seen() || state.is_started() || state.replaces() || state.is_taken())
            && state.may_be_written()
    }
}

impl SubmissionRing {
    /// Whether certainly nothing waits that was submitted about the name at the end of this path
    /// from the delegated directory, and nothing is about to be removed or made on the way. For any
    /// process, whoever has the directory delegated.
    #[must_use]
    pub fn leaves_alone(&self, tables: &NameTables, path: &[u8]) -> bool {
        let delegation = self.delegation.load(Acquire);
        let is_still_its = || (self.published.load(Acquire) >> 32) as u32 == delegation;
        if delegation == 0 || !is_still_its() {
            return false;
        }
        let names = self.names(tables);
        let seen = |path| names.seen(Print::of(path));
        let is_covered =
            |seen| matches!(seen, Some(Seen::There(NameState::Covered | NameState::NewDirectory)));
        if let [inside @ .., _slash] = split(path).0
            && !is_covered(seen(inside))
        {
            // In a directory whose names are not in the table nobody submits anything.
            let first = directories(inside).map(seen).find(|seen| !is_covered(*seen));
            if !matches!(first, Some(Some(Seen::There(NameState::AskDaemon)))) {
                return false;
            }
        }
        let is_free = matches!(seen(path), Some(Seen::Absent | Seen::There(NameState::Plain)));
        // The table was the directory's all the time.
        fence(Acquire);
        is_free && is_still_its()
    }

    /// Whether something has the name at the end of this path from the delegated directory; none
    /// when it is to be asked for.
    #[must_use]
    pub fn is_there(&self, (tables, delegation): (&NameTables, u32), path: &[u8]) -> Option<bool> {
        let (names, count) = (self.names(tables), self.count());
        let mut is_there = match split(path).0 {
            [inside @ .., _slash] => self.has_directory(names, inside, count)?,
            [] => true,
        };
        if is_there {
            let print = Print::of(path);
            is_there = self.name_state(print, names.seen(print)?, count)?.is_some();
        }
        // The table was the directory's all the time.
        fence(Acquire);
        let is_its = (self.published.load(Relaxed) >> 32) as u32 == delegation;
        is_its.then_some(is_there)
    }

    /// Whether there is a directory at the end of this path whose names are in the table, or
    /// nothing, as one on the way is not there; none when that is to be asked for.
    fn has_directory(&self, names: NameTable<'_>, path: &[u8], count: u32) -> Option<bool> {
        let is_there = |path: &[u8]| {
            let print = Print::of(path);
            match names.seen(print)? {
                Seen::There(NameState::Covered | NameState::NewDirectory) => Some(true),
                Seen::Absent => Some(false),
                Seen::There(_) => None,
                Seen::Claimed(place) | Seen::Entered(place) => {
                    match self.own_state(print, place, count)? {
                        Some(NameState::NewDirectory) => Some(true),
                        Some(_) => None,
                        None => Some(false),
                    }
                }
            }
        };
        if is_there(path) == Some(true) {
            return Some(true);
        }
        if path.split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
            return None;
        }
        // What the table says of a name holds if all names of the directory before are there.
        let mut on_the_way = directories(path).map(is_there);
        on_the_way.find(|is_there| *is_there != Some(true)).unwrap_or(None)
    }

    /// Whether one of the records behind a place, which is one of the latest, is about this path.
    pub(super) fn is_about_behind(&self, place: usize, path: &[u8]) -> bool {
        let print = Print::of(path);
        let is_about = |at: usize| print.state_in(self.latest[at].load(Relaxed)).is_some();
        self.places_behind(place).any(is_about)
    }

    /// Looks at the file of a description that was promised, for the first time; its times are
    /// `now`. `None` when that is to be asked for. `gives_group` says, of a directory that is known
    /// by the one that is delegated and the path from there, that files in it do not get its group.
    /// One thread at a time.
    #[must_use]
    pub fn look(
        &self,
        open: OpenRef,
        now: Timestamp,
        gives_group: impl FnOnce(FileId, &[u8]) -> bool,
    ) -> Option<Submitting> {
        let (place, state) = self.submitted_lately(open)?;
        let record = &self.records[place];
        if !record.may_be_told(state) {
            return None;
        }
        let mut room = [[0; 8]; PATH_WORDS];
        let path = record.path(&mut room);
        // It may have been removed or moved since.
        if self.is_about_behind(place, path) {
            return None;
        }
        self.look_at_record((record, state), path, now, gives_group)
    }

    /// The same by the name at the end of a path from the delegated directory, of a file that may
    /// be closed: which one `file_of` says of the description that was promised for it. `now` is
    /// asked only if there is one, with when it was submitted by the processor's counter: none if
    /// that is so long ago that it cannot be the file's time.
    #[must_use]
    pub fn look_at_name(
        &self,
        (tables, delegation): (&NameTables, u32),
        path: &[u8],
        now: impl FnOnce(u64) -> Option<Timestamp>,
        (file_of, gives_group): (
            impl FnOnce(OpenRef) -> Option<FileId>,
            impl FnOnce(FileId, &[u8]) -> bool,
        ),
    ) -> Option<(FileId, Timestamp, Submitting)> {
        let (names, print, count) = (self.names(tables), Print::of(path), self.count());
        let Some(Seen::Claimed(place)) = names.seen(print) else { return None };
        // The table was the directory's, and the record is what is known of the name at last.
        fence(Acquire);
        let is_its = (self.published.load(Relaxed) >> 32) as u32 == delegation;
        if !is_its || self.own_state(print, place, count) != Some(Some(NameState::Plain)) {
            return None;
        }
        let record = &self.records[place];
        let state = State(record.state.load(Acquire));
        let is_made = matches!(state.kind(), RECORD_SUBMITTED | RECORD_CLOSED);
        if !is_made || !record.may_be_told(state) {
            return None;
        }
        let file = file_of(record.made_with()).filter(|file| *file != FileId::NONE)?;
        let now = now(record.cycles.load(Relaxed))?;
        // Nobody has executed it, so the description is promised for that file still.
        let told = self.look_at_record((record, state), path, now, gives_group)?;
        Some((file, now, told))
    }

    fn look_at_record(
        &self,
        (record, state): (&Record, State),
        path: &[u8],
        now: Timestamp,
        gives_group: impl FnOnce(FileId, &[u8]) -> bool,
    ) -> Option<Submitting> {
        let inside = split(path).0;
        let inside = inside.strip_suffix(b"/").unwrap_or(inside);
        if !gives_group(FileId(self.directory.load(Relaxed)), inside) {
            return None;
        }
        record.look(state, now)
    }
}
