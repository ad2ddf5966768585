//! Asynchronous operations: the ring to which a process submits them.
//!
//! A process that makes and removes many names of a directory may be *delegated* the directory,
//! beside others: it writes what is to be done into its ring, goes on, and the daemon executes what
//! stands in the rings before it answers anybody. So nothing that was submitted may fail, and
//! everybody sees it who looks later:
//!
//! * **One word** has the number of the delegation and how many records were published. A record
//!   counts from the compare-and-swap that publishes it. The daemon takes a delegation back by
//!   adding to the number in that word: nothing is published after that, and what was before is
//!   executed. Nobody waits for the process, which may be stopped.
//! * **Names that are there** are in a table ([`name_table`]), one for all who have the directory
//!   delegated. A process claims the name in it about which it submits, until that is committed: so
//!   what is submitted about a name stands in one ring. A file, or a directory, is submitted when
//!   its name is not there, its removal when it is, and in a directory nothing was made so far.
//!   What is in directories inside is in the table, too, where it can be, by its path from there.
//! * **Descriptions** are promised: each place of the ring has one that the daemon has set aside.
//!   What was submitted is answered with it. Until the record was executed its state says
//!   [`OPEN_PROMISED`](crate::layout::OPEN_PROMISED), and who wants to use it asks the daemon for
//!   anything at all first. One that is closed before the record was executed is never made.
//! * **Content** of a small file goes with its record, as long as that was not executed: each place
//!   has room for it, and the word with the record's state says how much of it counts.
//! * **Objects**: what has more content gets its object from its process ([`objects`]).
//! * **Who reads the records by himself** looks first whether any ring has something
//!   ([`NodeHead::submitted`](crate::layout::NodeHead)), and asks then.
//!
//! All of this is written by processes that may write anything. The daemon bounds each number that
//! it reads and keeps its own copy of the delegation, of what it has executed and of the promises.

mod changes;
mod look;
mod moves;
pub mod name_table;
mod objects;
mod record;
mod replacements;
mod state;

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use mayfly_sys::file::{O_ACCMODE, O_RDWR, O_WRONLY};
use mayfly_types::{
    OpenRef,
    limits::{INLINE_BYTES_MAX, NAME_BYTES_MAX, SYMLINK_BYTES_MAX},
};

use crate::words;
pub use changes::{Changed, Changes, Submission};
pub use look::Submitting;
pub use mayfly_transport::Certain;
pub use moves::{Move, MoveKind};
use name_table::{Claim, NameState, NameTable, NameTables, Print, Seen};
pub use objects::NewObject;
use record::PATH_WORDS;
pub use record::{
    Create, RECORD_CHANGES, RECORD_CLOSED, RECORD_DIRECTORY, RECORD_LINKS, RECORD_MOVE_TARGET,
    RECORD_MOVES, RECORD_OPENED, RECORD_REMOVES, RECORD_REMOVES_DIRECTORY, RECORD_SUBMITTED,
    RECORD_SYMLINK, Record, Removal,
};
#[cfg(feature = "server")]
pub use record::{Made, Submitted};
pub use replacements::Files;
use state::State;

/// Rings of a node. A session's is the one of its number's remainder, if nobody else has it.
pub const RINGS: usize = 64;
/// Records of a ring.
pub const RECORDS: usize = 128;
/// Longest path before the name, bytes.
pub const PREFIX_BYTES_MAX: usize = 256;
/// So many of the latest records are looked through for one that is withdrawn.
const LATEST: u32 = 4;

const EPOCH: u64 = 1 << 32;

/// The ring that a session may have.
#[must_use]
pub fn ring_of(session: u32) -> usize {
    session as usize % RINGS
}

/// What is before the last name of a path, with its slash, and that name.
#[must_use]
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.split_at_checked(slash).unwrap_or((b"", path))
}

