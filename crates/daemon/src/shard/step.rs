//! The steps of operations over several shards, as their owner executes them.
//!
//! A step is checked when it is prepared, against what the shard has then; its claims keep that
//! true until it is applied, so applying cannot fail but for the store. A step that separates an
//! inode from the dentry that it is fused into leaves a plain dentry behind, whatever comes next.

use mayfly_meta::{
    key,
    record::{BirthKey, Dentry, Step},
};
use mayfly_types::{Errno, FileId, FileKind, limits::LINKS_MAX};

use crate::{
    fault::{Fault, Outcome},
    message::Question,
    namespace::state::inode::{Located, Ownership},
    shard::Shard,
};

/// What a name stands for.
type Found = Option<(FileId, FileKind)>;

fn is_directory(kind: FileKind) -> i32 {
    i32::from(kind == FileKind::Directory)
}

impl Shard {
    /// Whether the step can be done; false when things are not as its author believes.
    pub(crate) fn check_step(&mut self, step: &Step) -> Outcome<bool> {
        match step {
            Step::AddLink { id, birth } => {
                let Some(located) = self.present(*id, birth)? else { return Ok(false) };
                match located.inode.links {
                    0 if !located.inode.linkable => Err(Errno::ENOENT.into()),
                    LINKS_MAX.. => Err(Errno::EMLINK.into()),
                    _ => Ok(true),
                }
            }
            Step::Moved { id, birth, .. } | Step::DropLink { id, birth } => {
                Ok(self.present(*id, birth)?.is_some())
            }
            Step::SetName { directory, name, kind, expected, .. } => {
                self.check_set(*directory, name, *kind, *expected)
            }
            Step::RemoveName { directory, name, id, kind } => {
                let is_so = self.name_here(*directory, name)? == Some((*id, *kind));
                let cookie = key::cookie(*directory, name);
                Ok(is_so && self.name_is_elsewhere(*directory, cookie).is_none())
            }
            Step::TakeNames { directory, .. } => Ok(self.member(*directory)?.is_some()),
            Step::GiveNames { directory, from, upto, names } => {
                self.check_give(*directory, (*from, *upto), names)
            }
            Step::RemoveDirectory { id, members } => {
                let Some(located) = self.present(*id, &BirthKey::default())? else {
                    return Ok(false);
                };
                if located.inode.links == 0 || located.directory()?.members != *members {
                    return Ok(false);
                }
                self.check_empty(*id)
            }
            Step::DropMember { id } => self.check_empty(*id),
            Step::MakeFile { id, .. } | Step::MakeDirectory { id, .. } => {
                if !self.is_home(*id) {
                    return Err(Errno::EIO.into());
                }
                self.check_room()?;
                Ok(true)
            }
            Step::SetLayout { id, members, .. } => {
                let found = self.present(*id, &BirthKey::default())?;
                let same = |located: &Located| {
                    Ok(located.inode.links > 0 && located.directory()?.members == *members)
                };
                found.as_ref().map_or(Ok(false), same)
            }
            Step::UpdateMember { .. } | Step::SetMemberLayout { .. } | Step::Elect => Ok(true),
            Step::CutPart { id, .. } => self.check_no_write_in_doubt(*id).map(|()| true),
        }
    }

    fn check_empty(&mut self, directory: FileId) -> Outcome<bool> {
        if self.is_empty(directory)? { Ok(true) } else { Err(Errno::ENOTEMPTY.into()) }
    }

    fn check_set(
        &mut self,
        directory: FileId,
        name: &[u8],
        kind: FileKind,
        expected: Found,
    ) -> Outcome<bool> {
        let parent = match self.load_parent(directory) {
            Ok(parent) => parent,
            // It was a member when the operation was planned.
            Err(Fault::Ask(_)) => return Ok(false),
            Err(fault) => return Err(fault),
        };
        // A name that has moved meanwhile is planned anew.
        if self.name_is_elsewhere(directory, key::cookie(directory, name)).is_some() {
            return Ok(false);
        }
        if self.name_here(directory, name)? != expected {
            return Ok(false);
        }
        let more_directories = expected.is_none_or(|found| found.1 != FileKind::Directory);
        if kind == FileKind::Directory && more_directories && parent.is_full() {
            return Err(Errno::EMLINK.into());
        }
        if expected.is_none() {
            self.check_room()?;
        }
        Ok(true)
    }

