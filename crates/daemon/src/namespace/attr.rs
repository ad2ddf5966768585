//! Attributes: stat, chmod, chown, utimens, truncate, readlink, the path of a directory, statfs.

use mayfly_meta::record::{BirthKey, Content, Inode, Step};
use mayfly_object::ObjectAttr;
use mayfly_transport_shm::layout::FILE_MAPPED;
use mayfly_types::{
    Attr, BLOCK_BYTES, DIRECTORY_BYTES, Errno, FileId, FileKind, Times, Timestamp, inline_blocks,
    limits::PATH_BYTES_MAX,
};
use mayfly_wire::{
    FsUse, SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_SIZE,
    SetAttr, Target, Text, Wire, Writer,
};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    files::state::{
        background::{Change, Length, Reply},
        data::object_of,
    },
    message::{Answer, MemberFacts, Question, SpaceFacts},
    namespace::state::{
        attr::{O_PATH, apply, check_size},
        inode::Located,
    },
    shard::Shard,
    shards::slots::ShardId,
    tier::gates::is_partly_here,
};

impl Shard {
    pub(crate) fn stat(&mut self, target: &Target<'_>, to: &mut Writer<'_>) -> Outcome<Served> {
        let located = match self.load_target(target) {
            Err(Fault::Elsewhere(owner, place)) => return self.stat_elsewhere(owner, place, to),
            located => located?,
        };
        if !matches!(target, Target::Open(_)) || located.inode.kind() == FileKind::Directory {
            self.file_at_hand(&located.inode)?;
        }
        self.links_at_rest(located.inode.id)?;
        self.attr_of(&located.inode)?.encode(to)?;
        Ok(Served::Replied)
    }

    pub(crate) fn load_target(&mut self, target: &Target<'_>) -> Outcome<Located> {
        match target {
            Target::Path(walk) => self.find(walk),
            Target::Open(open) => {
                let open = self.files.opens.get(*open)?;
                self.load_open(open.id)
            }
            Target::Directory(id) => {
                let located = self.load_directory(*id)?;
                located.directory()?;
                Ok(located)
            }
        }
    }

    /// What stat reports. While the size is unsettled the object knows it, and its space and times.
    pub(crate) fn attr_of(&mut self, inode: &Inode) -> Outcome<Attr> {
        let object = match object_of(inode).filter(|_| inode.unsettled) {
            Some(_) if inode.layout.striped => Some(self.look_striped(inode)?),
            Some(object) => Some(self.look(object)?),
            None => None,
        };
        self.attr_with(inode, object.as_ref())
    }

    /// What goes with the answer to an open. What the members of a directory add is left out:
    /// nobody looks for it there, and each of them would have to be asked.
    pub(super) fn attr_at_open(&mut self, inode: &Inode) -> Outcome<Attr> {
        match inode.content {
            Content::Directory(_) => self.attr_from(inode, None, &MemberFacts::default()),
            _ => self.attr_of(inode),
        }
    }

    /// Attributes as stat reports them. While the size is unsettled, length, space and times are
    /// the object's.
    pub(crate) fn attr_with(
        &mut self,
        inode: &Inode,
        object: Option<&ObjectAttr>,
    ) -> Outcome<Attr> {
        let members = self.gather_members(inode)?;
        self.attr_from(inode, object, &members)
    }

    pub(crate) fn attr_from(
        &self,
        inode: &Inode,
        object: Option<&ObjectAttr>,
        members: &MemberFacts,
    ) -> Outcome<Attr> {
        let mut attr = Attr {
            id: inode.id,
            kind: inode.kind(),
            mode: u32::from(inode.mode),
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            size_bytes: inode.size_bytes,
            blocks: inode.blocks,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
        };
        match inode.content {
            Content::Object(_) if inode.unsettled => {
                let object = object.ok_or(Errno::EIO)?;
                attr.size_bytes = object.size_bytes;
                attr.blocks = object.blocks;
                let is_own = !is_partly_here(inode);
                if self.config.times != Times::None && is_own {
                    attr.mtime = object.mtime;
                    attr.ctime = attr.ctime.max(object.ctime);
                }
                if self.config.times == Times::All {
                    attr.atime = attr.atime.max(object.atime);
                }
            }
            Content::Inline(_) => attr.blocks = inline_blocks(inode.size_bytes),
            Content::Directory(_) => {
                attr.links += members.subdirectories;
                attr.mtime = attr.mtime.max(members.mtime);
                attr.ctime = attr.ctime.max(members.mtime);
                attr.size_bytes = DIRECTORY_BYTES;
                attr.blocks = DIRECTORY_BYTES / BLOCK_BYTES;
            }
            Content::Object(_) | Content::Symlink(_) | Content::Fifo(_) | Content::Socket(_) => {}
        }
        if self.config.times == Times::None {
            (attr.atime, attr.mtime, attr.ctime) = (attr.btime, attr.btime, attr.btime);
        }
        Ok(attr)
    }

