//! Bytes and names that are fetched before anybody wants them.
//!
//! Such a request passes the gates that a read passes, so it waits for the same items as whoever
//! reads meanwhile, and the keeper is given them when there is nothing else to do. Whoever asks
//! goes through directories by itself, and has as many requests under way as it wants fetched at a
//! time.
//!
//! A file that is pinned stays here once it is fetched. A mark says so durably. A pin belongs to
//! the file: it moves with it and goes with its last name. When the master copy is another one, the
//! bytes go as always, and the next read fetches them; they stay from then on.

use mayfly_meta::{key, record::BirthKey};
use mayfly_types::{Errno, FileId, FileKind, limits::TIER_PINS_MAX};
use mayfly_wire::{TierTold, WALK_EMPTY, Walk, Wire, Writer};

use crate::{
    fault::{Outcome, Served},
    namespace::state::inode::Located,
    shard::{OpenError, Shard},
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

    /// The file, all of which is here, stays.
    pub(crate) fn pin(&mut self, located: &Located) -> Outcome<()> {
        let id = located.inode.id;
        if self.tier.policy.pinned.contains_key(&id) {
            return Ok(());
        }
        if self.tier.policy.pinned.len() >= TIER_PINS_MAX {
            return Err(Errno::ENOSPC.into());
        }
        let birth = located.birth();
        self.store.put(&key::numbered(key::PINNED, id), &birth.encode())?;
        self.tier.policy.pinned.insert(id, birth);
        Ok(())
    }

    /// What is pinned at or below a path may go again; how many files.
    pub(crate) fn unpin(&mut self, path: &[u8]) -> Outcome<u64> {
        let pinned: Vec<(FileId, BirthKey)> =
            self.tier.policy.pinned.iter().map(|(id, birth)| (*id, birth.clone())).collect();
        let mut unpinned = 0;
        for (id, birth) in pinned {
            // One that cannot be reached now is not below a path.
            let is_meant =
                path.is_empty() || self.is_at_or_below(id, &birth, path).unwrap_or(false);
            if is_meant {
                self.forget_pin(id)?;
                unpinned += 1;
                self.commit_now_and_then()?;
            }
        }
        Ok(unpinned)
    }

    pub(crate) fn forget_pin(&mut self, id: FileId) -> Outcome<()> {
        if self.tier.policy.pinned.remove(&id).is_some() {
            self.store.delete(&key::numbered(key::PINNED, id))?;
        }
        Ok(())
    }

    pub(crate) fn take_up_pins(&mut self) -> Result<(), OpenError> {
        for (id, record) in self.marks(key::PINNED)? {
            self.tier.policy.pinned.insert(id, BirthKey::decode(&record)?);
        }
        Ok(())
    }
}