/// A ring with its delegation.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct SubmissionRing {
    /// Number of the delegation in the upper half; records published so far, modulo 2³², in the
    /// lower. Written by the process, and by the daemon that takes a delegation back.
    pub published: AtomicU64,
    padding: [AtomicU64; 7],
    /// The delegation that counts; 0: none. Written by the daemon, as all that follows.
    pub delegation: AtomicU32,
    /// Whose ring it is; 0: nobody's.
    pub session: AtomicU32,
    /// Records that were executed and committed.
    pub executed: AtomicU32,
    /// Records up to which descriptions are promised.
    pub promised: AtomicU32,
    /// Records that were executed, the last of them in [`SubmissionRing::transaction`].
    pub stored: AtomicU32,
    /// How far the object of a file may reach that its process makes for it, bytes; 0: none is made
    /// but by asking.
    pub object_bytes: AtomicU32,
    /// Transaction whose commit makes that true.
    pub transaction: AtomicU64,
    /// From when on, by the processors' counter, the path may lead elsewhere, and nobody submits:
    /// what a name of another node stands for is known for a time only. `u64::MAX`: never.
    pub believed_until: AtomicU64,
    padding_after_delegation: [AtomicU64; 3],
    /// Where the path begins.
    pub start: AtomicU64,
    /// The directory to which that and the prefix lead.
    pub directory: AtomicU64,
    /// Length of the prefix, bytes.
    pub prefix_bytes: AtomicU32,
    /// The table of the directory's names, by number.
    pub table: AtomicU32,
    /// What is before the name, with its slash.
    prefix: [AtomicU64; PREFIX_BYTES_MAX / 8],
    /// The prints of the names that the latest records are about, by place, and in the lowest bits
    /// how these stand then, as in a name table; 0: removed.
    latest: [AtomicU64; RECORDS],
    /// The records.
    pub records: [Record; RECORDS],
    /// The content of the files, by place.
    contents: [[AtomicU64; INLINE_BYTES_MAX / 8]; RECORDS],
}

