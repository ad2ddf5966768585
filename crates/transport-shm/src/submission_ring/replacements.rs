//! Files that are there and are written to: what open for writing, the writes after it, and
//! truncate do.
//!
//! The record is one that makes a file, but of a file that is there. It has all bytes that the file
//! is going to have: what was there, copied while the name is claimed (none with `O_TRUNC`), and
//! what was written. As long as nothing was, its state says so, and nothing is changed.
//!
//! What was added counts from the compare-and-swap that says how many bytes there are now. So bytes
//! that count are not changed, with one exception: what is written first may be in the midst of
//! what was there, since the daemon takes none of that before the state says that something was
//! written ([`Addition::put`]).
//!
//! What must not be is that somebody uses the bytes without asking meanwhile:
//!
//! * **Writers.** The file's bytes are in the metadata, where nobody writes without asking. Whoever
//!   submits has claimed the name and then looked that this is so, and at the bytes. A claimed name
//!   keeps it so: who changes bytes by asking, or has an object made of the file, has the claim
//!   taken back first, and nobody can claim the name before the commit.
//! * **Readers** look at [`NodeHead::replacing`](crate::layout::NodeHead), and where that has a
//!   ring, whether one of its records is about their file ([`SubmissionRing::replaces`]).
//!
//! A record may follow one of the same ring about the same name that waits and was closed. Nothing
//! is added to that one, so the bytes are those that it has.

use core::{
    cell::Cell,
    sync::atomic::Ordering::{Acquire, Relaxed, SeqCst},
};

use mayfly_sys::file::O_TRUNC;
use mayfly_types::{Attr, FileId, OpenRef, Timestamp, limits::INLINE_BYTES_MAX};

use super::{
    Addition, Create, RECORD_CLOSED, RECORD_REMOVES_DIRECTORY, RECORD_SUBMITTED, RECORDS, Record,
    SubmissionRing,
    name_table::{NameState, NameTables, Print, Seen},
    record::PATH_WORDS,
    state::State,
};

/// So often somebody looks whether a record is committed that the daemon is executing.
const COMMIT_SPINS: u32 = 500;

/// How a file that is there is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is opened, and its content goes.
    Empties,
    /// It is opened.
    Keeps,
    /// It gets this length, bytes, and is not opened.
    Cuts(usize),
}

/// Which file has a name, and how many bytes of it were copied.
type There = Option<(FileId, usize)>;

/// Who knows of files that are there.
pub trait Files {
    /// Which file has the name at the end of this path from a directory, if it has no other one,
    /// its bytes are in its record and no kernel keeps any. Copies all of its bytes, unless `to` is
    /// empty. It is asked while the name is claimed and nothing waits about it.
    fn copy(&mut self, directory: FileId, path: &[u8], to: &mut [u8]) -> There;

    /// The file that is promised with a description.
    fn promised(&self, open: OpenRef) -> Option<FileId>;
}

impl Record {
    fn write_replacement(&self, create: &Create<'_>, file: FileId, state: State) {
        self.write_create(create);
        // The file has an owner and permission bits; which one it is stands in their place.
        self.mode.store(file.0 as u32, Relaxed);
        self.uid.store((file.0 >> 32) as u32, Relaxed);
        self.state.store(state.and_replaces().0, Relaxed);
    }

    /// Whether the record is about this file, which is there.
    fn is_of(&self, file: FileId) -> bool {
        self.mode.load(Relaxed) == file.0 as u32 && self.uid.load(Relaxed) == (file.0 >> 32) as u32
    }

    /// Whether the record replaces the content of this file.
    fn is_replacement_of(&self, file: FileId) -> bool {
        let state = State(self.state.load(Acquire));
        state.replaces() && !state.is_unwritten() && self.is_of(file)
    }

    /// How much content it gives the file, bytes, and when: `now`, unless its process has looked
    /// before.
    fn told(&self, state: State, now: Timestamp) -> Option<(usize, Timestamp)> {
        if state.is_seen() {
            let (time, bytes) = self.read_look();
            return (bytes == state.content()).then_some((bytes, time));
        }
        let told = if state.is_taken() { None } else { self.look(state, now) };
        told.map(|told| (told.bytes, now))
    }

    /// The file whose content it replaces, as its process says.
    #[must_use]
    pub fn replaced_file(&self) -> FileId {
        FileId(u64::from(self.uid.load(Relaxed)) << 32 | u64::from(self.mode.load(Relaxed)))
    }
}

impl SubmissionRing {
    /// Submits that a file that is there is opened for writing: the description that is promised
    /// for it, and the file. With `O_TRUNC` its content goes; otherwise it stays as it is until
    /// something is written. `None` when it is to be asked for. One thread at a time.
    #[must_use]
    pub fn submit_replacement(
        &self,
        given: (&NameTables, u32),
        create: &Create<'_>,
        files: &mut impl Files,
    ) -> Option<(OpenRef, FileId)> {
        let how = if create.flags & O_TRUNC == 0 { How::Keeps } else { How::Empties };
        self.submit_content(given, create, how, files)
    }

