//! Striped files, at their home.
//!
//! A file that may be on several nodes begins as any other: in its record, then in an object at
//! home. When it outgrows its first chunk it is *striped*: the object becomes its first part, its
//! grants end, and from then on bytes are asked for where they are (`object.rs`). The inode stays
//! unsettled while anybody may write, and the length is what the parts say (`file_size.rs`).
//!
//! The size is settled when the last writer is gone, all parts have said how far they reach, and
//! none was admitted to changes meanwhile; whoever was asked asks for admission before it changes
//! its part again. Parts of a file that goes are noted until each of their servers has removed its
//! own.

use mayfly_meta::{
    key,
    record::{Inode, Layout, PartOf, Step},
};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_transport_shm::layout::{FILE_APPEND_BY_REQUEST, FILE_BY_REQUEST, FILE_STRIPED};
use mayfly_types::{Errno, FileId, FileKind, Times, limits::FILE_BYTES_MAX};
use mayfly_wire::{
    Grant, Read, Request, SET_ATIME, SET_ATIME_NOW, SET_MTIME, SET_MTIME_NOW, SET_SIZE, SetAttr,
    Wire, Write, Writer,
};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::data::object_of,
    log,
    message::{Answer, At, PartFacts, PartPlace, Question, Resolved},
    namespace::state::{
        attr::{apply, check_size},
        inode::Located,
    },
    shard::{Shard, state::task::Purpose},
    shards::slots::ShardId,
    striping::{
        arithmetic::Stripes,
        state::{
            file::{Settling, facts_of, generation_of},
            file_size::sum,
        },
    },
};

impl Shard {
    /// Who has a part of a file. The first one is its home's.
    pub(super) fn part_shard(&self, file: FileId, layout: &Layout, index: u16) -> ShardId {
        if index == 0 {
            return self.place.slots.home(file);
        }
        let numbering = &self.place.numbering;
        let node = self.node_of_part(file, layout, index);
        ShardId(numbering.front_of(node).0 + (file.0 % u64::from(numbering.shards)) as u32)
    }

    /// Who may have had a part of a file so far.
    pub(crate) fn shards_with_parts(&self, inode: &Inode) -> Vec<u32> {
        self.first_part_shards(inode.id, &inode.layout, inode.parts)
    }

    pub(super) fn first_part_shards(&self, file: FileId, layout: &Layout, parts: u16) -> Vec<u32> {
        (0..parts).map(|index| self.part_shard(file, layout, index).0).collect()
    }

    fn place_in(&self, file: FileId, of: &PartOf, offset: u64) -> (ShardId, PartPlace) {
        let part = PartOf { index: of.layout.part_of(file, offset), ..*of };
        (self.part_shard(file, &part.layout, part.index), PartPlace { file, part })
    }

    fn place_of(&self, inode: &Inode, offset: u64) -> Outcome<(ShardId, PartPlace)> {
        let generation = generation_of(inode)?;
        let of = PartOf { generation, layout: inode.layout, index: 0 };
        Ok(self.place_in(inode.id, &of, offset))
    }

    /// The request is about bytes that are there.
    #[expect(clippy::unused_self, reason = "beside `elsewhere`, which needs it")]
    pub(crate) fn to_part(&self, shard: ShardId, place: PartPlace) -> Fault {
        let place = Resolved { at: At::Part(place), ..Resolved::default() };
        Fault::Elsewhere(shard, Box::new(place))
    }

    /// A request went to a part: others about that file can go there too.
    pub(crate) fn learn_layout(&mut self, place: &PartPlace) {
        if self.files.opens.file(place.file).is_some_and(|file| file.elsewhere) {
            self.striping.files.places.insert(place.file, place.part);
            self.files.opens.set_flag(place.file, FILE_STRIPED);
        }
    }

    /// The layout of a file whose home is elsewhere, if it is known.
    pub(super) fn place_known(&self, file: FileId) -> Option<PartOf> {
        self.striping.files.places.get(&file).copied()
    }

    /// Where the bytes are that a request is about, if it is known of this file.
    pub(crate) fn known_place(
        &self,
        file: FileId,
        request: &Request<'_>,
    ) -> Option<(ShardId, PartPlace)> {
        let of = self.striping.files.places.get(&file)?;
        let offset = match request {
            Request::Read(read) => read.offset,
            Request::Write(write) if !write.append => write.offset,
            _ => return None,
        };
        Some(self.place_in(file, of, offset))
    }

