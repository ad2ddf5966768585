//! Steps of a dentry's owner: what a name stands for.
//!
//! The key of a dentry says whose step it is. What a name stands for is asked of its owner when it
//! is another shard; changing a name elsewhere is a step of an operation
//! (`transactions/transaction.rs`).

use std::sync::Arc;

use mayfly_meta::{
    Scan, key,
    record::{BirthKey, Content, Dentry},
};
use mayfly_types::{Errno, FileId, FileKind};

use crate::{
    fault::{Fault, Outcome},
    leases::state::name_table::state_of,
    message::{Answer, Question},
    namespace::{
        dentry_cache::{Cached, FOR_EVER},
        state::{dentry::Wanted, inode::FoundFile, member::unexpected},
    },
    shard::Shard,
};

impl Shard {
    /// What the name stands for, without its inode.
    pub(crate) fn lookup(
        &mut self,
        directory: FileId,
        name: &[u8],
    ) -> Outcome<Option<(FileId, FileKind)>> {
        self.lookup_at((directory, key::cookie(directory, name), name), Wanted::File)
    }

    /// The same for a name whose cookie is known.
    pub(crate) fn lookup_at(
        &mut self,
        (directory, cookie, name): (FileId, u64, &[u8]),
        wanted: Wanted,
    ) -> Outcome<Option<(FileId, FileKind)>> {
        self.name_at_hand(directory, name)?;
        self.tell_of_failure(directory, name)?;
        match self.namespace.cache.get(cookie, directory, name, self.leases.now) {
            Some(Cached::Directory(id)) => return Ok(Some((id, FileKind::Directory))),
            Some(Cached::Symlink(id, _)) => return Ok(Some((id, FileKind::Symlink))),
            Some(Cached::File(attr, _)) => return Ok(Some((attr.id, attr.kind))),
            None => {}
        }
        if !self.owns(directory, name) {
            let owner = self.owner_at(directory, cookie);
            let question = self.lookup_question(directory, name);
            return match self.fact(owner, question)? {
                Answer::Found { file, .. } => Ok(file),
                answer => Err(unexpected(&answer)),
            };
        }
        self.namespace.key.set(directory, cookie, name);
        let Some(record) = self.store.get(&self.namespace.key)? else { return Ok(None) };
        let (id, kind) = Dentry::peek(record)?;
        if kind == FileKind::Directory {
            self.namespace.cache.insert(directory, name, Cached::Directory(id), FOR_EVER);
        } else if wanted == Wanted::Name && Dentry::is_light(record) {
            self.namespace.found_file = Some(FoundFile { directory, cookie, id, inode: None });
        } else if let Dentry::Fused(inode) = Dentry::decode(record)? {
            self.namespace.found_file =
                Some(FoundFile { directory, cookie, id, inode: Some(inode) });
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
        let cookie = key::cookie(directory, name);
        if let Some(Cached::Symlink(_, target)) =
            self.namespace.cache.get(cookie, directory, name, self.leases.now)
        {
            return Ok(target);
        }
        if !self.is_home(id) {
            return self.remote_target(directory, name, id);
        }
        let located = match self.load_at(id, directory, name) {
            Err(Fault::Errno(Errno::ENOENT)) if !self.place.alone => return Err(Fault::Again),
            other => other?,
        };
        let Content::Symlink(target) = located.inode.content else {
            return Err(Errno::EIO.into());
        };
        let target: Arc<[u8]> = target.into();
        self.cache_link(directory, name, id, &target);
        Ok(target)
    }

    fn remote_target(&mut self, directory: FileId, name: &[u8], id: FileId) -> Outcome<Arc<[u8]>> {
        let birth = BirthKey { directory, name: name.to_vec() };
        match self.fact(self.place.slots.home(id), Question::LinkTarget { id, birth })? {
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
        let owner = self.name_owner(directory, name);
        if !self.place.alone && owner != self.place.shard {
            let question = self.lookup_question(directory, name);
            let known = self.fact(owner, question);
            if !matches!(known, Ok(Answer::Found { cacheable: true, .. })) {
                return;
            }
        }
        let until = self.remembered_until(directory, name, self.run.asked_at);
        self.namespace.cache.insert(
            directory,
            name,
            Cached::Symlink(id, Arc::clone(target)),
            until,
        );
    }

    /// Whether the dentry is this shard's.
    pub(crate) fn owns(&self, directory: FileId, name: &[u8]) -> bool {
        self.place.alone || self.name_owner(directory, name) == self.place.shard
    }

    /// What a name stands for, as its owner is asked.
    fn lookup_question(&self, directory: FileId, name: &[u8]) -> Question {
        let upto = self.namespace.seats.spread(directory);
        Question::Lookup { directory, name: name.to_vec(), upto }
    }

    /// Adds or replaces a name.
    pub(crate) fn put_dentry(
        &mut self,
        directory: FileId,
        name: &[u8],
        record: &[u8],
    ) -> Outcome<()> {
        self.forget_dentry(directory, key::cookie(directory, name), name);
        self.store.put(&self.namespace.key, record)?;
        let found = Dentry::peek(record)?;
        self.name_changed(directory, name, Some(state_of(found, &self.place)));
        Ok(())
    }

    /// Removes a name.
    pub(crate) fn delete_dentry(&mut self, directory: FileId, name: &[u8]) -> Outcome<()> {
        self.delete_dentry_at(directory, key::cookie(directory, name), name)
    }

    /// The same for a name whose cookie is known.
    pub(super) fn delete_dentry_at(
        &mut self,
        directory: FileId,
        cookie: u64,
        name: &[u8],
    ) -> Outcome<()> {
        self.forget_dentry(directory, cookie, name);
        self.store.delete(&self.namespace.key)?;
        self.name_changed(directory, name, None);
        Ok(())
    }

    /// A dentry is about to change: `self.namespace.key` becomes its key.
    pub(super) fn forget_dentry(&mut self, directory: FileId, cookie: u64, name: &[u8]) {
        self.namespace.cache.forget(cookie);
        self.namespace.found_file = None;
        self.namespace.key.set(directory, cookie, name);
    }

    /// Whether the directory has no entries here.
    pub(crate) fn is_empty(&mut self, directory: FileId) -> Outcome<bool> {
        let prefix = key::directory(directory);
        let mut empty = true;
        self.store.scan(&prefix, &prefix, &mut |_, _| {
            empty = false;
            Scan::Enough
        })?;
        Ok(empty)
    }
}
