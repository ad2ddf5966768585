//! What has to be done to objects before an operation can run.
//!
//! A shard waits for no disk. Where objects lie on one, an operation that needs to look at an
//! object that is not open, or to make one, fails with [`Fault::Prepare`] before it has written
//! anything. It is put aside, the I/O pool does what is missing, and the operation is run again
//! from its beginning, as after an answer of another shard. Where objects lie in memory all of this
//! is done on the spot.
//!
//! Preparations of the same thing are made once, whoever else needs it waits with the first.
//! Requests that change the content also wait ([`Shard::check_at_rest`]) while a file's bytes are
//! being moved to an object, or an object is being cut to its acknowledged length. The move is for
//! the request that began it. The others go on after that one.
//!
//! The mark of an object that is to go is committed before the pool makes it, and goes in the
//! transaction in which the object becomes the file's. So an object that no record came to know is
//! removed, by whoever finds the mark.

use mayfly_meta::{
    key,
    record::{Content, Inode},
};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_types::{Durability, Errno, FileId};

use crate::{
    fault::{Fault, Outcome},
    files::{
        data::BLOCK_BYTES,
        state::preparation::{Cut, Moved, Preparation, Prepared, Subject},
    },
    namespace::state::inode::Located,
    shard::{
        Shard,
        state::{run::Run, task::Task},
    },
    striping::state::object::make_ready,
    tier::gates::is_absent,
};

impl Shard {
    /// Length, space and times of an object, as they are now.
    pub(crate) fn look(&self, object: ObjectId) -> Outcome<ObjectAttr> {
        self.check_not_in_doubt(object.file)?;
        if let Some(attr) = self.objects.attr_at_hand(object)? {
            return Ok(attr);
        }
        match self.run.ready.failure(Subject::Object(object)) {
            Some(errno) => Err(errno.into()),
            None => Err(Fault::Prepare(Preparation::Open(object))),
        }
    }

    /// Waits while bytes are being written to the end of a part.
    pub(crate) fn check_no_append(&self, object: ObjectId) -> Outcome<()> {
        let subject = Subject::Append(object);
        if self.files.preparations.is_under_way(subject) {
            return Err(Fault::Prepare(Preparation::Join(subject)));
        }
        Ok(())
    }

    /// Waits while the bytes of the file are being moved or cut for somebody else. For whoever is
    /// about to change them.
    pub(crate) fn check_at_rest(&self, file: FileId) -> Outcome<()> {
        self.check_not_in_doubt(file)?;
        if self.files.background.is_being_cut(file) {
            return Err(Fault::Busy);
        }
        let subject = Subject::Content(file);
        let mine = self.run.ready.object.is_some();
        if !mine && self.files.preparations.is_under_way(subject) {
            return Err(Fault::Prepare(Preparation::Join(subject)));
        }
        Ok(())
    }

    /// Cuts off an object what a write left that was never acknowledged: it must not show behind a
    /// hole.
    pub(super) fn cut_unacknowledged(&self, inode: &Inode, object: ObjectId) -> Outcome<()> {
        self.check_at_rest(object.file)?;
        if self.look(object)?.size_bytes == inode.size_bytes {
            return Ok(());
        }
        let cut = Cut { size_bytes: inode.size_bytes, mtime: inode.mtime };
        if !self.objects.may_wait() {
            return Ok(cut.make(object, &*self.objects)?);
        }
        match self.run.ready.failure(Subject::Object(object)) {
            Some(errno) => Err(errno.into()),
            None => Err(Fault::Prepare(Preparation::Cut(object, cut))),
        }
    }

