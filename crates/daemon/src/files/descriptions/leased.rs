//! Descriptions that are leased to processes ([`mayfly_transport_shm::file_leases`]).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mayfly_meta::record::BirthKey;
use mayfly_transport_shm::{
    file_leases::is_leased,
    layout::{OPEN_LEASED, OPEN_LEASED_RECALLED, OPEN_LEASED_USED, OPEN_PRIVATE, OpenEntry},
};
use mayfly_types::{FileId, FileKind, OpenRef, SessionId};

use crate::{
    api::Caller,
    files::descriptions::{Elsewhere, Open, OpenTable, note_maker},
};

/// Flags that a description that was leased may have, as a process writes them.
const FLAGS: u32 =
    O_RDWR | O_NONBLOCK | O_LARGEFILE | O_NOFOLLOW | O_NOATIME | O_DIRECTORY | O_PATH;
const O_RDWR: u32 = 2;
const O_DIRECTORY: u32 = 0o200_000;
const O_PATH: u32 = 0o10_000_000;
const O_NONBLOCK: u32 = 0o4000;
const O_LARGEFILE: u32 = 0o100_000;
const O_NOFOLLOW: u32 = 0o400_000;
const O_NOATIME: u32 = 0o1_000_000;

impl OpenTable {
    fn leased_entry(&self, index: u32) -> &'static OpenEntry {
        let node = self.node;
        &node.opens[index as usize]
    }

    /// Leases an entry, as long as half of them are free.
    pub(crate) fn lease(&mut self, session: SessionId) -> Option<u32> {
        if self.count + self.promised >= self.share.opens_max / 2 {
            return None;
        }
        let index = self.take_open_index();
        self.promised += 1;
        let entry = self.leased_entry(index);
        entry.session.store(session.0, Relaxed);
        entry.id.store(FileId::NONE.0, Relaxed);
        entry.state.store(OPEN_LEASED, Release);
        Some(index)
    }

    /// Takes back an entry by which a process reads `id`; false when it does not, any more. Then
    /// [`OpenTable::keep_leased`] must follow, or [`OpenTable::leave_leased`].
    pub(crate) fn recall_leased(&self, index: u32, id: FileId) -> bool {
        let entry = self.leased_entry(index);
        let taken = entry
            .state
            .compare_exchange(OPEN_LEASED_USED, OPEN_LEASED_RECALLED, AcqRel, Acquire)
            .is_ok();
        if taken && entry.id.load(Relaxed) != id.0 {
            self.leave_leased(index);
            return false;
        }
        taken
    }

    /// Whether the entry was taken back and nothing has become of it yet.
    pub(crate) fn is_recalled(&self, at: OpenRef) -> bool {
        let entry = self.leased_entry(at.index);
        entry.state.load(Acquire) == OPEN_LEASED_RECALLED
            && entry.generation.load(Relaxed) == at.generation
    }

    /// What the entry is called, and the flags that a description of it has.
    pub(crate) fn leased_at(&self, index: u32) -> (OpenRef, u32) {
        let entry = self.leased_entry(index);
        let generation = entry.generation.load(Relaxed);
        (OpenRef { index, generation }, entry.flags.load(Relaxed) & FLAGS)
    }

    /// It goes on being leased.
    pub(crate) fn leave_leased(&self, index: u32) {
        let state = &self.leased_entry(index).state;
        let _ = state.compare_exchange(OPEN_LEASED_RECALLED, OPEN_LEASED_USED, AcqRel, Acquire);
    }

    /// The file that a process reads by the entry.
    pub(crate) fn leased_file(&self, index: u32) -> FileId {
        FileId(self.leased_entry(index).id.load(Acquire))
    }

    /// Makes a description of one that was taken.
    pub(crate) fn keep_leased(
        &mut self,
        (index, session): (u32, SessionId),
        (id, kind): (FileId, FileKind),
        birth: BirthKey,
        remote: Option<Elsewhere>,
    ) {
        self.promised -= 1;
        let entry = self.leased_entry(index);
        let generation = entry.generation.load(Relaxed);
        let flags = entry.flags.load(Relaxed) & FLAGS;
        let made = Open { generation, session, id, flags, remote, taken_up: false };
        let file = self.admit(index, made, |files| files.take(id, birth));
        entry.flags.store(flags, Relaxed);
        entry.file.store(file, Relaxed);
        entry.session.store(session.0, Relaxed);
        entry.kind.store(kind as u32, Relaxed);
        note_maker(entry, Caller { session: SessionId(0), lane: 0, request_id: 0 }, remote);
        entry.state.store(OPEN_PRIVATE, Release);
    }

    /// What was leased comes back.
    pub(crate) fn end_lease(&mut self, index: u32) {
        self.promised -= 1;
        self.clear_entry(index);
        self.free_opens.push(index);
    }

    /// Takes up an entry that an earlier daemon had leased; false when there is none.
    pub(crate) fn take_up_leased(&mut self, index: u32, session: SessionId) -> bool {
        let Some(entry) = self.node.opens.get(index as usize) else { return false };
        let generation = entry.generation.load(Relaxed);
        if !is_leased(entry.state.load(Acquire))
            || !self.take_reserved(OpenRef { index, generation }, session)
        {
            return false;
        }
        // What it made of it was not committed.
        self.leave_leased(index);
        true
    }

    /// The sessions to which an earlier daemon had leased something, as far as they can be.
    pub(crate) fn borrowers_before(&self) -> Vec<SessionId> {
        let entries = self.reserved.iter().map(|index| self.leased_entry(*index));
        let leased = entries.filter(|entry| is_leased(entry.state.load(Acquire)));
        let mut of: Vec<SessionId> =
            leased.map(|entry| SessionId(entry.session.load(Relaxed))).collect();
        of.sort_unstable();
        of.dedup();
        of
    }
}
