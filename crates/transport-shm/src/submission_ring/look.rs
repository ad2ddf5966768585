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

use super::{
    Record, SubmissionRing,
    name_table::{NameState, NameTables, Print, Seen},
    record::PATH_WORDS,
    split,
    state::State,
};

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

impl Record {
    pub(super) fn look(&self, state: State, now: Timestamp) -> Option<Submitting> {
        let bytes = state.content();
        self.seen_seconds.store(now.seconds as u64, Relaxed);
        self.seen_ns.store(now.nanoseconds, Relaxed);
        self.seen_bytes.store(bytes as u32, Relaxed);
        let told = Submitting {
            mode: self.mode.load(Relaxed) & 0o7777,
            uid: self.uid.load(Relaxed),
            gid: self.gid.load(Relaxed),
            bytes,
        };
        self.change(state, state.and_seen()).then_some(told)
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
        if let [inside @ .., _slash] = split(path).0
            && !matches!(
                seen(inside),
                Some(Seen::There(NameState::Covered | NameState::NewDirectory))
            )
        {
            return false;
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
        let is_there = |inside: &[u8]| {
            let print = Print::of(inside);
            match names.seen(print) {
                Some(Seen::There(NameState::Covered | NameState::NewDirectory)) => true,
                Some(Seen::Claimed(place) | Seen::Entered(place)) => {
                    self.own_state(print, place, count) == Some(Some(NameState::NewDirectory))
                }
                _ => false,
            }
        };
        if let [inside @ .., _slash] = split(path).0
            && !is_there(inside)
        {
            return None;
        }
        let print = Print::of(path);
        let name_state = self.name_state(print, names.seen(print)?, count)?;
        // The table was the directory's all the time.
        fence(Acquire);
        let is_its = (self.published.load(Relaxed) >> 32) as u32 == delegation;
        is_its.then_some(name_state.is_some())
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
        if state.changes() != 0 || state.is_seen() || state.is_started() || state.replaces() {
            return None;
        }
        let mut room = [[0; 8]; PATH_WORDS];
        let path = record.path(&mut room);
        // It may have been removed or moved since.
        if self.is_about_behind(place, path) {
            return None;
        }
        let inside = split(path).0;
        let inside = inside.strip_suffix(b"/").unwrap_or(inside);
        if !gives_group(FileId(self.directory.load(Relaxed)), inside) {
            return None;
        }
        record.look(state, now)
    }
}
