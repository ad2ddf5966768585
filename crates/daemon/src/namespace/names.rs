//! Operations on names: make a directory, link, symbolic link; remove a name.

use mayfly_meta::{
    key,
    record::{BirthKey, Content, Dentry, Inode, Step},
};
use mayfly_transport_shm::submission_ring::name_table::NameState;
use mayfly_types::{
    Errno, FileId, FileKind,
    limits::{LINKS_MAX, SYMLINK_BYTES_MAX},
};
use mayfly_wire::{Link, MakeDirectory, Symlink, Target, Unlink, Walk};

use crate::{
    api::Caller,
    fault::{Outcome, Served},
    message::{Answer, Question},
    namespace::state::{
        inode::{Located, Ownership},
        member::{Parent, unexpected},
        walk::{Last, Place, Rule},
    },
    shard::Shard,
    shards::slots::ShardId,
    tier::state::wanted::Change,
    transactions::state::{
        prepare_locks::PrepareLock,
        transaction::{Steps, add_step},
    },
};

/// What a name stands for.
type Found = (FileId, FileKind);

impl Shard {
    /// A place where a name can be made, and its directory. `kind` is the new file's: a trailing
    /// slash is fine for a directory.
    pub(super) fn vacant(&mut self, walk: &Walk<'_>, kind: FileKind) -> Outcome<(Place, Parent)> {
        let mut place = self.walk(walk, Rule::Name)?;
        if self.reserve_name(place.directory, &place.name) {
            place = self.walk(walk, Rule::Name)?;
        }
        check_vacant(&place, kind)?;
        self.unclaimed(|| place.prepare_locks())?;
        let parent = self.load_parent(place.directory)?;
        self.check_room()?;
        Ok((place, parent))
    }

    /// Adds a new file with its inode fused into the dentry.
    pub(crate) fn add_fused(
        &mut self,
        place: &Place,
        parent: Parent,
        inode: &Inode,
    ) -> Outcome<()> {
        inode.encode_fused_to(&mut self.namespace.record);
        self.add_encoded(place, parent)
    }

    /// The same for a small file that has `bytes`.
    pub(crate) fn add_fused_with(
        &mut self,
        place: &Place,
        parent: Parent,
        inode: &Inode,
        bytes: &[u8],
    ) -> Outcome<()> {
        inode.encode_fused_with(bytes, &mut self.namespace.record);
        self.add_encoded(place, parent)
    }

    fn add_encoded(&mut self, place: &Place, parent: Parent) -> Outcome<()> {
        self.forget_dentry(place.directory, place.cookie, &place.name);
        self.store.put(&self.namespace.key, &self.namespace.record)?;
        self.name_changed(place.directory, &place.name, Some(NameState::Plain));
        self.touch_directory(parent, 1, 0)?;
        self.counters.files += 1;
        Ok(())
    }

    pub(crate) fn make_directory(
        &mut self,
        caller: Caller,
        make: &MakeDirectory<'_>,
    ) -> Outcome<Served> {
        let (place, parent) = self.vacant(&make.walk, FileKind::Directory)?;
        if parent.is_full() {
            return Err(Errno::EMLINK.into());
        }
        let MakeDirectory { mode, uid, gid, .. } = *make;
        let owner = Ownership { mode, uid, gid };
        self.spread_if_shared(caller, &place)?;
        let seat = self.chosen_seat(caller, &place)?;
        if seat != self.place.shard {
            let (owner, layout) = (inherited(owner, &parent), *parent.layout());
            self.make_directory_at(seat, &place, (owner, layout))?;
            return Ok(Served::Replied);
        }
        let change = Change::MakeDirectory { mode: mode & 0o7777 };
        let outside = self.change_at_origin((place.directory, &place.name), change)?;
        let id = self.add_directory(&place, parent, owner)?;
        if let Some((source, seen)) = outside {
            // One that was there may have been made before, and others may have made names in it.
            self.adopt_directory(id, source, seen, seen.same)?;
        }
        let kind = (place.directory, FileKind::Directory);
        self.consider_delegating(caller, kind, &make.walk, Some(id))?;
        Ok(Served::Replied)
    }

    /// Makes a directory where there is room for its name; which one.
    pub(crate) fn add_directory(
        &mut self,
        place: &Place,
        parent: Parent,
        owner: Ownership,
    ) -> Outcome<FileId> {
        let id = self.new_id_in(self.seat_slot(place))?;
        let at = (place.directory, place.name.as_slice());
        let made = self.new_directory(id, inherited(owner, &parent), parent.layout(), at);
        self.save(&made)?;
        let dentry = Dentry::Plain { id, kind: FileKind::Directory };
        self.put_dentry(place.directory, &place.name, &dentry.encode())?;
        self.touch_directory(parent, 1, 1)?;
        self.counters.directories += 1;
        Ok(id)
    }