    /// Moves an inline file's bytes to an object that is `size_bytes` long. The caller has made
    /// sure that there is room, and saves the inode.
    pub(crate) fn spill(&mut self, located: &mut Located, size_bytes: u64) -> Outcome<ObjectId> {
        let file = located.inode.id;
        self.check_at_rest(file)?;
        if let Some(errno) = self.run.ready.failure(Subject::Content(file)) {
            return Err(errno.into());
        }
        let (object, attr) = match self.take_moved(&located.inode, size_bytes)? {
            Some(made) => made,
            None => {
                let moved = self.plan_move(&located.inode, size_bytes)?;
                if self.objects.may_wait() {
                    return Err(Fault::Prepare(Preparation::Move(moved)));
                }
                (moved.object, self.make_here(&moved, located)?)
            }
        };
        let inode = &mut located.inode;
        inode.generation = object.generation;
        inode.content = Content::Object(object.generation);
        inode.size_bytes = size_bytes;
        inode.blocks = attr.blocks;
        self.counters.objects += 1;
        self.counters.settled_bytes += attr.blocks * BLOCK_BYTES;
        if !is_absent(inode) {
            self.files.opens.mark_object(file);
        }
        Ok(object)
    }

    /// Makes an object on the spot. Its mark is committed first, as where somebody else makes it:
    /// who is killed before the record is committed leaves no object that nobody knows.
    fn make_here(&mut self, moved: &Moved, located: &Located) -> Outcome<ObjectAttr> {
        let mark = key::doomed(moved.object.file, moved.object.generation);
        self.store.put(&mark, &[1])?;
        let reserved = self.take_reserved_content(located);
        let committed = self.commit_before_making();
        self.leases.delegations.settled.extend(reserved);
        committed?;
        match moved.make(&*self.objects) {
            Ok(attr) => {
                self.store.delete(&mark)?;
                Ok(attr)
            }
            Err(errno) => {
                self.start_removal(moved.object);
                Err(errno.into())
            }
        }
    }

    /// What names an object, or removes it, is committed before it is made; the batch goes on in
    /// another transaction. What does not outlive the daemon needs no care.
    pub(crate) fn commit_before_making(&mut self) -> Outcome<()> {
        if self.config.durability != Durability::None && self.store.pending_transaction() != 0 {
            self.commit().map_err(Fault::Errno)?;
        }
        Ok(())
    }

    /// The object that was made for this operation, which takes it over.
    fn take_moved(
        &mut self,
        inode: &Inode,
        size_bytes: u64,
    ) -> Outcome<Option<(ObjectId, ObjectAttr)>> {
        match self.run.ready.object.take_if(|(moved, _)| moved.is_right(inode, size_bytes)) {
            Some((Moved { object, .. }, attr)) => {
                self.store.delete(&key::doomed(object.file, object.generation))?;
                self.go_on_after(Subject::Content(object.file));
                Ok(Some((object, attr)))
            }
            None => {
                self.drop_moved();
                Ok(None)
            }
        }
    }

    /// An object that was made and that nobody took over goes.
    pub(crate) fn drop_moved(&mut self) {
        if let Some((Moved { object, .. }, _)) = self.run.ready.object.take() {
            self.start_removal(object);
            self.go_on_after(Subject::Content(object.file));
        }
    }

    fn plan_move(&mut self, inode: &Inode, size_bytes: u64) -> Outcome<Moved> {
        let Content::Inline(bytes) = &inode.content else { return Err(Errno::EINVAL.into()) };
        let mut generation = inode.generation + 1;
        // The removal of an older one may still be under way.
        while self.store.get(&key::doomed(inode.id, generation))?.is_some() {
            generation += 1;
        }
        Ok(Moved {
            object: ObjectId { file: inode.id, generation },
            bytes: bytes.clone(),
            size_bytes,
            atime: inode.atime,
            mtime: inode.mtime,
        })
    }

