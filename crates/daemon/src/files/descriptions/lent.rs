//! Descriptions that are lent to processes ([`mayfly_transport_shm::lent`]).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mayfly_meta::record::BirthKey;
use mayfly_transport_shm::{
    layout::{OPEN_LENT, OPEN_LENT_TAKEN, OPEN_LENT_USED, OPEN_PRIVATE, OpenEntry},
    lent::is_lent,
};
use mayfly_types::{FileId, FileKind, OpenRef, SessionId};

use crate::files::descriptions::{Open, OpenTable};

/// Flags that a description that was lent may have, as a process writes them.
const FLAGS: u32 = O_RDWR | O_NONBLOCK | O_LARGEFILE | O_NOFOLLOW | O_NOATIME;
const O_RDWR: u32 = 2;
const O_NONBLOCK: u32 = 0o4000;
const O_LARGEFILE: u32 = 0o100_000;
const O_NOFOLLOW: u32 = 0o400_000;
const O_NOATIME: u32 = 0o1_000_000;

impl OpenTable {
    fn lent_entry(&self, index: u32) -> &'static OpenEntry {
        let node = self.node;
        &node.opens[index as usize]
    }

    /// Lends an entry, as long as half of them are free.
    pub(crate) fn lend(&mut self, session: SessionId) -> Option<u32> {
        if self.count + self.promised >= self.share.opens_max / 2 {
            return None;
        }
        let index = self.take_open_index();
        self.promised += 1;
        let entry = self.lent_entry(index);
        entry.session.store(session.0, Relaxed);
        entry.id.store(FileId::NONE.0, Relaxed);
        entry.state.store(OPEN_LENT, Release);
        Some(index)
    }

    /// Takes back an entry by which a process reads `id`; false when it does not, any more. Then
    /// [`OpenTable::keep_lent`] must follow, or [`OpenTable::leave_lent`].
    pub(crate) fn take_lent(&self, index: u32, id: FileId) -> bool {
        let entry = self.lent_entry(index);
        let taken =
            entry.state.compare_exchange(OPEN_LENT_USED, OPEN_LENT_TAKEN, AcqRel, Acquire).is_ok();
        if taken && entry.id.load(Relaxed) != id.0 {
            self.leave_lent(index);
            return false;
        }
        taken
    }

    /// It goes on being lent.
    pub(crate) fn leave_lent(&self, index: u32) {
        let state = &self.lent_entry(index).state;
        let _ = state.compare_exchange(OPEN_LENT_TAKEN, OPEN_LENT_USED, AcqRel, Acquire);
    }

    /// The file that a process reads by the entry.
    pub(crate) fn lent_file(&self, index: u32) -> FileId {
        FileId(self.lent_entry(index).id.load(Acquire))
    }

    /// Makes a description of one that was taken.
    pub(crate) fn keep_lent(
        &mut self,
        index: u32,
        session: SessionId,
        id: FileId,
        birth: BirthKey,
    ) {
        self.promised -= 1;
        let entry = self.lent_entry(index);
        let generation = entry.generation.load(Relaxed);
        let flags = entry.flags.load(Relaxed) & FLAGS;
        let made = Open { generation, session, id, flags, remote: None };
        let file = self.admit(index, made, |files| files.take(id, birth));
        entry.flags.store(flags, Relaxed);
        entry.file.store(file, Relaxed);
        entry.session.store(session.0, Relaxed);
        entry.kind.store(FileKind::Regular as u32, Relaxed);
        for word in &entry.reserved {
            word.store(0, Relaxed);
        }
        entry.state.store(OPEN_PRIVATE, Release);
    }

    /// What was lent comes back.
    pub(crate) fn break_lent(&mut self, index: u32) {
        self.promised -= 1;
        self.clear_entry(index);
        self.free_opens.push(index);
    }

    /// Takes up an entry that an earlier daemon had lent; false when there is none.
    pub(crate) fn take_up_lent(&mut self, index: u32, session: SessionId) -> bool {
        let Some(entry) = self.node.opens.get(index as usize) else { return false };
        let generation = entry.generation.load(Relaxed);
        if !is_lent(entry.state.load(Acquire))
            || !self.take_reserved(OpenRef { index, generation }, session)
        {
            return false;
        }
        // What it made of it was not committed.
        self.leave_lent(index);
        true
    }

    /// The sessions to which an earlier daemon had lent something, as far as they can be.
    pub(crate) fn borrowers_before(&self) -> Vec<SessionId> {
        let entries = self.reserved.iter().map(|index| self.lent_entry(*index));
        let lent = entries.filter(|entry| is_lent(entry.state.load(Acquire)));
        let mut of: Vec<SessionId> =
            lent.map(|entry| SessionId(entry.session.load(Relaxed))).collect();
        of.sort_unstable();
        of.dedup();
        of
    }
}