    pub(crate) fn symlink(&mut self, caller: Caller, symlink: &Symlink<'_>) -> Outcome<Served> {
        if symlink.target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if symlink.target.len() > SYMLINK_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (place, parent) = self.vacant(&symlink.at, FileKind::Symlink)?;
        let owner =
            Ownership { mode: 0o777, uid: symlink.uid, gid: parent.inherited_group(symlink.gid) };
        let change = Change::Symlink { target: symlink.target.to_vec() };
        let outside = self.change_at_origin((place.directory, &place.name), change)?;
        let content = Content::Symlink(symlink.target.to_vec());
        let id = self.new_id(&place)?;
        let mut inode = self.new_inode(id, owner, content, parent.layout());
        if let Some((source, seen)) = outside {
            self.adopt(&mut inode, source, &place, (seen, true));
        }
        self.add_fused(&place, parent, &inode)?;
        self.consider_delegating(caller, (place.directory, FileKind::Symlink), &symlink.at, None)?;
        Ok(Served::Replied)
    }

    pub(crate) fn link(&mut self, link: &Link<'_>) -> Outcome<Served> {
        let mut source = self.linked_file(link)?;
        while self.reserve_content(&source) {
            source = self.linked_file(link)?;
        }
        let mut place = self.walk_second(&link.to, Rule::Name)?;
        if self.reserve_name(place.directory, &place.name) {
            place = self.walk_second(&link.to, Rule::Name)?;
        }
        check_vacant(&place, FileKind::Regular)?;
        self.refuse_link(&source.inode, place.directory)?;
        self.host(place.directory, &place.name)?;
        self.check_room()?;
        self.add_link(&source, place)?;
        Ok(Served::Replied)
    }

    /// The file that gets another name.
    fn linked_file(&mut self, link: &Link<'_>) -> Outcome<Located> {
        match &link.from {
            Target::Path(walk) => self.find(walk),
            Target::Open(open) => {
                let open = self.files.opens.get(*open)?;
                self.load_open(open.id)
            }
            Target::Directory(_) => Err(Errno::EPERM.into()),
        }
    }

    /// Gives a file the name at a place that has none.
    pub(crate) fn add_link(&mut self, source: &Located, place: Place) -> Outcome<()> {
        let (id, kind) = (source.inode.id, source.inode.kind());
        if kind == FileKind::Directory {
            return Err(Errno::EPERM.into());
        }
        if source.inode.links == 0 && !source.inode.linkable {
            return Err(Errno::ENOENT.into());
        }
        if source.inode.links >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        let mut parts = Steps::new();
        add_step(&mut parts, self.place.shard, Step::AddLink { id, birth: source.birth() });
        let owner = self.owner_at(place.directory, place.cookie);
        let Place { directory, name, .. } = place;
        add_step(&mut parts, owner, Step::SetName { directory, name, id, kind, expected: None });
        self.operate(parts)
    }

    pub(crate) fn unlink(&mut self, caller: Caller, unlink: &Unlink<'_>) -> Outcome<Served> {
        let mut place = self.walk(&unlink.walk, Rule::Name)?;
        if place.found.is_some() && self.reserve_name(place.directory, &place.name) {
            place = self.walk(&unlink.walk, Rule::Name)?;
        }
        let directory = place.directory;
        let served = if unlink.directory {
            self.remove_directory(&place)?
        } else {
            self.remove_file(place)?
        };
        let kind = if unlink.directory { FileKind::Directory } else { FileKind::Regular };
        self.consider_delegating(caller, (directory, kind), &unlink.walk, None)?;
        Ok(served)
    }

    pub(crate) fn remove_file(&mut self, place: Place) -> Outcome<Served> {
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
        if !self.is_home(id) || self.is_remembered(place.directory, &place.name) {
            self.remove_at_origin(&place, (id, kind))?;
            return self.remove_elsewhere(&place, (id, kind));
        }
        self.unclaimed(|| [place.prepare_locks(), vec![(PrepareLock::File(id), true)]].concat())?;
        self.remove_at_origin(&place, (id, kind))?;
        let parent = self.load_holder(place.directory)?;
        if self.is_light(&place, id) && !self.is_leased(id)? {
            self.delete_dentry_at(place.directory, place.cookie, &place.name)?;
            self.counters.files -= 1;
        } else {
            let Place { directory, cookie, name, .. } = place;
            let located = self.load_under(id, directory, cookie, name.clone())?;
            self.delete_dentry_at(directory, cookie, &name)?;
            self.files.opens.forget_name(id, &BirthKey { directory, name });
            self.drop_link(located)?;
        }
        self.touch_directory(parent, -1, 0)?;
        Ok(Served::Replied)
    }

