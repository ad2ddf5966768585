//! Appends and cuts of a file that is in one object, while nobody else changes that.
//!
//! A daemon may die in the middle of one, and its successor does it once more. What others have
//! written meanwhile must not hide the append's bytes, nor go with the cut. So such a change begins
//! when no other one is under way, and others wait until it is done. Leave to write ends before
//! anybody looks where the object ends, and none is given meanwhile. Who has used his leave while
//! it ended does the same again by a request. So an append has a certain place, and what is done
//! once more is the same as before.
//!
//! That holds for files to which no process appends by itself. To others it cannot be applied: who
//! met the end of his leave behind an append would append again.

use mayfly_meta::record::Inode;

use crate::{
    fault::{Fault, Outcome},
    shard::Shard,
};

impl Shard {
    /// Waits until nobody changes the object of a file, and sees to it that nobody does without
    /// asking. For whoever is about to append to it or to cut it.
    pub(crate) fn be_alone(&mut self, inode: &Inode) -> Outcome<()> {
        self.check_nobody_is_alone(inode)?;
        if !self.is_changed_alone(inode) {
            return Ok(());
        }
        if self.files.background.is_in_flight(inode.id) {
            self.files.background.awaited.insert(inode.id);
            return Err(Fault::Busy);
        }
        self.files.opens.end_leave_to_write(inode.id);
        Ok(())
    }

    /// Waits while somebody appends to the object of a file or cuts it, or waits for that.
    pub(crate) fn check_nobody_is_alone(&self, inode: &Inode) -> Outcome<()> {
        let (id, background) = (inode.id, &self.files.background);
        let is_busy = self.striping.files.appending.contains_key(&id)
            || background.is_being_cut(id)
            || background.is_in_flight(id) && background.awaited.contains(&id);
        if is_busy && self.is_changed_alone(inode) { Err(Fault::Busy) } else { Ok(()) }
    }

    fn is_changed_alone(&self, inode: &Inode) -> bool {
        !inode.layout.striped && self.is_appended_by_request(inode)
    }
}
