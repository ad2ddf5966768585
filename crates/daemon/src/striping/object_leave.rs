//! Leave for the processes of this node to use its part of a striped file by themselves.
//!
//! A process that is given leave learns which chunks the part has. It reads and writes these in the
//! part's object, as others do with the object of a whole file: as long as the file's entry has the
//! grant generation that came with the leave, and no further than its allowance, which here counts
//! bytes of the object. A transfer during which the generation changed is made again by a request.
//!
//! So the generation changes before anything that a transfer must not meet, or that would not take
//! notice of it:
//! - before an operation has set the part aside to cut it: while that is under way nobody uses it;
//! - before bytes are appended to it, where it must end as the file's home has found it to end;
//! - before its home takes over times or length: whoever changes it afterwards makes it dirty
//!   again, and asks for admission;
//! - when its object is made, which nobody could be given leave for, and when it goes.
//!
//! Leave to write rests on the home's admission, like a write by request, and on a record that says
//! that the part is dirty. Under `hash` nobody has leave to write: how much space a length takes
//! cannot be said there.
//!
//! Nothing of this outlives the daemon: its successor begins with new generations.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mayfly_meta::record::{Layout, PartOf, Policy, Step};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_transport_shm::layout::FileEntry;
use mayfly_types::{Errno, FileId, OpenRef};
use mayfly_wire::{GRANT_WRITE, Grant, Granted, OwnPart, Wire, Writer};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::{data::BLOCK_BYTES, state::data::generous},
    message::PartPlace,
    shard::Shard,
    shards::{numbering::origin, slots::ShardId},
    striping::{arithmetic::Stripes, state::object_leave::Leave},
};

/// Below so many nobody looks for leaves whose files were closed.
const LEAVES_KEPT: usize = 1024;

/// What a process hears of a layout.
fn own_part(layout: &Layout, index: u16) -> OwnPart {
    let chunks = layout.chunks();
    // Processes do not reckon with tails.
    let index = if layout.tail.is_there() { u16::MAX } else { index };
    OwnPart {
        width: chunks.width.get(),
        index,
        chunk_log2: chunks.chunk_log2,
        hashed: chunks.hashed,
    }
}

impl Shard {
    /// This node's part of a file, if its layout is known and the node has one.
    pub(crate) fn grant_elsewhere(
        &mut self,
        file: FileId,
        to: &mut Writer<'_>,
    ) -> Outcome<Option<(ShardId, PartPlace)>> {
        let Some(of) = self.place_known(file) else {
            Granted { object_path: b"", generation: 0, own: OwnPart::WHOLE }.encode(to)?;
            return Ok(None);
        };
        let shard = |index| self.part_shard(file, &of.layout, index);
        let own = (0..of.layout.width).find(|index| self.place.numbering.is_here(shard(*index)));
        if let Some(index) = own {
            let part = PartOf { index, ..of };
            return Ok(Some((shard(index), PartPlace { file, part })));
        }
        let entry = self.files.opens.entry(file);
        let generation = entry.map_or(0, |entry| entry.grant_generation.load(Relaxed));
        let own = own_part(&of.layout, u16::MAX);
        Granted { object_path: b"", generation, own }.encode(to)?;
        Ok(None)
    }

    /// A process of this node asks for leave to use its part of a file.
    pub(super) fn grant_part(
        &mut self,
        caller: Caller,
        place: &PartPlace,
        grant: &Grant,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        if origin(caller.session).is_some() {
            return Err(Errno::EPROTO.into());
        }
        let (file, of) = (place.file, &place.part);
        let index = self.entry_of(grant.open, file)?;
        let (end, _) = of.layout.length_of_part(file, of.index, grant.end);
        let leave = if of.layout.tail.is_there() {
            false
        } else if grant.want & GRANT_WRITE == 0 {
            self.leave_to_read(place)?
        } else {
            end > 0 && of.layout.policy != Policy::Hash && self.leave_to_write(place, index, end)?
        };
        // Who has no leave hears of the object all the same, when it is made.
        self.note_leave(place.object(), index);
        let path = if leave { place.object().path() } else { String::new() };
        let entry = &self.node.files[index as usize];
        let generation = entry.grant_generation.load(Relaxed);
        let own = own_part(&of.layout, of.index);
        Granted { object_path: path.as_bytes(), generation, own }.encode(to)?;
        Ok(Served::Replied)
    }

