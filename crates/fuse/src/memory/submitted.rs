//! What files look like that were made without waiting for the daemon, as long as they are open.
//!
//! The kernel wants attributes in the answer to a change, and believes them for no time. So they
//! are what this mount has set, and nobody is asked.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use mayfly_client::Attributes;
use mayfly_types::{Attr, Timestamp};
use mayfly_wire::{SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_UID};

/// Files that were submitted and are open: their handle, and their attributes by then.
#[derive(Debug, Default)]
pub(crate) struct Submitted(Mutex<HashMap<u64, (u64, Attr)>>);

impl Submitted {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, (u64, Attr)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a file, and what it looks like.
    pub(crate) fn find(&self, node: u64) -> Option<(u64, Attr)> {
        self.all().get(&node).copied()
    }

    /// A file was made, by this handle.
    pub(crate) fn made(&self, handle: u64, attr: Attr) {
        self.all().insert(attr.id.0, (handle, attr));
    }

    fn change(&self, node: u64, change: impl FnOnce(&mut Attr)) {
        if let Some((_, attr)) = self.all().get_mut(&node) {
            change(attr);
        }
    }

    /// Bytes up to there were written.
    pub(crate) fn wrote(&self, node: u64, end: u64) {
        self.change(node, |attr| attr.size_bytes = attr.size_bytes.max(end));
    }

    /// The daemon has told its attributes.
    pub(crate) fn told(&self, told: &Attr) {
        self.change(told.id.0, |attr| *attr = *told);
    }

    /// The handle is closed.
    pub(crate) fn closed(&self, node: u64, handle: u64) {
        let mut all = self.all();
        if all.get(&node).is_some_and(|(of, _)| *of == handle) {
            all.remove(&node);
        }
    }
}

/// What is told of a file whose change was submitted. The kernel believes it for no time.
pub(crate) fn apply(attr: &mut Attr, to: &Attributes) {
    let which = to.which;
    let now = || {
        let (seconds, nanoseconds) = mayfly_sys::clock::real();
        Timestamp { seconds, nanoseconds }
    };
    if which & SET_MODE != 0 {
        attr.mode = to.mode;
    }
    if which & SET_UID != 0 {
        attr.uid = to.uid;
    }
    if which & SET_GID != 0 {
        attr.gid = to.gid;
    }
    if which & (SET_UID | SET_GID) != 0 && which & SET_MODE == 0 {
        let gone = if attr.mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
        attr.mode &= !gone;
    }
    match which {
        which if which & SET_ATIME_NOW != 0 => attr.atime = now(),
        which if which & SET_ATIME != 0 => attr.atime = to.atime,
        _ => {}
    }
    match which {
        which if which & SET_MTIME_NOW != 0 => attr.mtime = now(),
        which if which & SET_MTIME != 0 => attr.mtime = to.mtime,
        _ => {}
    }
    attr.ctime = now();
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::{FileId, FileKind};

    #[test]
    fn a_file_looks_as_its_mount_has_changed_it_until_the_handle_is_closed() {
        let time = Timestamp::default();
        let mut attr = Attr {
            id: FileId(5),
            kind: FileKind::Regular,
            mode: 0o6755,
            links: 1,
            uid: 0,
            gid: 0,
            size_bytes: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        };
        let submitted = Submitted::default();
        submitted.made(7, attr);
        submitted.wrote(5, 10);
        submitted.wrote(5, 4);
        assert_eq!(
            submitted.find(5).map(|(handle, attr)| (handle, attr.size_bytes)),
            Some((7, 10))
        );
        let mtime = Timestamp { seconds: 9, nanoseconds: 1 };
        let which = SET_UID | SET_MTIME;
        let to = Attributes { which, mode: 0, uid: 3, gid: 0, size_bytes: 0, atime: time, mtime };
        apply(&mut attr, &to);
        assert_eq!((attr.uid, attr.gid, attr.mode, attr.mtime), (3, 0, 0o755, mtime));
        submitted.closed(5, 8);
        assert!(submitted.find(5).is_some(), "another handle");
        submitted.closed(5, 7);
        assert!(submitted.find(5).is_none());
    }
}
