//! What [`crate::namespace::removed`] keeps and works with.

use std::collections::VecDeque;

use mayfly_meta::record::Inode;
use mayfly_types::FileId;

use crate::maps::HashMap;

/// Removed directories that are remembered; about 200 bytes each.
pub(crate) const REMOVED_MAX: usize = 16_384;

/// The latest ones.
#[derive(Default)]
pub(crate) struct Removed {
    pub(crate) inodes: HashMap<FileId, Inode>,
    /// Oldest first; may name some that are not remembered any more.
    pub(crate) order: VecDeque<FileId>,
}

impl Removed {
    pub(crate) fn insert(&mut self, inode: Inode) {
        if self.order.len() >= REMOVED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.inodes.remove(&oldest);
        }
        self.order.push_back(inode.id);
        self.inodes.insert(inode.id, inode);
    }

    /// Mostly there is none, and then it is not looked for.
    pub(crate) fn get(&self, id: FileId) -> Option<&Inode> {
        if self.inodes.is_empty() { None } else { self.inodes.get(&id) }
    }
}
