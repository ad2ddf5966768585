//! File data: through the daemon, or by leave to use the object.
//!
//! Small files live in their inode record. What outgrows it *spills*: the object is made, the bytes
//! written, the record committed, and only then a grant goes out. On one node the object's length
//! is the file's length while anybody may write (the inode is *unsettled*). The daemon accounts for
//! space by allowance: local writes may reach up to `allowance_end` and no further without asking.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_meta::{
    key,
    record::{Content, Inode},
};
use mayfly_object::{ObjectAttr, ObjectId};
pub(crate) use mayfly_types::BLOCK_BYTES;
use mayfly_types::{
    Errno, FileId, FileKind, Times,
    limits::{INLINE_BYTES_MAX, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{
    Data, GRANT_OBJECT, GRANT_PART, GRANT_WRITE, Grant, Granted, OwnPart, Read, Wire, Write,
    Writer, Written,
};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::{
        descriptions::OpenFile,
        state::{
            background::{Change, Reply},
            data::{check_grant, fitting, needs_object, object_of},
            preparation::Preparation,
        },
    },
    message::Question,
    namespace::state::inode::Located,
    shard::Shard,
    striping::file_tail::undo_tail,
    tier::{
        gates::{is_by_chunks, is_partly_here},
        written::range_of,
    },
};

/// An access time older than this is renewed by a read, as `relatime` does.
const ATIME_SECONDS: i64 = 24 * 60 * 60;

impl Shard {
    pub(crate) fn read(
        &mut self,
        caller: Caller,
        read: &Read,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let open = self.files.opens.get(read.open)?;
        if !open.may_read() {
            return Err(Errno::EBADF.into());
        }
        let mut located = self.load_open(open.id)?;
        if is_partly_here(&located.inode) {
            self.range_at_hand(&located.inode, (read.offset, u64::from(read.count)))?;
        } else if is_by_chunks(&located.inode) {
            return self.read_chunks(caller, &located.inode, read, to);
        } else {
            self.bytes_at_hand(&located.inode)?;
        }
        if located.inode.layout.striped {
            return self.read_striped(caller, &located.inode, read, to);
        }
        let count = (read.count as usize).min(TRANSFER_BYTES_MAX);
        match &located.inode.content {
            Content::Inline(bytes) => {
                let start = usize::try_from(read.offset).unwrap_or(usize::MAX).min(bytes.len());
                let bytes = &bytes[start..start + count.min(bytes.len() - start)];
                Data { object: false, bytes }.encode(to)?;
                self.note_read(&located.inode, bytes.len() as u64);
            }
            Content::Object(generation) => {
                self.note_read_at(&located.inode, read.offset, count as u64);
                let object = ObjectId { file: open.id, generation: *generation };
                self.check_not_in_doubt(open.id)?;
                self.touch_atime(&mut located)?;
                return Ok(self.start_read(caller, object, read.offset, count));
            }
            Content::Directory(_) => return Err(Errno::EISDIR.into()),
            Content::Symlink(_) | Content::Fifo(_) | Content::Socket(_) => {
                return Err(Errno::EINVAL.into());
            }
        }
        self.touch_atime(&mut located)?;
        Ok(Served::Replied)
    }

    fn touch_atime(&mut self, located: &mut Located) -> Outcome<()> {
        let inode = &mut located.inode;
        let stale =
            inode.atime <= inode.mtime || inode.atime.seconds + ATIME_SECONDS < self.now.seconds;
        if self.config.times == Times::All && stale && inode.atime != self.now {
            inode.atime = self.now;
            self.save(located)?;
        }
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        caller: Caller,
        write: &Write<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let open = self.files.opens.get(write.open)?;
        if !open.may_write() {
            return Err(Errno::EBADF.into());
        }
        let mut located = self.load_to_change(open.id)?;
        self.range_to_change(&located.inode, range_of(write))?;
        if located.inode.layout.striped {
            return self.write_striped(caller, &located, write, to);
        }
        let start = if write.append {
            self.start_of_append(caller, &located.inode, write.bytes.len())?
        } else {
            write.offset
        };
        let bytes = fitting(start, write.bytes)?;
        let end = start + bytes.len() as u64;
        let reply = |object| Written { object, count: bytes.len() as u32, end };
        if bytes.is_empty() {
            reply(object_of(&located.inode).is_some()).encode(to)?;
            return Ok(Served::Replied);
        }
        self.check_at_rest(open.id)?;
        self.check_nobody_is_alone(&located.inode)?;
        if self.outgrows_chunk(&located.inode, end) && self.stripe(&mut located)? {
            return self.write_striped(caller, &located, write, to);
        }
        self.note_dirty(&mut located)?;
        self.own_chunks(&mut located)?;
        if matches!(located.inode.content, Content::Inline(_)) && end <= INLINE_BYTES_MAX as u64 {
            self.write_inline(&mut located, start, bytes)?;
            reply(false).encode(to)?;
            return Ok(Served::Replied);
        }
        let growth = match self.is_in_doubt(caller) {
            // There was room when it was begun.
            true => Some(0),
            false => self.growth_at_home(&mut located, end, bytes.len() as u64)?,
        };
        let Some(growth) = growth else {
            return self.write_striped(caller, &located, write, to);
        };
        let object = self.object_to_change(&mut located)?;
        self.mark_unsettled(&mut located, object)?;
        self.begin_change_of_chunks(caller, &mut located, range_of(write))?;
        let written = Written { object: true, count: bytes.len() as u32, end };
        let birth = located.birth();
        let reply = Reply::Written(written, growth, None);
        let change = Change { caller: Some(caller), object, birth, reply };
        if write.append {
            let change = Change { reply: Reply::Written(written, 0, None), ..change };
            return self.append(change, &located.inode, (start, bytes), to);
        }
        Ok(self.start_write(change, start, bytes))
    }

    /// Writes to the record of a small file that stays one.
    fn write_inline(&mut self, located: &mut Located, start: u64, bytes: &[u8]) -> Outcome<()> {
        let Content::Inline(content) = &mut located.inode.content else {
            return Err(Errno::EINVAL.into());
        };
        let (before, end) = (content.len() as u64, start + bytes.len() as u64);
        let whole = start == 0 && end >= before && located.fused.is_some();
        if !whole {
            put_into(content, start as usize, bytes);
        }
        located.inode.size_bytes = end.max(before);
        if end > before {
            self.check_room()?;
        }
        let now = self.now;
        self.changed(&mut located.inode, now);
        match &located.fused {
            Some(birth) if whole => self.save_bytes(&located.inode, birth, bytes),
            _ => self.save(located),
        }
    }

    /// How much a write may take here, bytes; `None` when the file goes on at other nodes.
    fn growth_at_home(
        &mut self,
        located: &mut Located,
        end: u64,
        bytes: u64,
    ) -> Outcome<Option<u64>> {
        if end > self.config.home_bytes_max && self.outgrow_home(located)? {
            return Ok(None);
        }
        match self.check_growth(&located.inode, end, bytes) {
            Err(Fault::Errno(Errno::ENOSPC)) if self.outgrow_home(located)? => Ok(None),
            growth => growth.map(Some),
        }
    }

    /// Refuses what the capacity has no room for; how much a write may take, bytes. It counts as
    /// taken when it is done, so until then there is room for others only beside it.
    fn check_growth(&mut self, inode: &Inode, end: u64, bytes: u64) -> Outcome<u64> {
        let growth = if let Some(object) = object_of(inode) {
            let before = self.look(object)?;
            // Overwriting what is there takes no space; anything else may.
            let dense = before.blocks * BLOCK_BYTES >= before.size_bytes;
            if end <= before.size_bytes && dense {
                return Ok(0);
            }
            bytes
        } else {
            self.check_room()?;
            // What is in the inode moves to the object too.
            bytes + inode.size_bytes
        };
        self.check_free(self.files.background.growing_bytes + growth)?;
        Ok(growth)
    }

    pub(crate) fn check_free(&mut self, bytes: u64) -> Outcome<()> {
        let bytes = bytes.saturating_add(self.kept_for_names());
        if self.find_room(bytes)? { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Whether there is room for `bytes` more, if need be what open files have set aside and do not
    /// use.
    pub(crate) fn find_room(&mut self, bytes: u64) -> Outcome<bool> {
        self.keep_free(bytes);
        if self.free_bytes() < bytes {
            self.reclaim()?;
            if self.free_bytes() < bytes && !self.place.alone {
                self.reclaim_elsewhere()?;
            }
        }
        Ok(self.free_bytes() >= bytes)
    }

    /// The same at the other shards of the node, once in a run.
    pub(crate) fn reclaim_elsewhere(&mut self) -> Outcome<()> {
        let others = self.place.numbering.here().filter(|shard| *shard != self.place.shard);
        let others: Vec<u32> = others.map(|shard| shard.0).collect();
        self.facts(&others, &Question::Reclaim).map(drop)
    }

    /// Cuts the allowances of open files to what their objects have.
    ///
    /// Their grants stay: the object is the same, and a process that met a revoked grant after an
    /// append would append again. A transfer that is under way at this moment may therefore still
    /// use what it was allowed; it is accounted for with the next allowance, or when the file is
    /// closed.
    pub(crate) fn reclaim(&mut self) -> Outcome<()> {
        let generous = |(id, file): (FileId, &OpenFile)| (!file.trimmed).then_some(id);
        let files: Vec<FileId> = self.files.opens.files().filter_map(generous).collect();
        let mut far = Vec::new();
        for id in files {
            let inode = self.load_open(id)?.inode;
            let unsettled = inode.unsettled && !inode.layout.striped;
            let Some(object) = object_of(&inode).filter(|_| unsettled) else { continue };
            let Some(before) = self.objects.attr_at_hand(object)? else {
                far.push(object);
                continue;
            };
            // Below the end of a sparse object, too, there is space to be taken.
            let dense = before.blocks * BLOCK_BYTES >= before.size_bytes;
            self.files.opens.set_allowance(id, if dense { before.size_bytes } else { 0 });
            // Again, now that nobody takes more.
            match self.objects.attr_at_hand(object)? {
                Some(after) => self.trim(id, after.blocks),
                None => far.push(object),
            }
        }
        self.reclaim_parts(&mut far);
        if far.is_empty() || self.run.ready.is_surveyed {
            return Ok(());
        }
        for object in &far {
            self.files.opens.set_allowance(object.file, 0);
        }
        Err(Fault::Prepare(Preparation::Survey(far)))
    }

    /// The space of objects that were not open. A file that was allowed more since is left alone.
    pub(super) fn take_survey(&mut self, surveyed: &[(ObjectId, Option<u64>)]) {
        for (object, blocks) in surveyed {
            if blocks.is_some_and(|blocks| self.trim_part(*object, blocks)) {
                continue;
            }
            let file = self.files.opens.file(object.file).filter(|file| file.allowance_end == 0);
            if let (Some(_), Some(blocks)) = (file, blocks) {
                self.trim(object.file, *blocks);
            }
        }
    }

    fn trim(&mut self, id: FileId, blocks: u64) {
        if let Some(file) = self.files.opens.file_mut(id) {
            file.trimmed = true;
            let bytes = blocks * BLOCK_BYTES + file.promised_bytes;
            let had = std::mem::replace(&mut file.charged_bytes, bytes);
            self.files.charged_bytes = (self.files.charged_bytes + bytes).saturating_sub(had);
        }
    }

    /// The length now.
    pub(crate) fn size_of(&mut self, inode: &Inode) -> Outcome<u64> {
        match object_of(inode) {
            Some(_) if inode.layout.striped => Ok(self.look_striped(inode)?.size_bytes),
            Some(object) if inode.unsettled => Ok(self.look(object)?.size_bytes),
            _ => Ok(inode.size_bytes),
        }
    }

    /// Raises what is set aside for an open file to `bytes`.
    pub(crate) fn charge(&mut self, id: FileId, bytes: u64) {
        if let Some(file) = self.files.opens.file_mut(id)
            && file.charged_bytes < bytes
        {
            self.files.charged_bytes += bytes - file.charged_bytes;
            file.charged_bytes = bytes;
        }
    }

    /// The object of a file whose content is about to be changed; an inline file gets one. The
    /// caller saves the inode.
    pub(crate) fn object_to_change(&mut self, located: &mut Located) -> Outcome<ObjectId> {
        match object_of(&located.inode) {
            Some(object) => {
                if !located.inode.unsettled {
                    self.cut_unacknowledged(&located.inode, object)?;
                }
                Ok(object)
            }
            None => self.spill(located, located.inode.size_bytes),
        }
    }

    /// Sets the unsettled bit and saves the inode, before anybody may write the object.
    pub(crate) fn mark_unsettled(
        &mut self,
        located: &mut Located,
        object: ObjectId,
    ) -> Outcome<()> {
        if located.inode.unsettled {
            return Ok(());
        }
        self.counters.settled_bytes =
            self.counters.settled_bytes.saturating_sub(located.inode.blocks * BLOCK_BYTES);
        self.charge(object.file, located.inode.blocks * BLOCK_BYTES);
        located.inode.unsettled = true;
        let mark = located.birth().encode();
        self.store.put(&key::numbered(key::UNSETTLED, object.file), &mark)?;
        self.save(located)
    }

    /// No writer is left: length, space and times move from the object, which is like this, to the
    /// inode.
    pub(crate) fn settle(&mut self, located: &mut Located, attr: &ObjectAttr) -> Outcome<()> {
        let Some(object) = object_of(&located.inode) else { return Ok(()) };
        if !located.inode.unsettled {
            return Ok(());
        }
        self.take_from_object(&mut located.inode, attr);
        located.inode.unsettled = false;
        self.forget_append(object.file)?;
        self.discharge(object.file);
        self.store.delete(&key::numbered(key::UNSETTLED, object.file))?;
        self.save(located)
    }

    /// Length, space and times of the object are the inode's from now on.
    pub(crate) fn take_from_object(&mut self, inode: &mut Inode, attr: &ObjectAttr) {
        (inode.size_bytes, inode.blocks) = (attr.size_bytes, attr.blocks);
        if self.config.times != Times::None && !is_partly_here(inode) {
            inode.mtime = attr.mtime;
            inode.ctime = inode.ctime.max(attr.ctime);
        }
        self.counters.settled_bytes += attr.blocks * BLOCK_BYTES;
    }

    /// Gives back what is set aside for an open file.
    pub(crate) fn discharge(&mut self, id: FileId) {
        if let Some(file) = self.files.opens.file_mut(id) {
            self.files.charged_bytes -= std::mem::take(&mut file.charged_bytes);
            self.files.opens.set_allowance(id, 0);
        }
    }

    /// The object's record goes; the object itself follows after the commit.
    pub(crate) fn doom_object(&mut self, inode: &Inode) -> Outcome<()> {
        let Some(object) = object_of(inode) else { return Ok(()) };
        if inode.layout.striped {
            return self.doom_striped(inode);
        }
        if inode.unsettled {
            self.discharge(object.file);
            self.forget_append(object.file)?;
            self.store.delete(&key::numbered(key::UNSETTLED, object.file))?;
        } else {
            self.counters.settled_bytes =
                self.counters.settled_bytes.saturating_sub(inode.blocks * BLOCK_BYTES);
        }
        self.counters.objects = self.counters.objects.saturating_sub(1);
        self.remove_object(object)
    }

    /// An object goes after the commit that no record names, if it is there.
    pub(crate) fn remove_object(&mut self, object: ObjectId) -> Outcome<()> {
        self.store.put(&key::doomed(object.file, object.generation), &[1])?;
        self.files.background.doomed.push(object);
        Ok(())
    }

    /// Cuts or extends a small file. The caller saves the inode.
    pub(crate) fn resize(&mut self, located: &mut Located, size_bytes: u64) -> Outcome<()> {
        self.check_at_rest(located.inode.id)?;
        if size_bytes > located.inode.size_bytes {
            self.check_room()?;
        }
        if size_bytes > INLINE_BYTES_MAX as u64 {
            self.spill(located, size_bytes)?;
        } else if let Content::Inline(bytes) = &mut located.inode.content {
            bytes.resize(size_bytes as usize, 0);
            located.inode.size_bytes = size_bytes;
        }
        let now = self.now;
        self.changed(&mut located.inode, now);
        Ok(())
    }

    /// `O_TRUNC`. A file that nobody else has open or mapped becomes a small one again; otherwise
    /// the object is returned, which is to be cut in the pool.
    pub(crate) fn truncate_at_open(&mut self, located: &mut Located) -> Outcome<Option<ObjectId>> {
        if located.inode.kind() != FileKind::Regular {
            return Ok(None);
        }
        self.chunks_to_cut(&located.inode, 0)?;
        self.note_dirty_whole(located)?;
        let object = object_of(&located.inode);
        let striped = located.inode.layout.striped;
        if striped && self.files.opens.file(located.inode.id).is_some() {
            // Its parts were cut before.
            return Ok(None);
        }
        if let Some(object) = object {
            self.check_at_rest(object.file)?;
            // The next write must show in mappings, and a mapping outlives every open.
            let known = !striped
                && (self.files.opens.file(object.file).is_some() || self.look(object)?.mapped);
            if known {
                self.be_alone(&located.inode)?;
                self.object_to_change(located)?;
                self.mark_unsettled(located, object)?;
                return Ok(Some(object));
            }
            self.doom_object(&located.inode)?;
            let inode = &mut located.inode;
            inode.content = Content::Inline(Vec::new());
            (inode.size_bytes, inode.blocks, inode.unsettled) = (0, 0, false);
            undo_tail(&mut inode.layout);
            inode.layout.striped = false;
            let now = self.now;
            self.changed(&mut located.inode, now);
        } else {
            self.resize(located, 0)?;
        }
        self.save(located)?;
        Ok(None)
    }

    pub(crate) fn grant(
        &mut self,
        caller: Caller,
        grant: &Grant,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let open = self.files.opens.get(grant.open)?;
        check_grant(&open, grant)?;
        let mut located = self.load_to_change(open.id)?;
        if is_by_chunks(&located.inode) && !needs_object(grant) {
            // It is read and written by requests until all of it is here.
            return self.grant_nothing(open.id, to);
        }
        match located.inode.kind() {
            FileKind::Regular => self.bytes_at_hand(&located.inode)?,
            FileKind::Directory => return Err(Errno::EISDIR.into()),
            FileKind::Symlink | FileKind::Fifo | FileKind::Socket => {
                return Err(Errno::EINVAL.into());
            }
        }
        let entry = self.files.opens.entry(open.id);
        let generation = entry.map_or(0, |entry| entry.grant_generation.load(Relaxed));
        if located.inode.layout.striped && grant.want & GRANT_PART != 0 {
            return self.grant_striped(caller, &located.inode, grant, to);
        }
        self.check_not_in_doubt(open.id)?;
        let writes = grant.want & GRANT_WRITE != 0;
        self.check_nobody_is_alone(&located.inode)?;
        let outgrows = writes && self.outgrows_chunk(&located.inode, grant.end);
        if located.inode.layout.striped || outgrows && self.stripe(&mut located)? {
            Granted { object_path: b"", generation, own: OwnPart::WHOLE }.encode(to)?;
            return Ok(Served::Replied);
        }
        let inline = object_of(&located.inode).is_none();
        let outgrows = writes && grant.end > INLINE_BYTES_MAX as u64;
        if inline && !outgrows && grant.want & GRANT_OBJECT == 0 {
            Granted { object_path: b"", generation, own: OwnPart::WHOLE }.encode(to)?;
            return Ok(Served::Replied);
        }
        let allowance = if writes { self.allowance(&located.inode, grant.end)? } else { None };
        if writes && allowance.is_none() {
            // No room for a dense file of that length. Writes through the daemon are charged for
            // what they take.
            Granted { object_path: b"", generation, own: OwnPart::WHOLE }.encode(to)?;
            return Ok(Served::Replied);
        }
        if writes {
            self.note_dirty(&mut located)?;
        }
        let object = self.object_to_use(&mut located, writes)?;
        if grant.want & GRANT_OBJECT != 0 && !writes {
            // Perhaps to execute it.
            self.objects.let_run(object);
        }
        if let Some(allowance) = allowance {
            self.mark_unsettled(&mut located, object)?;
            self.allow(open.id, allowance);
            self.files.opens.gave_leave_to_write(open.id);
        }
        let object_path = object.path();
        let object_path = object_path.as_bytes();
        Granted { object_path, generation, own: OwnPart::WHOLE }.encode(to)?;
        Ok(Served::Replied)
    }

    /// The object of a file, to be read or to be written.
    fn object_to_use(&mut self, located: &mut Located, writes: bool) -> Outcome<ObjectId> {
        match object_of(&located.inode).filter(|_| !writes) {
            Some(object) => Ok(object),
            None if writes => self.object_to_change(located),
            None => {
                self.check_room()?;
                let object = self.spill(located, located.inode.size_bytes)?;
                self.save(located)?;
                Ok(object)
            }
        }
    }
}

/// Puts bytes into a small file; what it did not have before them is zeros.
fn put_into(content: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    if start >= content.len() {
        content.reserve_exact(start - content.len() + bytes.len());
        content.resize(start, 0);
        content.extend_from_slice(bytes);
        return;
    }
    let end = start + bytes.len();
    content.resize(content.len().max(end), 0);
    content[start..end].copy_from_slice(bytes);
}
