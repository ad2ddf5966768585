//! What people are told of the tier, and ask of it.

use mayfly_meta::record::BirthKey;
use mayfly_types::{Errno, FileId, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{
    TierAsk, TierTold, Writer,
    tier::{
        TIER_EVICT, TIER_FLUSH_DUE, TIER_FLUSH_LAST, TIER_FLUSH_NOW, TIER_MAY_UNLINK, TIER_PIN,
        TIER_PREFETCH, TIER_STATUS, TIER_UNLINK, TIER_UNPIN, TierNote, TierSource, pack,
    },
};

use crate::{
    api::Caller,
    fault::{Outcome, Served},
    files::state::background::encoded,
    shard::Shard,
    tier::state::{
        item::Work,
        table::Flush,
        wanted::{At, Wanted},
    },
};

/// The names of a path.
fn names_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

impl Shard {
    pub(crate) fn tier_ask(
        &mut self,
        caller: Caller,
        ask: &TierAsk<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let last = ask.what == TIER_FLUSH_LAST;
        let mut flush = Flush { caller: Some(caller), last, ..Flush::default() };
        match ask.what {
            TIER_STATUS => {
                to.put(&self.tier_report(&flush)?)?;
                return Ok(Served::Replied);
            }
            TIER_EVICT => {
                let path: Vec<Vec<u8>> = names_of(ask.path).map(<[u8]>::to_vec).collect();
                flush.flushed = self.evict(&path, u64::MAX)?;
                to.put(&self.tier_report(&flush)?)?;
                return Ok(Served::Replied);
            }
            TIER_PREFETCH | TIER_PIN => {
                return self.prefetch(ask.path, ask.what == TIER_PIN, to);
            }
            TIER_UNPIN => {
                flush.flushed = self.unpin(ask.path)?;
                to.put(&self.tier_report(&flush)?)?;
                return Ok(Served::Replied);
            }
            TIER_UNLINK | TIER_MAY_UNLINK => {
                let told = self.unlink_origin(ask.path, ask.what == TIER_UNLINK)?;
                to.put(&self.tier_report(&told)?)?;
                return Ok(Served::Replied);
            }
            TIER_FLUSH_DUE => return self.flush_due(caller),
            TIER_FLUSH_NOW | TIER_FLUSH_LAST => {}
            _ => return Err(Errno::EINVAL.into()),
        }
        let dirty: Vec<_> =
            self.tier.dirty.iter().map(|(id, birth)| (*id, birth.clone())).collect();
        for (file, birth) in dirty {
            if self.is_at_or_below(file, &birth, ask.path)? {
                flush.todo.push_back(file);
            }
        }
        self.retry_entries()?;
        self.add_flush(flush);
        Ok(Served::Pending)
    }

    /// Whether a file of an origin is what a path of the instance names, or is below it.
    pub(crate) fn is_at_or_below(
        &mut self,
        file: FileId,
        birth: &BirthKey,
        path: &[u8],
    ) -> Outcome<bool> {
        let wanted: Vec<&[u8]> = names_of(path).collect();
        if wanted.is_empty() {
            return Ok(true);
        }
        let inode = self.load_birth(file, birth)?.inode;
        let names = self.names_from_root(&self.place_at_origin(&inode)?)?;
        Ok(names.len() >= wanted.len() && names.iter().zip(&wanted).all(|(name, to)| name == to))
    }

    pub(crate) fn names_from_root(&mut self, at: &At) -> Outcome<Vec<Vec<u8>>> {
        let (mut directory, mut names) = (at.0, vec![at.1.clone()]);
        while directory != FileId::ROOT {
            // What leads there is another shard's, and stays as it was named in the beginning.
            if !self.place.alone
                && let Some(root) = self.tier.roots.get(directory)
                && let Some(source) = self.tier.sources.get(root.source as usize)
            {
                names.retain(|name| !name.is_empty());
                names.reverse();
                let above = names_of(&source.inside).chain(names_of(&root.path));
                return Ok(above.map(<[u8]>::to_vec).chain(names).collect());
            }
            let located = self.load_own(directory)?;
            let node = located.directory()?;
            names.push(node.name.clone());
            directory = node.parent;
        }
        names.reverse();
        Ok(names)
    }

    fn add_dirty_and_pinned(&mut self, sources: &mut [TierSource]) {
        let dirty: Vec<_> =
            self.tier.dirty.iter().map(|(id, birth)| (*id, birth.clone())).collect();
        for (id, birth) in dirty {
            let Ok(located) = self.load_birth(id, &birth) else { continue };
            let size_bytes = self.size_of(&located.inode).unwrap_or(located.inode.size_bytes);
            let source = located.inode.origin.map_or(u32::MAX, |origin| origin.source);
            if let Some(source) = sources.get_mut(source as usize) {
                source.dirty_files += 1;
                source.dirty_bytes += size_bytes;
            }
        }
        let pinned: Vec<_> =
            self.tier.policy.pinned.iter().map(|(id, birth)| (*id, birth.clone())).collect();
        for (id, birth) in pinned {
            let Ok(located) = self.load_birth(id, &birth) else { continue };
            let source = located.inode.origin.map_or(u32::MAX, |origin| origin.source);
            if let Some(source) = sources.get_mut(source as usize) {
                source.pinned_files += 1;
                source.pinned_bytes += located.inode.size_bytes;
            }
        }
    }

    /// How things are, and what a flush has come to.
    pub(crate) fn tier_report(&mut self, flush: &Flush) -> Result<Vec<u8>, Errno> {
        let mut sources: Vec<TierSource> = (0..)
            .zip(&self.tier.sources)
            .map(|(source, of)| TierSource {
                source,
                files: of.files,
                cached_bytes: of.cached_bytes,
                dirty_files: 0,
                dirty_bytes: 0,
                fetching: 0,
                conflicts: of.conflicts,
                errors: of.errors,
                names_waiting: 0,
                names_failed: 0,
                pinned_files: 0,
                pinned_bytes: 0,
                counts: of.counts,
            })
            .collect();
        self.add_dirty_and_pinned(&mut sources);
        for entry in self.tier.journal.entries.values() {
            let Some(source) = sources.get_mut(entry.source as usize) else { continue };
            match entry.failed {
                Some(_) => source.names_failed += 1,
                None => source.names_waiting += 1,
            }
        }
        let fetches = self.tier.items.values().filter_map(|item| match &item.work {
            Work::Wanted(Wanted::Fetch(_, at) | Wanted::Chunks(_, at, _)) => Some(at.clone()),
            _ => None,
        });
        for at in fetches.collect::<Vec<_>>() {
            if let Ok((source, _)) = self.path_at_origin(&at)
                && let Some(source) = sources.get_mut(source as usize)
            {
                source.fetching += 1;
            }
        }
        let (mut packed, mut used) = (vec![0; TRANSFER_BYTES_MAX / 4], 0);
        let is_shown = |of: &&TierSource| {
            self.tier.sources.get(of.source as usize).is_some_and(|source| !source.is_gone)
        };
        for source in sources.iter().filter(is_shown) {
            used = pack(source, &mut packed, used).ok_or(Errno::EOVERFLOW)?;
        }
        let (mut notes, mut noted) = (vec![0; TRANSFER_BYTES_MAX / 2], 0);
        // The latest ones first, as many as there is room for.
        for note in self.tier.notes.latest.iter().rev() {
            let (path, copy) = (&note.path[..], &note.copy[..]);
            let note = TierNote { source: note.source, errno: note.errno, path, copy };
            let Some(end) = pack(&note, &mut notes, noted) else { break };
            noted = end;
        }
        let told = TierTold {
            flushed: flush.flushed,
            failed: flush.failed,
            conflicts: flush.conflicts,
            left: flush.left,
            bytes: 0,
            is_directory: false,
            sources: &packed[..used],
            notes: &notes[..noted],
        };
        encoded(used + noted, &told)
    }
}
