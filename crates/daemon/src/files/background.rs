//! What runs beside the requests, in the I/O pool: reading and writing objects, cutting them,
//! syncing, and removing objects that nothing refers to any more.
//!
//! A job that changes an object is started on an inode that is unsettled, so the object is asked
//! for length and space from then on. While such jobs are *in flight* the size is not settled; the
//! last one to come back does it when no writer is left. A write at an offset may be made again
//! when its daemon dies in between; an append may not, and is noted first (`append.rs`). An open
//! that truncates makes its description at once, and is answered when the object is cut; a size
//! that nobody waits for is settled when the object can be looked at without waiting.

use std::sync::Arc;

use mayfly_meta::record::Content;
use mayfly_object::{ObjectAttr, ObjectId, ObjectStore};
use mayfly_transport_shm::layout::FILE_MAPPED;
use mayfly_transport_tcp::{Body, limits::SHARED_BYTES_MIN};
use mayfly_types::{Attr, Durability, Errno, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{Data, DataHead, Opened, Sync, Written};

use crate::{
    api::Caller,
    fault::{Outcome, Served},
    files::{
        data::BLOCK_BYTES,
        state::{
            background::{Change, Done, Length, Reply, Work, encoded},
            data::object_of,
            preparation::{Prepared, Subject},
        },
    },
    log,
    namespace::state::inode::Located,
    shard::Shard,
    tier::state::table::Cover,
};

/// As many bytes a shard copies itself where no disk is waited for: a copy of 16 KiB takes 3 µs, to
/// wake another thread and be woken by it 10 to 60.
const HERE_BYTES_MAX: usize = 16 << 10;
/// With so few processors it copies as much as a request can carry: the process that asks and the
/// thread that looks after the sockets have them both, so that another thread brings nothing but
/// the switches to it, and bytes that come from and go to a socket are in this one's caches.
const FEW_PROCESSORS: usize = 2;

/// So many objects at most are removed by one job: to wake a thread of the pool, and to be woken by
/// it, takes as long as a removal.
const REMOVALS_MAX: usize = 32;

/// How many bytes a shard copies itself from and to objects in memory.
fn copied_here_bytes_max(processors: usize) -> usize {
    if processors <= FEW_PROCESSORS { TRANSFER_BYTES_MAX } else { HERE_BYTES_MAX }
}

impl Shard {
    /// fsync and its like. What was acknowledged survives the daemon anyway; only `--durability
    /// sync` asks for more, and there the store's commits are synchronous already.
    pub(crate) fn sync(&mut self, caller: Caller, sync: &Sync<'_>) -> Outcome<Served> {
        if sync.all && self.flush_for_sync(caller) {
            return Ok(Served::Pending);
        }
        let object = if sync.all {
            None
        } else {
            let inode = self.load_target(&sync.target)?.inode;
            self.written_back_at_sync(inode.id)?;
            let Content::Object(generation) = inode.content else { return Ok(Served::Replied) };
            if inode.layout.striped {
                return self.sync_striped(&inode);
            }
            Some(ObjectId { file: inode.id, generation })
        };
        if self.config.durability != Durability::Sync {
            return Ok(Served::Replied);
        }
        let objects = Arc::clone(&self.objects);
        self.files.jobs.submit(0, move || {
            let result = match object {
                Some(object) => objects.sync(object),
                None => objects.sync_all(),
            };
            Done::Answer(caller, result)
        });
        Ok(Served::Pending)
    }

    /// Called after a commit: objects can be changed as it says, and those that it unlinked can go.
    pub(crate) fn start_deferred(&mut self) {
        let Work { deferred, doomed, abandoned, .. } = &self.files.background;
        if deferred.is_empty() && doomed.is_empty() && abandoned.is_empty() {
            return;
        }
        for (length, job) in std::mem::take(&mut self.files.background.deferred) {
            self.submit(length, job);
        }
        for objects in std::mem::take(&mut self.files.background.doomed).chunks(REMOVALS_MAX) {
            self.start_removals(objects.to_vec());
        }
        for place in std::mem::take(&mut self.files.background.abandoned) {
            let objects = Arc::clone(&self.objects);
            self.files.jobs.submit(0, move || {
                objects.abandon(&place);
                Done::Abandoned
            });
        }
    }

    /// Removes an object with a mark, as soon as that is committed.
    pub(crate) fn remove_when_committed(&mut self, object: ObjectId) {
        match self.store.pending_transaction() {
            0 => self.start_removal(object),
            _ => self.files.background.doomed.push(object),
        }
    }

    /// Removes an object whose mark is committed.
    pub(crate) fn start_removal(&mut self, object: ObjectId) {
        self.start_removals(vec![object]);
    }

    fn start_removals(&mut self, doomed: Vec<ObjectId>) {
        let objects = Arc::clone(&self.objects);
        self.files.jobs.submit(0, move || {
            let remove = |object| (object, objects.remove(object));
            Done::Removed(doomed.into_iter().map(remove).collect())
        });
    }

    /// Prepares something in the pool, once the batch is committed.
    pub(super) fn start_preparation(
        &mut self,
        subject: Subject,
        work: impl FnOnce(&dyn ObjectStore) -> Prepared + Send + 'static,
    ) {
        let objects = Arc::clone(&self.objects);
        self.start_job(Length::Any, move || Done::Prepared(subject, work(&*objects)));
    }

    /// Starts a job once the batch is committed.
    pub(crate) fn start_job(
        &mut self,
        length: Length,
        job: impl FnOnce() -> Done + Send + 'static,
    ) {
        if self.store.pending_transaction() == 0 {
            self.submit(length, job);
        } else {
            self.files.background.deferred.push((length, Box::new(job)));
        }
    }

    fn submit(&mut self, length: Length, job: impl FnOnce() -> Done + Send + 'static) {
        let is_short = match length {
            Length::Bytes(count) => count <= copied_here_bytes_max(self.config.processors),
            Length::Any => false,
        };
        if is_short && !self.objects.may_wait() {
            self.files.jobs.submit_short(0, job);
        } else {
            self.files.jobs.submit(0, job);
        }
    }

    /// Reads in the pool.
    pub(crate) fn start_read(
        &mut self,
        caller: Caller,
        object: ObjectId,
        offset: u64,
        count: usize,
    ) -> Served {
        if self.has_tier() {
            self.tier.filling.reads.push((caller, object.file));
        }
        let objects = Arc::clone(&self.objects);
        self.submit(Length::Bytes(count), move || {
            // What was fetched of a file goes at once when that is another one at its origin.
            let gone = |errno| if errno == Errno::ENOENT { Errno::ESTALE } else { errno };
            let result = objects.read_up_to(object, offset, count).map_err(gone);
            Done::Read(caller, result)
        });
        Served::Pending
    }

    /// Changes an object in the pool, once it is committed that its inode is unsettled.
    pub(crate) fn start_change(
        &mut self,
        length: Length,
        change: Change,
        work: impl FnOnce(&dyn ObjectStore) -> Result<u64, Errno> + Send + 'static,
    ) -> Served {
        *self.files.background.in_flight.entry(change.object.file).or_default() += 1;
        let objects = Arc::clone(&self.objects);
        self.start_job(length, move || {
            let result = work(&*objects);
            change.done(&*objects, result)
        });
        Served::Pending
    }

    pub(crate) fn objects_removed(&mut self, removed: Vec<(ObjectId, Result<(), Errno>)>) {
        for (object, result) in removed {
            match result {
                Ok(()) => self.files.background.removed.push(object),
                Err(errno) => {
                    // It keeps its mark.
                    let what = format!("cannot be removed: {errno}; the next start tries again");
                    log::error(format_args!("object {}", object.path()), what);
                }
            }
        }
    }

    pub(crate) fn complete(&mut self, caller: Caller, body: Result<Vec<u8>, Errno>) {
        self.complete_with(caller, body.map(Body::from));
    }

    /// Answers with bytes of an object, which stay where they are if there are many.
    pub(crate) fn complete_read(&mut self, caller: Caller, read: Result<Vec<u8>, Errno>) {
        let body = read.and_then(|bytes| {
            if bytes.len() < SHARED_BYTES_MIN {
                let data = Data { object: true, bytes: &bytes };
                return encoded(bytes.len(), &data).map(Body::from);
            }
            let count = u32::try_from(bytes.len()).map_err(|_| Errno::EOVERFLOW)?;
            let head = encoded(0, &DataHead { object: true, count })?;
            Ok(Body::new(head, bytes.into()))
        });
        self.complete_with(caller, body);
    }

    fn complete_with(&mut self, caller: Caller, body: Result<Body, Errno>) {
        let (status, body) = match body {
            Ok(body) => (0, body),
            Err(errno) => (errno.raw() as u32, Body::default()),
        };
        let done = self.completion(caller, status, body);
        if self.forget_cut(caller) {
            // It is stored before the commit that forgets what was noted.
            self.note_answer(&done);
            self.tasks.answer(done);
        } else if self.note_answer(&done) {
            self.batch.uncommitted.push(done);
        } else {
            self.batch.ready.push(done);
        }
    }

    pub(crate) fn changed_object(
        &mut self,
        change: Change,
        result: Result<u64, Errno>,
        attr_read: Result<(), Errno>,
    ) {
        let attr = match attr_read.and_then(|()| self.objects.attr_at_hand(change.object)) {
            Ok(Some(attr)) => Ok(attr),
            // So many others are open that it is closed again.
            Ok(None) => return self.look_again(change, result),
            Err(errno) => Err(errno),
        };
        if result == Err(Errno::EIO) {
            let object = change.object.path();
            log::error(format_args!("object {object}"), "changing it: EIO");
        }
        let file = change.object.file;
        if let Some(count) = self.files.background.in_flight.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                self.files.background.in_flight.remove(&file);
                self.files.background.cuts.remove(&file);
                self.files.background.awaited.remove(&file);
                self.striping.files.appending.remove(&file);
                self.wake_blocked();
            }
        }
        match change.reply {
            Reply::Allocated(bytes) => self.end_promise(file, bytes),
            Reply::Written(_, growth, _) => self.files.background.growing_bytes -= growth,
            Reply::Attr | Reply::Opened(_) | Reply::Nothing => {}
        }
        let cover = self.end_cover(&change);
        let covered = cover.filter(|_| result.is_ok());
        let after = attr.and_then(|attr| self.after_change(&change, &attr, covered));
        self.answer_change(&change, result, after, covered);
        self.end_change(&change, result);
        if cover.is_some() {
            self.go_on_flushing();
        }
    }

    fn look_again(&mut self, change: Change, result: Result<u64, Errno>) {
        let objects = Arc::clone(&self.objects);
        self.files.jobs.submit(0, move || change.done(&*objects, result));
    }

    fn answer_change(
        &mut self,
        change: &Change,
        result: Result<u64, Errno>,
        after: Result<Attr, Errno>,
        covered: Option<Cover>,
    ) {
        let body = result.and_then(|end| match &change.reply {
            Reply::Written(written, ..) => encoded(0, &Written { end, ..*written }),
            Reply::Attr => after.and_then(|attr| encoded(0, &attr)),
            Reply::Opened(open) => {
                let mapped = self.files.opens.has_flag(change.object.file, FILE_MAPPED);
                let opened = |attr| Opened { open: *open, attr, created: false, mapped };
                after.and_then(|attr| encoded(0, &opened(attr)))
            }
            Reply::Nothing | Reply::Allocated(_) => Ok(Vec::new()),
        });
        if let (Err(_), Reply::Opened(open)) = (&body, &change.reply) {
            self.end_open(*open);
        }
        let Some(caller) = change.caller else { return };
        match (covered, body) {
            // What it has covered is here with the commit only.
            (Some(_), Ok(body)) => self.answer_after_commit(caller, 0, body),
            (_, body) => self.complete(caller, body),
        }
    }

    /// Settles the size, once the object is opened if it is not: closing waits for no disk.
    pub(crate) fn settle_soon(&mut self, located: &mut Located) -> Outcome<()> {
        let object = object_of(&located.inode).filter(|_| located.inode.unsettled);
        let Some(object) = object else { return Ok(()) };
        if located.inode.layout.striped {
            self.settle_striped(located);
            return Ok(());
        }
        if let Some(attr) = self.objects.attr_at_hand(object)? {
            return self.settle(located, &attr);
        }
        let birth = located.birth();
        let change = Change { caller: None, object, birth, reply: Reply::Nothing };
        self.start_change(Length::Any, change, |_| Ok(0));
        Ok(())
    }

    /// Accounts for the space, and settles the size when nobody may write any more.
    fn after_change(
        &mut self,
        change: &Change,
        attr: &ObjectAttr,
        covered: Option<Cover>,
    ) -> Result<Attr, Errno> {
        let file = change.object.file;
        let step = |core: &mut Shard| {
            core.charge(file, attr.blocks * BLOCK_BYTES);
            let mut located = core.load_birth(file, &change.birth)?;
            let mut attr = *attr;
            if let Some(cover) = covered
                && core.chunks_covered(&mut located, cover)?
            {
                // It was given the file's times.
                attr = core.objects.attr(change.object)?;
            }
            let writers = core.files.opens.file(file).map_or(0, |file| file.writers);
            if writers == 0 && !core.files.background.is_in_flight(file) {
                core.settle(&mut located, &attr)?;
            }
            core.attr_with(&located.inode, Some(&attr))
        };
        step(self).map_err(|fault: crate::fault::Fault| fault.errno())
    }
}