    /// Perhaps nobody of this node has the file open any more, so its parts may change.
    pub(crate) fn forget_place(&mut self, file: FileId) {
        if self.files.opens.file(file).is_none() {
            self.striping.files.places.remove(&file);
        }
    }

    /// Leave to use the part at the file's home, for a process of this node.
    pub(crate) fn grant_striped(
        &mut self,
        caller: Caller,
        inode: &Inode,
        grant: &Grant,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        // Of a file with a tail the first byte may be elsewhere.
        let part = PartOf { generation: generation_of(inode)?, layout: inode.layout, index: 0 };
        let place = PartPlace { file: inode.id, part };
        self.serve_part(caller, &Request::Grant(*grant), &place, to)
    }

    pub(crate) fn read_striped(
        &mut self,
        caller: Caller,
        inode: &Inode,
        read: &Read,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        if read.offset > i64::MAX as u64 {
            return Err(Errno::EINVAL.into());
        }
        let (shard, place) = self.place_of(inode, read.offset)?;
        if shard == self.place.shard {
            return self.serve_part(caller, &Request::Read(*read), &place, to);
        }
        Err(self.to_part(shard, place))
    }

    pub(crate) fn write_striped(
        &mut self,
        caller: Caller,
        located: &Located,
        write: &Write<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        if write.append {
            return self.append_striped(caller, located, write, to);
        }
        let (shard, place) = self.place_of(&located.inode, write.offset)?;
        if shard == self.place.shard {
            return self.serve_part(caller, &Request::Write(*write), &place, to);
        }
        Err(self.to_part(shard, place))
    }

    /// Tells the processes of the node how the bytes of a file are used that is open.
    pub(crate) fn mark_layout(&mut self, inode: &Inode) {
        if inode.layout.striped {
            self.files
                .opens
                .set_flag(inode.id, FILE_BY_REQUEST | FILE_APPEND_BY_REQUEST | FILE_STRIPED);
        } else if self.is_appended_by_request(inode) {
            self.files.opens.set_flag(inode.id, FILE_APPEND_BY_REQUEST);
        }
    }

    /// Whether no process appends to the object of this file by itself.
    pub(crate) fn is_appended_by_request(&self, inode: &Inode) -> bool {
        inode.layout.width > 1 && inode.kind() == FileKind::Regular
            || inode.origin.is_some()
            || self.may_outgrow_home(inode)
    }

    /// Whether bytes up to `end` belong on other nodes, while all are in one object.
    #[expect(clippy::unused_self, reason = "beside `stripe`, which needs it")]
    pub(crate) fn outgrows_chunk(&self, inode: &Inode, end: u64) -> bool {
        let Layout { width, striped, .. } = inode.layout;
        width > 1 && !striped && end > inode.layout.chunk_bytes()
    }

    /// How far processes may be given leave to write an object.
    pub(crate) fn grant_end_max(&self, inode: &Inode) -> u64 {
        let whole = !self.outgrows_chunk(inode, u64::MAX);
        if whole {
            FILE_BYTES_MAX.min(self.config.home_bytes_max)
        } else {
            inode.layout.chunk_bytes()
        }
    }

    /// Makes the object of a file the first one of its parts; false when it stays in one object
    /// for good, since somebody may have mapped that.
    pub(crate) fn stripe(&mut self, located: &mut Located) -> Outcome<bool> {
        let file = located.inode.id;
        self.check_at_rest(file)?;
        let object = self.object_to_change(located)?;
        let attr = self.look(object)?;
        if attr.mapped {
            located.inode.layout.width = 1;
            self.save(located)?;
            return Ok(false);
        }
        if self.files.background.is_in_flight(file) {
            return Err(Fault::Busy);
        }
        self.deal_out(located, object, located.inode.layout)?;
        Ok(true)
    }

    /// Makes the object of a file, which is at rest and not mapped, the first of its parts under
    /// this layout.
    pub(super) fn deal_out(
        &mut self,
        located: &mut Located,
        object: ObjectId,
        layout: Layout,
    ) -> Outcome<()> {
        let file = object.file;
        // Before the look at the object: who has written it without asking is seen, or asks. And
        // before anything is written, since the look may have to wait.
        self.files.opens.mark_striped(file);
        let attr = self.look(object)?;
        self.mark_unsettled(located, object)?;
        self.forget_append(file)?;
        // While what it has still counts as taken.
        let tail_start = self.tail_start(&layout, attr.size_bytes);
        self.discharge(file);
        located.inode.layout = Layout { striped: true, ..layout };
        located.inode.parts = 1;
        if layout.tail.is_there() {
            located.inode.layout.tail.start_bytes = tail_start;
        }
        let part = PartOf { generation: object.generation, layout: located.inode.layout, index: 0 };
        self.adopt_part(&PartPlace { file, part }, &attr)?;
        self.save(located)
    }

