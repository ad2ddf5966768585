//! Bytes that go since there is not enough space: those that can be fetched again.
//!
//! Before a request is served, when nothing of it is under way, the shard looks whether there is
//! room for what it may take, and a reserve. If not, clean files give up their objects, those first
//! that were read longest ago: by a request, or by a lease or a mapping when somebody last looked
//! for room. Nothing dirty goes, nothing pinned, nothing that somebody has open, reads by a lease
//! or may have mapped, and nothing that is being fetched or flushed. When that is not enough, dirty
//! files are flushed, so that they can go next, and who needs their space waits for that.

use std::collections::VecDeque;

use mayfly_meta::{
    Scan, key,
    record::{Content, Dentry, Inode, Origin},
};
use mayfly_types::{
    FileId, FileKind,
    limits::{TIER_FLUSHES_MAX, TIER_RESERVE_SHARE},
};
use mayfly_wire::{GRANT_WRITE, Request};

use crate::{
    api::Caller,
    fault::{Fault, Outcome},
    log,
    namespace::state::inode::Located,
    shard::Shard,
    shards::planted::{Planted, is_planted},
    tier::{
        gates::{is_absent, is_by_chunks, is_partly_here, master_of},
        state::{table::Flush, wanted::At},
    },
};

/// When nothing could go, so long nobody looks again, milliseconds, unless something has changed.
const PAUSE_MS: u64 = 100;

/// A file whose bytes may go.
struct Candidate {
    used_ms: u64,
    file: FileId,
    at: At,
}

/// Whether bytes of the file may be here that can be fetched again.
fn is_clean(inode: &Inode) -> bool {
    let Some(origin) = inode.origin.filter(|_| inode.links > 0) else { return false };
    let has_object = matches!(inode.content, Content::Object(_)) && origin.resident;
    let has_chunks = is_by_chunks(inode) && inode.generation > 0;
    inode.kind() == FileKind::Regular
        && (!origin.dirty || is_planted(Planted::EvictsDirty) && !is_partly_here(inode))
        && !inode.unsettled
        && (has_object || has_chunks)
}

impl Shard {
    /// Space that is kept free, bytes.
    fn reserve_bytes(&self) -> u64 {
        self.config.capacity_bytes / TIER_RESERVE_SHARE
    }

    /// How much a request may take, bytes.
    fn bytes_wanted_by(&mut self, request: &Request<'_>) -> u64 {
        match request {
            Request::Write(write) => write.bytes.len() as u64,
            Request::Allocate(allocate) => allocate.bytes,
            Request::Grant(grant) if grant.want & GRANT_WRITE != 0 => {
                let open = self.files.opens.get(grant.open).map(|open| open.id);
                let inode = open.and_then(|id| self.load_open(id).map_err(|fault| fault.errno()));
                let has = inode.map_or(0, |located| located.inode.size_bytes);
                grant.end.saturating_sub(has)
            }
            _ => 0,
        }
    }

    /// Makes room for a request, as far as something can go. Nothing of it was begun.
    pub(crate) fn make_room(&mut self, request: &Request<'_>) {
        if !self.has_tier() || self.elapsed_ms() < self.tier.policy.evict_again_ms {
            return;
        }
        let wants = self.bytes_wanted_by(request);
        if self.free_bytes() >= wants.saturating_add(self.reserve_bytes()) {
            return;
        }
        self.make_room_for(wants);
    }

    /// Whether a request has to wait until what is dirty was flushed and can go.
    pub(crate) fn waits_for_room(&mut self, request: &Request<'_>) -> bool {
        if !self.has_tier() {
            return false;
        }
        let wants = self.bytes_wanted_by(request);
        wants > 0 && self.free_bytes() < wants && self.tier.may_have_room_later()
    }

    /// The same before something is fetched.
    pub(crate) fn make_room_for(&mut self, bytes: u64) {
        let wanted = bytes.saturating_add(self.reserve_bytes());
        if self.free_bytes() >= wanted {
            return;
        }
        // More than that, so that it is not done each time.
        let evicted = self.evict(&[], wanted.saturating_add(self.reserve_bytes()));
        if let Err(fault) = &evicted {
            log::warn("tier", format_args!("nothing can go: {}", fault.errno()));
        }
        if self.free_bytes() < wanted {
            self.tier.policy.evict_again_ms = self.elapsed_ms() + PAUSE_MS;
            self.flush_early();
        }
    }

    /// A read has ended.
    pub(crate) fn read_ended(&mut self, caller: Caller) {
        if !self.tier.filling.reads.is_empty() {
            self.tier.filling.reads.retain(|(other, _)| *other != caller);
            self.may_have_room();
        }
    }

    /// What was in use may go now.
    pub(crate) fn may_have_room(&mut self) {
        if std::mem::take(&mut self.tier.filling.is_awaited) {
            self.tier.policy.evict_again_ms = 0;
            self.wake_blocked();
        }
    }

