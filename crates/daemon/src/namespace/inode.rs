//! Steps of an inode's home: what a file is, whatever its names.
//!
//! An inode is found by its id and by the name under which it was created: it is fused into that
//! dentry until a rename, a second link or an unlink while open moves it to a record of its own
//! ([`Shard::unfuse`]).

use mayfly_meta::{
    key,
    record::{BirthKey, Content, Dentry, Inode, Layout},
};
use mayfly_types::{Errno, FileId, Times, Timestamp};

use crate::{
    fault::Outcome,
    namespace::state::{
        inode::{FoundFile, Located, Ownership},
        walk::Place,
    },
    shard::Shard,
};

impl Shard {
    /// The inode `id`, seen from the name under which it was found or created.
    pub(super) fn load_at(
        &mut self,
        id: FileId,
        directory: FileId,
        name: &[u8],
    ) -> Outcome<Located> {
        if directory == FileId::NONE {
            self.load_own(id)
        } else {
            self.load_under(id, directory, key::cookie(directory, name), name.to_vec())
        }
    }

    /// The same for a name that there can be, and whose cookie is known.
    pub(crate) fn load_under(
        &mut self,
        id: FileId,
        directory: FileId,
        cookie: u64,
        name: Vec<u8>,
    ) -> Outcome<Located> {
        let is_it = |found: &mut FoundFile| found.is(id, directory, cookie);
        if let Some(FoundFile { inode: Some(inode), .. }) = self.namespace.found_file.take_if(is_it)
        {
            return Ok(Located { inode, fused: Some(BirthKey { directory, name }) });
        }
        self.namespace.key.set(directory, cookie, &name);
        if let Some(record) = self.store.get(&self.namespace.key)?
            && Dentry::peek(record)?.0 == id
            && let Dentry::Fused(inode) = Dentry::decode(record)?
        {
            return Ok(Located { inode, fused: Some(BirthKey { directory, name }) });
        }
        self.load_own(id)
    }

    pub(crate) fn load_birth(&mut self, id: FileId, birth: &BirthKey) -> Outcome<Located> {
        self.load_at(id, birth.directory, &birth.name)
    }

    /// The inode `id` from the record of its own; directories are always there.
    pub(crate) fn load_own(&mut self, id: FileId) -> Outcome<Located> {
        if let Some(inode) = self.namespace.touched.take_if(|inode| inode.id == id) {
            return Ok(Located { inode, fused: None });
        }
        let record = self.store.get(&key::numbered(key::INODE, id))?.ok_or(Errno::ENOENT)?;
        Ok(Located { inode: Box::new(Inode::decode_own(record)?), fused: None })
    }

    /// An open file's inode.
    pub(crate) fn load_open(&mut self, id: FileId) -> Outcome<Located> {
        let birth = self.files.opens.file(id).ok_or(Errno::EBADF)?.birth.clone();
        let BirthKey { directory, name } = birth;
        if directory == FileId::NONE {
            return self.load_own(id);
        }
        self.load_under(id, directory, key::cookie(directory, &name), name)
    }

    pub(crate) fn save(&mut self, located: &Located) -> Outcome<()> {
        self.namespace.found_file = None;
        match &located.fused {
            Some(birth) => {
                located.inode.encode_fused_to(&mut self.namespace.record);
                self.put_fused(birth)
            }
            None => {
                self.forget_touched(located.inode.id);
                let key = key::numbered(key::INODE, located.inode.id);
                located.inode.encode_own_to(&mut self.namespace.record);
                Ok(self.store.put(&key, &self.namespace.record)?)
            }
        }
    }

    /// Saves a small file that has `bytes` now, whatever it had before; they are copied no more
    /// often than they have to be.
    pub(crate) fn save_bytes(
        &mut self,
        inode: &Inode,
        birth: &BirthKey,
        bytes: &[u8],
    ) -> Outcome<()> {
        self.namespace.found_file = None;
        inode.encode_fused_with(bytes, &mut self.namespace.record);
        self.put_fused(birth)
    }

    /// Stores the record that was made under this name.
    fn put_fused(&mut self, BirthKey { directory, name }: &BirthKey) -> Outcome<()> {
        self.namespace.key.set(*directory, key::cookie(*directory, name), name);
        Ok(self.store.put(&self.namespace.key, &self.namespace.record)?)
    }

    /// The record of a directory that was touched last is about to change.
    fn forget_touched(&mut self, id: FileId) {
        self.namespace.touched.take_if(|inode| inode.id == id);
        if self.namespace.touched_record.0 == id {
            self.namespace.touched_record.0 = FileId::NONE;
        }
    }

    /// Saves a directory in which names were made or removed, and in which nothing else has changed
    /// since it was loaded.
    pub(super) fn save_touched(&mut self, inode: Box<Inode>) -> Outcome<()> {
        self.namespace.found_file = None;
        let (of, record) = &mut self.namespace.touched_record;
        if *of != inode.id || !inode.touch_own(record) {
            inode.encode_own_to(record);
            *of = inode.id;
        }
        self.store.put(&key::numbered(key::INODE, inode.id), record)?;
        self.namespace.touched = Some(inode);
        Ok(())
    }

    /// Gives the inode a record of its own. The caller replaces or removes the dentry.
    pub(super) fn unfuse(&mut self, located: &mut Located) -> Outcome<()> {
        located.fused = None;
        self.save(located)
    }