    /// A part is about to change: the size is unsettled from here on, and there may be that part.
    pub(crate) fn admit_change(
        &mut self,
        file: FileId,
        generation: u32,
        index: u16,
    ) -> Outcome<()> {
        if self.files.opens.file(file).is_none_or(|file| file.writers == 0) {
            // Whoever wrote is gone.
            return Err(Errno::EBADF.into());
        }
        let mut located = self.load_open(file)?;
        if generation_of(&located.inode)? != generation || !located.inode.layout.striped {
            return Err(Errno::EIO.into());
        }
        let parts = index.checked_add(1).filter(|parts| *parts <= located.inode.layout.width);
        let parts = parts.ok_or(Errno::EPROTO)?;
        if parts > located.inode.parts && self.striping.files.appending.contains_key(&file) {
            // Nobody has asked it how far it reaches, nor holds it.
            return Err(Fault::Busy);
        }
        self.unsettle_striped(&mut located, parts)
    }

    /// The size is unsettled from here on, and there may be so many parts.
    pub(super) fn unsettle_striped(&mut self, located: &mut Located, parts: u16) -> Outcome<()> {
        let inode = &mut located.inode;
        let (file, new) = (inode.id, parts > inode.parts);
        self.keep_unsettled(file);
        if inode.unsettled && !new {
            return Ok(());
        }
        inode.parts = inode.parts.max(parts);
        if !inode.unsettled {
            inode.unsettled = true;
            let mark = located.birth().encode();
            self.store.put(&key::numbered(key::UNSETTLED, file), &mark)?;
        }
        self.save(located)
    }

    /// What the parts say from here on may not be true for long.
    pub(super) fn keep_unsettled(&mut self, file: FileId) {
        self.striping.files.settling.remove(&file);
    }

    /// Begins to settle the size: nobody can write any more.
    pub(crate) fn settle_striped(&mut self, located: &Located) {
        let inode = &located.inode;
        let Some(object) = object_of(inode).filter(|_| inode.unsettled) else { return };
        let (file, generation) = (object.file, object.generation);
        let shards = self.shards_with_parts(inode);
        self.striping.files.attempts += 1;
        let attempt = self.striping.files.attempts;
        let (missing, birth) = (shards.len(), located.birth());
        let settling = Settling { attempt, birth, missing, facts: Vec::new() };
        self.striping.files.settling.insert(file, settling);
        for shard in shards {
            let question = Question::SettlePart { file, generation };
            self.ask(ShardId(shard), question, Purpose::Settle(file, attempt));
        }
    }

    /// Begins to settle it unless somebody may write.
    pub(crate) fn settle_if_closed(&mut self, located: &Located) {
        if self.files.opens.file(located.inode.id).is_none_or(|file| file.writers == 0) {
            self.settle_striped(located);
        }
    }

    /// A part has said how far it reaches.
    pub(crate) fn part_settled(&mut self, file: FileId, attempt: u64, answer: &Answer) {
        let is_it = |settling: &&mut Settling| settling.attempt == attempt;
        let settling = self.striping.files.settling.get_mut(&file).filter(is_it);
        match (settling, answer) {
            (Some(settling), Answer::Part(facts)) => {
                settling.facts.push(*facts);
                settling.missing -= 1;
                if settling.missing > 0 {
                    return;
                }
                let settled = self.striping.files.settling.remove(&file);
                if let Some(settled) = settled
                    && let Err(fault) = self.finish_settling(file, &settled)
                {
                    let why = format_args!("settling its size: {}", fault.errno());
                    log::error(format_args!("file {:016x}", file.0), why);
                }
            }
            // Not all are there: it stays unsettled, which is right.
            (Some(_), _) => self.keep_unsettled(file),
            (None, Answer::Part(facts)) if facts.dirty => self.keep_times(file, facts),
            (None, _) => {}
        }
    }

    fn finish_settling(&mut self, file: FileId, settled: &Settling) -> Outcome<()> {
        if self.files.opens.file(file).is_some_and(|file| file.writers > 0) {
            settled.facts.iter().filter(|of| of.dirty).for_each(|of| self.keep_times(file, of));
            return Ok(());
        }
        let mut located = self.load_birth(file, &settled.birth)?;
        let inode = &mut located.inode;
        let attr = sum(inode, &settled.facts);
        (inode.size_bytes, inode.blocks) = (attr.size_bytes, attr.blocks);
        if self.config.times != Times::None {
            inode.mtime = attr.mtime;
            inode.ctime = inode.ctime.max(attr.ctime);
        }
        inode.unsettled = false;
        self.forget_append(file)?;
        self.store.delete(&key::numbered(key::UNSETTLED, file))?;
        self.save(&located)
    }

