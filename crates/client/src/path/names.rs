//! Operations on names and attributes: one request each, or none for stat and most listings.

use mayfly_records::{Linked, Unsure};
use mayfly_sys::{
    file::{O_TRUNC, O_WRONLY},
    text::PathText,
};
use mayfly_transport::Transport;
use mayfly_transport_shm::tally::{Kind, Way};
use mayfly_types::{Attr, Errno, FileId, FileKind, OpenRef, limits::NAME_BYTES_MAX};
use mayfly_wire::{
    FsUse, Link, List, MakeDirectory, MakeSpecial, Open, Opened, PathOf, Reach, ReadLink, Rename,
    SET_SIZE, SetAttr, Stat, StatFs, Symlink, Sync, Target, Unlink, Walk,
};

use super::records::{is_submitted, look_apart};
use crate::{Client, Descriptors, OpenFile, Stop};

/// A listing by the records has at most so many bytes of packed entries, some hundred of them: they
/// are on the stack of the host.
const LISTED_BYTES: usize = 4096;

/// Owner and permission bits of something new; the umask has been taken off.
#[derive(Debug, Clone, Copy)]
pub struct NewOwner {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// So often a path is looked for in the records that others change meanwhile.
const PATH_TRIES: u32 = 4;

/// A link whose target is longer than that is asked for, bytes.
const LINK_BYTES: usize = 1024;

/// The attributes to change, as in [`SetAttr`] without its target.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes {
    /// Which of the others count (`mayfly_wire::SET_*`).
    pub which: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length.
    pub size_bytes: u64,
    /// Access time.
    pub atime: mayfly_types::Timestamp,
    /// Modification time.
    pub mtime: mayfly_types::Timestamp,
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Attributes.
    ///
    /// # Errors
    /// As stat; [`Stop::Escaped`].
    pub fn stat(&self, target: Target<'_>, escape: &mut PathText) -> Result<Attr, Stop> {
        let began = self.begin(0);
        let Some(found) = self.look(&target) else {
            if let Target::Path(walk) = &target
                && self.is_absent(walk, Kind::Stat)
            {
                return Err(Stop::Failed(Errno::ENOENT));
            }
            if let Target::Path(walk) = &target
                && let Some(attr) = self.look_at_name(walk)
            {
                return Ok(attr);
            }
            return self
                .asked_about(Kind::Stat, &target, || self.walk(&Stat { target }, escape, Ok));
        };
        self.end_about(began, (Kind::Stat, Way::Itself), &target, found.is_err());
        found.map_err(Stop::Failed)
    }

    /// Attributes, if the records tell them. They do not tell those of what has extended ones.
    pub(super) fn look(&self, target: &Target<'_>) -> Option<Result<Attr, Errno>> {
        let head = self.node.head;
        match target {
            Target::Path(walk) => {
                let makes_alone = || self.transport.submits_additions_alone();
                self.records.look(head, walk, makes_alone, |view, question| {
                    if !self.transport.is_quicker_beside() {
                        return Err(Unsure);
                    }
                    look_apart(view, question, &mut |directory, path| {
                        self.transport.waits(directory, path)
                    })
                })
            }
            Target::Directory(directory) => self.records.directory(head, *directory).map(Ok),
            Target::Open(open) => {
                self.open_directory(*open).and_then(|id| self.records.directory(head, id)).map(Ok)
            }
        }
    }

    /// Which directory the description is of, if it is of one.
    fn open_directory(&self, reference: OpenRef) -> Option<FileId> {
        let entry = self.node.opens.get(reference.index as usize)?;
        let open = OpenFile { reference, entry };
        // Of one that is promised the entry tells nothing yet.
        let is_known = open.kind() == FileKind::Directory && !self.is_promised(reference);
        let id = is_known.then(|| open.id())?;
        self.is_open(reference).then_some(id)
    }