    /// Submits that a file that is there gets this length, bytes; false when it is to be asked for.
    /// One thread at a time.
    #[must_use]
    pub fn submit_length(
        &self,
        given: (&NameTables, u32),
        create: &Create<'_>,
        bytes: usize,
        files: &mut impl Files,
    ) -> bool {
        bytes <= INLINE_BYTES_MAX
            && self.submit_content(given, create, How::Cuts(bytes), files).is_some()
    }

    fn submit_content(
        &self,
        (tables, delegation): (&NameTables, u32),
        create: &Create<'_>,
        how: How,
        files: &mut impl Files,
    ) -> Option<(OpenRef, FileId)> {
        let (place, there) = (self.next_place(), Cell::new(None));
        let may = |before: Seen| {
            there.set(match before {
                Seen::There(NameState::Plain) => self.copy_there(place, create.path, how, files),
                Seen::Claimed(from) => {
                    let closed = self.copy_closed(from, place, create.path, files);
                    // It may be committed by now. The name is claimed for this one all the same.
                    if closed.is_none() && !self.still_waits(from, create.path) {
                        self.copy_there(place, create.path, how, files)
                    } else {
                        closed
                    }
                }
                _ => None,
            });
            there.get().is_some_and(|(_, bytes)| bytes <= INLINE_BYTES_MAX)
        };
        let write = |record: &Record| {
            let (file, bytes) = there.get().unwrap_or_default();
            let state = match how {
                How::Empties => State::of(RECORD_SUBMITTED),
                How::Keeps => State::of(RECORD_SUBMITTED).and_content(bytes).and_unwritten(),
                How::Cuts(to) => {
                    self.clear(place, bytes, to);
                    State::of(RECORD_CLOSED).and_content(to)
                }
            };
            record.write_replacement(create, file, state);
        };
        let is_plain = (Some(NameState::Plain), Some(NameState::Plain));
        let open = self.submit_if((tables, delegation), create.path, is_plain, (may, write))?;
        Some((open, there.get()?.0))
    }

    /// The file with the name at the end of this path, about which nothing waits; its content, if
    /// that stays, is copied to the place of the next record.
    fn copy_there(&self, place: usize, path: &[u8], how: How, files: &mut impl Files) -> There {
        // SAFETY: room for the longest content, in the place of the next record, which nobody reads
        // before that is published, and where one thread at a time writes.
        let room =
            unsafe { core::slice::from_raw_parts_mut(self.content_at(place), INLINE_BYTES_MAX) };
        let room = if how == How::Empties { &mut [][..] } else { room };
        files.copy(FileId(self.directory.load(Relaxed)), path, room)
    }

    /// Whether the record of a place waits, and the name at the end of this path is a file's after
    /// it.
    fn still_waits(&self, place: usize, path: &[u8]) -> bool {
        self.own_state(Print::of(path), place, self.count()) == Some(Some(NameState::Plain))
    }

    /// The file of a record that was closed and waits, and has the name at the end of this path;
    /// its content is copied to another place.
    fn copy_closed(&self, from: usize, to: usize, path: &[u8], files: &impl Files) -> There {
        let record = &self.records[from];
        let state = State(record.state.load(Acquire));
        // Of one to which nothing was written the content may be no more than an attempt.
        if state.kind() != RECORD_CLOSED || state.is_started() || state.is_unwritten() {
            return None;
        }
        let file = if state.replaces() {
            record.replaced_file()
        } else {
            files.promised(record.made_with())?
        };
        let bytes = state.content().min(INLINE_BYTES_MAX);
        // SAFETY: places are different, each with room for so much, and one thread at a time writes
        // to any.
        unsafe {
            core::ptr::copy_nonoverlapping(self.content_at(from), self.content_at(to), bytes);
        }
        // Places are used again, and descriptions promised again, when they are executed.
        (self.still_waits(from, path) && from != to && file != FileId::NONE)
            .then_some((file, bytes))
    }

    /// Nothing stands in a place's content from one byte on until another, which do not count yet.
    fn clear(&self, place: usize, from: usize, to: usize) {
        let (from, to) = (from.min(INLINE_BYTES_MAX), to.min(INLINE_BYTES_MAX));
        if from < to {
            // SAFETY: within the room of the place, where one thread at a time writes.
            unsafe { self.content_at(place).add(from).write_bytes(0, to - from) };
        }
    }

    /// Whether a record waits, or may wait, that replaces the content of this file.
    #[must_use]
    pub fn replaces(&self, file: FileId) -> bool {
        self.waiting_places().any(|place| self.records[place].is_replacement_of(file))
    }

    /// Whether a record waits, or may wait, by which a directory goes.
    #[must_use]
    pub fn removes_directories(&self) -> bool {
        let kind = |place: usize| State(self.records[place].state.load(Acquire)).kind();
        self.waiting_places().any(|place| kind(place) == RECORD_REMOVES_DIRECTORY)
    }

    /// The places of the records that wait, or may wait.
    fn waiting_places(&self) -> impl Iterator<Item = usize> {
        // What is executed and committed after this look is a new version of the records.
        let executed = self.executed.load(Acquire);
        let waiting = (self.published.load(SeqCst) as u32).wrapping_sub(executed);
        (0..waiting.min(RECORDS as u32))
            .map(move |record| executed.wrapping_add(record) as usize % RECORDS)
    }

