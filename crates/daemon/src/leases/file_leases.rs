//! Descriptions that are leased, so that processes open files for reading, and directories, without
//! asking ([`mayfly_transport_shm::file_leases`]).
//!
//! A process that opens files for reading is leased some entries of the table of descriptions. What
//! it does with them the shard learns when it looks: when the last name of a file goes
//! ([`Shard::is_leased`], [`Shard::recall_leased`]), and when the process says that it wants a
//! description of its own ([`Shard::make_wanted`]).
//!
//! Only of files that are at home here, where processes read the shard's records, and where no
//! access time has to be noted.

use std::sync::atomic::{
    Ordering::{AcqRel, SeqCst},
    fence,
};

use mayfly_meta::record::BirthKey;
use mayfly_transport_shm::file_leases::{FILE_LEASES_MAX, SessionLeases};
use mayfly_types::{FileId, FileKind, SessionId, Times};

use crate::{
    api::Caller,
    fault::{Fault, Outcome},
    leases::state::file_leases::Holder,
    log,
    namespace::state::inode::Located,
    shard::Shard,
    shards::numbering::origin,
};

/// So many files a process opens for reading before it need not ask.
const OPENED_FIRST: u32 = 4;

/// Regular files are opened by what is leased to be read, directories to be listed.
fn may_be_leased(located: &Located) -> bool {
    matches!(located.inode.kind(), FileKind::Regular | FileKind::Directory)
}

