//! Bytes that are fetched: all of a file at once, that is not too long for that.
//!
//! The keeper fills an object that has the mark which removes it; when all is there, the object
//! becomes the file's in one transaction with the attributes that the bytes belong to. So whoever
//! dies in between leaves a file without bytes, and an object that is removed. The object's number
//! is used up before the keeper hears of it: an earlier daemon's keeper writes to no later object.

use mayfly_meta::{
    key,
    record::{Content, Inode, Origin},
};
use mayfly_object::ObjectId;
use mayfly_types::{BLOCK_BYTES, Errno, FileId, FileKind, limits::INLINE_BYTES_MAX};

use crate::{
    fault::Outcome,
    shard::Shard,
    tier::{
        gates::{is_absent, master_of},
        items::{End, Ending},
        state::item::Item,
        state::wanted::{At, Seen},
    },
};

impl Shard {
    /// The object that a file is fetched into, if it is no small one.
    pub(crate) fn object_to_fetch(&mut self, file: FileId, at: &At) -> Outcome<ObjectId> {
        let size_bytes = self.load_cached(file, at)?.inode.size_bytes;
        self.make_room_for(size_bytes);
        let mut located = self.load_cached(file, at)?;
        if !self.has_room_to_fetch(size_bytes)? {
            return Err(Errno::ENOSPC.into());
        }
        let generation = self.next_generation(&located.inode)?;
        located.inode.generation = generation;
        self.save(&located)?;
        self.store.put(&key::doomed(file, generation), &[1])?;
        Ok(ObjectId { file, generation })
    }

    /// The number of an object that the file never had.
    pub(crate) fn next_generation(&mut self, inode: &Inode) -> Outcome<u32> {
        let mut generation = inode.generation + 1;
        // The removal of an older one may still be under way.
        while self.store.get(&key::doomed(inode.id, generation))?.is_some() {
            generation += 1;
        }
        Ok(generation)
    }

    /// The keeper has fetched the bytes of a file.
    pub(crate) fn fetched(
        &mut self,
        file: FileId,
        at: &At,
        item: &Item,
        told: Ending,
    ) -> Outcome<End> {
        let object = item.object.ok_or(Errno::EIO)?;
        let taken = match told {
            Ending::Done { seen, bytes } => self.take_bytes((file, at), item, seen, bytes),
            Ending::Failed(errno) => Err(errno.into()),
            Ending::Conflict { .. } => Err(Errno::EPROTO.into()),
        };
        match taken {
            Ok((seen, true)) => Ok(End::Seen(seen)),
            Ok((seen, false)) => {
                self.start_removal(object);
                Ok(End::Seen(seen))
            }
            Err(fault) => {
                self.start_removal(object);
                Err(fault)
            }
        }
    }

    /// Makes the bytes the file's; whether its object is used now.
    fn take_bytes(
        &mut self,
        (file, at): (FileId, &At),
        item: &Item,
        seen: Seen,
        bytes: Vec<u8>,
    ) -> Outcome<(Seen, bool)> {
        let attr = seen.attr;
        let object = item.object.ok_or(Errno::EIO)?;
        let mut located = self.load_cached(file, at)?;
        let inode = &mut located.inode;
        if !is_absent(inode) || inode.links == 0 || attr.kind != FileKind::Regular {
            return Ok((seen, false));
        }
        let inline = attr.size_bytes <= INLINE_BYTES_MAX as u64;
        if inline && bytes.len() as u64 != attr.size_bytes {
            return Err(Errno::EIO.into());
        }
        let master = master_of(inode)?;
        inode.mode = (attr.mode & 0o7777) as u16;
        (inode.uid, inode.gid) = (attr.uid, attr.gid);
        (inode.mtime, inode.ctime) = (attr.mtime, attr.ctime);
        inode.size_bytes = attr.size_bytes;
        if inline {
            inode.content = Content::Inline(bytes);
        } else {
            self.store.delete(&key::doomed(file, object.generation))?;
            inode.generation = object.generation;
            inode.content = Content::Object(object.generation);
            inode.blocks = attr.blocks;
            self.counters.objects += 1;
            self.counters.settled_bytes += attr.blocks * BLOCK_BYTES;
            self.files.opens.mark_object(file);
        }
        self.files.opens.content_changes(file);
        let Some(origin) = inode.origin else { return Ok((seen, false)) };
        let (mtime, size_bytes) = (attr.mtime, attr.size_bytes);
        let origin = Origin { mtime, size_bytes, resident: true, ..origin };
        self.set_origin(inode, Some(origin));
        inode.residency = master.seen(attr.ctime).encode();
        self.count(origin.source, |counts| {
            counts.fetches += 1;
            counts.fetched_bytes += size_bytes;
        });
        self.saw(&mut located.inode, item.since_ms);
        self.save(&located)?;
        Ok((seen, !inline))
    }
}
