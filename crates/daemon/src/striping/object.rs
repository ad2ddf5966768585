//! This node's parts of striped files.
//!
//! A request for bytes of a striped file comes straight to the shard that has the part, which does
//! not know the file. It has a record of the part, made before the object is, and asks the file's
//! home only for what it cannot know: before it changes the part for the first time since the home
//! took over the file's length (*admission*), so that the home asks for the length from then on;
//! and when a read ends early, whether the file does.
//!
//! A cut is decided by an operation over all parts, whose step notes it in the record. Before
//! anything else is done with the object the I/O pool makes it. While such an operation is under
//! way nobody else uses the part.

#[cfg(test)]
mod alone;

use std::sync::Arc;

use mayfly_meta::{
    key,
    record::{Part, PartOf, PendingCut},
};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_transport_shm::layout::WRITE_STARTED_PART;
use mayfly_types::{Errno, FileId, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{Data, Op, Read, Request, Wire, Write, Writer, Written};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::{
        data::BLOCK_BYTES,
        state::{
            background::{Done, Length, encoded},
            data::fitting,
            in_doubt::write_again,
            preparation::{Preparation, Subject},
        },
    },
    log,
    message::{Answer, At, PartPlace, Question, Resolved},
    shard::{
        Shard,
        state::{run::Run, task::Task},
    },
    striping::{
        arithmetic::Stripes,
        state::object::{Active, ReadDone, WriteDone, make_ready},
    },
    transactions::state::prepare_locks::PrepareLock,
};

/// Room for the body of a read, bytes.
const READ_BODY_BYTES: usize = 64;

impl PartPlace {
    pub(crate) fn object(&self) -> ObjectId {
        ObjectId { file: self.file, generation: self.part.generation }
    }
}

impl Shard {
    /// A request that is about the bytes of a part, or about leave to use them.
    pub(crate) fn serve_part(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        place: &PartPlace,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let offset = match request {
            Request::Read(read) => Some(read.offset),
            Request::Write(write) if !write.append => Some(write.offset),
            Request::Grant(_) => None,
            _ => return Err(Errno::EPROTO.into()),
        };
        let PartPlace { file, part: PartOf { layout, index, .. } } = place;
        let mine = self.part_shard(*file, layout, *index) == self.place.shard;
        if !mine || offset.is_some_and(|offset| layout.part_of(*file, offset) != *index) {
            return Err(Errno::EPROTO.into());
        }
        self.unclaimed(|| vec![(PrepareLock::Bytes(*file), false)])?;
        self.check_part_not_in_doubt(caller, *file)?;
        match request {
            Request::Read(read) => self.read_part(caller, place, read, to),
            Request::Write(write) => self.write_part(caller, place, write, to),
            Request::Grant(grant) => self.grant_part(caller, place, grant, to),
            _ => Err(Errno::EPROTO.into()),
        }
    }

    fn read_part(
        &mut self,
        caller: Caller,
        place: &PartPlace,
        read: &Read,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let layout = &place.part.layout;
        let count = u64::from(read.count).min(TRANSFER_BYTES_MAX as u64);
        let count = count.min(layout.left_in_chunk(read.offset)) as usize;
        let Some(part) = self.part_of(place.object())? else {
            let size_bytes = self.size_at_home(place)?;
            let zeros = vec![0; size_bytes.saturating_sub(read.offset).min(count as u64) as usize];
            Data { object: true, bytes: &zeros }.encode(to)?;
            return Ok(Served::Replied);
        };
        let size_bytes = self.run.striped.short.map(|_| self.size_at_home(place)).transpose()?;
        if part.cut.is_some() {
            self.ready_part(place.object(), &part)?;
        }
        let (objects, object) = (Arc::clone(&self.objects), place.object());
        // A cut since the size was asked for makes it wrong too.
        let cuts = self.run.striped.short.unwrap_or(part.cuts);
        let (at, place, read) = (layout.in_part(read.offset), *place, *read);
        self.start_job(Length::Bytes(count), move || {
            let result = match objects.read_up_to(object, at, count) {
                // Its record is there, and it was not made.
                Err(Errno::ENOENT) => Ok(Vec::new()),
                other => other,
            };
            Done::PartRead(ReadDone { caller, place, read, count, size_bytes, cuts, result })
        });
        Ok(Served::Pending)
    }

