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
    tier::state::wanted::Wanted,
};

impl Shard {
    /// What a path of the instance names, from its root. A symbolic link is meant itself.
    pub(crate) fn find_from_root(&mut self, path: &[u8]) -> Outcome<Located> {
        self.find(&Walk { start: FileId::ROOT, path, flags: WALK_EMPTY })
    }

    /// The bytes of a file are here, or the names of a directory.
    pub(crate) fn prefetch(&mut self, path: &[u8], to: &mut Writer<'_>) -> Outcome<Served> {
        let inode = self.find_from_root(path)?.inode;
        self.file_at_hand(&inode)?;
        let is_directory = inode.kind() == FileKind::Directory;
        if is_directory {
            self.names_at_hand(inode.id)?;
        }
        self.bytes_at_hand(&inode)?;
        let is_fetch = |wanted: &Wanted| matches!(wanted, Wanted::Fetch(..) | Wanted::Chunks(..));
        let fetched = self.run.outside.done.iter().any(|(wanted, _)| is_fetch(wanted));
        let has_bytes = inode.kind() == FileKind::Regular && inode.origin.is_some();
        let told = TierTold {
            flushed: u64::from(fetched),
            failed: 0,
            conflicts: 0,
            left: 0,
            bytes: if has_bytes { inode.size_bytes } else { 0 },
            is_directory,
            sources: b"",
            notes: b"",
        };
        told.encode(to)?;
        Ok(Served::Replied)
    }
}