    /// Parent of a directory, for `..`.
    pub(super) fn parent_of(&mut self, directory: FileId) -> Outcome<FileId> {
        if self.is_home(directory) {
            return Ok(self.load_directory(directory)?.directory()?.parent);
        }
        Ok(self.directory_facts(directory)?.parent)
    }

    /// The content changed.
    pub(crate) fn changed(&self, inode: &mut Inode, now: Timestamp) {
        if let Content::Inline(_) = inode.content {
            self.files.opens.content_changes(inode.id);
        }
        if self.config.times != Times::None {
            inode.mtime = now;
            inode.ctime = now;
        }
    }

    /// An attribute changed.
    pub(crate) fn attribute_changed(&self, inode: &mut Inode) {
        self.attribute_changed_at(inode, self.now);
    }

    /// The same at another time.
    pub(crate) fn attribute_changed_at(&self, inode: &mut Inode, now: Timestamp) {
        if self.config.times != Times::None {
            inode.ctime = now;
        }
    }

    /// A new file's inode; `inherited` is the layout of its directory.
    pub(crate) fn new_inode(
        &self,
        id: FileId,
        owner: Ownership,
        content: Content,
        inherited: &Layout,
    ) -> Inode {
        let directory = matches!(content, Content::Directory(_));
        let layout = if directory { *inherited } else { self.file_layout(inherited) };
        let (links, size_bytes) = match &content {
            Content::Directory(_) => (2, 0),
            Content::Symlink(target) => (1, target.len() as u64),
            Content::Inline(_) | Content::Object(_) | Content::Fifo(_) | Content::Socket(_) => {
                (1, 0)
            }
        };
        Inode {
            id,
            mode: (owner.mode & 0o7777) as u16,
            links,
            uid: owner.uid,
            gid: owner.gid,
            size_bytes,
            blocks: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
            unsettled: false,
            unlisted: false,
            extended: false,
            linkable: false,
            generation: 0,
            layout,
            parts: 0,
            replica: 0,
            origin: None,
            residency: Vec::new(),
            content,
        }
    }

    /// A new file id whose home is the owner of this name.
    pub(crate) fn new_id(&mut self, place: &Place) -> Outcome<FileId> {
        self.new_id_in(self.name_slot(place.directory, place.cookie))
    }

    pub(crate) fn new_id_in(&mut self, slot: u16) -> Outcome<FileId> {
        let id = FileId::new(slot, self.counters.next_file).ok_or(Errno::ENOSPC)?;
        self.counters.next_file += 1;
        Ok(id)
    }

    /// A name of the file is gone (its dentry is removed or replaced by the caller, before or
    /// after). With the last one the file goes too, or becomes an orphan while it is open or about
    /// to be opened by its maker.
    pub(crate) fn drop_link(&mut self, mut located: Located) -> Outcome<()> {
        let directory = matches!(located.inode.content, Content::Directory(_));
        located.inode.links = if directory { 0 } else { located.inode.links.saturating_sub(1) };
        self.attribute_changed(&mut located.inode);
        if located.inode.links > 0 {
            return self.save(&located);
        }
        self.recall_leased(&located)?;
        self.leave_tier(&mut located.inode)?;
        let id = located.inode.id;
        let awaited = self.may_be_placed(&located.inode) && self.is_awaited(id)?;
        if self.files.opens.file(id).is_none() && !awaited {
            return self.destroy(&located);
        }
        self.counters.orphans += 1;
        self.files.opens.mark_unlinked(id);
        self.store.put(&key::numbered(key::ORPHAN, id), &located.birth().encode())?;
        self.unfuse(&mut located)
    }

    /// A file that was made without a name gets its first one. The caller counts it and saves the
    /// inode.
    pub(crate) fn name_orphan(&mut self, located: &mut Located) -> Outcome<()> {
        let id = located.inode.id;
        located.inode.linkable = false;
        self.store.delete(&key::numbered(key::ORPHAN, id))?;
        self.counters.orphans = self.counters.orphans.saturating_sub(1);
        self.files.opens.mark_linked(id);
        Ok(())
    }

    /// An orphan's last open file description is gone.
    pub(crate) fn drop_orphan(&mut self, id: FileId) -> Outcome<()> {
        let located = self.load_own(id)?;
        self.store.delete(&key::numbered(key::ORPHAN, id))?;
        self.counters.orphans = self.counters.orphans.saturating_sub(1);
        self.destroy(&located)
    }

    /// Removes an inode that has neither a name nor an open file description.
    fn destroy(&mut self, located: &Located) -> Outcome<()> {
        let inode = &located.inode;
        if located.fused.is_none() {
            self.forget_touched(inode.id);
            self.store.delete(&key::numbered(key::INODE, inode.id))?;
        }
        if inode.extended {
            self.store.delete(&key::numbered(key::XATTRS, inode.id))?;
        }
        self.forget_maker(inode)?;
        match inode.content {
            Content::Directory(_) => {
                self.counters.directories -= 1;
                self.forget_seat(inode.id)?;
                self.namespace.removed.insert(Inode { extended: false, ..Inode::clone(inode) });
            }
            Content::Object(_) => {
                self.counters.files -= 1;
                self.doom_object(inode)?;
            }
            Content::Inline(_) | Content::Symlink(_) => self.counters.files -= 1,
            Content::Fifo(ref place) | Content::Socket(ref place) => {
                self.counters.files -= 1;
                self.files.background.abandon(place);
            }
        }
        Ok(())
    }
}
