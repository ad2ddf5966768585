//! Descriptions that are lent, so that processes open files for reading without asking
//! ([`mayfly_transport_shm::lent`]).
//!
//! A process that opens files for reading is lent some entries of the table of descriptions. What
//! it does with them the shard learns when it looks: when the last name of a file goes
//! ([`Shard::is_lent`], [`Shard::take_lent`]), and when the process says that it wants a
//! description of its own ([`Shard::make_wanted`]).
//!
//! Only where one shard has everything, where processes read its records, and where no access time
//! has to be noted.

use std::sync::atomic::{
    Ordering::{AcqRel, SeqCst},
    fence,
};

use mayfly_meta::record::{BirthKey, Content};
use mayfly_transport_shm::lent::{LENT_MAX, Lent};
use mayfly_types::{Durability, FileId, SessionId, Times};

use crate::{
    api::Caller, fault::Outcome, leases::state::file_leases::Holder, log,
    namespace::state::inode::Located, shard::Shard,
};

/// So many files a process opens for reading before it need not ask.
const OPENED_FIRST: u32 = 4;

impl Shard {
    fn lent_to(&self, session: SessionId) -> Option<&'static Lent> {
        let node = self.node;
        node.lent.get(session.0 as usize)
    }

    /// A process has opened a file for reading by asking, whose bytes are in its record or in one
    /// object.
    pub(crate) fn consider_lending(&mut self, caller: Caller) {
        let possible = self.place.alone
            && self.config.durability == Durability::Process
            && self.config.times != Times::All
            && !self.leases.mounts.has(caller.session);
        if !possible {
            return;
        }
        let borrower = self.leases.files.all.entry(caller.session).or_default();
        borrower.opened = borrower.opened.saturating_add(1);
        if borrower.opened >= OPENED_FIRST {
            self.lend_all(caller.session);
        }
    }

    fn lend_all(&mut self, session: SessionId) {
        for place in 0..LENT_MAX {
            if self.leases.files.at(session, place).is_none() {
                self.lend_at(session, place);
            }
        }
    }

    /// Lends another entry in the place of one, if there is room.
    fn lend_at(&mut self, session: SessionId, place: usize) {
        let Some(lent) = self.lent_to(session) else { return };
        let index = self.files.opens.lend(session);
        self.leases.files.set(session, place, index);
        self.leases.files.show(session, lent);
        lent.wanted.fetch_and(!(1 << place), AcqRel);
        lent.hide(place);
        lent.set_entry(place, index);
    }

    /// Does a process read the file by what it is lent? From here on none begins to, before the
    /// end of the transaction.
    pub(crate) fn is_lent(&mut self, id: FileId) -> Outcome<bool> {
        if self.leases.files.shown.is_empty() {
            return Ok(false);
        }
        // A process that shows its file later sees that a transaction is under way, and asks.
        self.store.announce()?;
        fence(SeqCst);
        Ok(self.leases.files.shown.iter().any(|(_, lent)| lent.shows(id)))
    }

    /// Makes descriptions of what processes read the file by, before it loses its last name.
    pub(crate) fn take_lent(&mut self, located: &Located) -> Outcome<()> {
        let id = located.inode.id;
        if !matches!(located.inode.content, Content::Inline(_) | Content::Object(_))
            || !self.is_lent(id)?
        {
            return Ok(());
        }
        let readers: Vec<(SessionId, usize, u32)> = self.leases.files.all().collect();
        for (session, place, index) in readers {
            let shown = self
                .lent_to(session)
                .is_some_and(|lent| lent.places_with(id).any(|shown| shown == place));
            if shown && self.files.opens.take_lent(index, id) {
                let birth = self.birth_of_lent(session, place);
                self.keep_lent((session, place, index), located, birth);
            }
        }
        Ok(())
    }

    /// Where the process has found the file: what finds it again also when the transaction in which
    /// it moves is lost.
    fn birth_of_lent(&self, session: SessionId, place: usize) -> BirthKey {
        let Some(lent) = self.lent_to(session) else { return BirthKey::default() };
        let mut name = Default::default();
        let (directory, name) = lent.births[place].read(&mut name);
        BirthKey { directory, name: name.to_vec() }
    }

    fn keep_lent(
        &mut self,
        (session, place, index): (SessionId, usize, u32),
        located: &Located,
        birth: BirthKey,
    ) {
        self.files.opens.keep_lent(index, session, located.inode.id, birth);
        self.mark_opened(&located.inode);
        self.lend_at(session, place);
    }

    /// Makes the descriptions that a process wants of what it is lent.
    pub(crate) fn make_wanted(&mut self, session: SessionId) {
        let Some(lent) = self.lent_to(session).filter(|_| !self.leases.files.shown.is_empty())
        else {
            return;
        };
        let wanted = lent.wanted.load(SeqCst);
        for place in (0..LENT_MAX).filter(|place| wanted & 1 << place != 0) {
            let Some(index) = self.leases.files.at(session, place) else { continue };
            let id = self.files.opens.lent_file(index);
            let birth = self.birth_of_lent(session, place);
            if !self.files.opens.take_lent(index, id) {
                continue;
            }
            match self.load_birth(id, &birth) {
                Ok(located) if located.inode.id == id => {
                    self.keep_lent((session, place, index), &located, birth);
                }
                _ => {
                    log::error("lent", format_args!("session {} reads what is not", session.0));
                    self.files.opens.leave_lent(index);
                }
            }
        }
    }

    /// The session is over.
    pub(crate) fn end_lending(&mut self, session: SessionId) {
        let Some(borrower) = self.leases.files.remove(session) else { return };
        if let Some(lent) = self.lent_to(session) {
            lent.clear();
        }
        for index in borrower.places.into_iter().flatten() {
            self.files.opens.break_lent(index);
        }
    }

    /// Files that processes read by what they are lent.
    pub(crate) fn lent_in_use(&self) -> usize {
        self.leases.files.shown.iter().map(|(_, lent)| lent.used()).sum()
    }

    /// Takes up what an earlier daemon had lent: before anything is removed.
    pub(crate) fn take_up_lent(&mut self) {
        for session in self.files.opens.borrowers_before() {
            let Some(lent) = self.lent_to(session) else { continue };
            if !self.is_known(session) {
                lent.clear();
                continue;
            }
            let mut borrower = Holder { opened: OPENED_FIRST, ..Holder::default() };
            for place in 0..LENT_MAX {
                let index = lent.entry_at(place);
                let kept = index.filter(|index| self.files.opens.take_up_lent(*index, session));
                if kept.is_none() {
                    lent.set_entry(place, None);
                    lent.hide(place);
                }
                borrower.places[place] = kept;
            }
            self.leases.files.all.insert(session, borrower);
            self.leases.files.show(session, lent);
        }
    }
}