    /// What was read is answered, when it is known that the file ends where it does.
    pub(crate) fn part_was_read(&mut self, done: ReadDone) {
        let ReadDone { caller, place, read, count, size_bytes, cuts, result } = done;
        let mut bytes = match result {
            Ok(bytes) => bytes,
            Err(errno) => return self.complete(caller, Err(errno)),
        };
        if bytes.len() < count {
            let now = match self.part_of(place.object()) {
                Ok(part) => part.map(|part| part.cuts),
                Err(fault) => return self.complete(caller, Err(fault.errno())),
            };
            let Some(size_bytes) = size_bytes.filter(|_| now == Some(cuts)) else {
                return self.read_again(caller, place, &read, now.unwrap_or(0));
            };
            let there = size_bytes.saturating_sub(read.offset).min(count as u64) as usize;
            bytes.resize(there.max(bytes.len()), 0);
        }
        self.complete_read(caller, Ok(bytes));
    }

    fn read_again(&mut self, caller: Caller, place: PartPlace, read: &Read, cuts: u32) {
        let mut body = vec![0; READ_BODY_BYTES];
        let mut to = Writer::new(&mut body);
        if read.encode(&mut to).is_err() {
            return self.complete(caller, Err(Errno::EIO));
        }
        let used = to.used();
        body.truncate(used);
        let body = body.into();
        let place = Resolved { at: At::Part(place), ..Resolved::default() };
        let mut run = Run::at(place);
        run.striped.short = Some(cuts);
        self.run_later(Task::Request { caller, op: Op::Read, body }, run);
    }

    fn size_at_home(&mut self, place: &PartPlace) -> Outcome<u64> {
        let (file, generation) = (place.file, place.part.generation);
        if self.is_home(file) {
            return self.striped_size(file, generation);
        }
        match self.fact(self.place.slots.home(file), Question::Size { file, generation })? {
            Answer::Size(size_bytes) => Ok(size_bytes),
            Answer::Failed(errno) => Err(errno.into()),
            _ => Err(Errno::EIO.into()),
        }
    }

    fn write_part(
        &mut self,
        caller: Caller,
        place: &PartPlace,
        write: &Write<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let layout = &place.part.layout;
        let bytes = fitting(write.offset, write.bytes)?;
        let count = layout.left_in_chunk(write.offset).min(bytes.len() as u64) as usize;
        let bytes = &bytes[..count];
        let end = write.offset + count as u64;
        let written = Written { object: true, count: count as u32, end };
        if bytes.is_empty() {
            written.encode(to)?;
            return Ok(Served::Replied);
        }
        self.admit_at_home(place)?;
        let object = self.part_to_change(place)?;
        self.check_no_append(object)?;
        self.check_end(place, end)?;
        let at = layout.in_part(write.offset);
        let again = self.is_in_doubt(caller);
        if !again {
            self.take_room(place, at + count as u64, count as u64)?;
        }
        let place = self.begin_write(caller, object.file, WRITE_STARTED_PART);
        let active = self.striping.objects.active.entry(object.file).or_default();
        active.jobs += 1;
        let (objects, bytes) = (Arc::clone(&self.objects), self.keep(bytes));
        self.start_job(Length::Bytes(count), move || {
            let result = match again {
                true => write_again(&*objects, object, at, &bytes),
                false => objects.write(object, at, &bytes),
            };
            Done::PartWritten(WriteDone { caller, object, written, place, result })
        });
        Ok(Served::Pending)
    }

