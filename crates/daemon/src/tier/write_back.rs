//! What goes back by itself, and requests that wait until it has.
//!
//! The daemon has no clock that wakes it for this: a thread of the keeper asks now and then for
//! what is due to be flushed. Who writes to an object by leave is not seen, so the object is asked
//! when it was written last.
//!
//! A request that waits for a flush waits for one that was begun after it came: one that is under
//! way may have read the bytes before. The file may be dirty again by then, of what was written
//! since.

use mayfly_types::{Errno, FileId, Timestamp, limits::TIER_DUE_SCAN_MAX};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    shard::Shard,
    shards::planted::{Planted, is_planted},
    tier::{
        gates::is_partly_here,
        state::{source::WriteBack, table::Flush, wanted::Wanted},
    },
};

fn milliseconds(time: Timestamp) -> i64 {
    time.seconds.saturating_mul(1000).saturating_add(i64::from(time.nanoseconds / 1_000_000))
}

impl Shard {
    /// When what is dirty goes back by itself. Before the first request.
    pub fn write_back(&mut self, when: WriteBack) {
        self.tier.policy.write_back = when;
    }

    /// The bytes of a file are outside, as they are now.
    fn written_back(&mut self, id: FileId) -> Outcome<()> {
        let is_it = |wanted: &Wanted| matches!(wanted, Wanted::Back(file, _) if *file == id);
        let mut done = self.run.outside.done.iter();
        if let Some((_, result)) = done.find(|(wanted, _)| is_it(wanted)) {
            return Ok((*result).map(drop)?);
        }
        let Some(birth) = self.tier.dirty.get(&id).cloned() else { return Ok(()) };
        let inode = self.load_birth(id, &birth)?.inode;
        if inode.links == 0 || !inode.origin.is_some_and(|origin| origin.dirty) {
            return Ok(());
        }
        if !is_partly_here(&inode) {
            self.bytes_at_hand(&inode)?;
        }
        let at = self.place_at_origin(&inode)?;
        self.check_at_rest(id)?;
        Err(Fault::Outside(Box::new(Wanted::Back(id, at))))
    }

    /// Whether who could write waits at its close until what is dirty is outside.
    pub(crate) fn goes_back_at_close(&self) -> bool {
        let waits = !is_planted(Planted::CloseDoesNotWait);
        self.has_tier() && self.tier.policy.write_back.at_close && waits
    }

    pub(crate) fn written_back_at_close(&mut self, id: FileId) -> Outcome<()> {
        if self.goes_back_at_close() { self.written_back(id) } else { Ok(()) }
    }

    pub(crate) fn written_back_at_sync(&mut self, id: FileId) -> Outcome<()> {
        if self.tier.policy.write_back.at_sync { self.written_back(id) } else { Ok(()) }
    }

    /// Everything goes back for a sync of the whole instance, which waits for that; false when
    /// there is nothing to wait for.
    pub(crate) fn flush_for_sync(&mut self, caller: Caller) -> bool {
        if !self.tier.policy.write_back.at_sync || self.tier.dirty.is_empty() {
            return false;
        }
        let todo = self.tier.dirty.keys().copied().collect();
        let flush = Flush { caller: Some(caller), todo, is_sync: true, ..Flush::default() };
        self.add_flush(flush);
        true
    }

    /// A description that could write is gone: who could not wait for the flush finds it begun.
    pub(crate) fn flush_closed(&mut self, id: FileId) {
        if self.tier.policy.write_back.at_close && self.tier.dirty.contains_key(&id) {
            self.add_flush(Flush { todo: [id].into(), ..Flush::default() });
        }
    }

    /// The keeper asks for what is due to be flushed.
    pub(crate) fn flush_due(&mut self, caller: Caller) -> Outcome<Served> {
        let mut flush = Flush { caller: Some(caller), ..Flush::default() };
        if let Some(after_ms) = self.tier.policy.write_back.after_ms {
            let from = self.tier.policy.due_from;
            let mut seen: Vec<FileId> =
                self.tier.dirty.range(from..).map(|of| *of.0).take(TIER_DUE_SCAN_MAX).collect();
            if seen.len() < TIER_DUE_SCAN_MAX {
                let left = TIER_DUE_SCAN_MAX - seen.len();
                seen.extend(self.tier.dirty.range(..from).map(|of| *of.0).take(left));
            }
            self.tier.policy.due_from = seen.last().map_or(FileId::NONE, |last| FileId(last.0 + 1));
            for id in seen {
                if self.is_flush_due(id, after_ms)? {
                    flush.todo.push_back(id);
                }
            }
        }
        self.add_flush(flush);
        Ok(Served::Pending)
    }

    fn is_flush_due(&mut self, id: FileId, after_ms: u64) -> Outcome<bool> {
        let now_ms = self.elapsed_ms();
        // What an earlier daemon left counts from now on.
        let changed_ms = *self.tier.policy.changed_ms.entry(id).or_insert(now_ms);
        if now_ms.saturating_sub(changed_ms) < after_ms {
            return Ok(false);
        }
        let Some(birth) = self.tier.dirty.get(&id).cloned() else { return Ok(false) };
        let inode = match self.load_birth(id, &birth) {
            Ok(located) => located.inode,
            Err(Fault::Errno(Errno::ENOENT)) => return Ok(false),
            Err(fault) => return Err(fault),
        };
        if !inode.unsettled {
            return Ok(true);
        }
        let mtime = self.attr_of(&inode)?.mtime;
        let age_ms = milliseconds(self.now).saturating_sub(milliseconds(mtime));
        // A time in the future says nothing.
        Ok(age_ms < 0 || age_ms.unsigned_abs() >= after_ms)
    }
}