impl SubmissionRing {
    /// The delegation that `session` has, if this path leads there, and the path from there on: it
    /// begins with the prefix, or in the very directory.
    #[must_use]
    pub fn delegation_for<'p>(
        &self,
        session: u32,
        start: u64,
        path: &'p [u8],
    ) -> Option<(u32, &'p [u8])> {
        let delegation = self.delegation.load(Acquire);
        let prefix_bytes = self.prefix_bytes.load(Relaxed) as usize;
        let by_prefix = || {
            let (prefix, rest) = path.split_at_checked(prefix_bytes)?;
            let same = self.start.load(Relaxed) == start && self.has_prefix(prefix);
            same.then_some(rest)
        };
        let is_there = || self.directory.load(Relaxed) == start && !path.starts_with(b"/");
        let rest = match by_prefix() {
            Some(rest) => rest,
            None => is_there().then_some(path)?,
        };
        let same = delegation != 0 && self.session.load(Relaxed) == session;
        let is_path = !matches!(split(rest).1, b"" | b"." | b"..") && rest.len() <= NAME_BYTES_MAX;
        (same && is_path).then_some((delegation, rest))
    }

    fn has_prefix(&self, prefix: &[u8]) -> bool {
        let mut words = self.prefix.iter().zip(words::of(prefix));
        prefix.len() < PREFIX_BYTES_MAX && words.all(|(word, said)| word.load(Relaxed) == said)
    }

    /// Whether something may be submitted at the end of this path from the delegated directory:
    /// what leads there says so.
    fn leads_inside(&self, names: NameTable<'_>, path: &[u8], count: u32) -> bool {
        let [inside @ .., _slash] = split(path).0 else { return true };
        let print = Print::of(inside);
        let then = Some(Some(NameState::NewDirectory));
        names.leads_into(print, |place| self.own_state(print, place, count) == then)
    }

    /// How a name stands for the process whose ring it is, when `count` records are published;
    /// none when that is to be asked for.
    fn name_state(&self, print: Print, seen: Seen, count: u32) -> Option<Option<NameState>> {
        match seen {
            Seen::Absent => Some(None),
            Seen::There(NameState::AskDaemon) => None,
            Seen::There(name_state) => Some(Some(name_state)),
            Seen::Claimed(place) => self.own_state(print, place, count),
            // To be removed, if it comes to that, by asking.
            Seen::Entered(_) => None,
        }
    }

    /// How a name stands after the record of a place that has claimed it, if that is the process's
    /// own: it is about the name, and waits. What is executed says so before its claim is released,
    /// so another one's claim is not its own.
    fn own_state(&self, print: Print, place: usize, count: u32) -> Option<Option<NameState>> {
        let back = count.wrapping_sub(place as u32 + 1) % RECORDS as u32 + 1;
        let waits = back <= count.wrapping_sub(self.executed.load(Acquire));
        let word = self.latest[place].load(Relaxed);
        waits.then(|| print.state_in(word)).flatten()
    }

    /// Whether there is no place for another record.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.published.load(Relaxed) as u32 == self.promised.load(Acquire)
    }

    /// The word that publishes, and the place of the next record, where something may be submitted
    /// under `delegation`.
    fn next(&self, delegation: u32) -> Option<(u64, usize)> {
        self.next_of(delegation, 1)
    }

    /// The place of the next record.
    fn next_place(&self) -> usize {
        self.count() as usize % RECORDS
    }

    /// The content of a place, of so many bytes as the longest has.
    fn content_at(&self, place: usize) -> *mut u8 {
        self.contents[place].as_ptr().cast::<u8>().cast_mut()
    }

    /// The same where there is room for so many.
    fn next_of(&self, delegation: u32, records: u32) -> Option<(u64, usize)> {
        let seen = self.published.load(Acquire);
        let count = seen as u32;
        let room = self.promised.load(Acquire).wrapping_sub(count);
        let may = (seen >> 32) as u32 == delegation && room >= records;
        may.then_some((seen, count as usize % RECORDS))
    }

    fn publish(&self, seen: u64, claim: Claim<'_>) -> bool {
        let published = self.publish_records(seen, 1);
        if !published {
            claim.give_up();
        }
        published
    }

    fn publish_records(&self, seen: u64, records: u32) -> bool {
        let next = seen & !u64::from(u32::MAX) | u64::from((seen as u32).wrapping_add(records));
        self.published.compare_exchange(seen, next, SeqCst, Relaxed).is_ok()
    }

    /// Claims a name for the record of a place, if it stands as `now` says; `then` says how it
    /// stands after that.
    fn claim<'a>(
        &self,
        names: NameTable<'a>,
        (count, place): (u32, usize),
        print: Print,
        (now, then): (Option<NameState>, Option<NameState>),
    ) -> Option<Claim<'a>> {
        let may = |seen| self.name_state(print, seen, count) == Some(now);
        let claim = names.claim(print, place, may)?;
        self.latest[place].store(print.with(then), Relaxed);
        Some(claim)
    }

    /// Submits what `write` writes about a name that stands as the first of `change` says, and as
    /// the second one after that: the description that is promised with the record's place. `None`
    /// when it is to be asked for.
    fn submit(
        &self,
        (tables, delegation): (&NameTables, u32),
        path: &[u8],
        change: (Option<NameState>, Option<NameState>),
        write: impl FnOnce(&Record),
    ) -> Option<OpenRef> {
        self.submit_if((tables, delegation), path, change, (|_| true, write))
    }

    /// The same, if `may` says so of how the name stood when it was claimed.
    fn submit_if(
        &self,
        (tables, delegation): (&NameTables, u32),
        path: &[u8],
        change: (Option<NameState>, Option<NameState>),
        (may, write): (impl FnOnce(Seen) -> bool, impl FnOnce(&Record)),
    ) -> Option<OpenRef> {
        let (seen, place) = self.next(delegation)?;
        let (names, print) = (self.names(tables), Print::of(path));
        if !self.leads_inside(names, path, seen as u32) {
            return None;
        }
        let claim = self.claim(names, (seen as u32, place), print, change)?;
        if !may(claim.before()) {
            claim.give_up();
            return None;
        }
        let record = &self.records[place];
        write(record);
        // Another one may be promised as soon as the record is published.
        let promise = record.promise();
        self.publish(seen, claim).then_some(promise)
    }

    /// Submits a create under `delegation`; the description that is promised for it. `None` when it
    /// is to be asked for. One thread at a time.
    #[must_use]
    pub fn submit_create(
        &self,
        tables: &NameTables,
        delegation: u32,
        create: &Create<'_>,
    ) -> Option<OpenRef> {
        let change = (None, Some(NameState::Plain));
        self.submit((tables, delegation), create.path, change, |record| record.write_create(create))
    }

    /// Submits that a directory is made; false when that is to be asked for. One thread at a time.
    #[must_use]
    pub fn submit_directory(
        &self,
        tables: &NameTables,
        delegation: u32,
        create: &Create<'_>,
    ) -> bool {
        let change = (None, Some(NameState::NewDirectory));
        let write = |record: &Record| record.write_directory(create);
        self.submit((tables, delegation), create.path, change, write).is_some()
    }

    /// Submits that a symbolic link is made, which says `target`; false when that is to be asked
    /// for. One thread at a time.
    #[must_use]
    pub fn submit_symlink(
        &self,
        tables: &NameTables,
        delegation: u32,
        create: &Create<'_>,
        target: &[u8],
    ) -> bool {
        if target.is_empty() || target.len() > SYMLINK_BYTES_MAX {
            return false;
        }
        let change = (None, Some(NameState::Plain));
        let place = self.next_place();
        let write = |record: &Record| {
            words::write(&self.contents[place], target);
            record.write_symlink(create, target.len());
        };
        self.submit((tables, delegation), create.path, change, write).is_some()
    }

    /// Submits that a name goes; false when that is to be asked for. One thread at a time.
    #[must_use]
    pub fn submit_removal(
        &self,
        tables: &NameTables,
        delegation: u32,
        removal: &Removal<'_>,
    ) -> bool {
        let now = if removal.directory { NameState::NewDirectory } else { NameState::Plain };
        let write = |record: &Record| record.write_removal(removal);
        self.submit((tables, delegation), removal.path, (Some(now), None), write).is_some()
    }

    fn names<'a>(&self, tables: &'a NameTables) -> NameTable<'a> {
        tables.names(self.table.load(Relaxed) as usize)
    }

    /// The record with which a description was promised, if it was submitted a moment ago: its
    /// place and the state in which nobody has executed or closed it.
    fn submitted_lately(&self, open: OpenRef) -> Option<(usize, State)> {
        let count = self.published.load(Acquire) as u32;
        let latest = (1..=LATEST).map(|back| count.wrapping_sub(back) as usize % RECORDS);
        let place = latest.into_iter().find(|place| self.records[*place].promise() == open)?;
        let state = State(self.records[place].state.load(Acquire));
        (state.kind() == RECORD_SUBMITTED).then_some((place, state))
    }

    /// The places of the records behind one of the latest.
    fn places_behind(&self, place: usize) -> impl Iterator<Item = usize> {
        let count = self.published.load(Acquire) as u32;
        let latest = (1..=LATEST).map(move |back| count.wrapping_sub(back) as usize % RECORDS);
        latest.take_while(move |at| *at != place)
    }

    /// Closes what was submitted a moment ago, before it is executed; false when it was not so
    /// lately, or was executed.
    #[must_use]
    pub fn withdraw(&self, open: OpenRef) -> bool {
        self.submitted_lately(open).is_some_and(|(place, state)| {
            self.records[place].change(state, state.and_kind(RECORD_CLOSED))
        })
    }

    /// Whether what is written to the file of a record counts with it: none that was submitted
    /// later changes the file.
    fn may_be_written(&self, place: usize, state: State) -> bool {
        let mut room = [[0; 8]; PATH_WORDS];
        let mut is_last = || !self.is_about_behind(place, self.records[place].path(&mut room));
        state.may_be_written() && (state.changes() == 0 || is_last())
    }

    /// Where content is added to a file that was submitted a moment ago. `None` when it is too late
    /// for that, or when it would count before a change of times that comes first.
    #[must_use]
    pub fn addition(&self, open: OpenRef) -> Option<Addition<'_>> {
        let (place, state) = self.submitted_lately(open)?;
        let may = self.may_be_written(place, state) && !state.is_started();
        may.then_some(Addition { submissions: self, place, state })
    }

    /// The content of a file that has so many bytes, in place of what `to` had.
    #[cfg(feature = "server")]
    pub fn read_content(&self, place: usize, bytes: usize, to: &mut Vec<u8>) {
        let bytes = bytes.min(INLINE_BYTES_MAX);
        to.clear();
        to.reserve(bytes);
        // SAFETY: the place has room for the longest content, and `to` for so much; any bytes are
        // a value of it, whoever writes them.
        unsafe {
            let from = self.content_at(place);
            core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), bytes);
            to.set_len(bytes);
        }
    }

    /// Whether the last of `count` records makes a file that nobody has closed yet: its process may
    /// be about to add content.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn is_last_open(&self, count: u32) -> bool {
        let last = &self.records[count.wrapping_sub(1) as usize % RECORDS];
        State(last.state.load(Acquire)).kind() == RECORD_SUBMITTED
    }

    /// Records that were published since the node began, modulo 2³².
    #[must_use]
    pub fn count(&self) -> u32 {
        self.published.load(Relaxed) as u32
    }

    /// Whether so many records, of those that were published since the node began, modulo 2³², are
    /// executed and committed.
    #[must_use]
    pub fn has_executed(&self, count: u32) -> bool {
        self.executed.load(Acquire).wrapping_sub(count) as i32 >= 0
    }

    /// Records that were published and, as far as the daemon has said, not executed.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        (self.published.load(Relaxed) as u32).wrapping_sub(self.executed.load(Relaxed))
    }

    /// Nothing is submitted any more under the present delegation.
    pub fn take_back(&self) {
        self.delegation.store(0, Relaxed);
        self.published.fetch_add(EPOCH, SeqCst);
    }

    /// The session goes on under another number, and nothing more is published under the present
    /// one: how many records were, modulo 2³².
    pub fn renew(&self) -> u32 {
        let published = self.published.fetch_add(EPOCH, SeqCst) as u32;
        self.give();
        published
    }

    /// The session may submit, under another number than before it was taken back.
    pub fn give(&self) {
        let mut number = (self.published.load(SeqCst) >> 32) as u32;
        if number == 0 {
            self.published.fetch_add(EPOCH, SeqCst);
            number = 1;
        }
        self.delegation.store(number, Release);
    }

    /// Whether the path leads to the directory that is delegated when the counter says `now`.
    #[must_use]
    pub fn is_believed(&self, now: impl FnOnce() -> u64) -> bool {
        match self.believed_until.load(Relaxed) {
            u64::MAX => true,
            until => now() < until,
        }
    }

    /// Whose ring it is from now on, for names behind which path, and which table has them.
    pub fn dedicate(
        &self,
        session: u32,
        (start, prefix): (u64, &[u8]),
        (directory, table): (u64, usize),
    ) {
        self.session.store(session, Relaxed);
        self.table.store(table as u32, Relaxed);
        self.start.store(start, Relaxed);
        self.directory.store(directory, Relaxed);
        self.prefix_bytes.store(prefix.len() as u32, Relaxed);
        words::write(&self.prefix, prefix);
    }
}

