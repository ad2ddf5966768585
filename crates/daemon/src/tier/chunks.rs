//! Bytes that are fetched by chunks: of a file that is too long to be fetched as a whole.
//!
//! The file stays absent until all of its chunks are here. Meanwhile they are in an object that the
//! record of its chunks names, and reads of what is there are answered from it. Then the object
//! becomes the file's, or when the file is written to ([`written`](super::written)). A chunk is
//! fetched once: who wants one that is under way waits for it, and
//! for no other. Readers that go forward have chunks fetched ahead of them.
//!
//! Invariants:
//! - A chunk is said to be here after the keeper has written all of it, from a master copy that was
//!   the known one before and after. When the master copy changes, record and object go.
//! - The item that makes the object is the only one of its file until it has ended. An object of
//!   which no chunk is here when a daemon begins is removed. So no keeper makes it later.
//! - Nobody but the keeper writes the object before it is the file's, and nobody else chunks that
//!   are not here. A keeper does what this daemon gives of an object after all that earlier ones
//!   gave of it.

use mayfly_meta::{
    key,
    record::{Chunks, Inode},
};
use mayfly_object::ObjectId;
use mayfly_types::{
    DIRECTORY_BYTES, Errno, FileId, FileKind, SessionId,
    limits::{
        TIER_AHEAD_CHUNKS_MAX, TIER_AHEAD_ITEMS_MAX, TIER_RUN_CHUNKS_MAX, TIER_STREAMS_MAX,
        TRANSFER_BYTES_MAX,
    },
};
use mayfly_wire::{Data, Read, Wire, Writer};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::data::object_of,
    namespace::state::inode::Located,
    shard::Shard,
    tier::{
        gates::{is_absent, is_by_chunks, master_of},
        items::{End, Ending},
        seen::{Entry, is_as_known},
        state::{
            item::{Item, Work},
            table::Stream,
            wanted::{At, Run, Seen, Wanted},
        },
    },
};

/// Reads that are no farther from each other are in a row.
const STREAM_GAP_BYTES: u64 = 2 * TRANSFER_BYTES_MAX as u64;
/// In the place of who reads, before that begins.
const NOBODY: Caller = Caller { session: SessionId(0), lane: 0, request_id: 0 };
/// What objects take is counted in pages.
const PAGE_BYTES: u64 = DIRECTORY_BYTES;

/// Space that the chunks take which are here, bytes.
pub(crate) fn space_of(chunks: &Chunks) -> u64 {
    chunks.bytes_here().next_multiple_of(PAGE_BYTES)
}

impl Shard {
    /// What is here of an absent file.
    pub(crate) fn chunks_of(&mut self, inode: &Inode) -> Outcome<Option<Chunks>> {
        let key = key::chunks(inode.id, inode.generation);
        Ok(self.store.get(&key)?.map(Chunks::decode).transpose()?)
    }

    /// Whether something of an absent file is here.
    pub(crate) fn has_chunks(&mut self, inode: &Inode) -> Outcome<bool> {
        Ok(self.chunks_of(inode)?.is_some_and(|chunks| !chunks.is_empty()))
    }

    /// The same, of a file of which nothing was fetched either.
    pub(crate) fn chunks_here(&mut self, inode: &Inode) -> Outcome<Chunks> {
        self.chunks_of(inode)?.map_or_else(|| Shard::no_chunks(inode), Ok)
    }

    pub(crate) fn no_chunks(inode: &Inode) -> Outcome<Chunks> {
        let origin = inode.origin.ok_or(Errno::EIO)?;
        let times = (origin.mtime, master_of(inode)?.ctime);
        Ok(Chunks::none(origin.source, origin.size_bytes, times))
    }

    /// Reads a file of which some chunks are here.
    pub(crate) fn read_chunks(
        &mut self,
        caller: Caller,
        inode: &Inode,
        read: &Read,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let left = inode.size_bytes.saturating_sub(read.offset);
        let count = u64::from(read.count).min(TRANSFER_BYTES_MAX as u64).min(left);
        if count == 0 {
            Data { object: false, bytes: b"" }.encode(to)?;
            return Ok(Served::Replied);
        }
        let object = self.range_at_hand(inode, (read.offset, count))?;
        self.note_read(inode, count);
        Ok(self.start_read(caller, object, read.offset, count as usize))
    }

