//! Directories that were removed while nobody had them open.
//!
//! A process may still work in one: the kernel then shows an empty directory without links. Its
//! record is gone, so what it was is remembered here, for as many as there is room, until the
//! daemon ends. Opened again it becomes an orphan with a record like any other.

use mayfly_meta::{
    key,
    record::{BirthKey, Inode},
};
use mayfly_types::{Errno, FileId, FileKind};

use crate::{fault::Outcome, namespace::state::inode::Located, shard::Shard};

impl Shard {
    /// A directory, also a removed one.
    pub(super) fn load_directory(&mut self, id: FileId) -> Outcome<Located> {
        match self.namespace.removed.get(id) {
            Some(inode) => Ok(Located { inode: Box::new(inode.clone()), fused: None }),
            None => self.load_own(id),
        }
    }

    /// Is this directory one that is only remembered?
    pub(super) fn is_only_remembered(&self, id: FileId) -> bool {
        self.namespace.removed.get(id).is_some()
    }

    /// Changes what is remembered; false when the directory has a record.
    pub(super) fn change_removed(&mut self, inode: &Inode) -> bool {
        let remembered = self.namespace.removed.inodes.get_mut(&inode.id);
        remembered.map(|remembered| remembered.clone_from(inode)).is_some()
    }

    /// Gives a removed directory a record again, since it is opened.
    pub(super) fn revive(&mut self, located: &Located) -> Outcome<()> {
        let id = located.inode.id;
        if self.namespace.removed.get(id).is_none()
            || self.namespace.removed.inodes.remove(&id).is_none()
        {
            return Ok(());
        }
        self.counters.directories += 1;
        self.counters.orphans += 1;
        self.store.put(&key::numbered(key::ORPHAN, id), &BirthKey::default().encode())?;
        self.save(located)
    }

    /// The file at which a walk ended that looked up no name: a directory, or any file that is open
    /// here and was given by its identity (`/dev/fd/N`). `by_name` says that there was a path.
    pub(super) fn load_start(&mut self, id: FileId, by_name: bool) -> Outcome<Located> {
        if !self.is_home(id) {
            return Err(self.elsewhere(id, by_name, false));
        }
        let located = match self.files.opens.file(id) {
            Some(_) => self.load_open(id)?,
            None => self.load_directory(id)?,
        };
        if by_name && located.inode.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(located)
    }
}
