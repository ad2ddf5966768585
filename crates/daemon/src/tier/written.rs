//! Files that are written to before they are here.
//!
//! A change of a file that is fetched by chunks needs no more of it than what it leaves of the
//! chunks at its edges. Then the object of its chunks becomes the file's, as long as the file is,
//! and is changed like any other. The record of its chunks stays, and says what is to be fetched
//! still, for who reads that. When the file goes back, the keeper takes the rest from the master
//! copy.
//!
//! Invariants:
//! - Such a file is dirty; after a flush it has chunks again. It is changed by requests only:
//!   nobody has leave to use its object.
//! - A chunk that a change covers is said to be here when the change is made, before that is
//!   answered. Until then it is not fetched, and the change does not begin while it is: the keeper
//!   would put old bytes over new ones. What it does for an earlier daemon ends before what it does
//!   for this one, so where that may be, the chunk is fetched.
//! - What is behind a cut is never fetched again.
//! - Its times are those of its record, since the keeper changes its object's.
//! - What was not fetched when the master copy changes is nowhere any more. Who wants it gets
//!   ESTALE, a flush too, and the file stays as it is. The last flush puts what there is beside the
//!   master copy, as a conflict, under a name that says that it is incomplete.

use mayfly_meta::{
    key,
    record::{Chunks, Content, Inode, Origin},
};
use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_types::{BLOCK_BYTES, Errno};
use mayfly_wire::Write;

use crate::{
    api::Caller,
    fault::{Fault, Outcome},
    files::state::{background::Change, data::object_of},
    namespace::state::inode::Located,
    shard::Shard,
    tier::{
        chunks::space_of,
        gates::{is_by_chunks, is_partly_here},
        state::{item::Work, table::Cover, wanted::Run},
    },
};

/// The bytes that a write is about. What is appended is behind all chunks.
pub(crate) fn range_of(write: &Write<'_>) -> (u64, u64) {
    match write.append {
        true => (0, 0),
        false => (write.offset, write.offset.saturating_add(write.bytes.len() as u64)),
    }
}

impl Shard {
    /// What a change of this range leaves of a file's chunks is here.
    pub(crate) fn range_to_change(
        &mut self,
        inode: &Inode,
        (start, end): (u64, u64),
    ) -> Outcome<()> {
        if !is_by_chunks(inode) {
            return self.bytes_at_hand(inode);
        }
        if inode.links == 0 {
            return Err(Errno::ESTALE.into());
        }
        let known = self.chunks_of(inode)?;
        let is_being_made = known.as_ref().is_some_and(Chunks::is_empty);
        let chunks = known.map_or_else(|| Shard::no_chunks(inode), Ok)?;
        let only = |chunk| Run { first: chunk, end: chunk + 1, ahead: 0 };
        if is_being_made && object_of(inode).is_none() {
            return Err(self.want_chunks(inode, &chunks, only(0))?);
        }
        let object = ObjectId { file: inode.id, generation: inode.generation };
        let is_free = !self.tier.filling.earlier.contains(&object);
        let at = self.place_at_origin(inode)?;
        let end = end.min(chunks.size_bytes);
        let bytes = chunks.chunk_bytes();
        let chunks_met = if start < end { start / bytes..end.div_ceil(bytes) } else { 0..0 };
        for chunk in chunks_met {
            let (from, to) = (chunk * bytes, chunk * bytes + chunks.bytes_of(chunk));
            let is_covered = start <= from && to <= end;
            let is_fetched = || self.fetch_of(inode.id, &at, chunk).is_some_and(|(_, it)| it);
            let is_unneeded = is_covered && is_free && !is_fetched();
            if !(is_unneeded || chunks.has(chunk)) {
                return Err(self.want_chunks(inode, &chunks, only(chunk))?);
            }
        }
        Ok(())
    }