    pub(crate) fn set_attr(
        &mut self,
        caller: Caller,
        set: &SetAttr<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let mut located = self.load_to_set(set)?;
        if set.which & SET_SIZE != 0 && self.has_cut_another(located.inode.id) {
            self.attr_at_open(&located.inode)?.encode(to)?;
            return Ok(Served::Replied);
        }
        if let Target::Path(_) = set.target {
            self.file_at_hand(&located.inode)?;
        }
        self.have_file_forgotten(located.inode.id)?;
        if set.which & SET_SIZE != 0 {
            self.check_may_cut(&set.target, located.inode.id)?;
        }
        if located.inode.kind() == FileKind::Regular {
            self.prepare_striped(&mut located, set)?;
        }
        if located.inode.layout.striped {
            return self.set_attr_striped(located, set, to);
        }
        if let Some(object) = object_of(&located.inode).filter(|_| located.inode.unsettled) {
            // The reply tells of it.
            self.look(object)?;
        }
        self.update_members(&located.inode, set)?;
        let kind = located.inode.kind();
        if set.which & SET_SIZE != 0 {
            check_size(kind, set.size_bytes)?;
        }
        if set.which & SET_MODE != 0 && kind == FileKind::Symlink {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.set_attr_at_origin(&mut located, set)?;
        let sized = set.which & SET_SIZE != 0 && !self.was_cut_before(located.inode.id);
        if sized {
            self.note_resized(&mut located, set.size_bytes)?;
        }
        let cut = object_of(&located.inode).filter(|_| sized);
        let birth = located.birth();
        if let Some(object) = cut {
            self.check_at_rest(object.file)?;
            self.be_alone(&located.inode)?;
            self.object_to_change(&mut located)?;
            self.mark_unsettled(&mut located, object)?;
            self.note_cut(caller, &located.inode, set.size_bytes)?;
            self.cut_chunks(&mut located, set.size_bytes)?;
        } else if sized {
            self.resize(&mut located, set.size_bytes)?;
        }
        apply(&mut located.inode, set);
        let times = self.apply_times(&mut located.inode, set);
        let timed = object_of(&located.inode).filter(|_| times != (None, None));
        if let Some(object) = timed.filter(|_| cut.is_none() && !self.objects.may_wait()) {
            self.objects.set_times(object, times.0, times.1)?;
        }
        self.attribute_changed(&mut located.inode);
        if !self.change_removed(&located.inode) {
            self.save(&located)?;
        }
        if let Some(object) = cut.or(timed.filter(|_| self.objects.may_wait())) {
            let size_bytes = cut.map(|_| set.size_bytes);
            let change = Change { caller: Some(caller), object, birth, reply: Reply::Attr };
            return Ok(self.start_change(Length::Any, change, move |objects| {
                size_bytes.map_or(Ok(()), |size_bytes| objects.set_size(object, size_bytes))?;
                // After the cut, which is a change of its own time.
                if times != (None, None) {
                    objects.set_times(object, times.0, times.1)?;
                }
                Ok(0)
            }));
        }
        self.attr_of(&located.inode)?.encode(to)?;
        Ok(Served::Replied)
    }

    /// What the attributes are set of. Nobody changes its content without asking any more.
    fn load_to_set(&mut self, set: &SetAttr<'_>) -> Outcome<Located> {
        let mut located = self.load_target(&set.target)?;
        while set.which & SET_SIZE != 0 && self.reserve_content(&located) {
            located = self.load_target(&set.target)?;
        }
        Ok(located)
    }

    /// Whether a length can be set by who names the file so.
    fn check_may_cut(&self, target: &Target<'_>, file: FileId) -> Outcome<()> {
        let Target::Open(open) = target else {
            // Mounts are told of the cut by who has the file open.
            let mapped = self.files.opens.has_flag(file, FILE_MAPPED);
            return if mapped { Err(Errno::ESTALE.into()) } else { Ok(()) };
        };
        let open = self.files.opens.get(*open)?;
        // A description that was opened with O_PATH names the file like a path does (chmod of
        // its name in procfs); what fchmod and its like may not do with it, the client knows.
        match open.may_write() {
            true => Ok(()),
            false if open.flags & O_PATH != 0 => Err(Errno::EBADF.into()),
            false => Err(Errno::EINVAL.into()),
        }
    }

    /// A change of a directory also changes the members' knowledge of it, and their share of its
    /// times.
    fn update_members(&mut self, inode: &Inode, set: &SetAttr<'_>) -> Outcome<()> {
        const KNOWN: u32 = SET_MODE | SET_GID;
        const TIMES: u32 = SET_MTIME | SET_MTIME_NOW;
        let Content::Directory(node) = &inode.content else { return Ok(()) };
        // The attributes are answered as they are with all members.
        self.gather_members(inode)?;
        if node.members.is_empty()
            || set.which & (KNOWN | TIMES) == 0
            || self.run.transaction.is_done
        {
            return Ok(());
        }
        let mut after = inode.clone();
        apply(&mut after, set);
        let step = Step::UpdateMember {
            id: inode.id,
            mode: after.mode,
            gid: after.gid,
            forget_times: set.which & TIMES != 0,
        };
        let members = node.members.iter();
        let parts = members.map(|member| (ShardId(*member), vec![step.clone()])).collect();
        Err(Fault::Operate(parts))
    }

    /// The access and modification times that are asked for. The object gets them too, since it is
    /// asked while the size is unsettled.
    pub(crate) fn apply_times(
        &self,
        inode: &mut Inode,
        set: &SetAttr<'_>,
    ) -> (Option<Timestamp>, Option<Timestamp>) {
        let atime = match set.which {
            which if which & SET_ATIME_NOW != 0 => Some(self.now),
            which if which & SET_ATIME != 0 => Some(set.atime),
            _ => None,
        };
        let mtime = match set.which {
            which if which & SET_MTIME_NOW != 0 => Some(self.now),
            which if which & SET_MTIME != 0 => Some(set.mtime),
            _ => None,
        };
        inode.atime = atime.unwrap_or(inode.atime);
        inode.mtime = mtime.unwrap_or(inode.mtime);
        (atime, mtime)
    }

    pub(crate) fn read_link(
        &mut self,
        target: &Target<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let located = self.load_target(target)?;
        match &located.inode.content {
            Content::Symlink(bytes) => {
                Text { bytes }.encode(to)?;
                Ok(Served::Replied)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// A file that is open is known by its one name.
    pub(crate) fn path_of(&mut self, file: FileId, to: &mut Writer<'_>) -> Outcome<Served> {
        let mut names = Vec::new();
        let mut at = file;
        let mut length = 0;
        if let Some(BirthKey { directory, name }) = self.name_of_open(file)? {
            length = name.len() + 1;
            names.push(name);
            at = directory;
        }
        while at != FileId::ROOT {
            let node = self.directory_facts(at)?;
            if node.links == 0 {
                return Err(Errno::ENOENT.into());
            }
            length += node.name.len() + 1;
            if length >= 16 * PATH_BYTES_MAX {
                return Err(Errno::ENAMETOOLONG.into());
            }
            names.push(node.name);
            at = node.parent;
        }
        let mut path = Vec::with_capacity(length + 1);
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Text { bytes: &path }.encode(to)?;
        Ok(Served::Replied)
    }

    /// The name of an open file that is no directory.
    fn name_of_open(&mut self, file: FileId) -> Outcome<Option<BirthKey>> {
        let Some(open) = self.files.opens.file(file) else { return Ok(None) };
        let noted = open.name.as_deref().cloned();
        let located = self.load_open(file)?;
        match located.fused.or(noted) {
            _ if located.inode.kind() == FileKind::Directory => Ok(None),
            _ if located.inode.links == 0 => Err(Errno::ENOENT.into()),
            // Which names a record of its own has is not noted.
            None => Err(Errno::ENOTDIR.into()),
            Some(name) => Ok(Some(name)),
        }
    }

    pub(crate) fn stat_fs(&mut self, to: &mut Writer<'_>) -> Outcome<Served> {
        let SpaceFacts { capacity_bytes, used_bytes, kept_bytes, files } = self.space_of_all()?;
        FsUse {
            capacity_bytes,
            used_bytes,
            kept_bytes,
            files,
            // What the remaining space holds when every file takes a page.
            files_max: files + capacity_bytes.saturating_sub(used_bytes) / 4096,
            block_bytes: 4096,
            fsid: self.config.instance,
        }
        .encode(to)?;
        Ok(Served::Replied)
    }

    /// Capacity and use of this node.
    pub(crate) fn space(&self) -> SpaceFacts {
        let counters = self.counters();
        let free_bytes = counters.capacity_bytes.saturating_sub(counters.used_bytes);
        SpaceFacts {
            capacity_bytes: counters.capacity_bytes,
            used_bytes: counters.used_bytes,
            kept_bytes: self.kept_for_names().min(free_bytes),
            files: counters.files + counters.directories,
        }
    }

    /// Of all servers that answer.
    pub(super) fn space_of_all(&mut self) -> Outcome<SpaceFacts> {
        let mut sum = self.space();
        let (me, roles) = (self.place.numbering.node, &self.config.roles);
        let others =
            (0..self.place.numbering.nodes).filter(|node| *node != me && roles.is_server(*node));
        let others: Vec<u32> = others.map(|node| self.place.numbering.front_of(node).0).collect();
        if others.is_empty() {
            return Ok(sum);
        }
        for answer in self.facts(&others, &Question::Space)? {
            if let Answer::Space(space) = answer {
                sum.capacity_bytes = sum.capacity_bytes.saturating_add(space.capacity_bytes);
                sum.used_bytes = sum.used_bytes.saturating_add(space.used_bytes);
                sum.kept_bytes = sum.kept_bytes.saturating_add(space.kept_bytes);
                sum.files = sum.files.saturating_add(space.files);
            }
        }
        Ok(sum)
    }
}