    /// Whether there is room for a fetch. What open files have set aside that are not at hand, or
    /// other shards', cannot be waited for here: the request is being put aside already.
    pub(crate) fn has_room_to_fetch(&mut self, bytes: u64) -> Outcome<bool> {
        match self.find_room(bytes.max(1)) {
            Err(Fault::Ask(_) | Fault::Prepare(_)) => Ok(false),
            found => Ok(found? && self.store.has_room()),
        }
    }

    /// Takes the bytes away of clean files at or below a path, until so much is free; how many.
    pub(crate) fn evict(&mut self, path: &[Vec<u8>], free_bytes: u64) -> Outcome<u64> {
        self.tier.filling.held_up = false;
        let mut candidates = self.candidates()?;
        candidates.sort_unstable_by_key(|of| (of.used_ms, of.file));
        let mut evicted = 0;
        for Candidate { file, at, .. } in candidates {
            if self.free_bytes() >= free_bytes {
                break;
            }
            if !path.is_empty() {
                let names = self.names_from_root(&at)?;
                if !names.starts_with(path) {
                    continue;
                }
            }
            evicted += u64::from(self.evict_one(file, &at)?);
            self.commit_now_and_then()?;
        }
        Ok(evicted)
    }

    fn candidates(&mut self) -> Outcome<Vec<Candidate>> {
        let mut clean = Vec::new();
        let mut take = |inode: &Inode, at: Option<At>| {
            if !is_clean(inode) {
                return;
            }
            let moved = || master_of(inode).ok().map(|master| (master.parent, master.name));
            if let Some(at) = at.or_else(moved) {
                clean.push(Candidate { used_ms: 0, file: inode.id, at });
            }
        };
        self.store.scan(&[key::DENTRY], &[key::DENTRY], &mut |key, record| {
            if let (Some((directory, _, name)), Ok(Dentry::Fused(inode))) =
                (key::split_dentry(key), Dentry::decode(record))
            {
                take(&inode, Some((directory, name.to_vec())));
            }
            Scan::More
        })?;
        self.store.scan(&[key::INODE], &[key::INODE], &mut |_, record| {
            if let Ok(inode) = Inode::decode_own(record) {
                take(&inode, None);
            }
            Scan::More
        })?;
        clean.retain(|of| !self.tier.policy.pinned.contains_key(&of.file));
        for of in &mut clean {
            // One that nobody has read yet was fetched for somebody.
            let seen = || self.tier.files.get(&of.file);
            let used = self.tier.policy.used.get(&of.file).or_else(seen);
            of.used_ms = used.copied().unwrap_or(0);
        }
        Ok(clean)
    }

    /// Takes the bytes of a file away, if nobody uses them.
    fn evict_one(&mut self, file: FileId, at: &At) -> Outcome<bool> {
        let located = self.load_cached(file, at)?;
        if self.tier.busy.contains_key(at) || !is_clean(&located.inode) {
            return Ok(false);
        }
        let is_fetched = self.tier.chunk_items.contains_key(&file);
        // What is read by chunks is read by requests, however many have it open.
        if is_absent(&located.inode) {
            if is_fetched || self.tier.filling.is_being_read(file) {
                self.tier.filling.held_up = true;
                return Ok(false);
            }
        } else if is_fetched || self.is_in_use(&located.inode)? {
            let now_ms = self.elapsed_ms();
            self.tier.use_file(file, now_ms);
            return Ok(false);
        }
        let source = located.inode.origin.map_or(u32::MAX, |origin| origin.source);
        let had_bytes = self.tier.sources.get(source as usize).map_or(0, |of| of.cached_bytes);
        let gone = self.take_bytes_away(located)?;
        if gone {
            let has = self.tier.sources.get(source as usize).map_or(0, |of| of.cached_bytes);
            self.count(source, |counts| {
                counts.evictions += 1;
                counts.evicted_bytes += had_bytes.saturating_sub(has);
            });
        }
        Ok(gone)
    }

    fn take_bytes_away(&mut self, mut located: Located) -> Outcome<bool> {
        if is_absent(&located.inode) {
            let had = self.free_bytes();
            self.drop_chunks(&located.inode)?;
            return Ok(self.free_bytes() > had);
        }
        self.doom_object(&located.inode)?;
        let inode = &mut located.inode;
        inode.content = Content::Inline(Vec::new());
        inode.blocks = 0;
        let origin = inode.origin.map(|origin| Origin { resident: false, ..origin });
        self.set_origin(&mut located.inode, origin);
        self.save(&located)?;
        Ok(true)
    }

    /// Begins to write back what is dirty, so that it can go.
    fn flush_early(&mut self) {
        if self.tier.dirty.is_empty()
            || self.tier.is_making_room()
            || self.elapsed_ms() < self.tier.policy.flush_again_ms
        {
            return;
        }
        let todo: VecDeque<FileId> =
            self.tier.dirty.keys().take(TIER_FLUSHES_MAX).copied().collect();
        self.add_flush(Flush { todo, ..Flush::default() });
    }
}
