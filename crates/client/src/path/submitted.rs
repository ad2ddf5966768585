//! Changes of attributes that nobody waits for.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use mayfly_records::{Bytes, Found, Question, Reached, directory, look, reach};
use mayfly_sys::{file, text::PathText};
use mayfly_transport::{Certain, Looked, Transport};
use mayfly_transport_shm::{
    layout::{FILE_BY_REQUEST, FILE_OBJECT, FILE_STRIPED, OPEN_PROMISED},
    tally::{Kind, Way},
};
use mayfly_types::{
    Attr, FIRST_OBJECT, FileId, FileKind, ObjectPath, OpenRef, Times, Timestamp, inline_blocks,
    limits::NAME_BYTES_MAX,
};
use mayfly_wire::{
    Link, Rename, SET_ATIME, SET_ATIME_NOW, SET_MTIME, SET_MTIME_NOW, SET_SIZE, SetAttr, Target,
    WALK_FOLLOW, Walk,
};

use super::{
    names::Attributes,
    records::{is_complete, is_served_since, is_submitted},
};
use crate::{Client, Descriptors, OpenFile};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Changes attributes without waiting for it, where that cannot fail: of a regular file that
    /// this process may change by submitting, or of one that it is writing; the length alone, or
    /// others. False when it is to be asked for.
    #[must_use]
    pub fn submit_attributes(&self, target: Target<'_>, to: &Attributes) -> bool {
        let Attributes { which, mode, uid, gid, size_bytes, atime, mtime } = *to;
        if which == SET_SIZE {
            return self.submit_length(target, size_bytes);
        }
        // Who watches is told of the file by its identity.
        if which & SET_SIZE != 0 || self.is_watched() {
            return false;
        }
        let began = self.begin(0);
        if let Target::Open(open) = target
            && which == SET_MTIME
            && !self.is_leased(open)
            && self.set_object_time(open, to)
        {
            self.end_about(began, (Kind::Change, Way::Itself), &target, false);
            return true;
        }
        let of = match target {
            Target::Open(open) => self.made_file(open),
            Target::Path(_) | Target::Directory(_) => None,
        };
        let set = SetAttr { target, which, mode, uid, gid, size_bytes, atime, mtime };
        let certain = &mut |directory, path: &[u8]| self.alone_in_records((directory, path), of);
        let time_object = &mut |promised| self.time_promised_object(promised, to);
        let submitted = self.transport.submit_changes(&set, certain, time_object)
            || of.is_some() && self.submit_by_name(&set, certain);
        if submitted {
            self.end_about(began, (Kind::Change, Way::Unawaited), &target, false);
        }
        submitted
    }

    /// The same by the name with which a description was opened, if that is its file's still, as
    /// `certain` says.
    fn submit_by_name(
        &self,
        set: &SetAttr<'_>,
        certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
    ) -> bool {
        let Target::Open(open) = set.target else { return false };
        let mut room = [0; NAME_BYTES_MAX];
        let Some((start, bytes)) = self.opened_name(open, &mut room) else { return false };
        let path = room.get(..bytes).unwrap_or_default();
        let walk = Walk { start: FileId(start), flags: 0, path };
        self.transport.submit_changes_known(set, &walk, certain)
    }

    /// Moves a name without waiting for it, where that cannot fail: of something that is certainly
    /// there, and no directory, within what is leased. False when it is to be asked for.
    #[must_use]
    pub fn submit_rename(&self, from: Walk<'_>, to: Walk<'_>, flags: u32) -> bool {
        // Who watches is told of what was there, too.
        if self.is_watched() {
            return false;
        }
        let began = self.begin(0);
        let rename = Rename { from, to, flags };
        let submitted = self.transport.submit_rename(&rename, &mut |directory, path| {
            self.alone_in_records((directory, path), None) != Certain::Nothing
        });
        if submitted {
            self.end_at(began, (Kind::Rename, Way::Unawaited), &from, false);
        }
        submitted
    }

    /// Gives a regular file another name without waiting for it, where that cannot fail: it
    /// certainly has one, and the other is new. False when it is to be asked for.
    #[must_use]
    pub fn submit_link(&self, from: Target<'_>, to: Walk<'_>) -> bool {
        if self.is_watched() {
            return false;
        }
        let began = self.begin(0);
        let submitted = self.transport.submit_link(&Link { from, to }, &mut |directory, path| {
            self.alone_in_records((directory, path), None) != Certain::Nothing
        });
        if submitted {
            self.end_at(began, (Kind::Link, Way::Unawaited), &to, false);
        }
        submitted
    }

    /// Whether there is no file of that name to open, as far as [`Client::is_absent`] knows.
    #[must_use]
    pub fn is_nothing_to_open(&self, walk: &Walk<'_>) -> bool {
        self.is_absent(walk, Kind::Open)
    }

    /// Whether nothing can be made of that name, since the directory is not there, as far as
    /// [`Client::is_absent`] knows.
    #[must_use]
    pub fn is_nowhere(&self, walk: &Walk<'_>) -> bool {
        let slash = walk.path.iter().rposition(|byte| *byte == b'/');
        // What ends with one has an error of its own.
        let slash = slash.filter(|slash| slash + 1 < walk.path.len());
        let Some(path) = slash.and_then(|slash| walk.path.get(..slash)) else { return false };
        self.is_absent(&Walk { path, ..*walk }, Kind::Create)
    }

    /// Whether nothing has the name, as far as this process knows by what is delegated to it: the
    /// records tell nothing while something is submitted.
    pub(super) fn is_absent(&self, walk: &Walk<'_>, kind: Kind) -> bool {
        let began = self.begin(0);
        let is_absent =
            is_submitted(self.node.head) && self.transport.is_there(walk) == Some(false);
        if is_absent {
            self.end_at(began, (kind, Way::Itself), walk, true);
        }
        is_absent
    }

    /// Whether something certainly has a name that is to be new, which is an error of this kind of
    /// operation. True only where that is known without asking.
    #[must_use]
    pub fn is_taken(&self, walk: &Walk<'_>, kind: Kind) -> bool {
        // What ends with a slash or a dot has errors of its own.
        let name = walk.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if matches!(name, b"" | b"." | b"..") {
            return false;
        }
        let began = self.begin(0);
        let walk = Walk { flags: walk.flags & !WALK_FOLLOW, ..*walk };
        let is_taken = match self.transport.is_there(&walk) {
            Some(is_there) => is_there,
            None => matches!(self.look(&Target::Path(walk)), Some(Ok(_))),
        };
        if is_taken {
            self.end_at(began, (kind, Way::Itself), &walk, true);
        }
        is_taken
    }

    /// Attributes of a file that was submitted a moment ago and is not made yet; `None` when they
    /// are to be asked for. Its times are told with the first look, so there is one.
    #[must_use]
    pub fn look_at_promised(&self, promised: OpenFile) -> Option<Attr> {
        let id = promised.id();
        if id == FileId::NONE {
            return None;
        }
        let began = self.begin(0);
        let now = Self::time_of_look();
        if let Some(attr) = self.look_at_replaced(promised, now) {
            self.end_open(began, (Kind::Stat, Way::Itself), promised.reference, false);
            return Some(attr);
        }
        let told =
            self.transport.look_at_submitted(promised.reference, now, &mut |directory, path| {
                self.gives_no_group((directory, path))
            })?;
        // The same promise as before the look: nobody has executed it.
        self.end_open(began, (Kind::Stat, Way::Itself), promised.reference, false);
        Some(of_new_file(id, now, told))
    }

    /// The same of a file that waits under a name, open or not.
    pub(super) fn look_at_name(&self, walk: &Walk<'_>) -> Option<Attr> {
        if !is_submitted(self.node.head) {
            return None;
        }
        let began = self.begin(0);
        let (id, now, told) = self.transport.look_at_name(
            walk,
            &mut Self::time_of_look,
            &mut |directory, path| self.gives_no_group((directory, path)),
        )?;
        self.end_at(began, (Kind::Stat, Way::Itself), walk, false);
        Some(of_new_file(id, now, told))
    }

    /// Whether a directory, which the records have, leaves the group of files in it to who makes
    /// them.
    fn gives_no_group(&self, (start, path): (FileId, &[u8])) -> bool {
        let head = self.node.head;
        let starts = head.daemon_starts.load(Acquire);
        let Some(view) = self.records.view(head) else { return false };
        let attr = if path.is_empty() {
            directory(&view, start).ok()
        } else {
            match look(&view, Question { start, path, follow: false }) {
                Ok(Found::File(attr)) if attr.kind == FileKind::Directory => Some(attr),
                _ => None,
            }
        };
        attr.is_some_and(|attr| attr.mode & 0o2000 == 0) && is_served_since(head, starts)
    }

    /// The file of a description, if that is made.
    fn made_file(&self, open: OpenRef) -> Option<FileId> {
        let entry = self.node.opens.get(open.index as usize)?;
        let made = entry.state.load(Acquire) != OPEN_PROMISED;
        let id = FileId(entry.id.load(Relaxed));
        (made && self.is_open(open)).then_some(id)
    }

    /// Whether a path from a directory leads to a regular file (that one, if one is given) that has
    /// no other name, and which attributes stand in its record alone. Of the name nothing is
    /// submitted, since whoever asks has claimed it.
    fn alone_in_records(&self, (start, path): (FileId, &[u8]), is: Option<FileId>) -> Certain {
        let head = self.node.head;
        let starts = head.daemon_starts.load(Acquire);
        let Some(view) = self.records.view(head) else { return Certain::Nothing };
        let question = Question { start, path, follow: false };
        let Ok(Reached::Regular(found, ..)) = reach(&view, question) else {
            return Certain::Nothing;
        };
        let is_certain = found.attr.links == 1
            && is.is_none_or(|is| is == found.attr.id)
            && is_served_since(head, starts)
            && is_complete(head);
        match found.bytes {
            _ if !is_certain => Certain::Nothing,
            // Times are the object's as long as the length is.
            Bytes::Object { settled: false, .. } => Certain::AllButTimes,
            _ => Certain::All,
        }
    }

    /// Sets times of the object that this process has made for a file that is not made yet.
    fn time_promised_object(&self, promised: OpenRef, to: &Attributes) -> bool {
        let Some(entry) = self.node.opens.get(promised.index as usize) else { return false };
        let object = ObjectPath::of(FileId(entry.id.load(Relaxed)), FIRST_OBJECT);
        let Ok(path) = PathText::from_bytes(object.as_bytes()) else { return false };
        let which = |set: u32, now: u32, time: Timestamp| match to.which {
            which if which & now != 0 => file::SetTime::Now,
            which if which & set != 0 => file::SetTime::To(time.seconds, time.nanoseconds),
            _ => file::SetTime::Stays,
        };
        let atime = which(SET_ATIME, SET_ATIME_NOW, to.atime);
        let mtime = which(SET_MTIME, SET_MTIME_NOW, to.mtime);
        file::set_times(self.objects.directory.0, &path, atime, mtime).is_ok()
    }

    /// Sets the modification time of a file whose object this process may write: as long as it may,
    /// the object's time is the file's.
    fn set_object_time(&self, reference: OpenRef, to: &Attributes) -> bool {
        if self.node.head.times.load(Relaxed) == Times::None as u32 {
            return false;
        }
        // One that is promised has no object.
        if self.is_promised(reference) {
            return false;
        }
        let Ok(open) = self.open_file(reference) else { return false };
        let Ok((index, entry)) = self.file_entry(open) else { return false };
        let flags = entry.flags.load(Acquire);
        let is_whole = flags & (FILE_BY_REQUEST | FILE_STRIPED | FILE_OBJECT) == FILE_OBJECT;
        if !is_whole || !open.writable() || entry.allowance_end.load(Acquire) == 0 {
            return false;
        }
        let generation = entry.grant_generation.load(Acquire);
        let Some(object) = self.objects.find(index, open.id().0, generation, true) else {
            return false;
        };
        let (seconds, nanoseconds) = (to.mtime.seconds, to.mtime.nanoseconds);
        file::set_modified(object.descriptor, seconds, nanoseconds).is_ok()
            && !self.revoked(open, &object)
    }
}

/// Attributes of a file in its record that was made, or looked at, `now`.
fn of_new_file(id: FileId, now: Timestamp, (mode, uid, gid, bytes): Looked) -> Attr {
    let (size_bytes, blocks) = (bytes as u64, inline_blocks(bytes as u64));
    let (kind, links) = (FileKind::Regular, 1);
    let (atime, mtime, ctime, btime) = (now, now, now, now);
    Attr { id, kind, mode, links, uid, gid, size_bytes, blocks, atime, mtime, ctime, btime }
}
