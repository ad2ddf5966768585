//! Bytes that go back.
//!
//! Leave to write the object ends when a flush begins. Who writes from then on asks, and the file
//! stays dirty. The keeper copies what there is to a name beside the master copy, looks whether
//! that is still the one that was taken over, and puts the copy in its place. If it is another one,
//! our bytes stay beside it, under a name that says so, and the file here is what is outside. An
//! object that may be mapped is changed without anybody being asked: such a file stays dirty until
//! the last flush.

use std::sync::atomic::Ordering::Release;

use mayfly_meta::{
    key,
    record::{Content, Origin},
};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, FileId, FileKind, limits::TIER_FLUSHES_MAX};
use mayfly_wire::{
    TierItem,
    tier::{TIER_INCOMPLETE, TIER_PARTLY, TIER_UNSETTLED, TIER_UNSURE},
};

use crate::{
    fault::{Fault, Outcome},
    namespace::state::inode::Located,
    shard::Shard,
    tier::{
        gates::{is_absent, is_partly_here, master_of},
        items::{End, Ending, known_of},
        state::{
            item::{Item, Work},
            source::Note,
            table::Flush,
            wanted::Wanted,
        },
    },
};

/// When nothing could be flushed to make room, so long nobody tries it again, milliseconds.
const FLUSH_PAUSE_MS: u64 = 5_000;

impl Shard {
    /// Begins to write a file back; nothing when it is clean.
    pub(crate) fn begin_flush(
        &mut self,
        file: FileId,
        last: bool,
        incomplete: bool,
    ) -> Outcome<Option<u64>> {
        let Some(birth) = self.tier.dirty.get(&file).cloned() else { return Ok(None) };
        let located = self.load_birth(file, &birth)?;
        if !located.inode.origin.is_some_and(|origin| origin.dirty) {
            self.forget_dirty(file)?;
            return Ok(None);
        }
        if is_absent(&located.inode) && !is_partly_here(&located.inode) {
            // There was no space for what was to be written.
            self.be_clean(located)?;
            return Ok(None);
        }
        let at = self.place_at_origin(&located.inode)?;
        if self.tier.is_busy(&at) {
            // It may be there under another name already, or gone.
            return Err(Fault::Busy);
        }
        self.check_at_rest(file)?;
        if let Content::Object(_) = located.inode.content
            && let Some(entry) = self.files.opens.entry(file)
        {
            entry.grant_generation.fetch_add(1, Release);
            self.files.opens.set_allowance(file, 0);
        }
        let mut item = Item::new(Work::Flush { file, at, last, incomplete }, self.elapsed_ms());
        // What is being written just now may come to the object after the keeper has read it.
        item.rewritten = self.files.background.is_in_flight(file);
        Ok(Some(self.tier.begin(item)))
    }

    fn be_clean(&mut self, mut located: Located) -> Outcome<()> {
        let origin = located.inode.origin.map(|origin| Origin { dirty: false, ..origin });
        self.set_origin(&mut located.inode, origin);
        self.forget_dirty(located.inode.id)?;
        self.save(&located)
    }

    /// What the keeper is told of a flush: the object, or the bytes of a file without one.
    pub(crate) fn encode_flush(
        &mut self,
        located: &Located,
        incomplete: bool,
        told: &mut TierItem<'_>,
    ) -> Outcome<(Vec<u8>, Vec<u8>)> {
        let inode = &located.inode;
        (told.file, told.known) = (inode.id, known_of(located)?);
        told.which = if inode.unsettled { TIER_UNSETTLED } else { 0 };
        told.which |= if master_of(inode)?.unsure { TIER_UNSURE } else { 0 };
        told.which |= if incomplete { TIER_INCOMPLETE } else { 0 };
        let generation = match &inode.content {
            Content::Inline(content) => return Ok((Vec::new(), content.clone())),
            Content::Object(generation) => *generation,
            _ => return Err(Errno::EINVAL.into()),
        };
        let object = ObjectId { file: inode.id, generation }.path().into_bytes();
        if incomplete || !is_partly_here(inode) {
            return Ok((object, Vec::new()));
        }
        let chunks = self.chunks_here(inode)?;
        told.which |= TIER_PARTLY;
        (told.start, told.end) = (chunks.chunk_bytes(), chunks.size_bytes);
        Ok((object, chunks.bits().to_vec()))
    }

