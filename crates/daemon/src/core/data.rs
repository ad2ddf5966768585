//! File data: through the daemon, or by leave to use the object.
//!
//! Small files live in their inode record. What outgrows it *spills*: the object is made, the bytes
//! written, the record committed, and only then a grant goes out. On one node the object's length
//! is the file's length while anybody may write (the inode is *unsettled*). The daemon accounts for
//! space by allowance: local writes may reach up to `allowance_end` and no further without asking.

use mayfly_meta::{
    key,
    record::{Content, Inode},
};
use mayfly_object::ObjectId;
use mayfly_types::{
    Errno, FileId, FileKind, Times,
    limits::{FILE_BYTES_MAX, INLINE_BYTES_MAX, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{
    Data, GRANT_OBJECT, GRANT_READ, GRANT_WRITE, Grant, Granted, Read, Wire, Write, Writer, Written,
};

use super::{
    Core, Outcome, Served,
    background::{Change, Reply},
    home::Located,
};
use crate::{
    api::Caller,
    message::Question,
    opens::{Open, OpenFile},
};

/// An allowance grows by at least this, bytes.
const ALLOWANCE_STEP_MIN: u64 = 1 << 20;
/// An allowance grows by at most this beyond what was asked for, bytes.
const ALLOWANCE_STEP_MAX: u64 = 64 << 20;
/// An access time older than this is renewed by a read, as `relatime` does.
const ATIME_SECONDS: i64 = 24 * 60 * 60;
/// What a block in `st_blocks` is.
pub(super) const BLOCK_BYTES: u64 = 512;

pub(super) fn object_of(inode: &Inode) -> Option<ObjectId> {
    match inode.content {
        Content::Object(generation) => Some(ObjectId { file: inode.id, generation }),
        _ => None,
    }
}

impl Core {
    pub(super) fn read(
        &mut self,
        caller: Caller,
        read: &Read,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let open = self.opens.get(read.open)?;
        if !open.may_read() {
            return Err(Errno::EBADF.into());
        }
        let mut located = self.load_open(open.id)?;
        let count = (read.count as usize).min(TRANSFER_BYTES_MAX);
        match &located.inode.content {
            Content::Inline(bytes) => {
                let start = usize::try_from(read.offset).unwrap_or(usize::MAX).min(bytes.len());
                let bytes = &bytes[start..start + count.min(bytes.len() - start)];
                Data { object: false, bytes }.encode(to)?;
            }
            Content::Object(generation) => {
                let object = ObjectId { file: open.id, generation: *generation };
                self.touch_atime(&mut located)?;
                return Ok(self.start_read(caller, object, read.offset, count));
            }
            Content::Directory(_) => return Err(Errno::EISDIR.into()),
            Content::Symlink(_) => return Err(Errno::EINVAL.into()),
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

    pub(super) fn write(
        &mut self,
        caller: Caller,
        write: &Write<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let open = self.opens.get(write.open)?;
        if !open.may_write() {
            return Err(Errno::EBADF.into());
        }
        let mut located = self.load_open(open.id)?;
        let start = if write.append { self.size_of(&located.inode)? } else { write.offset };
        let bytes = fitting(start, write.bytes)?;
        let end = start + bytes.len() as u64;
        let reply = |object| Written { object, count: bytes.len() as u32, end };
        if bytes.is_empty() {
            reply(object_of(&located.inode).is_some()).encode(to)?;
            return Ok(Served::Replied);
        }
        if let Content::Inline(content) = &mut located.inode.content
            && end <= INLINE_BYTES_MAX as u64
        {
            let grows = end > content.len() as u64;
            content.resize(content.len().max(end as usize), 0);
            content[start as usize..end as usize].copy_from_slice(bytes);
            located.inode.size_bytes = content.len() as u64;
            if grows {
                self.check_room()?;
            }
            let now = self.now;
            self.changed(&mut located.inode, now);
            self.save(&located)?;
            reply(false).encode(to)?;
            return Ok(Served::Replied);
        }
        let object = self.spill(&mut located)?;
        self.check_growth(object, end, bytes.len() as u64)?;
        let birth = located.birth();
        let settled = !located.inode.unsettled;
        self.unsettle(&mut located)?;
        let written = Written { object: true, count: bytes.len() as u32, end };
        if !write.append {
            let bytes = bytes.to_vec();
            let caller = Some(caller);
            let change = Change { caller, object, birth, reply: Reply::Written(written) };
            return Ok(
                self.start_change(change, move |objects| objects.write(object, start, &bytes))
            );
        }
        let end = self.append(caller, object, bytes, settled)?;
        Written { end, ..written }.encode(to)?;
        Ok(Served::Replied)
    }

    /// Refuses what the capacity has no room for.
    fn check_growth(&mut self, object: ObjectId, end: u64, bytes: u64) -> Outcome<()> {
        let before = self.objects.attr(object)?;
        // Overwriting what is there takes no space; anything else may.
        let dense = before.blocks * BLOCK_BYTES >= before.size_bytes;
        if (end > before.size_bytes || !dense) && !self.find_room(bytes)? {
            return Err(Errno::ENOSPC.into());
        }
        Ok(())
    }

    /// Whether there is room for `bytes` more, if need be what open files have set aside and do not
    /// use.
    pub(super) fn find_room(&mut self, bytes: u64) -> Outcome<bool> {
        if self.free_bytes() < bytes {
            self.reclaim()?;
            if self.free_bytes() < bytes && !self.alone {
                self.reclaim_elsewhere()?;
            }
        }
        Ok(self.free_bytes() >= bytes)
    }

    /// The same at the other shards, once in a run.
    fn reclaim_elsewhere(&mut self) -> Outcome<()> {
        let own = self.shard.0;
        let others: Vec<u32> = (0..self.totals.shards()).filter(|shard| *shard != own).collect();
        self.facts(&others, &Question::Reclaim).map(drop)
    }

    /// Cuts the allowances of open files to what their objects have.
    ///
    /// Their grants stay: the object is the same, and a process that met a revoked grant after an
    /// append would append again. A transfer that is under way at this moment may therefore still
    /// use what it was allowed; it is accounted for with the next allowance, or when the file is
    /// closed.
    pub(super) fn reclaim(&mut self) -> Outcome<()> {
        let generous = |(id, file): (FileId, &OpenFile)| (!file.trimmed).then_some(id);
        let files: Vec<FileId> = self.opens.files().filter_map(generous).collect();
        for id in files {
            let inode = self.load_open(id)?.inode;
            let Some(object) = object_of(&inode).filter(|_| inode.unsettled) else { continue };
            let before = self.objects.attr(object)?;
            // Below the end of a sparse object, too, there is space to be taken.
            let dense = before.blocks * BLOCK_BYTES >= before.size_bytes;
            self.opens.set_allowance(id, if dense { before.size_bytes } else { 0 });
            let bytes = self.objects.attr(object)?.blocks * BLOCK_BYTES;
            if let Some(file) = self.opens.file_mut(id) {
                file.trimmed = true;
                let had = std::mem::replace(&mut file.charged_bytes, bytes);
                self.charged_bytes = (self.charged_bytes + bytes).saturating_sub(had);
            }
        }
        Ok(())
    }

    /// The length now.
    pub(super) fn size_of(&self, inode: &Inode) -> Outcome<u64> {
        match object_of(inode) {
            Some(object) if inode.unsettled => Ok(self.objects.attr(object)?.size_bytes),
            _ => Ok(inode.size_bytes),
        }
    }

    /// Raises what is set aside for an open file to `bytes`.
    pub(super) fn charge(&mut self, id: FileId, bytes: u64) {
        if let Some(file) = self.opens.file_mut(id)
            && file.charged_bytes < bytes
        {
            self.charged_bytes += bytes - file.charged_bytes;
            file.charged_bytes = bytes;
        }
    }

    /// Moves an inline file's bytes to an object; the object of a file that has one.
    pub(super) fn spill(&mut self, located: &mut Located) -> Outcome<ObjectId> {
        if let Some(object) = object_of(&located.inode) {
            return Ok(object);
        }
        let Content::Inline(bytes) = &located.inode.content else {
            return Err(Errno::EINVAL.into());
        };
        self.check_room()?;
        let inode = &located.inode;
        let object = ObjectId { file: inode.id, generation: inode.generation + 1 };
        if let Err(errno) = self.objects.create(object, bytes) {
            // What there is of it takes space on a disk that may be full. If it cannot be removed
            // its name is used again.
            let _removed = self.objects.remove(object);
            return Err(errno.into());
        }
        self.objects.set_times(object, Some(inode.atime), Some(inode.mtime))?;
        let blocks = self.objects.attr(object)?.blocks;
        let inode = &mut located.inode;
        inode.generation = object.generation;
        inode.content = Content::Object(object.generation);
        inode.blocks = blocks;
        self.counters.objects += 1;
        self.counters.settled_bytes += blocks * BLOCK_BYTES;
        self.save(located)?;
        self.opens.mark_object(object.file);
        Ok(object)
    }

    /// Sets the unsettled bit, before anybody may write the object.
    pub(super) fn unsettle(&mut self, located: &mut Located) -> Outcome<()> {
        let Some(object) = object_of(&located.inode) else { return Ok(()) };
        if located.inode.unsettled {
            return Ok(());
        }
        let attr = self.objects.attr(object)?;
        if attr.size_bytes != located.inode.size_bytes {
            // Left by a write that was never acknowledged; it must not show behind a hole.
            self.objects.set_size(object, located.inode.size_bytes)?;
            self.objects.set_times(object, None, Some(located.inode.mtime))?;
        }
        self.counters.settled_bytes =
            self.counters.settled_bytes.saturating_sub(located.inode.blocks * BLOCK_BYTES);
        self.charge(object.file, located.inode.blocks * BLOCK_BYTES);
        located.inode.unsettled = true;
        let mark = located.birth().encode();
        self.store.put(&key::numbered(key::UNSETTLED, object.file), &mark)?;
        self.save(located)
    }

    /// No writer is left: length, space and times move from the object to the inode.
    pub(super) fn settle(&mut self, located: &mut Located) -> Outcome<()> {
        let Some(object) = object_of(&located.inode) else { return Ok(()) };
        if !located.inode.unsettled {
            return Ok(());
        }
        let attr = self.objects.attr(object)?;
        let inode = &mut located.inode;
        inode.size_bytes = attr.size_bytes;
        inode.blocks = attr.blocks;
        if self.config.times != Times::None {
            inode.mtime = attr.mtime;
            inode.ctime = inode.ctime.max(attr.ctime);
        }
        inode.unsettled = false;
        self.forget_append(object.file)?;
        self.counters.settled_bytes += attr.blocks * BLOCK_BYTES;
        self.discharge(object.file);
        self.store.delete(&key::numbered(key::UNSETTLED, object.file))?;
        self.save(located)
    }

    /// Gives back what is set aside for an open file.
    fn discharge(&mut self, id: FileId) {
        if let Some(file) = self.opens.file_mut(id) {
            self.charged_bytes -= std::mem::take(&mut file.charged_bytes);
            self.opens.set_allowance(id, 0);
        }
    }

    /// The object's record goes; the object itself follows after the commit.
    pub(super) fn doom_object(&mut self, inode: &Inode) -> Outcome<()> {
        let Some(object) = object_of(inode) else { return Ok(()) };
        self.store.put(&key::doomed(object.file, object.generation), &[1])?;
        if inode.unsettled {
            self.discharge(object.file);
            self.forget_append(object.file)?;
            self.store.delete(&key::numbered(key::UNSETTLED, object.file))?;
        } else {
            self.counters.settled_bytes =
                self.counters.settled_bytes.saturating_sub(inode.blocks * BLOCK_BYTES);
        }
        self.counters.objects = self.counters.objects.saturating_sub(1);
        self.work.doomed.push(object);
        Ok(())
    }

    /// Cuts or extends. The caller saves the inode.
    pub(super) fn resize(&mut self, located: &mut Located, size_bytes: u64) -> Outcome<()> {
        if let Content::Inline(bytes) = &mut located.inode.content
            && size_bytes <= INLINE_BYTES_MAX as u64
        {
            let grows = size_bytes > bytes.len() as u64;
            bytes.resize(size_bytes as usize, 0);
            located.inode.size_bytes = size_bytes;
            if grows {
                self.check_room()?;
            }
        } else {
            let object = self.spill(located)?;
            self.objects.set_size(object, size_bytes)?;
            if !located.inode.unsettled {
                let attr = self.objects.attr(object)?;
                let settled = self.counters.settled_bytes + attr.blocks * BLOCK_BYTES;
                self.counters.settled_bytes =
                    settled.saturating_sub(located.inode.blocks * BLOCK_BYTES);
                located.inode.size_bytes = size_bytes;
                located.inode.blocks = attr.blocks;
                self.objects.set_times(object, None, Some(self.now))?;
            }
        }
        let now = self.now;
        self.changed(&mut located.inode, now);
        Ok(())
    }

    /// `O_TRUNC`. A file that nobody else has open becomes a small one again; otherwise the object
    /// is returned, which is to be cut in the pool.
    pub(super) fn truncate_at_open(&mut self, located: &mut Located) -> Outcome<Option<ObjectId>> {
        if located.inode.kind() != FileKind::Regular {
            return Ok(None);
        }
        let object = object_of(&located.inode);
        if object.is_some() && self.opens.file(located.inode.id).is_some() {
            self.unsettle(located)?;
            return Ok(object);
        }
        if object.is_some() {
            self.doom_object(&located.inode)?;
            let inode = &mut located.inode;
            inode.content = Content::Inline(Vec::new());
            (inode.size_bytes, inode.blocks, inode.unsettled) = (0, 0, false);
            let now = self.now;
            self.changed(&mut located.inode, now);
        } else {
            self.resize(located, 0)?;
        }
        self.save(located)?;
        Ok(None)
    }

    pub(super) fn grant(&mut self, grant: &Grant, to: &mut Writer<'_>) -> Outcome<Served> {
        let open = self.opens.get(grant.open)?;
        check_grant(&open, grant)?;
        let mut located = self.load_open(open.id)?;
        match located.inode.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::EISDIR.into()),
            FileKind::Symlink => return Err(Errno::EINVAL.into()),
        }
        let generation = self
            .opens
            .entry(open.id)
            .map_or(0, |entry| entry.grant_generation.load(std::sync::atomic::Ordering::Relaxed));
        let writes = grant.want & GRANT_WRITE != 0;
        let inline = object_of(&located.inode).is_none();
        let outgrows = writes && grant.end > INLINE_BYTES_MAX as u64;
        if inline && !outgrows && grant.want & GRANT_OBJECT == 0 {
            Granted { object_path: b"", generation }.encode(to)?;
            return Ok(Served::Replied);
        }
        let object = self.spill(&mut located)?;
        if grant.want & GRANT_OBJECT != 0 && !writes {
            // Perhaps to execute it.
            self.objects.let_run(object);
        }
        if writes && !self.allow(&mut located, grant.end)? {
            // No room for a dense file of that length. Writes through the daemon are charged for
            // what they take.
            Granted { object_path: b"", generation }.encode(to)?;
            return Ok(Served::Replied);
        }
        Granted { object_path: object.path().as_bytes(), generation }.encode(to)?;
        Ok(Served::Replied)
    }

    /// Free space as it would be if this file had nothing set aside.
    fn room_for(&self, inode: &Inode) -> u64 {
        let charged = self.opens.file(inode.id).map_or(0, |file| file.charged_bytes);
        let settled = if inode.unsettled { 0 } else { inode.blocks * BLOCK_BYTES };
        self.free_bytes() + charged + settled
    }

    /// Raises the allowance to cover `end`; false when the space is not there.
    fn allow(&mut self, located: &mut Located, end: u64) -> Outcome<bool> {
        let id = located.inode.id;
        let had = self.opens.file(id).ok_or(Errno::EBADF)?.allowance_end;
        if located.inode.unsettled && end <= had {
            return Ok(true);
        }
        let size = self.size_of(&located.inode)?;
        let base = end.max(size).max(had);
        let mut room = self.room_for(&located.inode);
        if room < base {
            self.reclaim()?;
            if self.room_for(&located.inode) < base && !self.alone {
                self.reclaim_elsewhere()?;
            }
            room = self.room_for(&located.inode);
        }
        // A sixteenth of the room at most: what idle writers have set aside is lost to everybody
        // else.
        let step = base.clamp(ALLOWANCE_STEP_MIN, ALLOWANCE_STEP_MAX).min(room / 16);
        let allowance = match base.saturating_add(step).min(FILE_BYTES_MAX) {
            generous if generous <= room => generous,
            _ if base <= room => base,
            _ => return Ok(false),
        };
        self.unsettle(located)?;
        self.charge(id, allowance);
        self.opens.set_allowance(id, allowance);
        if let Some(file) = self.opens.file_mut(id) {
            file.trimmed = false;
        }
        Ok(true)
    }
}

fn check_grant(open: &Open, grant: &Grant) -> Outcome<()> {
    if grant.want & !(GRANT_READ | GRANT_WRITE | GRANT_OBJECT) != 0 {
        return Err(Errno::EINVAL.into());
    }
    if grant.want & GRANT_READ != 0 && !open.may_read()
        || grant.want & GRANT_WRITE != 0 && !open.may_write()
    {
        return Err(Errno::EBADF.into());
    }
    if grant.want & GRANT_WRITE != 0 && grant.end > FILE_BYTES_MAX {
        return Err(Errno::EFBIG.into());
    }
    Ok(())
}

/// As much of `bytes` as fits below the longest file.
fn fitting(start: u64, bytes: &[u8]) -> Outcome<&[u8]> {
    if start > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let room = FILE_BYTES_MAX.checked_sub(start).filter(|room| *room > 0).ok_or(Errno::EFBIG)?;
    Ok(&bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))])
}
