//! Changes of attributes that nobody waits for.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use mayfly_records::{Bytes, Found, Question, Reached, directory, look, reach};
use mayfly_sys::{file, text::PathText};
use mayfly_transport::Transport;
use mayfly_transport_shm::{
    layout::{FILE_BY_REQUEST, FILE_OBJECT, FILE_STRIPED, OPEN_PROMISED},
    tally::{Kind, Way},
};
use mayfly_types::{
    Attr, FIRST_OBJECT, FileId, FileKind, ObjectPath, OpenRef, Times, Timestamp, inline_blocks,
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

/// Times are the object's as long as the length is.
const TIMES: u32 = SET_ATIME | SET_ATIME_NOW | SET_MTIME | SET_MTIME_NOW;

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
        let submitted = self.transport.submit_changes(
            &set,
            &mut |directory, path| self.is_alone_in_records((directory, path), of, which),
            &mut |promised| self.time_promised_object(promised, to),
        );
        if submitted {
            self.end_about(began, (Kind::Change, Way::Unawaited), &target, false);
        }
        submitted
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
            self.is_alone_in_records((directory, path), None, 0)
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
            self.is_alone_in_records((directory, path), None, 0)
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
        let (mode, uid, gid, bytes) =
            self.transport.look_at_submitted(promised.reference, now, &mut |directory, path| {
                self.gives_no_group((directory, path))
            })?;
        // The same promise as before the look: nobody has executed it.
        self.end_open(began, (Kind::Stat, Way::Itself), promised.reference, false);
        let size_bytes = bytes as u64;
        Some(Attr {
            id,
            kind: FileKind::Regular,
            mode,
            links: 1,
            uid,
            gid,
            size_bytes,
            blocks: inline_blocks(size_bytes),
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        })
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
    /// no other name, and the attributes `which` stand in its record alone. Of the name nothing is
    /// submitted, since whoever asks has claimed it.
    fn is_alone_in_records(
        &self,
        (start, path): (FileId, &[u8]),
        is: Option<FileId>,
        which: u32,
    ) -> bool {
        let head = self.node.head;
        let starts = head.daemon_starts.load(Acquire);
        let Some(view) = self.records.view(head) else { return false };
        let question = Question { start, path, follow: false };
        let Ok(Reached::Regular(found, ..)) = reach(&view, question) else { return false };
        let settled = !matches!(found.bytes, Bytes::Object { settled: false, .. });
        found.attr.links == 1
            && is.is_none_or(|is| is == found.attr.id)
            && (settled || which & TIMES == 0)
            && is_served_since(head, starts)
            && is_complete(head)
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