    /// Nothing is being fetched that a cut to this length would take away.
    pub(crate) fn chunks_to_cut(&mut self, inode: &Inode, size_bytes: u64) -> Outcome<()> {
        if size_bytes == 0 && !is_partly_here(inode) {
            return Ok(());
        }
        self.range_to_change(inode, (0, 0))?;
        let Some(chunks) = self.chunks_of(inode)?.filter(|_| is_by_chunks(inode)) else {
            return Ok(());
        };
        if size_bytes >= chunks.size_bytes {
            return Ok(());
        }
        if self.tier.filling.covers.contains_key(&inode.id) {
            return Err(Fault::Busy);
        }
        let items = self.tier.chunk_items.get(&inode.id).into_iter().flatten();
        let mut items = items.filter_map(|number| self.tier.items.get(number));
        if let Some(Work::Wanted(wanted)) = items.next().map(|item| &item.work) {
            return Err(Fault::Outside(Box::new(wanted.clone())));
        }
        let object = ObjectId { file: inode.id, generation: inode.generation };
        let missing = (0..chunks.count()).find(|chunk| !chunks.has(*chunk));
        if let Some(first) = missing.filter(|_| self.tier.filling.earlier.contains(&object)) {
            let run = Run { first, end: first + 1, ahead: 0 };
            return Err(self.want_chunks(inode, &chunks, run)?);
        }
        Ok(())
    }

    /// The object of the chunks becomes the file's, which is dirty and about to be changed; it gets
    /// one if nothing is here.
    pub(crate) fn own_chunks(&mut self, located: &mut Located) -> Outcome<()> {
        if !is_by_chunks(&located.inode) || is_partly_here(&located.inode) {
            return Ok(());
        }
        match self.chunks_of(&located.inode)? {
            Some(chunks) => {
                let (file, generation) = (located.inode.id, located.inode.generation);
                let blocks = self.look(ObjectId { file, generation })?.blocks;
                located.inode.content = Content::Object(generation);
                located.inode.blocks = blocks;
                let settled = self.counters.settled_bytes + blocks * BLOCK_BYTES;
                self.counters.settled_bytes = settled.saturating_sub(space_of(&chunks));
            }
            None => {
                let chunks = Shard::no_chunks(&located.inode)?;
                self.check_room()?;
                let object = self.spill(located, located.inode.size_bytes)?;
                let key = key::chunks(object.file, object.generation);
                self.store.put(&key, &chunks.encode())?;
            }
        }
        self.save(located)
    }

    /// A change of this range begins now, of a file that may be here in part.
    pub(crate) fn begin_change_of_chunks(
        &mut self,
        caller: Caller,
        located: &mut Located,
        (start, end): (u64, u64),
    ) -> Outcome<()> {
        if !is_partly_here(&located.inode) {
            return Ok(());
        }
        let now = self.now;
        self.changed(&mut located.inode, now);
        self.save(located)?;
        let chunks = self.chunks_here(&located.inode)?;
        let (bytes, limit) = (chunks.chunk_bytes(), chunks.size_bytes);
        let first = start.div_ceil(bytes);
        let end = if end >= limit { chunks.count() } else { end / bytes };
        if (first..end).any(|chunk| !chunks.has(chunk)) {
            let covers = self.tier.filling.covers.entry(located.inode.id).or_default();
            covers.push(Cover { caller, first, end });
        }
        Ok(())
    }

    /// What a change covers that has ended.
    pub(crate) fn end_cover(&mut self, change: &Change) -> Option<Cover> {
        let file = change.object.file;
        let covers = self.tier.filling.covers.get_mut(&file)?;
        let at = covers.iter().position(|cover| Some(cover.caller) == change.caller)?;
        let cover = covers.swap_remove(at);
        if covers.is_empty() {
            self.tier.filling.covers.remove(&file);
        }
        self.wake_blocked();
        Some(cover)
    }

    /// Chunks are here that were covered; whether the file is whole now.
    pub(crate) fn chunks_covered(&mut self, located: &mut Located, cover: Cover) -> Outcome<bool> {
        let Some(mut chunks) = self.chunks_of(&located.inode)?.filter(|_| {
            // It may have been emptied, and be another one.
            is_partly_here(&located.inode)
        }) else {
            return Ok(false);
        };
        let before = chunks.bytes_here();
        for chunk in cover.first..cover.end {
            chunks.add(chunk);
        }
        self.count_cached(chunks.source, before, chunks.bytes_here());
        self.keep_chunks(located, &chunks)?;
        self.save(located)?;
        Ok(!is_partly_here(&located.inode))
    }