    pub(crate) fn part_was_written(&mut self, done: WriteDone) {
        let WriteDone { caller, object, written, place, result } = done;
        if result == Err(Errno::EIO) {
            log::error(format_args!("object {}", object.path()), "changing it: EIO");
        }
        if let Some(active) = self.striping.objects.active.get_mut(&object.file) {
            active.jobs = active.jobs.saturating_sub(1);
        }
        if let Err(fault) = self.soil_again(object) {
            self.forget_started(place);
            return self.complete(caller, Err(fault.errno()));
        }
        self.part_has_changed(object);
        self.complete(caller, result.and_then(|()| encoded(0, &written)));
        if let Some(place) = place {
            self.end_write(caller, place, result.map(|()| written));
        }
    }

    /// What an object takes is known again when nobody writes it.
    pub(crate) fn part_has_changed(&mut self, object: ObjectId) {
        let idle = |active: &&mut Active| active.jobs == 0;
        let allowed_end = self.allowed_end(object.file);
        let Some(active) = self.striping.objects.active.get_mut(&object.file).filter(idle) else {
            return;
        };
        if let Ok(Some(attr)) = self.objects.attr_at_hand(object)
            && active.charged_bytes != 0
        {
            let bytes = (attr.blocks * BLOCK_BYTES).max(allowed_end);
            let had = std::mem::replace(&mut active.charged_bytes, bytes);
            self.files.charged_bytes = (self.files.charged_bytes + bytes).saturating_sub(had);
        }
        self.wake_blocked();
    }

    /// Makes sure that the file's home will ask for its length.
    pub(super) fn admit_at_home(&mut self, place: &PartPlace) -> Outcome<()> {
        let PartPlace { file, part: PartOf { generation, index, .. } } = *place;
        let admitted = self.striping.objects.active.get(&file).and_then(|active| active.admitted);
        if admitted == Some(generation) {
            return Ok(());
        }
        if self.is_home(file) {
            self.admit_change(file, generation, index)?;
        } else {
            match self
                .fact(self.place.slots.home(file), Question::Admit { file, generation, index })?
            {
                Answer::Done => {}
                Answer::Failed(errno) => return Err(errno.into()),
                _ => return Err(Errno::EIO.into()),
            }
        }
        self.striping.objects.active.entry(file).or_default().admitted = Some(generation);
        Ok(())
    }

    pub(crate) fn record_of_part(&mut self, file: FileId) -> Outcome<Option<Part>> {
        let record = self.store.get(&key::numbered(key::PART, file))?;
        Ok(record.map(Part::decode).transpose()?)
    }

    pub(super) fn part_of(&mut self, object: ObjectId) -> Outcome<Option<Part>> {
        let part = self.record_of_part(object.file)?;
        Ok(part.filter(|part| part.generation == object.generation))
    }

    pub(super) fn save_part(&mut self, file: FileId, part: &Part) -> Outcome<()> {
        Ok(self.store.put(&key::numbered(key::PART, file), &part.encode())?)
    }

    /// The object of a part that is about to be changed; its record says so.
    pub(super) fn part_to_change(&mut self, place: &PartPlace) -> Outcome<ObjectId> {
        let (file, object) = (place.file, place.object());
        let part = match self.record_of_part(file)? {
            Some(part) if part.generation == object.generation => part,
            // The file was emptied since.
            Some(part) if part.generation > object.generation => return Err(Errno::EIO.into()),
            _ => {
                self.check_room()?;
                self.new_part(place, None)?
            }
        };
        let part = self.soil(file, part)?;
        self.ready_part(object, &part)?;
        Ok(object)
    }

    /// The record of a part that is new here. An older file's is gone.
    pub(super) fn new_part(&mut self, place: &PartPlace, cut: Option<PendingCut>) -> Outcome<Part> {
        let PartPlace { file, part: PartOf { generation, layout, index } } = *place;
        if let Some(old) = self.record_of_part(file)? {
            self.forget_part(file, &old)?;
        }
        self.end_leave(file);
        let part = Part { generation, layout, index, dirty: true, blocks: 0, cuts: 0, cut };
        self.counters.objects += 1;
        self.save_part(file, &part)?;
        Ok(part)
    }

