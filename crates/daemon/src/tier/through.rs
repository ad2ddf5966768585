//! Names and attributes that are changed outside before they are changed here.
//!
//! The operation has checked all that can be checked here. It is run again when the change was made
//! outside, and then changes the records. If it does not get so far, the next look at the directory
//! finds out.

use mayfly_meta::record::{BirthKey, Inode, Master, Origin};
use mayfly_types::{Attr, Errno, FileId, FileKind};
use mayfly_wire::{
    SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_SIZE, SET_UID,
    SetAttr, TierItem, tier::NO_ATTR,
};

use crate::{
    fault::{Fault, Outcome},
    message::{Answer, Question},
    namespace::state::{inode::Located, member::unexpected, walk::Place},
    shard::Shard,
    tier::{
        gates::{is_absent, master_of},
        items::known_of,
        state::wanted::{At, Change, Seen, Wanted},
    },
};

const O_EXCL: u32 = 0o200;
const RENAME_EXCHANGE: u32 = 2;
const TIMES: u32 = SET_ATIME | SET_MTIME | SET_ATIME_NOW | SET_MTIME_NOW;

impl Shard {
    /// The change is made outside, if the directory has an origin: which, and what was seen then.
    pub(crate) fn change_at_origin(
        &mut self,
        at: (FileId, &[u8]),
        change: Change,
    ) -> Outcome<Option<(u32, Seen)>> {
        let Some(source) = self.own_source(at.0)? else { return Ok(None) };
        self.check_source(source)?;
        let wanted = Wanted::Change((at.0, at.1.to_vec()), change);
        match self.was_done(&wanted) {
            Some(Ok(seen)) => Ok(Some((source, seen))),
            Some(Err(errno)) => Err(errno.into()),
            None => self.change_now_or_later(source, wanted, None).map(|seen| Some((source, seen))),
        }
    }

    /// The change waits until it is made outside, unless that may be later.
    fn change_now_or_later(
        &mut self,
        source: u32,
        wanted: Wanted,
        file: Option<(FileId, FileKind)>,
    ) -> Outcome<Seen> {
        if let Wanted::Change(at, change) = &wanted
            && let Some(seen) = self.change_later(source, (at, file), change)?
        {
            return Ok(seen);
        }
        Err(Fault::Outside(Box::new(wanted)))
    }

    fn check_source(&self, source: u32) -> Outcome<()> {
        match self.tier.sources.get(source as usize) {
            Some(source) if source.read_only => Err(Errno::EROFS.into()),
            Some(_) => Ok(()),
            None => Err(Errno::EIO.into()),
        }
    }

    /// Names, or what they stand for, are about to be changed outside. How that ends need not come
    /// to be known here: the request may fail, or its process die, after it was done. So it is
    /// noted before, and a file that is dirty, or will be, is not taken for one that others have
    /// changed. What is seen next says how it is.
    pub(crate) fn be_unsure(&mut self, names: &[At]) -> Outcome<()> {
        for at in names {
            let Some((id, FileKind::Regular)) = self.lookup_here(at)? else { continue };
            let mut located = self.load_cached(id, at)?;
            if located.inode.origin.is_none() {
                continue;
            }
            let master = master_of(&located.inode)?;
            if !master.unsure {
                located.inode.residency = Master { unsure: true, ..master }.encode();
                self.save(&located)?;
            }
        }
        Ok(())
    }

    /// No names are changed in a directory whose origin is read-only, whatever else is wrong.
    pub(crate) fn refuse_read_only(&mut self, directory: FileId) -> Outcome<()> {
        let source = self.own_source(directory)?;
        source.map_or(Ok(()), |source| self.check_source(source))
    }

    /// A file is made outside. One that somebody has made there meanwhile is looked for once.
    pub(crate) fn create_at_origin(
        &mut self,
        place: &Place,
        (mode, flags): (u32, u32),
    ) -> Outcome<Option<(u32, Seen)>> {
        let change = Change::Create { mode: mode & 0o7777 };
        match self.change_at_origin((place.directory, &place.name), change) {
            Err(Fault::Errno(Errno::EEXIST))
                if flags & O_EXCL == 0 && !self.run.outside.begun_anew =>
            {
                self.run.outside.done.clear();
                self.run.outside.begun_anew = true;
                Err(Fault::Outside(Box::new(Wanted::Look(place.directory))))
            }
            other => other,
        }
    }

    /// A file has one name in a directory that has an origin.
    pub(crate) fn refuse_link(&mut self, inode: &Inode, directory: FileId) -> Outcome<()> {
        match (inode.origin.map(|origin| origin.source), self.source_of(directory)?) {
            (None, None) => Ok(()),
            (source, other) if source == other => Err(Errno::EPERM.into()),
            _ => Err(Errno::EXDEV.into()),
        }
    }

    /// The names of a directory that is to be removed. It may be gone already, by this request.
    pub(crate) fn names_before_removal(&mut self, place: &Place, id: FileId) -> Outcome<()> {
        let by_this = self.run.outside.has_changed()
            || self.tier.is_busy(&(place.directory, place.name.clone()));
        match self.names_at_hand(id) {
            Err(Fault::Errno(Errno::ENOENT)) if by_this => Ok(()),
            other => other,
        }
    }