    /// A part gave its times away, and the size was not settled after all.
    fn keep_times(&mut self, file: FileId, facts: &PartFacts) {
        let Ok(mut located) = self.load_open(file) else { return };
        let inode = &mut located.inode;
        if self.config.times != Times::None && inode.mtime < facts.mtime {
            inode.mtime = facts.mtime;
            inode.ctime = inode.ctime.max(facts.ctime);
            // A store that fails has said so.
            drop(self.save(&located));
        }
    }

    /// Cuts all parts, unless this run has done so.
    fn cut_striped(&mut self, located: &mut Located, size_bytes: u64) -> Outcome<()> {
        let inode = &located.inode;
        let file = inode.id;
        let done = self.run.transaction.is_done && self.run.striped.cut == Some(file);
        if done || self.run.striped.cut_before == Some(file) {
            return Ok(());
        }
        if self.striping.files.appending.contains_key(&file) {
            return Err(Fault::Busy);
        }
        self.check_nothing_in_doubt(file)?;
        let (generation, layout) = (generation_of(inode)?, inode.layout);
        // The part with the last byte is made if it has to be.
        let last = size_bytes.checked_sub(1).map_or(0, |last| layout.part_of(file, last));
        self.unsettle_striped(located, last + 1)?;
        self.forget_append(file)?;
        (self.run.striped.cut, self.run.transaction.is_done) = (Some(file), false);
        let steps = (0..layout.width).map(|index| {
            let part = PartOf { generation, layout, index };
            let step = Step::CutPart { id: file, part, size_bytes };
            (self.part_shard(file, &layout, index), vec![step])
        });
        Err(Fault::Operate(steps.collect()))
    }

    /// `O_TRUNC`, when others have the file open: they keep its parts.
    pub(crate) fn cut_at_open(&mut self, located: &mut Located) -> Outcome<()> {
        let file = located.inode.id;
        if self.files.opens.file(file).is_none() {
            return Ok(());
        }
        self.cut_striped(located, 0)
    }

    /// Before attributes of a file are set: one that outgrows its chunk is striped.
    pub(crate) fn prepare_striped(
        &mut self,
        located: &mut Located,
        set: &SetAttr<'_>,
    ) -> Outcome<()> {
        if set.which & SET_SIZE == 0 {
            return Ok(());
        }
        check_size(FileKind::Regular, set.size_bytes)?;
        self.check_nobody_is_alone(&located.inode)?;
        if self.outgrows_chunk(&located.inode, set.size_bytes) {
            self.check_room()?;
            self.stripe(located)?;
        }
        self.outgrow_by_length(located, set.size_bytes)
    }

    pub(crate) fn set_attr_striped(
        &mut self,
        mut located: Located,
        set: &SetAttr<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        if set.which & SET_SIZE == 0 {
            return self.set_other_striped(located, set, to);
        }
        self.cut_striped(&mut located, set.size_bytes)?;
        // The cut is decided, and made whatever comes: nobody may hear that nothing happened.
        self.set_other_striped(located, set, to).map_err(|fault| match fault {
            Fault::Errno(_) => Errno::EIO.into(),
            other => other,
        })
    }

    fn set_other_striped(
        &mut self,
        mut located: Located,
        set: &SetAttr<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        const TIMES: u32 = SET_ATIME | SET_ATIME_NOW | SET_MTIME | SET_MTIME_NOW;
        let file = located.inode.id;
        if set.which & TIMES != 0 && located.inode.unsettled {
            let generation = generation_of(&located.inode)?;
            let shards = self.shards_with_parts(&located.inode);
            let question = Question::CleanPart { file, generation };
            facts_of(self.facts(&shards, &question)?)?;
        }
        // The reply tells of it.
        let seen = self.look_striped(&located.inode)?;
        apply(&mut located.inode, set);
        self.apply_times(&mut located.inode, set);
        self.attribute_changed(&mut located.inode);
        self.save(&located)?;
        self.settle_if_closed(&located);
        let mtime = if set.which & TIMES == 0 { seen.mtime } else { located.inode.mtime };
        let seen = ObjectAttr { mtime, ..seen };
        self.attr_with(&located.inode, Some(&seen))?.encode(to)?;
        Ok(Served::Replied)
    }
}