    /// Index of the entry of the file that a process of this node has open. It may be another
    /// shard's.
    fn entry_of(&self, open: OpenRef, file: FileId) -> Outcome<u32> {
        let open = self.node.opens.get(open.index as usize).ok_or(Errno::EBADF)?;
        let index = open.file.load(Acquire);
        let entry = self.node.files.get(index as usize).ok_or(Errno::EBADF)?;
        if entry.id.load(Acquire) == file.0 { Ok(index) } else { Err(Errno::EBADF.into()) }
    }

    fn leave_to_read(&mut self, place: &PartPlace) -> Outcome<bool> {
        let object = place.object();
        let Some(part) = self.part_of(object)? else { return Ok(false) };
        if part.cut.is_some() {
            self.ready_part(object, &part)?;
        }
        match self.look(object) {
            // Its record is there, and it was not made.
            Err(Fault::Errno(Errno::ENOENT)) => Ok(false),
            looked => looked.map(|_| true),
        }
    }

    fn leave_to_write(&mut self, place: &PartPlace, entry: u32, end: u64) -> Outcome<bool> {
        self.check_no_append(place.object())?;
        self.check_end(place, u64::MAX)?;
        self.admit_at_home(place)?;
        let object = self.part_to_change(place)?;
        let Some(allowance_end) = self.part_allowance(object, end)? else { return Ok(false) };
        self.note_leave(object, entry);
        self.allow_part(object.file, allowance_end);
        Ok(true)
    }

    fn note_leave(&mut self, object: ObjectId, entry: u32) {
        let other = |leave: &Leave| leave.object != object || leave.entry != entry;
        if self.striping.objects.leaves.get(&object.file).is_some_and(other) {
            self.end_leave(object.file);
        }
        let many =
            self.striping.objects.leaves.len() >= self.striping.objects.leaves_max.max(LEAVES_KEPT);
        if many {
            let files = &self.node.files;
            let is_open = |file: &FileId, leave: &Leave| {
                files[leave.entry as usize].id.load(Relaxed) == file.0
            };
            self.striping
                .objects
                .leaves
                .retain(|file, leave| leave.allowance_end.is_some() || is_open(file, leave));
            self.striping.objects.leaves_max = self.striping.objects.leaves.len() * 2;
        }
        let leave = Leave { entry, object, allowance_end: None, trimmed: false };
        self.striping.objects.leaves.entry(object.file).or_insert(leave);
    }

    /// How far a part may be written by others than the daemon, so that `end` is covered; `None`
    /// when the space is not there.
    fn part_allowance(&mut self, object: ObjectId, end: u64) -> Outcome<Option<u64>> {
        let file = object.file;
        let had = self.allowed_end(file);
        if end <= had {
            return Ok(Some(had));
        }
        let base = end.max(self.look(object)?.size_bytes).max(had);
        let room = |core: &Shard| {
            let charged =
                core.striping.objects.active.get(&file).map_or(0, |active| active.charged_bytes);
            (core.free_bytes() + charged).saturating_sub(core.kept_for_names())
        };
        if room(self) < base {
            self.reclaim()?;
            if room(self) < base && !self.place.alone {
                self.reclaim_elsewhere()?;
            }
        }
        Ok(generous(base, room(self), u64::MAX))
    }

    /// Up to where the object is written without the daemon's knowledge, bytes.
    pub(super) fn allowed_end(&self, file: FileId) -> u64 {
        self.striping.objects.leaves.get(&file).and_then(|leave| leave.allowance_end).unwrap_or(0)
    }