    fn present(&mut self, id: FileId, birth: &BirthKey) -> Outcome<Option<Located>> {
        match self.load_birth(id, birth) {
            Ok(located) => Ok(Some(located)),
            Err(Fault::Errno(Errno::ENOENT)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// What the name stands for, by the store alone.
    fn name_here(&mut self, directory: FileId, name: &[u8]) -> Outcome<Found> {
        let record = self.store.get(&key::dentry(directory, name))?;
        Ok(record.map(Dentry::peek).transpose()?)
    }

    pub(crate) fn apply_step(&mut self, step: &Step) -> Outcome<()> {
        match step {
            Step::AddLink { id, birth } => self.apply_link(*id, birth),
            Step::Moved { id, birth, parent, name } => {
                self.apply_move(*id, birth, BirthKey { directory: *parent, name: name.clone() })
            }
            Step::SetName { directory, name, id, kind, .. } => {
                self.apply_set(*directory, name, (*id, *kind))
            }
            Step::RemoveName { directory, name, kind, .. } => {
                self.apply_removal(*directory, name, *kind)
            }
            Step::DropLink { id, birth } => {
                let located = self.load_birth(*id, birth)?;
                let located = self.separate(located)?;
                self.files.opens.forget_name(*id, birth);
                self.drop_link(located)
            }
            Step::RemoveDirectory { id, .. } => {
                let located = self.load_own(*id)?;
                self.drop_link(located)
            }
            Step::DropMember { id } => {
                self.store.delete(&key::numbered(key::MEMBER, *id))?;
                self.void(|question| *question == Question::Join(*id));
                Ok(())
            }
            Step::UpdateMember { id, mode, gid, forget_times } => {
                let Some(mut member) = self.member(*id)? else { return Ok(()) };
                (member.mode, member.gid) = (*mode, *gid);
                if *forget_times {
                    member.mtime = mayfly_types::Timestamp::default();
                }
                self.save_member(*id, &member)
            }
            Step::MakeFile { id, mode, uid, gid, layout, maker } => {
                let owner = Ownership { mode: u32::from(*mode), uid: *uid, gid: *gid };
                self.make_file(*id, owner, layout, maker)
            }
            Step::MakeDirectory { id, mode, uid, gid, layout, parent, name } => {
                let owner = Ownership { mode: u32::from(*mode), uid: *uid, gid: *gid };
                self.make_seat(*id, owner, layout, (*parent, name))
            }
            Step::TakeNames { directory, names } => self.take_names(*directory, names),
            Step::GiveNames { directory, upto, names, .. } => {
                self.give_names(*directory, *upto, names)
            }
            Step::SetLayout { id, layout, .. } => {
                let mut located = self.load_own(*id)?;
                located.inode.layout = *layout;
                self.attribute_changed(&mut located.inode);
                self.save(&located)
            }
            Step::SetMemberLayout { id, layout } => {
                // The answer of the home may be on its way.
                self.void(|question| *question == Question::Join(*id));
                let Some(mut member) = self.member(*id)? else { return Ok(()) };
                member.layout = *layout;
                self.save_member(*id, &member)
            }
            Step::CutPart { id, part, size_bytes } => self.cut_part(*id, part, *size_bytes),
            Step::Elect => Ok(()),
        }
    }

    fn apply_link(&mut self, id: FileId, birth: &BirthKey) -> Outcome<()> {
        let mut located = self.load_birth(id, birth)?;
        if located.inode.links == 0 {
            self.name_orphan(&mut located)?;
        }
        located.inode.links += 1;
        self.attribute_changed(&mut located.inode);
        self.separate(located).map(drop)
    }

    fn apply_move(&mut self, id: FileId, birth: &BirthKey, to: BirthKey) -> Outcome<()> {
        let mut located = self.load_birth(id, birth)?;
        if let Ok(node) = located.directory_mut() {
            node.parent = to.directory;
            node.name.clone_from(&to.name);
        }
        self.note_moved(&mut located.inode, &to)?;
        self.attribute_changed(&mut located.inode);
        self.separate(located)?;
        self.files.opens.note_name(id, to);
        Ok(())
    }

    /// Gives an inode a record of its own, if it has none, and leaves a plain dentry.
    pub(crate) fn separate(&mut self, mut located: Located) -> Outcome<Located> {
        if let Some(birth) = located.fused.take() {
            let (id, kind) = (located.inode.id, located.inode.kind());
            let dentry = Dentry::Plain { id, kind };
            self.put_dentry(birth.directory, &birth.name, &dentry.encode())?;
            self.files.opens.note_name(id, birth);
        }
        self.save(&located)?;
        Ok(located)
    }

    fn apply_removal(&mut self, directory: FileId, name: &[u8], kind: FileKind) -> Outcome<()> {
        let parent = self.load_holder(directory)?;
        self.namespace.remembered.remove(directory, name);
        self.delete_dentry(directory, name)?;
        if kind == FileKind::Directory {
            self.store.move_directory()?;
        }
        self.touch_directory(parent, -1, -is_directory(kind))
    }

    fn apply_set(
        &mut self,
        directory: FileId,
        name: &[u8],
        (id, kind): (FileId, FileKind),
    ) -> Outcome<()> {
        let replaced = self.name_here(directory, name)?;
        if replaced == Some((id, kind)) {
            return Ok(());
        }
        if let Some((old, _)) = replaced {
            let located = self.present(old, &BirthKey { directory, name: name.to_vec() });
            // A file at home elsewhere is not in this dentry.
            if let Ok(Some(located)) = located
                && located.fused.is_some()
            {
                self.separate(located)?;
            }
        }
        let parent = self.load_holder(directory)?;
        self.namespace.remembered.remove(directory, name);
        self.put_dentry(directory, name, &Dentry::Plain { id, kind }.encode())?;
        let entries = i64::from(replaced.is_none());
        let gone = replaced.map_or(0, |found| is_directory(found.1));
        if gone > 0 {
            self.store.move_directory()?;
        }
        self.touch_directory(parent, entries, is_directory(kind) - gone)
    }
}
