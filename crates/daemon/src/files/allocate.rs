//! fallocate: space of a range taken ahead, given back, or filled with zeros.
//!
//! In a record there is no space to be taken ahead of its use, so a small file is only lengthened
//! and zeroed. An object is changed in the I/O pool, with what it may take set aside from before
//! the job is started ([`OpenFile::promised_bytes`](crate::files::descriptions::OpenFile)). Space
//! behind the end of a file is not kept: elsewhere an object that has as many blocks as its length
//! needs is taken for one without holes, which such space would make untrue.

use mayfly_meta::record::{Content, Inode};
use mayfly_object::{Allocation, ObjectStore};
use mayfly_types::{
    Errno, FileId,
    limits::{FILE_BYTES_MAX, INLINE_BYTES_MAX},
};
use mayfly_wire::{ALLOCATE_KEEP_SIZE, ALLOCATE_ZERO_RANGE, Allocate};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::{
        data::BLOCK_BYTES,
        state::{
            allocate::{KEEP_AND_PUNCH, KEEP_AND_ZERO, Wish},
            background::{Change, Length, Reply},
            data::object_of,
        },
    },
    namespace::state::{attr::O_PATH, inode::Located},
    shard::Shard,
};

pub(crate) fn mode_of(what: Allocation) -> u32 {
    match what {
        Allocation::Extend => 0,
        Allocation::Reserve => ALLOCATE_KEEP_SIZE,
        Allocation::Punch => KEEP_AND_PUNCH,
        Allocation::ZeroExtend => ALLOCATE_ZERO_RANGE,
        Allocation::Zero => KEEP_AND_ZERO,
    }
}

impl Shard {
    pub(crate) fn allocate(&mut self, caller: Caller, ask: &Allocate) -> Outcome<Served> {
        let open = self.files.opens.get(ask.open)?;
        // As if it were no descriptor, whatever else is wrong.
        if open.flags & O_PATH != 0 {
            return Err(Errno::EBADF.into());
        }
        let wish = Wish::of(ask)?;
        if !open.may_write() {
            return Err(Errno::EBADF.into());
        }
        if wish.end > FILE_BYTES_MAX {
            return Err(Errno::EFBIG.into());
        }
        let mut located = self.load_to_change(open.id)?;
        // What only takes space needs no bytes.
        let range = if wish.zeroes() { (wish.start, wish.end) } else { (0, 0) };
        self.range_to_change(&located.inode, range)?;
        if located.inode.layout.striped {
            return self.allocate_striped(caller, &located, wish);
        }
        self.check_nobody_is_alone(&located.inode)?;
        self.check_at_rest(open.id)?;
        if wish.extends() && self.outgrows_chunk(&located.inode, wish.end) {
            self.check_room()?;
            if self.stripe(&mut located)? {
                return self.allocate_striped(caller, &located, wish);
            }
        }
        let size_bytes = self.size_of(&located.inode)?;
        let inside = wish.within(size_bytes);
        if inside.start >= inside.end {
            // All of it is behind the end: what is promised is only that there is room just now.
            if wish.what == Allocation::Reserve || wish.what == Allocation::Zero {
                match self.check_free(wish.end - wish.start) {
                    Err(Fault::Errno(Errno::ENOSPC)) if self.outgrow_home(&mut located)? => {
                        return self.allocate_striped(caller, &located, wish);
                    }
                    free => free?,
                }
            }
            return Ok(Served::Replied);
        }
        self.note_dirty(&mut located)?;
        self.own_chunks(&mut located)?;
        let fits = !wish.extends() || inside.end <= INLINE_BYTES_MAX as u64;
        if fits && object_of(&located.inode).is_none() {
            return self.allocate_inline(&mut located, inside);
        }
        let bytes = match self.space_wanted(&located.inode, inside, size_bytes) {
            Err(Fault::Errno(Errno::ENOSPC))
                if inside.end > size_bytes && self.outgrow_home(&mut located)? =>
            {
                return self.allocate_striped(caller, &located, wish);
            }
            bytes => bytes?,
        };
        let object = self.object_to_change(&mut located)?;
        self.mark_unsettled(&mut located, object)?;
        self.promise(open.id, bytes, inside.end.max(size_bytes));
        self.begin_change_of_chunks(caller, &mut located, range)?;
        let change = Change {
            caller: Some(caller),
            object,
            birth: located.birth(),
            reply: Reply::Allocated(bytes),
        };
        let Wish { what, start, end } = inside;
        let work = move |objects: &dyn ObjectStore| {
            objects.allocate(object, what, start, end - start).map(|()| 0)
        };
        Ok(self.start_change(Length::Any, change, work))
    }

    fn allocate_inline(&mut self, located: &mut Located, wish: Wish) -> Outcome<Served> {
        let Content::Inline(bytes) = &mut located.inode.content else {
            return Err(Errno::EINVAL.into());
        };
        let (start, end) = (wish.start as usize, wish.end as usize);
        let had = bytes.len();
        if wish.zeroes() {
            bytes[start.min(had)..end.min(had)].fill(0);
        }
        if wish.extends() && end > had {
            bytes.resize(end, 0);
        }
        located.inode.size_bytes = bytes.len() as u64;
        if bytes.len() > had {
            self.check_room()?;
        }
        let now = self.now;
        self.changed(&mut located.inode, now);
        self.save(located)?;
        Ok(Served::Replied)
    }

    /// How much of the range may have no space yet, bytes; an error when there is not that much.
    fn space_wanted(&mut self, inode: &Inode, wish: Wish, size_bytes: u64) -> Outcome<u64> {
        if wish.what == Allocation::Punch {
            return Ok(0);
        }
        let Some(object) = object_of(inode) else {
            self.check_room()?;
            // What is in the inode moves to the object too.
            let bytes = wish.end - wish.start;
            self.check_free(bytes + size_bytes)?;
            return Ok(bytes);
        };
        let before = self.look(object)?;
        // Of the space that there is, what does not fit outside the range is in it.
        let inside = wish.end.min(before.size_bytes).saturating_sub(wish.start);
        let outside = before.size_bytes - inside;
        let had = (before.blocks * BLOCK_BYTES).saturating_sub(outside);
        let bytes = (wish.end - wish.start).saturating_sub(had);
        self.check_free(bytes)?;
        Ok(bytes)
    }

    /// Sets space aside for an allocation that is started, in a file that is `size_bytes` long
    /// after it: for what it may take, but not for more than the file can have.
    fn promise(&mut self, id: FileId, bytes: u64, size_bytes: u64) {
        let Some(file) = self.files.opens.file_mut(id) else { return };
        file.promised_bytes += bytes;
        file.trimmed = false;
        let all = size_bytes.max(file.allowance_end).div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        let charged = file.charged_bytes.saturating_add(bytes).min(all);
        self.charge(id, charged);
    }

    /// An allocation has taken what it was promised, or has failed.
    pub(super) fn end_promise(&mut self, id: FileId, bytes: u64) {
        if let Some(file) = self.files.opens.file_mut(id) {
            file.promised_bytes = file.promised_bytes.saturating_sub(bytes);
        }
    }
}
