//! What a shard does that no request waits for.
//!
//! Results of the I/O pool go from here to the part that had the job done. Whatever a part puts off
//! until there is time for it is begun here.

use mayfly_meta::key;

use crate::{fault::store_failed, files::state::background::Done, shard::Shard};

impl Shard {
    /// Takes in what the I/O pool has finished. An answer that appears here rests on nothing that
    /// is not committed: its job was submitted after the commit of its batch, or needed none.
    pub(crate) fn absorb(&mut self) {
        self.end_old_in_doubt();
        for (_, done) in self.files.jobs.completions() {
            match done {
                Done::Answer(caller, result) => self.complete(caller, result.map(|()| Vec::new())),
                Done::Read(caller, result) => {
                    self.read_ended(caller);
                    self.complete_read(caller, result);
                }
                Done::Changed(change, result, looked) => {
                    self.changed_object(change, result, looked);
                }
                Done::Listed(caller, listed) => self.objects_listed(caller, listed),
                Done::PartRead(done) => self.part_was_read(done),
                Done::PartWritten(done) => self.part_was_written(done),
                Done::Prepared(subject, prepared) => self.prepared(subject, prepared),
                Done::Abandoned => {}
                Done::Removed(removed) => self.objects_removed(removed),
            }
        }
    }

    /// Runs one of the jobs that wait in the I/O pool, counted from the first; false when there are
    /// not so many. For a core whose pool is run by hand ([`mayfly_object::BY_HAND`]).
    pub fn run_job(&mut self, which: usize) -> bool {
        self.files.jobs.run(which)
    }

    /// Jobs of the I/O pool whose result is still to come.
    #[must_use]
    pub fn background_jobs(&self) -> usize {
        self.files.jobs.outstanding() + self.files.background.deferred.len()
    }

    /// Work that no request waits for, and results of the pool. True when a commit must follow,
    /// after which there may be completions; a further call may find more.
    pub fn idle_work(&mut self) -> bool {
        self.execute_ripe();
        self.absorb();
        if self.due().is_some() {
            self.look_at_clocks();
            self.keep_in_time();
            self.forget_in_time();
            self.end_long_waits();
        }
        for object in std::mem::take(&mut self.files.background.removed) {
            if let Err(error) = self.store.delete(&key::doomed(object.file, object.generation)) {
                store_failed(&error);
            }
        }
        self.give_names_back()
            || self.store.pending_transaction() != 0
            || self.has_messages()
            || !self.batch.ready.is_empty()
            || !self.batch.uncommitted.is_empty()
    }
}
