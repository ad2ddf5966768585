//! Steps of a dentry's owner: what a name stands for.
//!
//! The key of a dentry says whose step it is; with several shards each of these functions is what a
//! message to that shard asks for. Inodes that are fused into their dentry are handed over whole.

use std::sync::Arc;

use mayfly_meta::{
    Scan, key,
    record::{BirthKey, Content, Dentry},
};
use mayfly_types::{Errno, FileId, FileKind};

use super::{Core, Outcome, home::Located};
use crate::cache::Cached;

impl Core {
    /// What the name stands for, without its inode.
    pub(super) fn lookup(
        &mut self,
        directory: FileId,
        name: &[u8],
    ) -> Outcome<Option<(FileId, FileKind)>> {
        match self.cache.get(directory, name) {
            Some(Cached::Directory(id)) => return Ok(Some((id, FileKind::Directory))),
            Some(Cached::Symlink(id, _)) => return Ok(Some((id, FileKind::Symlink))),
            None => {}
        }
        let Some(record) = self.store.get(&key::dentry(directory, name))? else { return Ok(None) };
        let (id, kind) = Dentry::peek(record)?;
        if kind == FileKind::Directory {
            self.cache.insert(directory, name, Cached::Directory(id));
        } else if let Dentry::Fused(inode) = Dentry::decode(record)? {
            let birth = BirthKey { directory, name: name.to_vec() };
            self.looked_up = Some(Located { inode: *inode, fused: Some(birth) });
        }
        Ok(Some((id, kind)))
    }

    /// Target of a link found under this name.
    pub(super) fn link_target(
        &mut self,
        directory: FileId,
        name: &[u8],
        id: FileId,
    ) -> Outcome<Arc<[u8]>> {
        if let Some(Cached::Symlink(_, target)) = self.cache.get(directory, name) {
            return Ok(target);
        }
        let located = self.load_at(id, directory, name)?;
        let Content::Symlink(target) = located.inode.content else {
            return Err(Errno::EIO.into());
        };
        let target: Arc<[u8]> = target.into();
        self.cache.insert(directory, name, Cached::Symlink(id, Arc::clone(&target)));
        Ok(target)
    }

    /// Adds or replaces a name.
    pub(super) fn put_dentry(
        &mut self,
        directory: FileId,
        name: &[u8],
        dentry: &Dentry,
    ) -> Outcome<()> {
        self.cache.forget(directory, name);
        self.looked_up = None;
        Ok(self.store.put(&key::dentry(directory, name), &dentry.encode())?)
    }

    /// Removes a name.
    pub(super) fn delete_dentry(&mut self, directory: FileId, name: &[u8]) -> Outcome<()> {
        self.cache.forget(directory, name);
        self.looked_up = None;
        self.store.delete(&key::dentry(directory, name))?;
        Ok(())
    }

    /// Whether the directory has no entries.
    pub(super) fn is_empty(&mut self, directory: FileId) -> Outcome<bool> {
        let prefix = key::directory(directory);
        let mut empty = true;
        self.store.scan(&prefix, &prefix, &mut |_, _| {
            empty = false;
            Scan::Enough
        })?;
        Ok(empty)
    }
}