    /// Puts a task aside until something is prepared.
    pub(crate) fn prepare_for(
        &mut self,
        task: Task,
        preparation: Preparation,
    ) -> Result<(), Errno> {
        let subject = preparation.subject();
        let run = std::mem::take(&mut self.run);
        if let Some(waiting) = self.files.preparations.waiting.get_mut(&subject) {
            waiting.push((task, run));
            return Ok(());
        }
        match preparation {
            Preparation::Join(_) => {
                self.run_later(task, run);
                return Ok(());
            }
            Preparation::Open(object) => self.start_preparation(subject, move |objects| {
                Prepared::Object(object, objects.attr(object).map(drop))
            }),
            Preparation::Cut(object, cut) => self.start_preparation(subject, move |objects| {
                Prepared::Object(object, cut.make(object, objects))
            }),
            Preparation::Survey(far) => self.start_preparation(subject, move |objects| {
                // One that cannot be opened is met again by whoever uses it.
                let blocks = |object| objects.attr(object).map(|attr| attr.blocks).ok();
                Prepared::Survey(far.into_iter().map(|object| (object, blocks(object))).collect())
            }),
            Preparation::Part(object, cut) => self.start_preparation(subject, move |objects| {
                Prepared::Part(object, cut, make_ready(object, cut, objects))
            }),
            Preparation::Change(object, change) => self
                .start_preparation(subject, move |objects| {
                    Prepared::Changed(object, change.make(object, objects))
                }),
            Preparation::Move(moved) => {
                let ObjectId { file, generation } = moved.object;
                let marked = self.store.put(&key::doomed(file, generation), &[1]);
                marked.map_err(|error| crate::fault::store_failed(&error))?;
                self.start_preparation(subject, move |objects| {
                    let made = moved.make(objects);
                    Prepared::Moved(moved, made)
                });
            }
        }
        self.files.preparations.waiting.insert(subject, vec![(task, run)]);
        Ok(())
    }

    /// Takes in what the I/O pool has prepared.
    pub(crate) fn prepared(&mut self, subject: Subject, prepared: Prepared) {
        match prepared {
            Prepared::Object(object, result) => {
                let failure = result.err().map(|errno| (Subject::Object(object), errno));
                self.notify_waiting(subject, |run| run.ready.failures.extend(failure));
            }
            Prepared::Survey(surveyed) => {
                self.notify_waiting(subject, |run| run.ready.is_surveyed = true);
                self.take_survey(&surveyed);
            }
            Prepared::Part(object, cut, result) => {
                if let Err(error) = self.remove_if_unlinked(object) {
                    crate::fault::store_failed(&error);
                }
                let result = result.and_then(|()| self.part_is_ready(object, cut));
                let failure = result.err().map(|errno| (subject, errno));
                self.notify_waiting(subject, |run| run.ready.failures.extend(failure));
            }
            Prepared::Changed(object, result) => {
                self.part_has_changed(object);
                // The others begin on their own.
                let waiting = self.files.preparations.waiting.get_mut(&subject);
                if let Some((_, run)) = waiting.and_then(|waiting| waiting.first_mut()) {
                    run.ready.change = Some(result);
                }
            }
            Prepared::Moved(moved, Err(errno)) => {
                self.start_removal(moved.object);
                self.notify_waiting(subject, |run| run.ready.failures.push((subject, errno)));
            }
            Prepared::Moved(moved, Ok(attr)) => {
                let Some(waiting) = self.files.preparations.waiting.get_mut(&subject) else {
                    return;
                };
                // The others go on when this one has used it.
                let (task, mut run) = waiting.remove(0);
                run.ready.object = Some((moved, attr));
                self.run_later(task, run);
                return;
            }
        }
        self.go_on_after(subject);
    }

    /// Tasks that nobody waits for any more are taken out.
    pub(crate) fn give_up_waiting(&mut self, over: impl Fn(&Task) -> bool) -> Vec<Task> {
        let mut given_up = Vec::new();
        for waiting in self.files.preparations.waiting.values_mut() {
            given_up.extend(waiting.extract_if(.., |(task, _)| over(task)).map(|(task, _)| task));
        }
        given_up
    }

    fn notify_waiting(&mut self, subject: Subject, tell: impl Fn(&mut Run)) {
        let waiting = self.files.preparations.waiting.get_mut(&subject);
        waiting.into_iter().flatten().for_each(|(_, run)| tell(run));
    }

    fn go_on_after(&mut self, subject: Subject) {
        for (task, run) in self.files.preparations.waiting.remove(&subject).unwrap_or_default() {
            self.run_later(task, run);
        }
    }
}