impl Shard {
    fn leases_of(&self, session: SessionId) -> Option<&'static SessionLeases> {
        let node = self.node;
        node.file_leases.get(session.0 as usize)
    }

    /// A process has opened a file for reading by asking, whose bytes are in its record or in one
    /// object.
    pub(crate) fn consider_leasing(&mut self, caller: Caller) {
        let possible = self.shows_records()
            && origin(caller.session).is_none()
            && self.config.times != Times::All
            && !self.leases.mounts.has(caller.session);
        if !possible {
            return;
        }
        let holder = self.leases.files.all.entry(caller.session).or_default();
        holder.opened = holder.opened.saturating_add(1);
        if holder.opened >= OPENED_FIRST {
            self.lease_all(caller.session);
        }
    }

    fn lease_all(&mut self, session: SessionId) {
        for place in 0..FILE_LEASES_MAX {
            if self.leases.files.at(session, place).is_none() {
                self.lease_at(session, place);
            }
        }
    }

    /// Leases another entry in the place of one, if there is room.
    pub(super) fn lease_at(&mut self, session: SessionId, place: usize) {
        let Some(leases) = self.leases_of(session) else { return };
        let index = self.files.opens.lease(session);
        self.leases.files.set(session, place, index);
        self.leases.files.show(session, leases);
        leases.wanted.fetch_and(!(1 << place), AcqRel);
        leases.hide(place);
        leases.set_entry(place, index);
    }

    /// Does a process read the file by what it is leased? From here on none begins to, before the
    /// end of the transaction.
    pub(crate) fn is_leased(&mut self, id: FileId) -> Outcome<bool> {
        if self.leases.files.shown.is_empty() {
            return Ok(false);
        }
        // A process that shows its file later sees that a transaction is under way, and asks.
        self.store.announce()?;
        fence(SeqCst);
        Ok(self.leases.files.shown.iter().any(|(_, leases)| leases.shows(id)))
    }

    /// Makes descriptions of what processes read the file by, before it loses its last name.
    pub(crate) fn recall_leased(&mut self, located: &Located) -> Outcome<()> {
        let id = located.inode.id;
        if !may_be_leased(located) || !self.is_leased(id)? {
            return Ok(());
        }
        let readers: Vec<(SessionId, usize, u32)> = self.leases.files.all().collect();
        for (session, place, index) in readers {
            let shown = self
                .leases_of(session)
                .is_some_and(|leases| leases.places_with(id).any(|shown| shown == place));
            if shown && self.files.opens.recall_leased(index, id) {
                let birth = self.birth_of_leased(session, place);
                self.keep_leased((session, place, index), located, birth);
            }
        }
        Ok(())
    }

    /// Where the process has found the file: what finds it again also when the transaction in which
    /// it moves is lost.
    fn birth_of_leased(&self, session: SessionId, place: usize) -> BirthKey {
        let Some(leases) = self.leases_of(session) else { return BirthKey::default() };
        let mut name = Default::default();
        let (directory, name) = leases.births[place].read(&mut name);
        BirthKey { directory, name: name.to_vec() }
    }

    fn keep_leased(
        &mut self,
        (session, place, index): (SessionId, usize, u32),
        located: &Located,
        birth: BirthKey,
    ) {
        let of = (located.inode.id, located.inode.kind());
        self.files.opens.keep_leased((index, session), of, birth, None);
        self.mark_opened(&located.inode);
        self.lease_at(session, place);
    }

    /// The file that a process shows by a place, and where it has found it.
    pub(super) fn shown_by(&self, session: SessionId, place: usize) -> Option<(FileId, BirthKey)> {
        let file = self.leases_of(session)?.files.get(place)?.load(SeqCst);
        Some((FileId(file), self.birth_of_leased(session, place)))
    }

    /// Makes the descriptions that a process wants of what it is leased.
    pub(crate) fn make_wanted(&mut self, session: SessionId) -> Outcome<()> {
        let Some(leases) = self.leases_of(session).filter(|_| !self.leases.files.shown.is_empty())
        else {
            return Ok(());
        };
        let wanted = leases.wanted.load(SeqCst);
        for place in (0..FILE_LEASES_MAX).filter(|place| wanted & 1 << place != 0) {
            let kept = self.keep_wanted(session, place);
            if matches!(kept, Err(Fault::Errno(_))) {
                leases.wanted.fetch_and(!(1 << place), AcqRel);
            }
            if kept?.is_some() {
                continue;
            }
            let Some(index) = self.leases.files.at(session, place) else { continue };
            let id = self.files.opens.leased_file(index);
            let birth = self.birth_of_leased(session, place);
            if !self.files.opens.recall_leased(index, id) {
                continue;
            }
            match self.load_birth(id, &birth) {
                Ok(located) if located.inode.id == id && may_be_leased(&located) => {
                    self.keep_leased((session, place, index), &located, birth);
                }
                _ => {
                    log::error("lent", format_args!("session {} reads what is not", session.0));
                    self.files.opens.leave_leased(index);
                }
            }
        }
        Ok(())
    }

    /// The session is over.
    pub(crate) fn end_leases(&mut self, session: SessionId) {
        let Some(holder) = self.leases.files.remove(session) else { return };
        if let Some(leases) = self.leases_of(session) {
            leases.clear();
        }
        for index in holder.places.into_iter().flatten() {
            self.files.opens.end_lease(index);
        }
    }

    /// Files that processes read by what they are leased.
    pub(crate) fn leased_in_use(&self) -> usize {
        self.leases.files.shown.iter().map(|(_, leases)| leases.used()).sum()
    }

    /// Takes up what an earlier daemon had leased: before anything is removed.
    pub(crate) fn take_up_leased(&mut self) {
        for session in self.files.opens.borrowers_before() {
            let Some(leases) = self.leases_of(session) else { continue };
            if !self.is_known(session) {
                leases.clear();
                continue;
            }
            let mut holder = Holder { opened: OPENED_FIRST, ..Holder::default() };
            for place in 0..FILE_LEASES_MAX {
                let index = leases.entry_at(place);
                let kept = index.filter(|index| self.files.opens.take_up_leased(*index, session));
                if kept.is_none() {
                    leases.set_entry(place, None);
                    leases.hide(place);
                }
                holder.places[place] = kept;
            }
            self.leases.files.all.insert(session, holder);
            self.leases.files.show(session, leases);
            self.leases.kept_files.may_be_read(self.leases.now, self.leases.now);
        }
    }
}