    /// The bytes that a read wants of a file that is fetched by chunks are here: the object that
    /// has them.
    pub(crate) fn range_at_hand(
        &mut self,
        inode: &Inode,
        (offset, count): (u64, u64),
    ) -> Outcome<ObjectId> {
        if inode.links == 0 {
            return Err(Errno::ESTALE.into());
        }
        let chunks = self.chunks_here(inode)?;
        // What was written behind the master copy is here.
        let end = offset.saturating_add(count).min(chunks.size_bytes);
        let window = self.note_stream(inode.id, offset, end);
        let first = offset / chunks.chunk_bytes();
        let behind = end.div_ceil(chunks.chunk_bytes());
        if let Some(missing) = (first..behind).find(|chunk| !chunks.has(*chunk)) {
            let run = Run { first: missing, end: behind, ahead: window };
            return Err(self.want_chunks(inode, &chunks, run)?);
        }
        let ahead = Run { first: behind, end: behind, ahead: window };
        if !chunks.is_whole() {
            let at = self.place_at_origin(inode)?;
            // It is about to be read, so it is not what makes room for more.
            self.tier.filling.reads.push((NOBODY, inode.id));
            let fetched = self.fetch_ahead((inode.id, &at), &chunks, ahead);
            self.tier.filling.reads.pop();
            fetched?;
        }
        Ok(ObjectId { file: inode.id, generation: inode.generation })
    }

    /// The next bytes that are not here are wanted, until all are.
    pub(crate) fn all_chunks_at_hand(&mut self, inode: &Inode) -> Outcome<()> {
        let chunks = self.chunks_here(inode)?;
        let missing = (0..chunks.count()).find(|chunk| !chunks.has(*chunk)).unwrap_or(0);
        // A long file takes many, and what has come is not looked for any more.
        self.run.outside.done.retain(|(wanted, result)| match wanted {
            Wanted::Chunks(file, _, run) => {
                *file != inode.id || run.end > missing || result.is_err()
            }
            _ => true,
        });
        let run = Run { first: missing, end: chunks.count(), ahead: TIER_AHEAD_CHUNKS_MAX };
        Err(self.want_chunks(inode, &chunks, run)?)
    }

    /// That a run of chunks is wanted; the error that it has met, or that it has come in vain.
    pub(crate) fn want_chunks(
        &mut self,
        inode: &Inode,
        chunks: &Chunks,
        run: Run,
    ) -> Outcome<Fault> {
        let missing = run.first;
        if self.tier.filling.covers(inode.id, missing) {
            return Ok(Fault::Busy);
        }
        let (mut came, mut changed) = (0, false);
        for (wanted, result) in &self.run.outside.done {
            let Wanted::Chunks(file, _, Run { first, end, .. }) = wanted else { continue };
            if *file == inode.id && (*first..*end).contains(&missing) {
                let seen: Seen = (*result)?;
                came += 1;
                changed |= !seen.same;
            }
        }
        if came > 1 {
            // It has changed meanwhile, or has made room for what came behind it.
            return Err(if changed { Errno::EIO } else { Errno::ENOSPC }.into());
        }
        let end = run.end.min(missing + TIER_RUN_CHUNKS_MAX).min(chunks.count());
        let at = self.place_at_origin(inode)?;
        // What others are having fetched is not fetched twice: it is waited for when it is missing.
        let is_taken = |chunk: &u64| {
            let under_way = self.fetch_of(inode.id, &at, *chunk);
            chunks.has(*chunk)
                || self.tier.filling.covers(inode.id, *chunk)
                || *chunk > missing && under_way.is_some_and(|(_, has_it)| has_it)
        };
        let end = (missing..end).find(is_taken).unwrap_or(end);
        let wanted = Wanted::Chunks(inode.id, at, Run { end, ..run });
        Ok(Fault::Outside(Box::new(wanted)))
    }