    /// Whether the file that the walk has found goes with this name, and nothing besides: it has no
    /// other name and is not open, and all there is of it is in the record of the name.
    fn is_light(&self, place: &Place, id: FileId) -> bool {
        let found = self.namespace.found_file.as_ref().is_some_and(|found| {
            found.inode.is_none() && found.is(id, place.directory, place.cookie)
        });
        found && self.files.opens.file(id).is_none()
    }

    /// The inode is at home elsewhere, or others remember the name.
    fn remove_elsewhere(&mut self, place: &Place, (id, kind): Found) -> Outcome<Served> {
        let Place { directory, name, .. } = place;
        let (directory, name) = (*directory, name.clone());
        let birth = place.birth();
        let mut parts = Steps::new();
        add_step(&mut parts, self.place.shard, Step::RemoveName { directory, name, id, kind });
        add_step(&mut parts, self.place.slots.home(id), Step::DropLink { id, birth });
        self.operate(parts)?;
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
        if self.is_remembered(place.directory, &place.name) || !self.is_home(id) {
            return self.remove_spread(place, id);
        }
        self.recall(id);
        let located = self.load_own(id)?;
        if !located.directory()?.members.is_empty() {
            return self.remove_spread(place, id);
        }
        self.remove_located(place, located)?;
        Ok(Served::Replied)
    }

    /// A directory goes of which somebody has submitted that it does: nothing was made in it, so it
    /// is delegated to nobody.
    pub(crate) fn remove_new_directory(&mut self, place: &Place) -> Outcome<()> {
        let (id, kind) = place.lookup()?.ok_or(Errno::ENOENT)?;
        if kind != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        // Only of a process that does not keep to its delegation.
        if self.leases.delegations.by_directory.contains_key(&id) {
            return Err(Errno::ENOTEMPTY.into());
        }
        let located = self.load_own(id)?;
        self.remove_located(place, located)
    }

    /// Removes a directory that no other shard has entries of.
    fn remove_located(&mut self, place: &Place, located: Located) -> Outcome<()> {
        let id = located.inode.id;
        let own = || vec![(PrepareLock::File(id), true), (PrepareLock::Place(id), true)];
        self.unclaimed(|| [place.prepare_locks(), own()].concat())?;
        self.refuse_read_only(place.directory)?;
        self.names_before_removal(place, id)?;
        if !self.is_empty(id)? {
            return Err(Errno::ENOTEMPTY.into());
        }
        self.remove_at_origin(place, (id, FileKind::Directory))?;
        let parent = self.load_holder(place.directory)?;
        self.delete_dentry(place.directory, &place.name)?;
        self.store.move_directory()?;
        self.drop_link(located)?;
        self.touch_directory(parent, -1, -1)
    }

    /// Others remember the directory, or have entries of it, or its inode.
    fn remove_spread(&mut self, place: &Place, id: FileId) -> Outcome<Served> {
        self.remove_seat_at_origin(place, id)?;
        let Place { directory, name, .. } = place;
        let (directory, name) = (*directory, name.clone());
        let mut parts = Steps::new();
        let kind = FileKind::Directory;
        add_step(&mut parts, self.place.shard, Step::RemoveName { directory, name, id, kind });
        self.add_removal(&mut parts, id)?;
        self.operate(parts)?;
        Ok(Served::Replied)
    }

    /// What ends a directory, at its home and at its members.
    pub(super) fn add_removal(&mut self, parts: &mut Steps, id: FileId) -> Outcome<()> {
        let facts = self.directory_facts(id)?;
        if facts.entries > 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
        for member in &facts.members {
            add_step(parts, ShardId(*member), Step::DropMember { id });
        }
        let members = facts.members;
        add_step(parts, self.place.slots.home(id), Step::RemoveDirectory { id, members });
        Ok(())
    }

    /// Makes the owner of a name that is to be set ready for it; an error when the directory is
    /// gone.
    pub(super) fn host(&mut self, directory: FileId, name: &[u8]) -> Outcome<()> {
        let cookie = key::cookie(directory, name);
        let owner = self.owner_at(directory, cookie);
        if self.place.alone || owner == self.place.shard {
            return self.host_here(directory);
        }
        match self.fact(owner, Question::Host { directory, cookie })? {
            Answer::Done => Ok(()),
            answer => Err(unexpected(&answer)),
        }
    }
}

/// Owner and mode of a directory that is made in another one.
fn inherited(owner: Ownership, parent: &Parent) -> Ownership {
    let mode = owner.mode | parent.mode() & 0o2000;
    Ownership { mode, gid: parent.inherited_group(owner.gid), ..owner }
}

/// Errors of a name that is to be made.
fn check_vacant(place: &Place, kind: FileKind) -> Outcome<()> {
    if place.last != Last::Name || place.lookup()?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    if place.slash && kind != FileKind::Directory {
        return Err(Errno::ENOENT.into());
    }
    Ok(())
}