    /// The file is about to be cut, which is noted. The caller saves the inode.
    pub(crate) fn cut_chunks(&mut self, located: &mut Located, size_bytes: u64) -> Outcome<()> {
        if !is_partly_here(&located.inode) {
            return Ok(());
        }
        let now = self.now;
        self.changed(&mut located.inode, now);
        let mut chunks = self.chunks_here(&located.inode)?;
        let before = chunks.bytes_here();
        chunks.cut(size_bytes);
        self.count_cached(chunks.source, before, chunks.bytes_here());
        self.keep_chunks(located, &chunks)
    }

    /// Notes which chunks are here. The object is the file's alone when all are. The caller saves
    /// the inode.
    pub(crate) fn keep_chunks(&mut self, located: &mut Located, chunks: &Chunks) -> Outcome<()> {
        let inode = &mut located.inode;
        let object = ObjectId { file: inode.id, generation: inode.generation };
        let key = key::chunks(object.file, object.generation);
        if !chunks.is_whole() {
            return Ok(self.store.put(&key, &chunks.encode())?);
        }
        self.store.delete(&key)?;
        self.count_cached(chunks.source, chunks.bytes_here(), 0);
        if is_partly_here(inode) {
            // From now on the object tells of it.
            self.objects.set_times(object, None, Some(inode.mtime))?;
        } else {
            inode.content = Content::Object(object.generation);
            inode.blocks = space_of(chunks) / BLOCK_BYTES;
        }
        let origin = inode.origin.map(|origin| Origin { resident: true, ..origin });
        self.set_origin(inode, origin);
        self.files.opens.mark_object(object.file);
        self.files.opens.content_changes(object.file);
        self.tier.filling.streams.remove(&object.file);
        Ok(())
    }

    /// Chunks have come to a file's own object. The caller saves the inode.
    pub(crate) fn take_space(
        &mut self,
        inode: &mut Inode,
        object: ObjectId,
        bytes: u64,
    ) -> Outcome<()> {
        let attr = self.objects.attr_at_hand(object)?;
        if inode.unsettled {
            let charged = self.files.opens.file(inode.id).map_or(0, |file| file.charged_bytes);
            let now = attr.map_or(charged + bytes, |attr| attr.blocks * BLOCK_BYTES);
            self.charge(inode.id, now);
            return Ok(());
        }
        let blocks = attr.map_or(inode.blocks + bytes / BLOCK_BYTES, |attr| attr.blocks);
        let settled = self.counters.settled_bytes + blocks * BLOCK_BYTES;
        self.counters.settled_bytes = settled.saturating_sub(inode.blocks * BLOCK_BYTES);
        inode.blocks = blocks;
        Ok(())
    }

    /// All that was written to a file is outside, which has this length now: what is here of it are
    /// chunks of the master copy again. The caller saves the inode.
    pub(crate) fn be_chunks(&mut self, located: &mut Located, size_bytes: u64) -> Outcome<()> {
        if !is_partly_here(&located.inode) {
            return Ok(());
        }
        // What the object takes is what its chunks take, and times are the record's.
        let attr = ObjectAttr { size_bytes, ..ObjectAttr::default() };
        self.settle(located, &attr)?;
        let before = self.chunks_here(&located.inode)?;
        let mut chunks = Shard::no_chunks(&located.inode)?;
        for chunk in 0..chunks.count() {
            let start = chunk * chunks.chunk_bytes();
            if before.has_range(start, start + chunks.bytes_of(chunk)) {
                chunks.add(chunk);
            }
        }
        let inode = &mut located.inode;
        let settled = self.counters.settled_bytes + space_of(&chunks);
        self.counters.settled_bytes = settled.saturating_sub(inode.blocks * BLOCK_BYTES);
        (inode.content, inode.blocks) = (Content::Inline(Vec::new()), 0);
        self.count_cached(chunks.source, before.bytes_here(), chunks.bytes_here());
        self.keep_chunks(located, &chunks)?;
        if !is_by_chunks(&located.inode) {
            // It is so short now that it is fetched as a whole.
            self.drop_chunks(&located.inode)?;
        }
        Ok(())
    }
}