/// Content that is being added to a file that was submitted.
#[derive(Debug)]
pub struct Addition<'a> {
    submissions: &'a SubmissionRing,
    place: usize,
    state: State,
}

impl Addition<'_> {
    fn record(&self) -> &Record {
        &self.submissions.records[self.place]
    }

    /// Bytes that the file has.
    #[must_use]
    pub fn start(&self) -> usize {
        self.state.content()
    }

    /// Flags with which it was opened.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.record().flags.load(Relaxed)
    }

    /// Whether it was opened for writing.
    #[must_use]
    pub fn may_write(&self) -> bool {
        matches!(self.flags() & O_ACCMODE, O_WRONLY | O_RDWR)
    }

    /// Room for `bytes` more, which nobody reads before they are added. One thread at a time.
    #[must_use]
    pub fn room(&self, bytes: usize) -> Option<*mut u8> {
        let end = self.start().checked_add(bytes)?;
        let content = self.submissions.content_at(self.place);
        (end <= INLINE_BYTES_MAX).then(|| content.wrapping_add(self.start()))
    }

    /// The file has `bytes` more, which stand in the room; false when it was executed before that.
    #[must_use]
    pub fn add(self, bytes: usize, cycles: u64) -> bool {
        let end = self.start() + bytes;
        self.write(end, cycles)
    }

    /// The file is written to, and has so many bytes then, all of which stand there.
    fn write(self, bytes: usize, cycles: u64) -> bool {
        self.record().changed_cycles.store(cycles, Relaxed);
        self.record().change(self.state, self.state.and_written().and_content(bytes))
    }
}

// What `docs/design/shm.md` states.
const _: () = assert!(size_of::<SubmissionRing>() == 577_536);
const _: () = assert!(core::mem::offset_of!(SubmissionRing, delegation) == 64);
const _: () = assert!(core::mem::offset_of!(SubmissionRing, transaction) == 88);
const _: () = assert!(core::mem::offset_of!(SubmissionRing, start) == 128);
const _: () = assert!(core::mem::offset_of!(SubmissionRing, latest) == 408);
const _: () = assert!(core::mem::offset_of!(SubmissionRing, records) == 1472);
const _: () = assert!(core::mem::offset_of!(SubmissionRing, table) == 148);
const _: () = assert!(core::mem::offset_of!(SubmissionRing, contents) == 50_624);

#[cfg(all(test, feature = "server"))]
mod tests;
