//! Bytes and names that are fetched before anybody wants them.
//!
//! Such a request passes the gates that a read passes, so it waits for the same items as whoever
//! reads meanwhile, and the keeper is given them when there is nothing else to do. Whoever asks
//! goes through directories by itself, and has as many requests under way as it wants fetched at a
//! time.

use mayfly_types::{FileId, FileKind};
use mayfly_wire::{TierTold, WALK_EMPTY, Walk, Wire, Writer};

use crate::{
    fault::{Outcome, Served},
    namespace::state::inode::Located,
    shard::Shard,
};

impl Shard {
    /// What a path of the instance names, from its root. A symbolic link is meant itself.
    pub(crate) fn find_from_root(&mut self, path: &[u8]) -> Outcome<Located> {
        self.find(&Walk { start: FileId::ROOT, path, flags: WALK_EMPTY })
    }

    /// The bytes of a file are here, or the names of a directory; with `pins` they stay.
    pub(crate) fn prefetch(
        &mut self,
        path: &[u8],
        pins: bool,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let located = self.find_from_root(path)?;
        let inode = &located.inode;
        self.file_at_hand(inode)?;
        let is_directory = inode.kind() == FileKind::Directory;
        if is_directory {
            self.names_at_hand(inode.id)?;
        }
        self.bytes_at_hand(inode)?;
        let has_bytes = inode.kind() == FileKind::Regular && inode.origin.is_some();
        if pins && has_bytes {
            self.pin(&located)?;
        }
        let told = TierTold {
            flushed: u64::from(self.run.outside.has_fetched()),
            failed: 0,
            conflicts: 0,
            left: u64::from(!has_bytes && !is_directory),
            bytes: if has_bytes { located.inode.size_bytes } else { 0 },
            is_directory,
            sources: b"",
            notes: b"",
        };
        told.encode(to)?;
        Ok(Served::Replied)
    }
}
