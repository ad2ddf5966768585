//! Taking up the tables of an earlier daemon, whose image processes can write to.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mayfly_meta::record::BirthKey;
use mayfly_transport_shm::{
    file_leases::is_leased,
    layout::{FILE_STRIPED, FileEntry, OPEN_BEHIND, OPEN_FREE, OPEN_PROMISED, OPEN_SHARED},
};
use mayfly_types::{FileId, FileKind, OpenRef, SessionId, limits::NAME_BYTES_MAX};

use crate::{
    api::Caller,
    files::descriptions::{
        Elsewhere, Found, LANE_MASK, Open, OpenFile, OpenTable, SHARD_SHIFT, new_file,
    },
    shards::{numbering::node_of_owner, slots::ShardId},
};

impl OpenTable {
    /// Every entry of the region that looks right; the rest is freed.
    ///
    /// Entries are taken from the lowest one up, so the first that was never used ends the search:
    /// the pages of an unused table stay untouched.
    ///
    /// What was promised or leased, or is `awaited` because it will be made once more, is left as
    /// it is.
    pub(crate) fn survey(&mut self, awaited: &[OpenRef]) -> Vec<Found> {
        let mut found = Vec::new();
        let share = self.share;
        for index in (0..share.opens_max as usize).map(|own| share.nodes(own)) {
            let entry = &self.node.opens[index as usize];
            let free = entry.state.load(Acquire) == OPEN_FREE;
            if free && entry.generation.load(Relaxed) == 0 {
                break;
            }
            self.opens.push(None);
            let open = OpenRef { index, generation: entry.generation.load(Relaxed) };
            let state = entry.state.load(Relaxed);
            if state == OPEN_PROMISED || is_leased(state) || awaited.contains(&open) {
                self.reserved.push(index);
                continue;
            }
            match self.read_entry(index) {
                _ if free => {}
                Some(entry) => found.push(entry),
                None => self.clear_entry(index),
            }
        }
        let never_used = |entry: &FileEntry| {
            entry.id.load(Relaxed) == 0 && entry.grant_generation.load(Relaxed) == 0
        };
        let files = share.files_max as usize;
        let unused = |own: &usize| never_used(&self.node.files[share.nodes(*own) as usize]);
        self.entries.used = vec![false; (0..files).find(unused).unwrap_or(files)];
        found
    }

    /// The request that made an entry, as the region has it.
    pub(crate) fn made_by(&self, index: u32) -> Caller {
        let entry = &self.node.opens[index as usize];
        let session = SessionId(entry.session.load(Relaxed));
        // The owner is a node; whose process it was stands beside it.
        let of_node = node_of_owner(session).is_some();
        let process = if of_node { SessionId(entry.reserved[3].load(Relaxed)) } else { session };
        let lane = entry.reserved[2].load(Relaxed) & LANE_MASK;
        let request_id = u64::from(entry.reserved[0].load(Relaxed))
            | u64::from(entry.reserved[1].load(Relaxed)) << 32;
        Caller { session: process, lane, request_id }
    }

    fn read_entry(&self, index: u32) -> Option<Found> {
        let entry = &self.node.opens[index as usize];
        let file = entry.file.load(Relaxed);
        let id = FileId(entry.id.load(Relaxed));
        let file_entry = self.node.files.get(file as usize)?;
        if id == FileId::NONE || file_entry.id.load(Relaxed) != id.0 {
            return None;
        }
        let key = &self.node.keys[file as usize];
        let name_bytes = key.name_bytes.load(Relaxed) as usize;
        if name_bytes > NAME_BYTES_MAX {
            return None;
        }
        let mut name: Vec<u8> =
            key.name.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        name.truncate(name_bytes);
        let kind = u8::try_from(entry.kind.load(Relaxed)).ok().and_then(FileKind::from_raw)?;
        let session = SessionId(entry.session.load(Relaxed));
        let word = entry.reserved[2].load(Relaxed);
        let (other, remote_generation) =
            (entry.reserved[3].load(Relaxed), entry.reserved[4].load(Relaxed));
        let remote = (word >> SHARD_SHIFT).checked_sub(1).map(|shard| Elsewhere {
            shard: ShardId(shard),
            open: OpenRef { index: other, generation: remote_generation },
        });
        let flags = entry.flags.load(Relaxed);
        Some(Found {
            index,
            open: Open {
                generation: entry.generation.load(Relaxed),
                session,
                id,
                flags: flags & !OPEN_BEHIND,
                remote,
                taken_up: true,
            },
            shared: entry.state.load(Relaxed) == OPEN_SHARED,
            behind: flags & OPEN_BEHIND != 0,
            kind,
            file,
            birth: BirthKey { directory: FileId(key.directory.load(Relaxed)), name },
            allowance_end: file_entry.allowance_end.load(Relaxed),
            made_by: self.made_by(index),
        })
    }

    /// Takes over an entry of the region; false when it contradicts another one.
    pub(crate) fn adopt(&mut self, found: &Found) -> bool {
        let taken = self.share.own(found.file).and_then(|own| self.entries.used.get(own).copied());
        let Some(taken) = taken else { return false };
        match self.files.get(&found.open.id) {
            Some(file) if file.index != found.file => return false,
            None if taken => return false,
            _ => {}
        }
        self.admit(found.index, found.open, |files| {
            files.mark(found.file, true);
            let allowance_end = found.allowance_end;
            let file = new_file(found.file, found.birth.clone());
            OpenFile { allowance_end, leave_to_write: true, ..file }
        });
        true
    }

    /// Frees an entry that was not adopted.
    pub(crate) fn discard(&self, found: &Found) {
        self.clear_entry(found.index);
    }

    /// After the adoptions: what nobody uses is free.
    pub(crate) fn finish_survey(&mut self) {
        let share = self.share;
        let reserved = &self.reserved;
        let free = |(own, open): (usize, &Option<Open>)| {
            let index = share.nodes(own);
            (open.is_none() && reserved.binary_search(&index).is_err()).then_some(index)
        };
        self.free_opens = self.opens.iter().enumerate().filter_map(free).collect();
        let free = |(own, used): (usize, &bool)| (!used).then_some(share.nodes(own));
        self.entries.free = self.entries.used.iter().enumerate().filter_map(free).collect();
        for index in &self.entries.free {
            let entry = &self.node.files[*index as usize];
            if entry.id.swap(0, Release) != 0 {
                entry.grant_generation.fetch_add(1, Release);
            }
        }
        self.void_parts();
    }

    /// Nobody uses a part of a striped file with the leave of an earlier daemon.
    fn void_parts(&self) {
        let used = self.entries.used.iter().enumerate().filter(|(_, used)| **used);
        for index in used.map(|(own, _)| self.share.nodes(own)) {
            let entry = &self.node.files[index as usize];
            if entry.flags.fetch_and(!FILE_STRIPED, Release) & FILE_STRIPED != 0 {
                entry.grant_generation.fetch_add(1, Release);
                entry.allowance_end.store(0, Release);
            }
        }
    }
}