    fn allow_part(&mut self, file: FileId, end: u64) {
        let active = self.striping.objects.active.entry(file).or_default();
        let more = end.saturating_sub(active.charged_bytes);
        active.charged_bytes += more;
        self.files.charged_bytes += more;
        if let Some(leave) = self.striping.objects.leaves.get_mut(&file) {
            if leave.allowance_end != Some(end) {
                leave.trimmed = false;
            }
            leave.allowance_end = Some(end);
        }
        self.show_allowance(file, end);
    }

    fn show_allowance(&self, file: FileId, end: u64) {
        if let Some(entry) = self.entry_of_leave(file) {
            entry.allowance_end.store(end, Release);
            // Another shard may have given the entry to another file meanwhile.
            if entry.id.load(Acquire) != file.0 {
                entry.allowance_end.store(0, Release);
            }
        }
    }

    /// The file's entry, while the file is open.
    fn entry_of_leave(&self, file: FileId) -> Option<&'static FileEntry> {
        let node = self.node;
        let entry = &node.files[self.striping.objects.leaves.get(&file)?.entry as usize];
        (entry.id.load(Acquire) == file.0).then_some(entry)
    }

    /// Whoever has used the part by himself has to ask again.
    pub(super) fn end_leave(&mut self, file: FileId) {
        if let Some(entry) = self.entry_of_leave(file) {
            entry.grant_generation.fetch_add(1, Release);
        }
        self.show_allowance(file, 0);
        self.striping.objects.leaves.remove(&file);
    }

    /// The same for whoever has written to it.
    pub(super) fn end_leave_to_write(&mut self, file: FileId) {
        if self
            .striping
            .objects
            .leaves
            .get(&file)
            .is_some_and(|leave| leave.allowance_end.is_some())
        {
            self.end_leave(file);
        }
    }

    /// A transaction has what its steps need: nobody uses by himself what they cut.
    pub(crate) fn end_leaves_of(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::CutPart { id, .. } = step {
                self.end_leave(*id);
            }
        }
    }

    /// Cuts allowances to what the parts have, as that of whole objects is cut
    /// ([`Shard::reclaim`]). Those of parts that cannot be looked at without waiting are added to
    /// `far`.
    pub(crate) fn reclaim_parts(&mut self, far: &mut Vec<ObjectId>) {
        let busy =
            |file: &FileId| self.striping.objects.active.get(file).is_some_and(|of| of.jobs > 0);
        let leaves = self.striping.objects.leaves.iter();
        let generous =
            leaves.filter(|(file, of)| of.allowance_end.is_some() && !of.trimmed && !busy(file));
        let mut objects: Vec<ObjectId> = generous.map(|(_, leave)| leave.object).collect();
        objects.sort_unstable_by_key(|object| object.file.0);
        for object in objects {
            let dense = |attr: &ObjectAttr| attr.blocks * BLOCK_BYTES >= attr.size_bytes;
            let Ok(before) = self.objects.attr_at_hand(object) else { continue };
            let kept = before.filter(dense).map_or(0, |before| before.size_bytes);
            self.show_allowance(object.file, kept);
            if let Some(leave) = self.striping.objects.leaves.get_mut(&object.file) {
                leave.allowance_end = Some(kept);
            }
            // Again, now that nobody takes more.
            match before.and_then(|_| self.objects.attr_at_hand(object).ok().flatten()) {
                Some(after) => drop(self.trim_part(object, after.blocks)),
                None => far.push(object),
            }
        }
    }

    /// Nothing is set aside any more for a part beyond what it takes; false when processes have no
    /// leave for it.
    pub(crate) fn trim_part(&mut self, object: ObjectId, blocks: u64) -> bool {
        let Some(leave) = self.striping.objects.leaves.get_mut(&object.file) else { return false };
        leave.trimmed = true;
        let least = (blocks * BLOCK_BYTES).max(leave.allowance_end.unwrap_or(0));
        if let Some(active) =
            self.striping.objects.active.get_mut(&object.file).filter(|of| of.jobs == 0)
        {
            let had = std::mem::replace(&mut active.charged_bytes, least);
            self.files.charged_bytes = (self.files.charged_bytes + least).saturating_sub(had);
        }
        true
    }
}
