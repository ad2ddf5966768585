//! The life of this node's parts. They are cut, and they are removed. They say how far they reach,
//! and their file's home takes that over.

use mayfly_meta::{
    StoreError, key,
    record::{Part, PartOf, PendingCut},
};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_types::{Errno, FileId};

use crate::{
    fault::{Fault, Outcome},
    files::{data::BLOCK_BYTES, state::preparation::Subject},
    message::{Answer, PartFacts, PartPlace, Question},
    shard::Shard,
    striping::arithmetic::Stripes,
    transactions::state::prepare_locks::PrepareLock,
};

impl Shard {
    /// A step of an operation that cuts a file. It only notes what is to be done to the object.
    pub(crate) fn cut_part(&mut self, file: FileId, of: &PartOf, size_bytes: u64) -> Outcome<()> {
        self.void(|question| matches!(question, Question::Size { file: cut, .. } if *cut == file));
        self.keep_unsettled(file);
        self.forget_appends(file);
        let (length, exact) = of.layout.length_of_part(file, of.index, size_bytes);
        let at_least = if exact { length } else { 0 };
        let place = PartPlace { file, part: *of };
        let there = self.record_of_part(file)?;
        if there.is_some_and(|part| part.generation > of.generation) {
            // The file was emptied after this, and has bytes again.
            return Ok(());
        }
        let Some(part) = there.filter(|part| part.generation == of.generation) else {
            if at_least > 0 {
                let cut = PendingCut { at_most: length, at_least };
                self.new_part(&place, Some(cut))?;
            }
            return Ok(());
        };
        let part = self.soil(file, part)?;
        let before = part.cut.unwrap_or(PendingCut { at_most: u64::MAX, at_least: 0 });
        let cut = PendingCut {
            at_most: before.at_most.min(length),
            at_least: before.at_least.min(length).max(at_least),
        };
        let cuts = part.cuts.wrapping_add(1);
        self.save_part(file, &Part { cuts, cut: Some(cut), ..part })
    }

    fn part_facts(&mut self, object: ObjectId) -> Outcome<(PartFacts, Option<Part>)> {
        let Some(part) = self.part_of(object)? else { return Ok((PartFacts::default(), None)) };
        if part.cut.is_some() {
            self.ready_part(object, &part)?;
        }
        let attr = match self.look(object) {
            Err(Fault::Errno(Errno::ENOENT)) => ObjectAttr::default(),
            other => other?,
        };
        let facts = PartFacts {
            end_bytes: part.layout.end_of_part(part.index, attr.size_bytes),
            blocks: attr.blocks,
            mtime: attr.mtime,
            ctime: attr.ctime,
            dirty: part.dirty,
            cuts: part.cuts,
        };
        Ok((facts, Some(Part { cut: None, ..part })))
    }

    /// How far a part reaches.
    pub(crate) fn tell_part(&mut self, file: FileId, generation: u32) -> Outcome<Answer> {
        Ok(Answer::Part(self.part_facts(ObjectId { file, generation })?.0))
    }

    /// The same; the file's home takes over the times. A write that is under way makes the part
    /// dirty again.
    pub(crate) fn clean_part(&mut self, file: FileId, generation: u32) -> Outcome<Answer> {
        let object = ObjectId { file, generation };
        self.check_no_append(object)?;
        // Before the look at the object: a later write makes the part dirty again.
        self.end_leave_to_write(file);
        let (facts, part) = self.part_facts(object)?;
        if let Some(part) = part.filter(|part| part.dirty) {
            self.discharge_part(file);
            self.counters.settled_bytes += facts.blocks * BLOCK_BYTES;
            self.save_part(file, &Part { dirty: false, blocks: facts.blocks, ..part })?;
        }
        Ok(Answer::Part(facts))
    }

    /// The same; the file's home takes over the length too. A cut that is under way would change
    /// that length.
    pub(crate) fn settle_part(&mut self, file: FileId, generation: u32) -> Outcome<Answer> {
        self.unclaimed(|| vec![(PrepareLock::Bytes(file), false)])?;
        if self.striping.objects.active.get(&file).is_some_and(|active| active.jobs > 0) {
            return Err(Fault::Busy);
        }
        let answer = self.clean_part(file, generation)?;
        self.forget_admission(file);
        self.forget_appends(file);
        self.striping.objects.active.remove(&file);
        Ok(answer)
    }

    fn forget_admission(&mut self, file: FileId) {
        self.void(|question| match question {
            Question::Admit { file: admitted, .. } => *admitted == file,
            _ => false,
        });
    }

    /// The file is gone.
    pub(crate) fn drop_part(&mut self, file: FileId, generation: u32) -> Outcome<()> {
        self.forget_admission(file);
        self.forget_appends(file);
        match self.record_of_part(file)? {
            Some(part) if part.generation <= generation => self.forget_part(file, &part),
            Some(_) => Ok(()),
            None => {
                // A writer was admitted, and has made no object so far.
                self.striping.objects.active.remove(&file);
                Ok(())
            }
        }
    }

    pub(super) fn forget_part(&mut self, file: FileId, part: &Part) -> Outcome<()> {
        let object = ObjectId { file, generation: part.generation };
        self.end_leave(file);
        self.forget_appends(file);
        self.striping.objects.holds.remove(&file);
        self.wake_blocked();
        self.store.put(&key::doomed(file, part.generation), &[1])?;
        self.store.delete(&key::numbered(key::PART, file))?;
        if part.dirty {
            self.discharge_part(file);
        } else {
            let bytes = part.blocks * BLOCK_BYTES;
            self.counters.settled_bytes = self.counters.settled_bytes.saturating_sub(bytes);
        }
        self.striping.objects.active.remove(&file);
        self.counters.objects = self.counters.objects.saturating_sub(1);
        if !self.files.preparations.is_under_way(Subject::Part(object)) {
            self.files.background.doomed.push(object);
        }
        Ok(())
    }

    /// The pool has made the object of a part, or could not. A part that was removed meanwhile
    /// loses its object now. Before this the pool could have made the object after its removal.
    pub(crate) fn remove_if_unlinked(&mut self, object: ObjectId) -> Result<(), StoreError> {
        if self.store.get(&key::doomed(object.file, object.generation))?.is_some() {
            self.remove_when_committed(object);
        }
        Ok(())
    }

    /// Counts the space of the parts that the earlier daemon was changing.
    pub(crate) fn take_up_parts(&mut self) -> Result<(), StoreError> {
        let mut dirty = Vec::new();
        for (file, record) in self.marks(key::PART)? {
            let part = Part::decode(&record)?;
            if part.dirty {
                dirty.push(ObjectId { file, generation: part.generation });
            }
        }
        for object in dirty {
            let attr = self.objects.attr(object).unwrap_or_default();
            self.charge_part(object.file, attr.blocks * BLOCK_BYTES);
        }
        Ok(())
    }
}
