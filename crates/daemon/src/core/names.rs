//! Operations on names: make a directory, link, symbolic link; remove a name.

use mayfly_meta::record::{Content, Dentry, DirectoryNode, Inode};
use mayfly_types::{
    Errno, FileKind,
    limits::{LINKS_MAX, SYMLINK_BYTES_MAX},
};
use mayfly_wire::{Link, MakeDirectory, Symlink, Target, Unlink, Walk};

use super::{
    Core, Outcome, Served,
    home::{Located, Ownership},
    walk::{Last, Place, Rule},
};

impl Core {
    /// A place where a name can be made, and its directory. `directory` says that the new file is
    /// one, so that a trailing slash is fine.
    pub(super) fn vacant(
        &mut self,
        walk: &Walk<'_>,
        directory: FileKind,
    ) -> Outcome<(Place, Located)> {
        let place = self.walk(walk, Rule::Name)?;
        if place.last != Last::Name || place.lookup()?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        if place.slash && directory != FileKind::Directory {
            return Err(Errno::ENOENT.into());
        }
        let parent = self.load_parent(place.directory)?;
        self.check_room()?;
        Ok((place, parent))
    }

    /// Adds a new file with its inode fused into the dentry.
    pub(super) fn add_fused(
        &mut self,
        place: &Place,
        parent: &mut Located,
        owner: Ownership,
        content: Content,
    ) -> Outcome<Inode> {
        let id = self.new_id(place.directory, &place.name)?;
        let inode = self.new_inode(id, owner, content);
        let dentry = Dentry::Fused(Box::new(inode));
        self.put_dentry(place.directory, &place.name, &dentry)?;
        self.touch_directory(parent, 1, 0)?;
        self.counters.files += 1;
        let Dentry::Fused(inode) = dentry else { unreachable!("made so above") };
        Ok(*inode)
    }

    pub(super) fn make_directory(&mut self, make: &MakeDirectory<'_>) -> Outcome<Served> {
        let (place, mut parent) = self.vacant(&make.walk, FileKind::Directory)?;
        if parent.inode.links >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        let id = self.new_id(place.directory, &place.name)?;
        let inherited = u32::from(parent.inode.mode) & 0o2000;
        let owner = Ownership {
            mode: make.mode | inherited,
            uid: make.uid,
            gid: if inherited == 0 { make.gid } else { parent.inode.gid },
        };
        let node = DirectoryNode {
            parent: place.directory,
            name: place.name.clone(),
            ..DirectoryNode::default()
        };
        let inode = self.new_inode(id, owner, Content::Directory(node));
        self.save(&Located { inode, fused: None })?;
        let dentry = Dentry::Plain { id, kind: FileKind::Directory };
        self.put_dentry(place.directory, &place.name, &dentry)?;
        self.touch_directory(&mut parent, 1, 1)?;
        self.counters.directories += 1;
        Ok(Served::Replied)
    }

    pub(super) fn symlink(&mut self, symlink: &Symlink<'_>) -> Outcome<Served> {
        if symlink.target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if symlink.target.len() > SYMLINK_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (place, mut parent) = self.vacant(&symlink.at, FileKind::Symlink)?;
        let owner =
            Ownership { mode: 0o777, uid: symlink.uid, gid: inherited_group(&parent, symlink.gid) };
        let content = Content::Symlink(symlink.target.to_vec());
        self.add_fused(&place, &mut parent, owner, content)?;
        Ok(Served::Replied)
    }

    pub(super) fn link(&mut self, link: &Link<'_>) -> Outcome<Served> {
        let mut source = match &link.from {
            Target::Path(walk) => self.find(walk)?,
            Target::Open(open) => {
                let open = self.opens.get(*open)?;
                self.load_open(open.id)?
            }
            Target::Directory(_) => return Err(Errno::EPERM.into()),
        };
        let (place, mut parent) = self.vacant(&link.to, FileKind::Regular)?;
        let kind = source.inode.kind();
        if kind == FileKind::Directory {
            return Err(Errno::EPERM.into());
        }
        if source.inode.links == 0 {
            return Err(Errno::ENOENT.into());
        }
        if source.inode.links >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        let id = source.inode.id;
        source.inode.links += 1;
        self.attribute_changed(&mut source.inode);
        match source.fused.take() {
            Some(birth) => {
                self.put_dentry(birth.directory, &birth.name, &Dentry::Plain { id, kind })?;
                self.unfuse(&mut source)?;
            }
            None => self.save(&source)?,
        }
        self.put_dentry(place.directory, &place.name, &Dentry::Plain { id, kind })?;
        self.touch_directory(&mut parent, 1, 0)?;
        Ok(Served::Replied)
    }

    pub(super) fn unlink(&mut self, unlink: &Unlink<'_>) -> Outcome<Served> {
        let place = self.walk(&unlink.walk, Rule::Name)?;
        if unlink.directory { self.remove_directory(&place) } else { self.remove_file(&place) }
    }

    fn remove_file(&mut self, place: &Place) -> Outcome<Served> {
        if place.last != Last::Name {
            return Err(Errno::EISDIR.into());
        }
        let (id, kind) = place.lookup()?.ok_or(Errno::ENOENT)?;
        if kind == FileKind::Directory {
            return Err(Errno::EISDIR.into());
        }
        if place.slash {
            return Err(Errno::ENOTDIR.into());
        }
        let mut parent = self.load_own(place.directory)?;
        let located = self.load_at(id, place.directory, &place.name)?;
        self.delete_dentry(place.directory, &place.name)?;
        self.drop_link(located)?;
        self.touch_directory(&mut parent, -1, 0)?;
        Ok(Served::Replied)
    }

    fn remove_directory(&mut self, place: &Place) -> Outcome<Served> {
        match place.last {
            Last::Name => {}
            Last::Dot => return Err(Errno::EINVAL.into()),
            Last::DotDot => return Err(Errno::ENOTEMPTY.into()),
            Last::Root => return Err(Errno::EBUSY.into()),
        }
        let (id, kind) = place.lookup()?.ok_or(Errno::ENOENT)?;
        if kind != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        if !self.is_empty(id)? {
            return Err(Errno::ENOTEMPTY.into());
        }
        let mut parent = self.load_own(place.directory)?;
        let located = self.load_own(id)?;
        self.delete_dentry(place.directory, &place.name)?;
        self.drop_link(located)?;
        self.touch_directory(&mut parent, -1, -1)?;
        Ok(Served::Replied)
    }
}

/// Group of a new file: the directory's when that is marked so.
pub(super) fn inherited_group(parent: &Located, gid: u32) -> u32 {
    if parent.inode.mode & 0o2000 == 0 { gid } else { parent.inode.gid }
}
