//! Files that are there and get other content: what open with `O_TRUNC` and the writes after it do.
//!
//! The record is one that makes a file, but of a file that is there. From the moment at which it is
//! published the file is empty, and then has what was added to the record. So it does not matter
//! what the file had before, and what others do to its bytes by asking is done before or after, in
//! the order of their calls. What must not be is that somebody uses the bytes without asking
//! meanwhile:
//!
//! * **Writers.** The file's bytes are in the metadata, where nobody writes without asking. Whoever
//!   submits has claimed the name and then looked that this is so, and that no description anywhere
//!   may write. A claimed name keeps it so: what would let somebody write by asking, or make an
//!   object of the file, has the claim taken back first.
//! * **Readers** look at [`NodeHead::replacing`](crate::layout::NodeHead), and where that has a
//!   ring, whether one of its records is about their file ([`SubmissionRing::replaces`]).

use core::{
    cell::Cell,
    sync::atomic::Ordering::{Acquire, Relaxed, SeqCst},
};

use mayfly_types::{Attr, FileId, OpenRef, Timestamp};

use super::{
    Create, RECORD_SUBMITTED, RECORDS, Record, SubmissionRing,
    name_table::{NameState, NameTables, Seen},
    record::PATH_WORDS,
    state::State,
};

impl Record {
    fn write_replacement(&self, create: &Create<'_>, file: FileId) {
        self.write_create(create);
        // The file has an owner and permission bits; which one it is stands in their place.
        self.mode.store(file.0 as u32, Relaxed);
        self.uid.store((file.0 >> 32) as u32, Relaxed);
        self.state.store(State::of(RECORD_SUBMITTED).and_replaces().0, Relaxed);
    }

    /// Whether the record replaces the content of this file.
    fn is_replacement_of(&self, file: FileId) -> bool {
        State(self.state.load(Acquire)).replaces()
            && self.mode.load(Relaxed) == file.0 as u32
            && self.uid.load(Relaxed) == (file.0 >> 32) as u32
    }

    /// The file whose content it replaces, as its process says.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn replaced_file(&self) -> FileId {
        FileId(u64::from(self.uid.load(Relaxed)) << 32 | u64::from(self.mode.load(Relaxed)))
    }
}

impl SubmissionRing {
    /// Submits that the content of a file that is there goes, and that it is open for writing: the
    /// description that is promised for it. `may_replace` says which file has the name, if it has
    /// no other one and its content may be replaced; it is asked while the name is claimed, and
    /// nothing waits about it, for the path from the directory that is delegated, whose identity
    /// comes first. `None` when it is to be asked for. One thread at a time.
    #[must_use]
    pub fn submit_replacement(
        &self,
        (tables, delegation): (&NameTables, u32),
        create: &Create<'_>,
        may_replace: impl FnOnce(FileId, &[u8]) -> Option<FileId>,
    ) -> Option<(OpenRef, FileId)> {
        let file = Cell::new(None);
        let may = |before: Seen| {
            if before == Seen::There(NameState::Plain) {
                file.set(may_replace(FileId(self.directory.load(Relaxed)), create.path));
            }
            file.get().is_some()
        };
        let is_plain = (Some(NameState::Plain), Some(NameState::Plain));
        let write = |record: &Record| {
            record.write_replacement(create, file.get().unwrap_or(FileId::NONE));
        };
        let open = self.submit_if((tables, delegation), create.path, is_plain, (may, write))?;
        Some((open, file.get()?))
    }

    /// Whether a record waits, or may wait, that replaces the content of this file.
    #[must_use]
    pub fn replaces(&self, file: FileId) -> bool {
        // What is executed and committed after this look is a new version of the records.
        let executed = self.executed.load(Acquire);
        let waiting = (self.published.load(SeqCst) as u32).wrapping_sub(executed);
        let place = |record: u32| executed.wrapping_add(record) as usize % RECORDS;
        (0..waiting.min(RECORDS as u32))
            .any(|record| self.records[place(record)].is_replacement_of(file))
    }

    /// Looks at the file of a description that was promised with such a record, for the first time;
    /// it was changed `now`. `attr_of` tells what it was before, by the path from the directory
    /// that is delegated; what it is now is how much content it has, bytes. `None` when that is to
    /// be asked for. One thread at a time.
    #[must_use]
    pub fn look_at_replaced(
        &self,
        open: OpenRef,
        now: Timestamp,
        attr_of: impl FnOnce(FileId, &[u8]) -> Option<Attr>,
    ) -> Option<(Attr, usize)> {
        let (place, state) = self.submitted_lately(open)?;
        let record = &self.records[place];
        if !state.replaces() || state.changes() != 0 || state.is_seen() {
            return None;
        }
        let mut room = [[0; 8]; PATH_WORDS];
        let path = record.path(&mut room);
        // It may have been removed or moved since.
        if self.is_about_behind(place, path) {
            return None;
        }
        // The records have this as long as the record is not taken.
        let attr = attr_of(FileId(self.directory.load(Relaxed)), path)?;
        let is_it = record.is_replacement_of(attr.id);
        let told = is_it.then(|| record.look(state, now)).flatten()?;
        Some((attr, told.bytes))
    }
}