    /// Looks at the file of a description that was promised with such a record, for the first time;
    /// if it was changed, it was so `now`. `attr_of` tells what the file was before, by the path
    /// from the directory that is delegated. What it is now is how much content it has, bytes, and
    /// since when, if that is not what it was. `None` when that is to be asked for. One thread at a
    /// time.
    #[must_use]
    pub fn look_at_replaced(
        &self,
        open: OpenRef,
        now: Timestamp,
        attr_of: impl FnOnce(FileId, &[u8]) -> Option<Attr>,
    ) -> Option<(Attr, Option<(usize, Timestamp)>)> {
        let (place, state) = self.submitted_lately(open)?;
        let record = &self.records[place];
        if !state.replaces() || state.changes() != 0 || state.is_seen() {
            return None;
        }
        let mut room = [[0; 8]; PATH_WORDS];
        let path = record.path(&mut room);
        let mut before = self.written_before(place, path)?;
        for _ in 0..COMMIT_SPINS {
            // Its time is the daemon's affair, which the records are about to have.
            if before.is_none_or(|(_, state)| state.is_seen() || !state.is_taken()) {
                break;
            }
            core::hint::spin_loop();
            before = self.written_before(place, path)?;
        }
        // The records have all but content and times as long as the record is not taken.
        let attr = attr_of(FileId(self.directory.load(Relaxed)), path)?;
        if !record.is_of(attr.id) {
            return None;
        }
        if !state.is_unwritten() {
            let told = record.look(state, now)?;
            return Some((attr, Some((told.bytes, now))));
        }
        let told = match before {
            Some((before, state)) => Some(self.records[before].told(state, now)?),
            None => None,
        };
        let is_same = record.state.load(SeqCst) == state.0;
        is_same.then_some((attr, told))
    }

    /// The record by which the file of a record was last written to that is not committed: its
    /// place and state. `None` when anything else waits about the name, or did so.
    fn written_before(&self, place: usize, path: &[u8]) -> Option<Option<(usize, State)>> {
        let print = Print::of(path);
        let is_about = |at: &usize| print.state_in(self.latest[*at].load(Relaxed)).is_some();
        // It may have been removed or moved since.
        if self.is_about_behind(place, path) {
            return None;
        }
        let mut written = None;
        for at in self.waiting_places().filter(|at| *at != place).filter(is_about) {
            let state = State(self.records[at].state.load(Acquire));
            let is_plain = state.kind() == RECORD_CLOSED && state.replaces();
            if !is_plain || state.changes() != 0 {
                return None;
            }
            if !state.is_unwritten() {
                written = Some((at, state));
            }
        }
        Some(written)
    }

    /// Reads the content of the file that is promised with a description, from an offset on: how
    /// much there is, bytes, is what `take` gets. `None` when it is to be asked for. One thread at
    /// a time.
    #[must_use]
    pub fn read_submitted<R>(
        &self,
        open: OpenRef,
        take: impl FnOnce(u32, &[u8]) -> R,
    ) -> Option<R> {
        let addition = self.addition(open)?;
        // SAFETY: the place has room for so much content, and one thread at a time writes to it.
        let content = unsafe {
            let bytes = addition.start().min(INLINE_BYTES_MAX);
            core::slice::from_raw_parts(self.content_at(addition.place), bytes)
        };
        let taken = take(addition.flags(), content);
        // Otherwise others may have changed the file before the call.
        let is_same = addition.record().state.load(SeqCst) == addition.state.0;
        is_same.then_some(taken)
    }
}

impl Addition<'_> {
    /// Whether so many bytes may be written at an offset ([`Addition::put`]).
    #[must_use]
    pub fn may_put(&self, at: usize, bytes: usize) -> bool {
        let may = at >= self.start() || self.state.is_unwritten();
        may && at.checked_add(bytes).is_some_and(|end| end <= INLINE_BYTES_MAX)
    }

    /// Writes bytes at an offset, also in the midst of what was there if nothing was written so
    /// far. False when that cannot be, or the record was executed before.
    #[must_use]
    pub fn put(self, at: usize, bytes: &[u8], cycles: u64) -> bool {
        if !self.may_put(at, bytes.len()) {
            return false;
        }
        let (start, end) = (self.start(), at + bytes.len());
        self.submissions.clear(self.place, start, at);
        // SAFETY: within the room of the place, where one thread at a time writes; the bytes are
        // not there.
        unsafe {
            let to = self.submissions.content_at(self.place).add(at);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.write(end.max(start), cycles)
    }

    /// The file gets this length, bytes; false when that cannot be, or the record was executed
    /// before.
    #[must_use]
    pub fn cut(self, bytes: usize, cycles: u64) -> bool {
        // Who has looked was told when it was changed.
        if bytes > INLINE_BYTES_MAX || self.state.is_seen() {
            return false;
        }
        self.submissions.clear(self.place, self.start(), bytes);
        self.write(bytes, cycles)
    }
}
