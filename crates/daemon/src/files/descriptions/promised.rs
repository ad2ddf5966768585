//! Descriptions that are set aside for what processes submit, and made when that is executed.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mayfly_meta::record::BirthKey;
use mayfly_transport_shm::layout::{OPEN_PRIVATE, OPEN_PROMISED};
use mayfly_types::{FileId, FileKind, OpenRef, SessionId};

use crate::files::descriptions::{Open, OpenTable};

impl OpenTable {
    /// Sets a description aside for what a process submits, and shows which file it will be of.
    pub(crate) fn promise(&mut self, session: SessionId, id: FileId) -> Option<OpenRef> {
        if !self.has_room() {
            return None;
        }
        let index = self.take_open_index();
        self.promised += 1;
        let entry = &self.node.opens[index as usize];
        entry.flags.store(0, Relaxed);
        entry.session.store(session.0, Relaxed);
        entry.offset_lock.store(0, Relaxed);
        entry.offset.store(0, Relaxed);
        entry.id.store(id.0, Relaxed);
        entry.kind.store(FileKind::Regular as u32, Relaxed);
        entry.state.store(OPEN_PROMISED, Release);
        Some(OpenRef { index, generation: entry.generation.load(Relaxed) })
    }

    /// What was promised was not wanted: it is promised once more, under another name.
    pub(crate) fn promise_again(&mut self, open: OpenRef, id: FileId) -> OpenRef {
        let entry = &self.node.opens[open.index as usize];
        entry.offset.store(0, Relaxed);
        entry.id.store(id.0, Relaxed);
        OpenRef { generation: entry.generation.fetch_add(1, Release).wrapping_add(1), ..open }
    }

    /// A promise ends with the leave that it was given with.
    pub(crate) fn break_promise(&mut self, open: OpenRef) {
        self.promised -= 1;
        self.clear_entry(open.index);
        self.free_opens.push(open.index);
    }

    /// Takes up a promise of an earlier daemon; false when it is none.
    pub(crate) fn take_reserved(&mut self, open: OpenRef, session: SessionId) -> bool {
        let Some(at) = self.reserved.iter().position(|index| *index == open.index) else {
            return false;
        };
        let entry = &self.node.opens[open.index as usize];
        let same = entry.generation.load(Relaxed) == open.generation
            && entry.session.load(Relaxed) == session.0;
        if same {
            self.reserved.swap_remove(at);
            self.promised += 1;
        }
        same
    }

    /// Frees what nobody has taken up.
    pub(crate) fn break_reserved(&mut self) {
        for index in std::mem::take(&mut self.reserved) {
            self.clear_entry(index);
            self.free_opens.push(index);
        }
    }

    /// Makes a description that was promised.
    pub(crate) fn keep_promise(
        &mut self,
        open: OpenRef,
        session: SessionId,
        id: FileId,
        birth: BirthKey,
        flags: u32,
    ) {
        self.promised -= 1;
        let OpenRef { index, generation } = open;
        let made = Open { generation, session, id, flags, remote: None, taken_up: false };
        let file = self.admit(index, made, |files| files.take(id, birth));
        let entry = &self.node.opens[index as usize];
        entry.file.store(file, Relaxed);
        entry.id.store(id.0, Relaxed);
        for word in &entry.reserved {
            word.store(0, Relaxed);
        }
        // It may be in use already, if it was made by a daemon that died before its commit.
        if entry.state.load(Acquire) == OPEN_PROMISED {
            entry.flags.store(flags, Relaxed);
            entry.state.store(OPEN_PRIVATE, Release);
        }
    }
}