    /// How far ahead of a read chunks are fetched: twice as far as before, if it goes on where the
    /// last one of the file has ended, and else not at all.
    fn note_stream(&mut self, file: FileId, offset: u64, end: u64) -> u64 {
        let streams = &mut self.tier.filling.streams;
        if !self.run.outside.is_empty() {
            return streams.get(&file).map_or(0, |stream| stream.window);
        }
        if streams.len() >= TIER_STREAMS_MAX && !streams.contains_key(&file) {
            streams.clear();
        }
        let stream = streams.entry(file).or_insert(Stream { next: 0, window: 0 });
        // Pieces of one read may come in another order.
        let near = stream.next.abs_diff(offset) <= STREAM_GAP_BYTES;
        let wider = (2 * stream.window).clamp(1, TIER_AHEAD_CHUNKS_MAX);
        stream.window = if near { wider } else { 0 };
        stream.next = if near { stream.next.max(end) } else { end };
        stream.window
    }

    /// Whether a chunk is here, or something is being done that it is.
    pub(crate) fn is_chunk_taken(
        &self,
        (file, at): (FileId, &At),
        chunks: &Chunks,
        chunk: u64,
    ) -> bool {
        chunks.has(chunk)
            || self.tier.filling.covers(file, chunk)
            || self.fetch_of(file, at, chunk).is_some()
    }

    /// The item that fetches a chunk, or that is in the way of fetching it.
    pub(crate) fn fetch_of(&self, file: FileId, at: &At, chunk: u64) -> Option<(u64, bool)> {
        let items = self.tier.chunk_items.get(&file).into_iter().flatten();
        for number in items {
            let Some(item) = self.tier.items.get(number) else { continue };
            let Work::Wanted(Wanted::Chunks(_, _, run)) = &item.work else { continue };
            let has_it = (run.first..run.end).contains(&chunk);
            if has_it || item.makes_object {
                return Some((*number, has_it));
            }
        }
        self.tier.busy.get(at).map(|number| (*number, false))
    }

    /// Makes an item of a run of chunks; none when there is nothing to fetch any more.
    pub(crate) fn begin_chunks(&mut self, file: FileId, at: &At, run: Run) -> Outcome<Option<u64>> {
        let inode = self.load_cached(file, at)?.inode;
        if !is_by_chunks(&inode) {
            return Ok(None);
        }
        let bytes = (run.end - run.first) * Shard::no_chunks(&inode)?.chunk_bytes();
        self.make_room_for(bytes);
        // What was here of this file may have gone, too.
        let mut located = self.load_cached(file, at)?;
        let known = self.chunks_of(&located.inode)?;
        let is_new = known.is_none();
        let chunks = known.map_or_else(|| Shard::no_chunks(&located.inode), Ok)?;
        if !self.has_room_to_fetch(bytes)? {
            return Err(Errno::ENOSPC.into());
        }
        if is_new {
            located.inode.generation = self.next_generation(&located.inode)?;
            self.save(&located)?;
            let key = key::chunks(file, located.inode.generation);
            self.store.put(&key, &chunks.encode())?;
            self.counters.objects += 1;
        }
        let wanted = Wanted::Chunks(file, at.clone(), run);
        let mut item = Item::new(Work::Wanted(wanted), self.elapsed_ms());
        item.object = Some(ObjectId { file, generation: located.inode.generation });
        item.makes_object = chunks.is_empty() && object_of(&located.inode).is_none();
        Ok(Some(self.tier.begin(item)))
    }

    /// Fetches what a reader will want next, as far as nothing is in the way.
    pub(crate) fn fetch_ahead(
        &mut self,
        (file, at): (FileId, &At),
        chunks: &Chunks,
        run: Run,
    ) -> Outcome<()> {
        let upto = (run.end + run.ahead).min(chunks.count());
        let length = (run.ahead / TIER_AHEAD_ITEMS_MAX as u64).clamp(1, TIER_RUN_CHUNKS_MAX);
        let mut chunk = run.end;
        while chunk < upto {
            let under_way = self.tier.chunk_items.get(&file).map_or(0, Vec::len);
            if under_way >= TIER_AHEAD_ITEMS_MAX {
                break;
            }
            let is_taken = |other: &u64| self.is_chunk_taken((file, at), chunks, *other);
            if is_taken(&chunk) {
                chunk += 1;
                continue;
            }
            let most = upto.min(chunk + length);
            let end = (chunk..most).find(is_taken).unwrap_or(most);
            match self.begin_chunks(file, at, Run { first: chunk, end, ahead: 0 }) {
                Ok(Some(number)) => {
                    self.tier.put_off(number);
                    chunk = end;
                }
                // Nobody waits for it.
                Ok(None) | Err(Fault::Errno(Errno::ENOSPC)) => break,
                Err(fault) => return Err(fault),
            }
        }
        self.hand_out_items();
        Ok(())
    }

