//! Files that stay here once they are fetched.
//!
//! A mark says so durably. A pin belongs to the file: it moves with it and goes with its last name.
//! When the master copy is another one, the bytes go as always, and the next read fetches them;
//! they stay from then on.

use mayfly_meta::key;
use mayfly_types::{Errno, FileId, limits::TIER_PINS_MAX};

use crate::{
    fault::Outcome,
    namespace::state::inode::Located,
    shard::{OpenError, Shard},
};
use mayfly_meta::record::BirthKey;

impl Shard {
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
