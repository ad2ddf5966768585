//! Content of files that are there, as it was submitted
//! ([`mayfly_transport_shm::submission_ring`]), and what has it be asked for.
//!
//! Whoever submits content for a file has claimed its name, and then looked that the file's bytes
//! are in its record, at these bytes, and that no kernel keeps pages of a file of this shard. All
//! that is so when the record is executed. For whoever is about to change it by asking takes the
//! claim back before: who writes to a file or sets its length, who wants an object of it or gives
//! it another name ([`Shard::reserve_content`]), and who says that a kernel keeps pages
//! ([`Shard::content_is_mapped`]). The name is not claimed again before the commit of what he does,
//! so that nobody looks at bytes that are not those of the file any more.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use mayfly_meta::{
    key,
    record::{BirthKey, Content},
};
use mayfly_sys::file::O_TRUNC;
use mayfly_transport_shm::submission_ring::{
    RINGS, Record, SubmissionRing,
    name_table::{NameState, Print},
};
use mayfly_types::{Errno, FileId, FileKind, Timestamp};

use crate::{
    fault::Outcome,
    leases::{
        state::{
            cycles::Present,
            name_table::{Settled, found_in},
            submissions::Ring,
        },
        submitted_files::believed,
    },
    namespace::{
        open::ONCE,
        state::{inode::Located, walk::Place},
    },
    shard::Shard,
    shards::planted::{Planted, is_planted},
};

/// Content of a file that is there, in place of what it has.
pub(super) struct NewContent<'a> {
    pub(super) record: &'a Record,
    /// Whether the promised description is to be made.
    pub(super) open: bool,
    /// Whether there is any; otherwise the file stays as it is.
    pub(super) written: bool,
    /// How much it is, bytes.
    pub(super) bytes: usize,
    /// Which attributes are changed after that.
    pub(super) which: u32,
    /// Its process has looked at it.
    pub(super) seen: bool,
}

/// Whether a test wants what is added to be lost.
fn is_lost(new: &NewContent<'_>) -> bool {
    let is_added = new.record.flags.load(Relaxed) & O_TRUNC == 0;
    is_added && is_planted(Planted::AddedContentLost)
}

impl Shard {
    /// Replaces the content of what is found at a place.
    pub(super) fn replace_submitted(
        &mut self,
        new: &NewContent<'_>,
        place: Place,
        (submissions, at): (&SubmissionRing, usize),
        ring: &mut Ring,
        present: Present,
    ) -> Outcome<()> {
        let (id, kind) = place.found.ok_or(Errno::ENOENT)?;
        if kind != FileKind::Regular || id != new.record.replaced_file() {
            return Err(Errno::EPROTO.into());
        }
        let mut located = self.load_under(id, place.directory, place.cookie, place.name)?;
        let Located { inode, fused: Some(birth) } = &mut located else {
            return Err(Errno::EPROTO.into());
        };
        // Only a process that does not keep to what it may submit can have done so of another file.
        if !matches!(inode.content, Content::Inline(_)) || inode.layout.striped {
            return Err(Errno::EPROTO.into());
        }
        if let Some(promise) = ring.promises[at].filter(|_| new.open) {
            let flags = new.record.flags.load(Relaxed) & !ONCE;
            self.files.opens.keep_promise(promise, ring.session, id, birth.clone(), flags);
            self.mark_layout(inode);
            ring.opened |= 1 << at;
        }
        if !new.written || is_lost(new) {
            if new.which != 0 {
                self.apply_submitted(inode, &new.record.read_changes(new.which), present);
                self.save(&located)?;
            }
            return Ok(());
        }
        let mut content = std::mem::take(&mut self.leases.delegations.content);
        submissions.read_content(at, new.bytes, &mut content);
        if is_planted(Planted::ReplacedContentLost) {
            content.clear();
        }
        inode.size_bytes = content.len() as u64;
        let now = self.changed_by(new, content.len(), present);
        self.changed(inode, now);
        if new.which != 0 {
            self.apply_with_content(inode, &new.record.read_changes(new.which), present);
        }
        let saved = self.save_bytes(inode, birth, &content);
        self.leases.delegations.content = content;
        saved
    }

    /// When the content was changed: when it was taken away, written or cut, or when its process
    /// has looked, as it has told.
    fn changed_by(&self, new: &NewContent<'_>, bytes: usize, present: Present) -> Timestamp {
        let changed = present.time(new.record.changed_cycles.load(Relaxed));
        if !new.seen {
            return changed;
        }
        let (told, seen_bytes) = new.record.read_look();
        let told = believed(told, present);
        if seen_bytes == bytes { told } else { told.max(changed) }
    }

    /// Somebody is about to change the bytes of a file, to get leave to, or to have an object made
    /// of it: who writes to it asks from here on, until the commit. True when
    /// something was executed, so that what was found out before may not be so any more.
    pub(crate) fn reserve_content(&mut self, located: &Located) -> bool {
        // Of one in an object it is to be asked for anyway.
        if !matches!(located.inode.content, Content::Inline(_)) {
            return false;
        }
        let Some(slot) = self.slot_of_name(located) else { return false };
        let (table, root, print) = slot;
        let executed = self.reserve(table, root, print);
        let name_state = match executed {
            false => Some(NameState::Plain),
            // The name may be gone since, or be another thing's.
            true if self.slot_of_name(located) == Some(slot) => self.name_state(located),
            true => return true,
        };
        self.leases.delegations.settled.push(Settled { table, root, print, name_state });
        executed
    }

    /// How the name of a small file stands now.
    fn name_state(&mut self, located: &Located) -> Option<NameState> {
        let BirthKey { directory, name } = located.fused.as_ref()?;
        match self.store.get(&key::dentry(*directory, name)) {
            Ok(record) => record.map(|record| found_in(record, &self.place).0),
            Err(_) => Some(NameState::AskDaemon),
        }
    }

    /// In which name table, of which directory, the name of a small file is.
    fn slot_of_name(&mut self, located: &Located) -> Option<(usize, FileId, Print)> {
        let BirthKey { directory, name } = located.fused.as_ref()?;
        let within = self.covering(*directory)?;
        Some((within.table, within.root, within.print_of(name)))
    }

    /// What a commit is going to settle about the name of a file. Whoever commits in the midst of
    /// changing its bytes has this settled by the next one: nobody knows them before.
    pub(crate) fn take_reserved_content(&mut self, located: &Located) -> Vec<Settled> {
        let Some((table, _, print)) = self.slot_of_name(located) else { return Vec::new() };
        let is_of = |settled: &mut Settled| settled.table == table && settled.print == print;
        self.leases.delegations.settled.extract_if(.., is_of).collect()
    }

    /// An open file whose bytes may change, or of which an object may be made: nobody writes to it
    /// without asking.
    pub(crate) fn load_to_change(&mut self, id: FileId) -> Outcome<Located> {
        let mut located = self.load_open(id)?;
        // A move may have been executed: then it is another name that nobody writes by.
        while self.reserve_content(&located) {
            located = self.load_open(id)?;
        }
        Ok(located)
    }

    /// A kernel is about to keep pages of a file: nobody replaces content without asking any more,
    /// and what was submitted is executed.
    pub(crate) fn content_is_mapped(&mut self) {
        if self.node.head.mounts.mapped.swap(1, SeqCst) != 0 {
            return;
        }
        for at in 0..RINGS {
            let holders = self.take_back_table(at);
            if holders != 0 {
                self.execute_all(holders);
                self.give(at);
            }
        }
    }
}