    /// The part's object is about to be changed: its space is counted by what it takes.
    pub(super) fn soil(&mut self, file: FileId, part: Part) -> Outcome<Part> {
        if part.dirty {
            return Ok(part);
        }
        let bytes = part.blocks * BLOCK_BYTES;
        self.counters.settled_bytes = self.counters.settled_bytes.saturating_sub(bytes);
        self.charge_part(file, bytes);
        let part = Part { dirty: true, ..part };
        self.save_part(file, &part)?;
        Ok(part)
    }

    pub(super) fn charge_part(&mut self, file: FileId, bytes: u64) {
        self.striping.objects.active.entry(file).or_default().charged_bytes += bytes;
        self.files.charged_bytes += bytes;
    }

    pub(super) fn discharge_part(&mut self, file: FileId) {
        if let Some(active) = self.striping.objects.active.get_mut(&file) {
            let bytes = std::mem::take(&mut active.charged_bytes);
            self.files.charged_bytes = self.files.charged_bytes.saturating_sub(bytes);
        }
    }

    /// The part was cleaned while somebody wrote to it.
    fn soil_again(&mut self, object: ObjectId) -> Outcome<()> {
        match self.part_of(object)? {
            Some(part) => self.soil(object.file, part).map(drop),
            None => Ok(()),
        }
    }

    /// Refuses what there is no room for, and sets aside what a write may take.
    pub(super) fn take_room(&mut self, place: &PartPlace, end: u64, bytes: u64) -> Outcome<()> {
        let object = place.object();
        let before = self.look(object)?;
        let dense = before.blocks * BLOCK_BYTES >= before.size_bytes;
        if end > before.size_bytes || !dense {
            self.check_part_free(place, end, bytes)?;
            self.charge_part(object.file, bytes);
        }
        Ok(())
    }

    /// The object is there, and cut as was decided.
    pub(super) fn ready_part(&mut self, object: ObjectId, part: &Part) -> Outcome<()> {
        let made =
            self.striping.objects.active.get(&object.file).is_some_and(|active| active.exists);
        if made && part.cut.is_none() {
            return Ok(());
        }
        if let Some(errno) = self.run.ready.failure(Subject::Part(object)) {
            return Err(errno.into());
        }
        if self.objects.may_wait() {
            return Err(Fault::Prepare(Preparation::Part(object, part.cut)));
        }
        self.commit_before_making()?;
        make_ready(object, part.cut, &*self.objects)?;
        Ok(self.part_is_ready(object, part.cut)?)
    }

    /// What the I/O pool has prepared is noted.
    pub(crate) fn part_is_ready(
        &mut self,
        object: ObjectId,
        cut: Option<PendingCut>,
    ) -> Result<(), Errno> {
        let found = self.part_of(object).map_err(|fault| fault.errno())?;
        let Some(part) = found else { return Ok(()) };
        self.striping.objects.active.entry(object.file).or_default().exists = true;
        if cut.is_some() && part.cut == cut {
            let saved = self.save_part(object.file, &Part { cut: None, ..part });
            saved.map_err(|fault| fault.errno())?;
            // What was cut off is free for the next write, which may be what needs it.
            self.part_has_changed(object);
        }
        Ok(())
    }

    /// Takes over the object of a file as its first part.
    pub(super) fn adopt_part(&mut self, place: &PartPlace, attr: &ObjectAttr) -> Outcome<()> {
        let PartPlace { file, part: PartOf { generation, layout, index } } = *place;
        let part = Part { generation, layout, index, dirty: true, blocks: 0, cuts: 0, cut: None };
        self.save_part(file, &part)?;
        self.charge_part(file, attr.blocks * BLOCK_BYTES);
        let active = self.striping.objects.active.entry(file).or_default();
        (active.admitted, active.exists) = (Some(generation), true);
        Ok(())
    }
}
