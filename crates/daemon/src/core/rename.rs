//! Rename: moves a dentry, never data.
//!
//! The checks stand in the order of the kernel's `do_renameat2` and `vfs_rename`, because which of
//! several errors a caller gets depends on it. With one shard the whole operation is one
//! transaction, so the target name never disappears and neither name is ever missing.

use mayfly_meta::record::Dentry;
use mayfly_types::{Errno, FileId, FileKind, limits::LINKS_MAX};
use mayfly_wire::Rename;

use super::{
    Core, Outcome, Served,
    home::Located,
    walk::{Last, Place, Rule},
};

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

impl Core {
    pub(super) fn rename(&mut self, rename: &Rename<'_>) -> Outcome<Served> {
        let flags = rename.flags;
        let both = RENAME_NOREPLACE | RENAME_EXCHANGE;
        if flags & !both != 0 || flags & both == both {
            return Err(Errno::EINVAL.into());
        }
        let from = self.walk(&rename.from, Rule::Name)?;
        let to = self.walk(&rename.to, Rule::Name)?;
        if from.last != Last::Name {
            return Err(Errno::EBUSY.into());
        }
        if to.last != Last::Name {
            let errno = if flags & RENAME_NOREPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY };
            return Err(errno.into());
        }
        let exchange = flags & RENAME_EXCHANGE != 0;
        let source = from.lookup()?.ok_or(Errno::ENOENT)?;
        to.lookup()?;
        if flags & RENAME_NOREPLACE != 0 && to.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.check_slashes(&from, &to, exchange)?;
        self.check_circle(&from, &to, exchange)?;
        if to.found.is_some_and(|target| target.0 == source.0) {
            return Ok(Served::Replied);
        }
        self.check_target(&from, &to, exchange)?;
        if exchange {
            self.exchange_names(&from, &to)?
        } else {
            self.move_name(&from, &to)?
        }
        Ok(Served::Replied)
    }

    fn check_slashes(&mut self, from: &Place, to: &Place, exchange: bool) -> Outcome<()> {
        let is_directory =
            |place: &Place| place.found.is_some_and(|found| found.1 == FileKind::Directory);
        if exchange {
            if to.found.is_none() {
                return Err(Errno::ENOENT.into());
            }
            if !is_directory(to) && to.slash {
                return Err(Errno::ENOTDIR.into());
            }
        }
        if !is_directory(from) && (from.slash || (!exchange && to.slash)) {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(())
    }

    /// A directory must not move into itself, nor replace one that it is in.
    fn check_circle(&mut self, from: &Place, to: &Place, exchange: bool) -> Outcome<()> {
        if let Some((id, FileKind::Directory)) = from.found
            && self.is_within(to.directory, id)?
        {
            return Err(Errno::EINVAL.into());
        }
        if let Some((id, FileKind::Directory)) = to.found
            && self.is_within(from.directory, id)?
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
        Ok(())
    }

    /// Whether `directory` is `ancestor` or lies below it.
    fn is_within(&mut self, mut directory: FileId, ancestor: FileId) -> Outcome<bool> {
        while directory != ancestor {
            if directory == FileId::ROOT {
                return Ok(false);
            }
            directory = self.parent_of(directory)?;
        }
        Ok(true)
    }

    fn check_target(&mut self, from: &Place, to: &Place, exchange: bool) -> Outcome<()> {
        let directory =
            |place: &Place| place.found.is_some_and(|found| found.1 == FileKind::Directory);
        let parent = self.load_parent(to.directory)?;
        match to.found {
            Some((id, kind)) if !exchange => match (directory(from), kind == FileKind::Directory) {
                (true, false) => return Err(Errno::ENOTDIR.into()),
                (false, true) => return Err(Errno::EISDIR.into()),
                (true, true) if !self.is_empty(id)? => return Err(Errno::ENOTEMPTY.into()),
                _ => {}
            },
            Some(_) => {}
            None => {
                let moves_in = directory(from) && from.directory != to.directory;
                if moves_in && parent.inode.links >= LINKS_MAX {
                    return Err(Errno::EMLINK.into());
                }
                self.check_room()?;
            }
        }
        Ok(())
    }

    fn move_name(&mut self, from: &Place, to: &Place) -> Outcome<()> {
        let (id, kind) = from.found.ok_or(Errno::ENOENT)?;
        let moved = self.load_at(id, from.directory, &from.name)?;
        let replaced = match to.found {
            Some((target, _)) => Some(self.load_at(target, to.directory, &to.name)?),
            None => None,
        };
        self.delete_dentry(from.directory, &from.name)?;
        self.put_dentry(to.directory, &to.name, &Dentry::Plain { id, kind })?;
        self.rehome(moved, to)?;
        let was_there = replaced.is_some();
        if let Some(replaced) = replaced {
            self.drop_link(replaced)?;
        }
        let directory = i32::from(kind == FileKind::Directory);
        if from.directory == to.directory {
            let mut parent = self.load_own(from.directory)?;
            let (entries, links) = if was_there { (-1, -directory) } else { (0, 0) };
            return self.touch_directory(&mut parent, entries, links);
        }
        let mut parent = self.load_own(from.directory)?;
        self.touch_directory(&mut parent, -1, -directory)?;
        let mut parent = self.load_own(to.directory)?;
        let (entries, links) = if was_there { (0, 0) } else { (1, directory) };
        self.touch_directory(&mut parent, entries, links)
    }

    fn exchange_names(&mut self, one: &Place, other: &Place) -> Outcome<()> {
        let (one_id, one_kind) = one.found.ok_or(Errno::ENOENT)?;
        let (other_id, other_kind) = other.found.ok_or(Errno::ENOENT)?;
        let one_moved = self.load_at(one_id, one.directory, &one.name)?;
        let other_moved = self.load_at(other_id, other.directory, &other.name)?;
        let dentry = Dentry::Plain { id: other_id, kind: other_kind };
        self.put_dentry(one.directory, &one.name, &dentry)?;
        let dentry = Dentry::Plain { id: one_id, kind: one_kind };
        self.put_dentry(other.directory, &other.name, &dentry)?;
        self.rehome(one_moved, other)?;
        self.rehome(other_moved, one)?;
        let links = |kind: FileKind| i32::from(kind == FileKind::Directory);
        let gained = links(other_kind) - links(one_kind);
        if one.directory == other.directory {
            let mut parent = self.load_own(one.directory)?;
            return self.touch_directory(&mut parent, 0, 0);
        }
        let mut parent = self.load_own(one.directory)?;
        self.touch_directory(&mut parent, 0, gained)?;
        let mut parent = self.load_own(other.directory)?;
        self.touch_directory(&mut parent, 0, -gained)
    }

    /// Home's part of a move: a record of its own, and for a directory the new parent.
    fn rehome(&mut self, mut moved: Located, to: &Place) -> Outcome<()> {
        if let Ok(node) = moved.directory_mut() {
            node.parent = to.directory;
            node.name.clone_from(&to.name);
        }
        self.attribute_changed(&mut moved.inode);
        self.unfuse(&mut moved)
    }
}
