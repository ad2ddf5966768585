//! How far files may be written without asking.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_meta::record::Inode;
use mayfly_types::{Errno, FileId};
use mayfly_wire::{Granted, OwnPart, Wire, Writer};

use crate::{
    fault::{Outcome, Served},
    files::{
        data::BLOCK_BYTES,
        state::data::{generous, object_of},
    },
    shard::Shard,
};

impl Shard {
    /// No leave to use an object.
    pub(super) fn grant_nothing(&self, file: FileId, to: &mut Writer<'_>) -> Outcome<Served> {
        let entry = self.files.opens.entry(file);
        let generation = entry.map_or(0, |entry| entry.grant_generation.load(Relaxed));
        Granted { object_path: b"", generation, own: OwnPart::WHOLE }.encode(to)?;
        Ok(Served::Replied)
    }

    /// Free space as it would be if this file had nothing set aside.
    fn room_for(&self, inode: &Inode) -> u64 {
        let charged = self.files.opens.file(inode.id).map_or(0, |file| file.charged_bytes);
        let settled = if inode.unsettled { 0 } else { inode.blocks * BLOCK_BYTES };
        (self.free_bytes() + charged + settled).saturating_sub(self.kept_for_names())
    }

    /// How far a file may be written directly, so that `end` is covered; `None` when the space is
    /// not there.
    pub(super) fn allowance(&mut self, inode: &Inode, end: u64) -> Outcome<Option<u64>> {
        let had = self.files.opens.file(inode.id).ok_or(Errno::EBADF)?.allowance_end;
        if inode.unsettled && end <= had {
            return Ok(Some(had));
        }
        if object_of(inode).is_none() {
            self.check_room()?;
        }
        if end > self.config.home_bytes_max {
            return Ok(None);
        }
        let base = end.max(self.size_of(inode)?).max(had);
        let mut room = self.room_for(inode);
        if room < base {
            self.reclaim()?;
            if self.room_for(inode) < base && !self.place.alone {
                self.reclaim_elsewhere()?;
            }
            room = self.room_for(inode);
        }
        Ok(generous(base, room, self.grant_end_max(inode)))
    }

    pub(crate) fn allow(&mut self, id: FileId, allowance: u64) {
        let had = self.files.opens.file(id).map_or(0, |file| file.allowance_end);
        if allowance <= had {
            return;
        }
        self.charge(id, allowance);
        self.keep_free(0);
        self.files.opens.set_allowance(id, allowance);
        if let Some(file) = self.files.opens.file_mut(id) {
            file.trimmed = false;
        }
    }
}