    /// The same after what is wanted was begun.
    pub(crate) fn fetch_behind(&mut self, file: FileId, at: &At, run: Run) -> Outcome<()> {
        let inode = self.load_cached(file, at)?.inode;
        match self.chunks_of(&inode)? {
            Some(chunks) if run.ahead > 0 => self.fetch_ahead((file, at), &chunks, run),
            _ => Ok(()),
        }
    }

    /// From where to where a run goes, bytes.
    pub(crate) fn bytes_of_run(&mut self, inode: &Inode, run: Run) -> Outcome<(u64, u64)> {
        let chunks = self.chunks_of(inode)?.ok_or(Errno::ESTALE)?;
        let bytes = chunks.chunk_bytes();
        Ok((run.first * bytes, (run.end * bytes).min(chunks.size_bytes)))
    }

    /// The keeper has fetched chunks, or could not.
    pub(crate) fn chunks_fetched(
        &mut self,
        (file, at, run): (FileId, &At, Run),
        item: &Item,
        told: Ending,
    ) -> Outcome<End> {
        let object = item.object.ok_or(Errno::EIO)?;
        if item.holder.is_some() {
            self.tier.filling.earlier.remove(&object);
        }
        let located = self.load_cached(file, at);
        let chunks = match &located {
            Ok(located) if is_by_chunks(&located.inode) => {
                let inode = &located.inode;
                if inode.generation == object.generation { self.chunks_of(inode)? } else { None }
            }
            _ => None,
        };
        let nothing = End::Seen(Seen { attr: mayfly_wire::tier::NO_ATTR, same: false, at_ms: 0 });
        let (Ok(mut located), Some(mut chunks)) = (located, chunks) else {
            // It is gone, or another one: who waits finds out.
            self.remove_dropped(object)?;
            return Ok(nothing);
        };
        let is_written = object_of(&located.inode).is_some();
        let seen = match told {
            Ending::Done { seen, .. } => seen,
            Ending::Conflict { .. } => return Err(Errno::EPROTO.into()),
            Ending::Failed(errno) => {
                let moved = matches!(errno, Errno::ENOENT | Errno::ENOTDIR)
                    && (self.tier.is_busy(at) || self.place_at_origin(&located.inode)? != *at);
                if item.makes_object {
                    // Nobody knows whether there is one.
                    self.drop_chunks(&located.inode)?;
                }
                return match errno {
                    _ if moved => Ok(nothing),
                    Errno::ENOENT | Errno::ENOTDIR if is_written => Err(Errno::ESTALE.into()),
                    _ => Err(errno.into()),
                };
            }
        };
        if !seen.same {
            return self.chunks_of_another(located, is_written, seen);
        }
        let before = (chunks.bytes_here(), space_of(&chunks));
        for chunk in run.first..run.end {
            chunks.add(chunk);
        }
        let bytes = chunks.bytes_here();
        self.count(chunks.source, |counts| {
            counts.fetches += 1;
            counts.fetched_bytes += bytes.saturating_sub(before.0);
        });
        let space = space_of(&chunks).saturating_sub(before.1);
        if is_written {
            self.take_space(&mut located.inode, object, space)?;
        } else {
            self.counters.settled_bytes += space;
        }
        self.count_cached(chunks.source, before.0, bytes);
        self.saw(&mut located.inode, seen.at_ms);
        self.keep_chunks(&mut located, &chunks)?;
        self.save(&located)?;
        Ok(End::Seen(seen))
    }

