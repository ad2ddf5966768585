//! What [`crate::namespace::attr`] keeps and works with.

use mayfly_meta::record::Inode;
use mayfly_types::{Errno, FileKind, limits::FILE_BYTES_MAX};
use mayfly_wire::{SET_GID, SET_MODE, SET_UID, SetAttr};

use crate::fault::Outcome;

pub(crate) const O_PATH: u32 = 0o10_000_000;

pub(crate) fn check_size(kind: FileKind, size_bytes: u64) -> Outcome<()> {
    match kind {
        FileKind::Directory => Err(Errno::EISDIR.into()),
        FileKind::Symlink | FileKind::Fifo | FileKind::Socket => Err(Errno::EINVAL.into()),
        FileKind::Regular if size_bytes > i64::MAX as u64 => Err(Errno::EINVAL.into()),
        FileKind::Regular if size_bytes > FILE_BYTES_MAX => Err(Errno::EFBIG.into()),
        FileKind::Regular => Ok(()),
    }
}

/// Mode and owner. A change of owner takes away what let others run the file as the former one.
pub(crate) fn apply(inode: &mut Inode, set: &SetAttr<'_>) {
    if set.which & (SET_UID | SET_GID) != 0 && inode.kind() == FileKind::Regular {
        inode.mode &= if inode.mode & 0o010 == 0 { !0o4000 } else { !0o6000 };
    }
    if set.which & SET_MODE != 0 {
        inode.mode = (set.mode & 0o7777) as u16;
    }
    if set.which & SET_UID != 0 {
        inode.uid = set.uid;
    }
    if set.which & SET_GID != 0 {
        inode.gid = set.gid;
    }
}