    /// The keeper has written a file back, or could not.
    pub(crate) fn flushed(&mut self, item: &Item, told: Ending) -> Outcome<End> {
        let Work::Flush { file, at, last, .. } = &item.work else { return Err(Errno::EIO.into()) };
        let mut located = self.load_cached(*file, at)?;
        let Some(origin) = located.inode.origin else { return Err(Errno::EIO.into()) };
        match told {
            Ending::Failed(errno) => Err(errno.into()),
            Ending::Conflict { attr, copy } => {
                self.note_conflict(item, origin.source, copy)?;
                // What was written since goes the same way later.
                if !item.rewritten {
                    self.give_up_copy(located, at, (&attr, item.since_ms))?;
                }
                Ok(End::Conflict)
            }
            Ending::Done { seen, .. } => {
                let attr = seen.attr;
                if attr.kind != FileKind::Regular {
                    return Err(Errno::EPROTO.into());
                }
                let dirty = item.rewritten || seen.same && !last;
                let (mtime, size_bytes) = (attr.mtime, attr.size_bytes);
                let after = Origin { mtime, size_bytes, dirty, ..origin };
                self.set_origin(&mut located.inode, Some(after));
                let master = master_of(&located.inode)?;
                located.inode.residency = master.seen(attr.ctime).encode();
                if !dirty {
                    self.be_chunks(&mut located, size_bytes)?;
                    self.forget_dirty(*file)?;
                }
                self.count(origin.source, |counts| {
                    counts.flushes += 1;
                    counts.flushed_bytes += size_bytes;
                });
                self.saw(&mut located.inode, item.since_ms);
                self.save(&located)?;
                Ok(End::Flushed)
            }
        }
    }

    fn note_conflict(&mut self, item: &Item, source: u32, copy: Vec<u8>) -> Outcome<()> {
        self.tier.notes.last_conflict += 1;
        let number = FileId(self.tier.notes.last_conflict);
        let path = item.path.clone();
        let record = [&source.to_le_bytes()[..], &path, &[0], &copy].concat();
        self.store.put(&key::numbered(key::CONFLICT, number), &record)?;
        self.tier.note(Note { source, errno: 0, path, copy });
        Ok(())
    }

    /// Something could not be done outside, and nobody but people may want to know.
    pub(crate) fn note_failure(&mut self, item: &Item, errno: Errno) {
        let at = match &item.work {
            Work::Flush { at, .. }
            | Work::Wanted(Wanted::Fetch(_, at) | Wanted::Chunks(_, at, _)) => at.clone(),
            Work::Wanted(_) => return,
        };
        if let Ok((source, path)) = self.path_at_origin(&at) {
            let errno = errno.raw() as u32;
            self.tier.note(Note { source, errno, path, copy: Vec::new() });
        }
    }

    /// An item ended that somebody may have wanted flushed.
    pub(crate) fn flush_ended(&mut self, number: u64, item: &Item, result: &Result<End, Errno>) {
        let lacks = match (&item.work, result) {
            (Work::Flush { file, .. }, Err(Errno::ESTALE)) if self.lacks_some(*file) => Some(*file),
            _ => None,
        };
        for flush in &mut self.tier.flushes {
            let Some(at) = flush.items.iter().position(|item| *item == number) else { continue };
            flush.items.swap_remove(at);
            match result {
                Ok(End::Conflict) => flush.conflicts += 1,
                Ok(_) => flush.flushed += 1,
                Err(_) => match lacks.filter(|file| !flush.incomplete.contains(file)) {
                    // At the end what it has goes beside what is there now.
                    Some(file) if flush.last => {
                        flush.incomplete.push(file);
                        flush.todo.push_front(file);
                    }
                    _ => flush.failed += 1,
                },
            }
        }
    }