    /// Before the last name of a file goes that somebody has open: all its bytes are here.
    pub(crate) fn bytes_before_removal(
        &mut self,
        found: (FileId, FileKind),
        at: &At,
    ) -> Outcome<()> {
        let is_open = self.files.opens.file(found.0).is_some();
        if !self.has_tier() || !is_open || !self.is_home(found.0) {
            return Ok(());
        }
        let located = self.load_cached(found.0, at)?;
        if located.inode.links == 1 { self.bytes_at_hand(&located.inode) } else { Ok(()) }
    }

    /// A name is removed outside.
    pub(crate) fn remove_at_origin(
        &mut self,
        place: &Place,
        found: (FileId, FileKind),
    ) -> Outcome<()> {
        if !self.has_tier() {
            return Ok(());
        }
        if self.is_linked(found)? {
            return Err(Errno::EBUSY.into());
        }
        let change = match found.1 {
            FileKind::Directory => Change::RemoveDirectory,
            _ => {
                self.bytes_before_removal(found, &(place.directory, place.name.clone()))?;
                Change::Remove
            }
        };
        self.change_at_origin((place.directory, &place.name), change).map(drop)
    }

    /// The same of a directory that has its seat at another shard.
    pub(crate) fn remove_seat_at_origin(&mut self, place: &Place, id: FileId) -> Outcome<()> {
        if self.is_linked((id, FileKind::Directory))? {
            return Err(Errno::EBUSY.into());
        }
        self.refuse_read_only(place.directory)?;
        if self.own_source(place.directory)?.is_none() {
            return Ok(());
        }
        if self.directory_facts(id)?.entries > 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
        // What went in it may go outside yet, and is another shard's to do.
        self.run.outside.through = true;
        self.names_are_written_at_home(id)?;
        self.change_at_origin((place.directory, &place.name), Change::RemoveDirectory).map(drop)
    }

    fn names_are_written_at_home(&mut self, id: FileId) -> Outcome<()> {
        if self.is_home(id) {
            return self.names_are_written(id);
        }
        match self.fact(self.place.slots.home(id), Question::Written(id))? {
            Answer::Done => Ok(()),
            answer => Err(unexpected(&answer)),
        }
    }

    /// A name is moved outside.
    pub(crate) fn rename_at_origin(
        &mut self,
        from: &Place,
        to: &Place,
        flags: u32,
    ) -> Outcome<Option<Seen>> {
        if !self.has_tier() {
            return Ok(None);
        }
        let moved = from.found.ok_or(Errno::ENOENT)?;
        let roots = [Some(moved), to.found];
        for found in roots.into_iter().flatten() {
            if self.is_linked(found)? {
                return Err(Errno::EBUSY.into());
            }
        }
        let (source, other) = (self.source_of(from.directory)?, self.source_of(to.directory)?);
        if source != other {
            return Err(Errno::EXDEV.into());
        }
        let Some(source) = source else { return Ok(None) };
        self.check_source(source)?;
        // Of other shards only whole trees are known, which stay where they are.
        let is_seat = |found: (FileId, FileKind)| {
            found.1 == FileKind::Directory
                && (!self.is_home(found.0) || self.tier.roots.get(found.0).is_some())
        };
        if !self.is_home(to.directory) || roots.into_iter().flatten().any(is_seat) {
            return Err(Errno::EXDEV.into());
        }
        if flags & RENAME_EXCHANGE != 0 {
            return Err(Errno::EINVAL.into());
        }
        let target = (to.directory, to.name.clone());
        if let Some(found) = to.found.filter(|found| found.1 == FileKind::Regular) {
            self.bytes_before_removal(found, &target)?;
        }
        if let Some((id, FileKind::Directory)) = to.found {
            self.names_at_hand(id)?;
        }
        let change = Change::Rename { to: target, flags };
        let done = self.change_at_origin((from.directory, &from.name), change)?;
        Ok(done.map(|(_, seen)| seen))
    }

    /// A file that has an origin has another name from now on. The caller saves the inode.
    pub(crate) fn note_moved(&self, inode: &mut Inode, to: &BirthKey) -> Outcome<()> {
        if inode.origin.is_none() || inode.kind() == FileKind::Directory {
            return Ok(());
        }
        let master = master_of(inode)?;
        let (parent, name) = (to.directory, to.name.clone());
        inode.residency = Master { parent, name, ..master }.encode();
        Ok(())
    }

    /// What was moved, or got other attributes, is known as it is now, if it was known before.
    pub(crate) fn know_again(&mut self, id: FileId, at: &At, seen: Seen) -> Outcome<()> {
        if !seen.same {
            return Ok(());
        }
        let mut located = self.load_cached(id, at)?;
        self.know_change(&mut located, seen)?;
        self.save(&located)
    }