    /// Opens or creates a file. The open file description belongs to this process alone at first.
    ///
    /// # Errors
    /// As open; [`Stop::Escaped`].
    pub fn open(
        &self,
        walk: Walk<'_>,
        flags: u32,
        new: NewOwner,
        escape: &mut PathText,
    ) -> Result<Opened, Stop> {
        let NewOwner { mode, uid, gid } = new;
        let began = self.begin(0);
        let opened = self.walk(&Open { walk, flags, mode, uid, gid }, escape, |reply| {
            if let Some(content) = &reply.content {
                self.contents.keep(reply.opened.open, content);
            }
            Ok(reply.opened)
        });
        let created = opened.as_ref().is_ok_and(|opened| opened.created);
        let kind = if created { Kind::Create } else { Kind::Open };
        if !matches!(opened, Err(Stop::Escaped)) {
            self.end_at(began, (kind, Way::Asked), &walk, opened.is_err());
        }
        opened.inspect(|opened| {
            self.note_name(opened.open, &walk);
            if opened.created {
                self.tell_made(&walk);
            } else if flags & O_TRUNC != 0
                && let Ok(open) = self.open_file(opened.open)
            {
                self.changed(open, 0, u64::MAX);
            }
        })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As mkdir; [`Stop::Escaped`].
    pub fn make_directory(
        &self,
        walk: Walk<'_>,
        new: NewOwner,
        escape: &mut PathText,
    ) -> Result<(), Stop> {
        let NewOwner { mode, uid, gid } = new;
        let request = MakeDirectory { walk, mode, uid, gid };
        self.asked_at(Kind::Mkdir, &walk, || self.walk(&request, escape, Ok))?;
        self.tell_made(&walk);
        Ok(())
    }

    /// Removes the name of something that is no directory.
    ///
    /// # Errors
    /// As unlink; [`Stop::Escaped`].
    pub fn unlink(&self, walk: Walk<'_>, escape: &mut PathText) -> Result<(), Stop> {
        self.remove(walk, false, escape)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir; [`Stop::Escaped`].
    pub fn remove_directory(&self, walk: Walk<'_>, escape: &mut PathText) -> Result<(), Stop> {
        self.remove(walk, true, escape)
    }

    fn remove(&self, walk: Walk<'_>, directory: bool, escape: &mut PathText) -> Result<(), Stop> {
        let before = self.before(&walk);
        let kind = if directory { Kind::Rmdir } else { Kind::Unlink };
        self.asked_at(kind, &walk, || self.walk(&Unlink { walk, directory }, escape, Ok))?;
        self.tell_removed(before, directory);
        Ok(())
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As renameat2; [`Stop::Escaped`] when either path leads out.
    pub fn rename(
        &self,
        from: Walk<'_>,
        to: Walk<'_>,
        flags: u32,
        escape: &mut PathText,
    ) -> Result<(), Stop> {
        let before = (self.before(&from), self.before(&to));
        let request = Rename { from, to, flags };
        self.asked_at(Kind::Rename, &from, || self.walk(&request, escape, Ok))?;
        self.tell_moved(before, flags);
        Ok(())
    }

    /// Adds a name.
    ///
    /// # Errors
    /// As linkat; [`Stop::Escaped`] when either path leads out.
    pub fn link(&self, from: Target<'_>, to: Walk<'_>, escape: &mut PathText) -> Result<(), Stop> {
        self.asked_at(Kind::Link, &to, || self.walk(&Link { from, to }, escape, Ok))?;
        self.tell_linked(&to);
        Ok(())
    }

    /// Makes a symbolic link that says `target`.
    ///
    /// # Errors
    /// As symlink; [`Stop::Escaped`].
    pub fn symlink(
        &self,
        target: &[u8],
        at: Walk<'_>,
        new: NewOwner,
        escape: &mut PathText,
    ) -> Result<(), Stop> {
        let request = Symlink { target, at, uid: new.uid, gid: new.gid };
        self.asked_at(Kind::Link, &at, || self.walk(&request, escape, Ok))?;
        self.tell_made(&at);
        Ok(())
    }

    /// Makes a pipe or a socket (`what` is a `mayfly_wire::SPECIAL_*`) that stands for the kernel's
    /// at `place`.
    ///
    /// # Errors
    /// As mknod; [`Stop::Escaped`].
    pub fn make_special(
        &self,
        walk: Walk<'_>,
        what: u32,
        new: NewOwner,
        place: &[u8],
        escape: &mut PathText,
    ) -> Result<(), Stop> {
        let NewOwner { mode, uid, gid } = new;
        let request = MakeSpecial { walk, what, mode, uid, gid, place };
        self.asked_at(Kind::Link, &walk, || self.walk(&request, escape, Ok))?;
        self.tell_made(&walk);
        Ok(())
    }

    /// Hands to `take` which of the two a file is, and its place.
    ///
    /// # Errors
    /// EINVAL when it is neither; [`Stop::Escaped`]; those of `take`.
    pub fn reach<R>(
        &self,
        target: Target<'_>,
        escape: &mut PathText,
        take: impl FnOnce(u32, &[u8]) -> Result<R, Errno>,
    ) -> Result<R, Stop> {
        self.walk(&Reach { target }, escape, |reached| take(reached.what, reached.place))
    }

    /// Hands the target of a symbolic link to `take`.
    ///
    /// # Errors
    /// As readlink; [`Stop::Escaped`]; those of `take`.
    pub fn read_link<R>(
        &self,
        target: Target<'_>,
        escape: &mut PathText,
        take: impl FnOnce(&[u8]) -> Result<R, Errno>,
    ) -> Result<R, Stop> {
        let (began, mut room) = (self.begin(0), [0; LINK_BYTES]);
        let Some(found) = self.link_in_records(&target, &mut room) else {
            return self.asked_about(Kind::Link, &target, || {
                self.walk(&ReadLink { target }, escape, |text| take(text.bytes))
            });
        };
        let taken = match found {
            Linked::Link(bytes) => take(room.get(..bytes).unwrap_or_default()),
            Linked::Other => Err(Errno::EINVAL),
        };
        self.end_about(began, (Kind::Link, Way::Itself), &target, taken.is_err());
        taken.map_err(Stop::Failed)
    }

    fn link_in_records(&self, target: &Target<'_>, room: &mut [u8]) -> Option<Linked> {
        let Target::Path(walk) = target else { return None };
        let head = self.node.head;
        if is_submitted(head) && !self.transport.is_quicker_beside() {
            return None;
        }
        let waits = &mut |directory, path: Option<&[u8]>| self.transport.waits(directory, path);
        self.records.read_link(head, walk, waits, room)
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As chmod, chown, truncate, utimensat; [`Stop::Escaped`].
    pub fn set_attributes(
        &self,
        target: Target<'_>,
        to: &Attributes,
        escape: &mut PathText,
    ) -> Result<Attr, Stop> {
        let Attributes { which, mode, uid, gid, size_bytes, atime, mtime } = *to;
        let request = SetAttr { target, which, mode, uid, gid, size_bytes, atime, mtime };
        let done = self.asked_about(Kind::Change, &target, || self.walk(&request, escape, Ok));
        if let Ok(attr) = &done {
            // A change of length through a description is told as any other of its content.
            let told = if matches!(target, Target::Open(_)) { which & !SET_SIZE } else { which };
            self.tell_set(attr.id, told);
        }
        match (target, done) {
            (Target::Open(open), Ok(attr)) if which & SET_SIZE != 0 => {
                if let Ok(open) = self.open_file(open) {
                    self.changed(open, size_bytes, u64::MAX);
                }
                Ok(attr)
            }
            // Mounts may keep pages of the file. Then it has to be open for a cut.
            (Target::Path(walk), Err(Stop::Failed(Errno::ESTALE))) if which & SET_SIZE != 0 => {
                self.set_attributes_open(walk, to, escape)
            }
            (_, done) => done,
        }
    }

    fn set_attributes_open(
        &self,
        walk: Walk<'_>,
        to: &Attributes,
        escape: &mut PathText,
    ) -> Result<Attr, Stop> {
        let new = NewOwner { mode: 0, uid: 0, gid: 0 };
        let opened = self.open(walk, O_WRONLY, new, escape)?;
        let done = self.set_attributes(Target::Open(opened.open), to, escape);
        if let Ok(open) = self.open_file(opened.open) {
            // An error of the close does not matter: the change is done, or has failed already.
            let _ = self.close(open);
        }
        done
    }

    /// Hands packed entries of an open directory to `take`, from `cookie` on; none at the end.
    ///
    /// # Errors
    /// As getdents64; those of `take`.
    pub fn list<R>(
        &self,
        open: OpenFile,
        cookie: u64,
        bytes_max: usize,
        take: impl FnOnce(&[u8]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut piece = [0; LISTED_BYTES];
        let room = piece.len().min(bytes_max);
        let began = self.begin(0);
        let count = |way, failed| {
            let walk = Walk { start: open.id(), path: b"", flags: 0 };
            self.end_at(began, (Kind::List, way), &walk, failed);
        };
        if let Some(used) = self.records.list(self.node.head, open.id(), cookie, &mut piece[..room])
        {
            count(Way::Itself, false);
            return take(&piece[..used]);
        }
        let bytes_max = bytes_max.min(mayfly_types::limits::TRANSFER_BYTES_MAX) as u32;
        // One that is leased gets a description.
        let OpenFile { reference, .. } = self.open_file(open.reference)?;
        let request = List { open: reference, cookie, bytes_max };
        let listed = self.ask(&request, |listing| take(listing.entries));
        count(Way::Asked, listed.is_err());
        listed
    }

    /// Hands the path of a directory or an open file, from the root of the instance, to `take`.
    ///
    /// # Errors
    /// ENOENT when it was removed, ENOTDIR for a file whose name is not known; those of `take`.
    pub fn path_of<R>(
        &self,
        file: FileId,
        take: impl FnOnce(&[u8]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut room = [0; NAME_BYTES_MAX];
        match self.path_in_records(file, &mut room) {
            Some(NAME_BYTES_MAX) => take(b"/"),
            Some(start) => take(room.get(start..).unwrap_or_default()),
            None => self.ask(&PathOf { file }, |text| take(text.bytes)),
        }
    }

    /// Where the path of a directory begins in `room`, if the records tell it. Directories move by
    /// requests alone, and all of those are in the records.
    fn path_in_records(&self, file: FileId, room: &mut [u8; NAME_BYTES_MAX]) -> Option<usize> {
        let head = self.node.head;
        if is_submitted(head) && self.transport.removes_directories() {
            return None;
        }
        // A commit may be under way, which is short.
        (0..PATH_TRIES).find_map(|_| self.records.path_of(head, file, room))
    }

    /// Capacity and use.
    ///
    /// # Errors
    /// EIO.
    pub fn capacity(&self) -> Result<FsUse, Errno> {
        self.ask(&StatFs {}, Ok)
    }

    /// Makes one file durable, as far as the instance promises durability.
    ///
    /// # Errors
    /// As fsync.
    pub fn sync(&self, open: OpenRef) -> Result<(), Errno> {
        let request = Sync { target: Target::Open(open), all: false };
        self.asked_open(Kind::Sync, open, || self.ask(&request, Ok))
    }

    /// Makes everything durable, as far as the instance promises durability.
    ///
    /// # Errors
    /// EIO.
    pub fn sync_all(&self) -> Result<(), Errno> {
        self.ask(&Sync { target: Target::Directory(FileId::ROOT), all: true }, Ok)
    }
}