    /// Whether not all is here of what is dirty of a file.
    fn lacks_some(&mut self, file: FileId) -> bool {
        let Some(birth) = self.tier.dirty.get(&file).cloned() else { return false };
        self.load_birth(file, &birth).is_ok_and(|located| is_partly_here(&located.inode))
    }

    /// Flushes files when all is done outside that the journal has now.
    pub(crate) fn add_flush(&mut self, mut flush: Flush) {
        flush.upto = self.tier.journal.entries.last_key_value().map(|(number, _)| *number);
        self.tier.flushes.push(flush);
        self.go_on_flushing();
        self.hand_out_items();
    }

    /// Whether the journal is done as far as a flush waits for that, or has failed.
    fn names_are_flushed(&mut self, at: usize, first_to_do: Option<u64>) -> bool {
        let journal = &self.tier.journal;
        let Some(flush) = self.tier.flushes.get_mut(at) else { return false };
        let Some(upto) = flush.upto else { return true };
        if first_to_do.is_some_and(|first| first <= upto) {
            return false;
        }
        flush.failed += journal.failed.range(..=upto).count() as u64;
        flush.upto = None;
        true
    }

    /// Whether the name of a file could not be made outside.
    fn is_held_up(&mut self, file: FileId) -> bool {
        let Some(birth) = self.tier.dirty.get(&file).cloned() else { return false };
        let Ok(located) = self.load_birth(file, &birth) else { return false };
        let Ok(at) = self.place_at_origin(&located.inode) else { return false };
        let entry = self.tier.journal.last_of(&at);
        entry.is_some_and(|entry| self.tier.journal.errno_of(entry).is_some())
    }

    /// Begins what is to be flushed next, and answers where all was.
    pub(crate) fn go_on_flushing(&mut self) {
        let first_to_do = self.tier.journal.first_to_do();
        for at in 0..self.tier.flushes.len() {
            if !self.names_are_flushed(at, first_to_do) {
                continue;
            }
            while let Some(flush) = self.tier.flushes.get_mut(at)
                && flush.items.len() < TIER_FLUSHES_MAX
                && let Some(file) = flush.todo.pop_front()
            {
                let incomplete = flush.incomplete.contains(&file);
                let last = flush.last;
                let begun = self.begin_flush(file, last, incomplete);
                let held_up = begun.is_err() && self.is_held_up(file);
                let Some(flush) = self.tier.flushes.get_mut(at) else { break };
                match begun {
                    Ok(Some(number)) => flush.items.push(number),
                    Ok(None) => {}
                    Err(_) if held_up => flush.failed += 1,
                    Err(_) => flush.left += 1,
                }
            }
        }
        let done = |flush: &mut Flush| {
            flush.items.is_empty() && flush.todo.is_empty() && flush.upto.is_none()
        };
        let over: Vec<_> = self.tier.flushes.extract_if(.., done).collect();
        for flush in over {
            // What is clean now may go.
            self.tier.policy.evict_again_ms = 0;
            self.wake_blocked();
            let Some(caller) = flush.caller else {
                if flush.flushed + flush.conflicts == 0 {
                    self.tier.policy.flush_again_ms = self.elapsed_ms() + FLUSH_PAUSE_MS;
                }
                continue;
            };
            if flush.is_sync {
                let failed = flush.failed + flush.left + flush.conflicts > 0;
                let status = if failed { Errno::EIO.raw() as u32 } else { 0 };
                self.answer_after_commit(caller, status, Vec::new());
                continue;
            }
            match self.tier_report(&flush) {
                Ok(body) => self.answer_after_commit(caller, 0, body),
                Err(errno) => {
                    self.answer_after_commit(caller, errno.raw() as u32, Vec::new());
                }
            }
        }
    }
}
