//! Steps of a dentry's owner: what a name stands for.
//!
//! The key of a dentry says whose step it is. What a name stands for is asked of its owner when it
//! is another shard; changing a name elsewhere is a step of an operation (`operation.rs`).

use std::sync::Arc;

use mayfly_meta::{
    Scan, key,
    record::{BirthKey, Content, Dentry},
};
use mayfly_types::{Errno, FileId, FileKind};

use super::{Core, Fault, Outcome, home::Located, member::unexpected};
use crate::{
    cache::Cached,
    message::{Answer, Question},
};

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
        let owner = self.slots.dentry_owner(directory, name);
        if !self.alone && owner != self.shard {
            let question = Question::Lookup { directory, name: name.to_vec() };
            return match self.fact(owner, question)? {
                Answer::Found { file, .. } => Ok(file),
                answer => Err(unexpected(&answer)),
            };
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
        if !self.is_home(id) {
            return self.distant_target(directory, name, id);
        }
        let located = match self.load_at(id, directory, name) {
            Err(Fault::Errno(Errno::ENOENT)) if !self.alone => return Err(Fault::Again),
            other => other?,
        };
        let Content::Symlink(target) = located.inode.content else {
            return Err(Errno::EIO.into());
        };
        let target: Arc<[u8]> = target.into();
        self.cache_link(directory, name, id, &target);
        Ok(target)
    }

    fn distant_target(&mut self, directory: FileId, name: &[u8], id: FileId) -> Outcome<Arc<[u8]>> {
        let birth = BirthKey { directory, name: name.to_vec() };
        match self.fact(self.slots.home(id), Question::LinkTarget { id, birth })? {
            Answer::LinkTarget(target) => {
                let target: Arc<[u8]> = target.into();
                self.cache_link(directory, name, id, &target);
                Ok(target)
            }
            Answer::Failed(Errno::ENOENT) => Err(Fault::Again),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Remembers a link, if its name may be remembered here.
    fn cache_link(&mut self, directory: FileId, name: &[u8], id: FileId, target: &Arc<[u8]>) {
        let owner = self.slots.dentry_owner(directory, name);
        if !self.alone && owner != self.shard {
            let question = Question::Lookup { directory, name: name.to_vec() };
            let known = self.fact(owner, question);
            if !matches!(known, Ok(Answer::Found { cacheable: true, .. })) {
                return;
            }
        }
        self.cache.insert(directory, name, Cached::Symlink(id, Arc::clone(target)));
    }

    /// Whether the dentry is this shard's.
    pub(super) fn owns(&self, directory: FileId, name: &[u8]) -> bool {
        self.alone || self.slots.dentry_owner(directory, name) == self.shard
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

    /// Whether the directory has no entries here.
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