    pub(crate) fn count_cached(&mut self, source: u32, before: u64, after: u64) {
        if let Some(source) = self.tier.sources.get_mut(source as usize) {
            source.cached_bytes = (source.cached_bytes + after).saturating_sub(before);
        }
    }

    /// What is here of an absent file is of no use any more.
    pub(crate) fn drop_chunks(&mut self, inode: &Inode) -> Outcome<()> {
        if !is_absent(inode) {
            return Ok(());
        }
        let Some(chunks) = self.chunks_of(inode)? else { return Ok(()) };
        let object = ObjectId { file: inode.id, generation: inode.generation };
        self.store.delete(&key::chunks(object.file, object.generation))?;
        if object_of(inode).is_some() {
            // It goes as any other file's, or gets other bytes.
            self.count_cached(chunks.source, chunks.bytes_here(), 0);
            return Ok(());
        }
        self.store.put(&key::doomed(object.file, object.generation), &[1])?;
        self.counters.objects = self.counters.objects.saturating_sub(1);
        self.counters.settled_bytes = self.counters.settled_bytes.saturating_sub(space_of(&chunks));
        self.count_cached(chunks.source, chunks.bytes_here(), 0);
        self.remove_dropped(object)
    }

    /// The master copy is another one than the one whose chunks were wanted.
    fn chunks_of_another(
        &mut self,
        mut located: Located,
        is_written: bool,
        seen: Seen,
    ) -> Outcome<End> {
        let (file, attr) = (located.inode.id, &seen.attr);
        let at = self.place_at_origin(&located.inode)?;
        let is_busy = self.tier.is_busy(&at);
        let master = master_of(&located.inode)?;
        let (is_known, unsure) = (is_as_known(&located.inode, &master, attr), master.unsure);
        let master = master.seen(attr.ctime);
        if is_written && unsure && is_as_known(&located.inode, &master, attr) {
            // Its attributes were set for a call that failed: it is fetched by that time.
            located.inode.residency = master.encode();
            self.save(&located)?;
        } else if is_written && !is_busy && !is_known {
            // What was not fetched of what was written to is nowhere any more.
            return Err(Errno::ESTALE.into());
        } else if !is_busy {
            let entry = Entry { attr, target: b"", at_ms: seen.at_ms };
            self.seen_again(&at, (file, FileKind::Regular), entry)?;
        }
        Ok(End::Seen(seen))
    }

    /// An object that is dropped goes when the keeper has nothing more to do with it.
    fn remove_dropped(&mut self, object: ObjectId) -> Outcome<()> {
        let items = self.tier.chunk_items.get(&object.file).into_iter().flatten();
        let mut items = items.filter_map(|number| self.tier.items.get(number));
        let in_use = items.any(|item| item.object == Some(object));
        let doomed = key::doomed(object.file, object.generation);
        if !in_use && self.store.get(&doomed)?.is_some() {
            self.remove_when_committed(object);
        }
        Ok(())
    }

    /// What an earlier daemon has fetched; an object of which nothing is here may be missing, or be
    /// made by the keeper yet.
    pub(crate) fn take_up_chunks(&mut self) -> Outcome<()> {
        let mut found = Vec::new();
        self.store.scan(&[key::CHUNKS], &[key::CHUNKS], &mut |key, record| {
            found.push((key::split_chunks(key), Chunks::decode(record)));
            mayfly_meta::Scan::More
        })?;
        for (of, chunks) in found {
            let ((file, generation), chunks) = (of.ok_or(Errno::EIO)?, chunks?);
            self.count_cached(chunks.source, 0, chunks.bytes_here());
            self.tier.filling.earlier.insert(ObjectId { file, generation });
            let birth = self.tier.dirty.get(&file).cloned();
            let is_written = match birth {
                Some(birth) => object_of(&self.load_birth(file, &birth)?.inode).is_some(),
                None => false,
            };
            if chunks.is_empty() && !is_written {
                self.store.delete(&key::chunks(file, generation))?;
                self.store.put(&key::doomed(file, generation), &[1])?;
                self.counters.objects = self.counters.objects.saturating_sub(1);
                self.remove_when_committed(ObjectId { file, generation });
            }
        }
        Ok(())
    }
}