    /// What was changed outside has these attributes now. Others may have set some before: what was
    /// seen of that is the time of our change.
    pub(crate) fn know_change(&mut self, located: &mut Located, seen: Seen) -> Outcome<()> {
        self.know_stamp(located, seen)?;
        let inode = &mut located.inode;
        if inode.origin.is_some() && seen.same && inode.kind() != FileKind::Directory {
            inode.mode = (seen.attr.mode & 0o7777) as u16;
            (inode.uid, inode.gid) = (seen.attr.uid, seen.attr.gid);
        }
        Ok(())
    }

    pub(crate) fn know_stamp(&mut self, located: &mut Located, seen: Seen) -> Outcome<()> {
        let inode = &mut located.inode;
        let Some(origin) = inode.origin.filter(|_| seen.same) else { return Ok(()) };
        if inode.kind() == FileKind::Directory {
            // Its times tell of its names, too, which may have changed meanwhile.
            return Ok(());
        }
        let master = master_of(inode)?;
        self.set_origin(inode, Some(Origin { mtime: seen.attr.mtime, ..origin }));
        inode.residency = master.seen(seen.attr.ctime).encode();
        self.saw(inode, seen.at_ms);
        Ok(())
    }

    /// Attributes are set outside. Those of a dirty file that go back with its bytes wait for that.
    pub(crate) fn set_attr_at_origin(
        &mut self,
        located: &mut Located,
        set: &SetAttr<'_>,
    ) -> Outcome<()> {
        let Some(origin) = located.inode.origin.filter(|_| located.inode.links > 0) else {
            return Ok(());
        };
        self.check_writable(&located.inode)?;
        if set.which & SET_SIZE != 0 {
            self.chunks_to_cut(&located.inode, set.size_bytes)?;
        }
        let mut which = set.which & (SET_MODE | SET_UID | SET_GID | TIMES);
        if origin.dirty || set.which & SET_SIZE != 0 {
            which &= !TIMES;
        }
        if which == 0 {
            return Ok(());
        }
        let at = self.place_at_origin(&located.inode)?;
        let SetAttr { mode, uid, gid, atime, mtime, .. } = *set;
        let change = Change::SetAttr { which, mode: mode & 0o7777, uid, gid, atime, mtime };
        let wanted = Wanted::Change(at, change);
        match self.was_done(&wanted) {
            Some(Ok(seen)) => self.know_change(located, seen),
            Some(Err(errno)) => Err(errno.into()),
            None => {
                let file = (located.inode.id, located.inode.kind());
                self.change_now_or_later(origin.source, wanted, Some(file)).map(drop)
            }
        }
    }

    /// The length of a file is about to be set. Everything was checked.
    pub(crate) fn note_resized(&mut self, located: &mut Located, size_bytes: u64) -> Outcome<()> {
        if is_absent(&located.inode) && size_bytes == 0 {
            return self.note_dirty_whole(located);
        }
        self.note_dirty(located)?;
        self.own_chunks(located)
    }

    /// What the keeper is told of a change, besides the path: `other` and `bytes`.
    pub(crate) fn encode_change(
        &mut self,
        at: &At,
        change: &Change,
        told: &mut TierItem<'_>,
    ) -> Outcome<(Vec<u8>, Vec<u8>)> {
        match change {
            Change::Create { mode } | Change::MakeDirectory { mode } => told.attr.mode = *mode,
            Change::Symlink { target } => return Ok((target.clone(), Vec::new())),
            Change::Remove | Change::RemoveDirectory => {}
            Change::Rename { to, flags } => {
                told.which = *flags;
                told.known = self.known_to_change((at, to), told.file)?;
                return Ok((self.path_at_origin(to)?.1, Vec::new()));
            }
            Change::SetAttr { which, mode, uid, gid, atime, mtime } => {
                told.which = *which;
                (told.attr.mode, told.attr.uid, told.attr.gid) = (*mode, *uid, *gid);
                (told.attr.atime, told.attr.mtime) = (*atime, *mtime);
                told.known = self.known_to_change((at, at), told.file)?;
            }
            Change::SetXattr { name, value, flags } => {
                told.which = *flags;
                told.known = self.known_to_change((at, at), told.file)?;
                return Ok((name.clone(), value.clone()));
            }
            Change::RemoveXattr { name } => {
                told.known = self.known_to_change((at, at), told.file)?;
                return Ok((name.clone(), Vec::new()));
            }
        }
        Ok((Vec::new(), Vec::new()))
    }

    /// What is known of a master copy that is about to be changed, whose name it was or, with an
    /// entry of the journal, has been since. That says which `file` it is.
    fn known_to_change(&mut self, (at, to): (&At, &At), file: FileId) -> Outcome<Attr> {
        if file != FileId::NONE {
            return self.load_cached(file, to).map_or(Ok(NO_ATTR), |located| known_of(&located));
        }
        let found = match at.1.is_empty() {
            true => Some(at.0),
            false => self.lookup_here(at)?.map(|(id, _)| id),
        };
        found.map_or(Ok(NO_ATTR), |id| known_of(&self.load_cached(id, at)?))
    }
}
