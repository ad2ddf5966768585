//! Changes of a part that its file's home asks for: bytes for its end (`object_append.rs`), space,
//! and that what is there survives the machine.
//!
//! They are made in the I/O pool where objects lie on a disk, one after the other for each part,
//! and nobody writes to the part meanwhile ([`Shard::check_no_append`]); a sync is in nobody's way.

use mayfly_object::{Allocation, ObjectId};
use mayfly_types::Errno;

use crate::{
    fault::{Fault, Outcome},
    files::{data::BLOCK_BYTES, state::preparation::Preparation},
    message::{Answer, PartPlace},
    shard::Shard,
    striping::{
        arithmetic::Stripes,
        state::object_change::{DONE, ObjectChange},
    },
    transactions::state::prepare_locks::PrepareLock,
};

fn changed(result: Result<u64, Errno>) -> Answer {
    match result {
        Ok(DONE) => Answer::Done,
        Ok(_) => Answer::Changed,
        Err(errno) => Answer::Failed(errno),
    }
}

impl Shard {
    pub(super) fn change_part(
        &mut self,
        object: ObjectId,
        change: ObjectChange,
    ) -> Outcome<Answer> {
        if self.objects.may_wait() {
            return Err(Fault::Prepare(Preparation::Change(object, change)));
        }
        let result = change.make(object, &*self.objects);
        self.part_has_changed(object);
        Ok(changed(result))
    }

    /// The result of the change that this run has asked for.
    pub(super) fn part_changed(&mut self) -> Option<Answer> {
        self.run.ready.change.take().map(changed)
    }

    /// The part, for its file's home, when nobody changes it. What the home asks for has its leave
    /// as of when it asked; this may have been put aside since, and the file be closed or gone.
    pub(super) fn part_at_rest(&mut self, place: &PartPlace) -> Outcome<ObjectId> {
        self.unclaimed(|| vec![(PrepareLock::Bytes(place.file), false)])?;
        self.check_no_write_in_doubt(place.file)?;
        self.admit_at_home(place)?;
        let object = self.part_to_change(place)?;
        self.check_no_append(object)?;
        if self.striping.objects.active.get(&place.file).is_some_and(|active| active.jobs > 0) {
            return Err(Fault::Busy);
        }
        Ok(object)
    }

    /// fallocate, as far as the range is this part's. With `look` nothing is done but to look
    /// whether there is room.
    pub(crate) fn allocate_part(
        &mut self,
        place: &PartPlace,
        what: Allocation,
        (start, end): (u64, u64),
        look: bool,
    ) -> Outcome<Answer> {
        if let Some(answer) = self.part_changed() {
            return Ok(answer);
        }
        let ranges = place.part.layout.ranges_of_part(place.file, place.part.index, start..end);
        let ranges = ranges.ok_or(Errno::EOPNOTSUPP)?;
        let object = self.part_at_rest(place)?;
        if what != Allocation::Punch {
            let bytes = self.space_missing(object, &ranges)?;
            let end = ranges.iter().map(|(at, bytes)| at + bytes).max().unwrap_or(0);
            self.check_part_free(place, end, bytes)?;
            if !look {
                self.charge_part(object.file, bytes);
            }
        }
        if look {
            return Ok(Answer::Done);
        }
        self.end_leave_to_write(object.file);
        self.change_part(object, ObjectChange::Allocate { what, ranges })
    }

    /// How much of these ranges of an object may have no space yet, bytes.
    fn space_missing(&mut self, object: ObjectId, ranges: &[(u64, u64)]) -> Outcome<u64> {
        let before = self.look(object)?;
        let size_bytes = before.size_bytes;
        let inside = |(at, bytes): &(u64, u64)| (at + bytes).min(size_bytes).saturating_sub(*at);
        // Of the space that there is, what does not fit outside the ranges is in them.
        let outside = size_bytes - ranges.iter().map(inside).sum::<u64>().min(size_bytes);
        let had = (before.blocks * BLOCK_BYTES).saturating_sub(outside);
        Ok(ranges.iter().map(|range| range.1).sum::<u64>().saturating_sub(had))
    }

    /// fsync, for the file's home: what was acknowledged survives the machine.
    pub(crate) fn sync_part(&mut self, object: ObjectId) -> Outcome<Answer> {
        if let Some(answer) = self.part_changed() {
            return Ok(answer);
        }
        let Some(part) = self.part_of(object)? else { return Ok(Answer::Done) };
        if part.cut.is_some() {
            self.ready_part(object, &part)?;
        }
        match self.look(object) {
            // Its record is there, and it was not made.
            Err(Fault::Errno(Errno::ENOENT)) => Ok(Answer::Done),
            looked => {
                looked?;
                self.change_part(object, ObjectChange::Sync)
            }
        }
    }

    /// For lseek, for the file's home.
    pub(crate) fn seek_part(
        &mut self,
        place: &PartPlace,
        offset: u64,
        hole: bool,
    ) -> Outcome<Answer> {
        if let Some(found) = self.run.ready.change.take() {
            return Ok(found.map_or_else(Answer::Failed, Answer::Size));
        }
        let object = place.object();
        let seek = ObjectChange::Seek { place: *place, offset, hole };
        if let Some(part) = self.part_of(object)?.filter(|part| part.cut.is_some()) {
            self.ready_part(object, &part)?;
        }
        if self.objects.may_wait() {
            return Err(Fault::Prepare(Preparation::Change(object, seek)));
        }
        Ok(seek.make(object, &*self.objects).map_or_else(Answer::Failed, Answer::Size))
    }
}
