//! Is a file open for writing?
//!
//! An instance says of each file how many descriptions may write to it, on whatever node they are.
//! Of a file system of this machine the kernel says it to who asks for a read lease, which is given
//! back at once. A network file system tells nothing of other machines: there only a change while a
//! file is copied is seen.

use std::{
    collections::HashMap,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Mutex,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{SigHandler, Signal, signal},
        statfs::{self, FsType, fstatfs},
    },
};

use crate::xattrs;

/// The extended attribute by which an instance says it.
const WRITERS: &std::ffi::CStr = c"user.mayfly.writers";
/// One that everything in an instance has.
const LAYOUT: &std::ffi::CStr = c"user.mayfly.layout";
/// File systems of which this kernel knows all who have a file open.
const OWN: [FsType; 7] = [
    statfs::TMPFS_MAGIC,
    statfs::EXT4_SUPER_MAGIC,
    statfs::XFS_SUPER_MAGIC,
    statfs::BTRFS_SUPER_MAGIC,
    statfs::OVERLAYFS_SUPER_MAGIC,
    F2FS,
    ZFS,
];
/// `F2FS_SUPER_MAGIC` of linux/magic.h.
const F2FS: FsType = FsType(0xF2F5_2010);
/// `ZFS_SUPER_MAGIC` of OpenZFS.
const ZFS: FsType = FsType(0x2FC1_2FC1);

/// Who is asked about the files of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// The instance.
    Instance,
    /// The kernel.
    Kernel,
    /// Nobody knows.
    Nothing,
}

/// What is known of the file systems met, by device.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<u64, Tells>>);

impl Writers {
    /// Who tells about the files of this directory, which is on that device.
    pub(crate) fn tells(&self, directory: BorrowedFd<'_>, device: u64) -> Tells {
        let Ok(mut known) = self.0.lock() else { return Tells::Nothing };
        *known.entry(device).or_insert_with(|| who_tells(directory))
    }
}

fn who_tells(directory: BorrowedFd<'_>) -> Tells {
    if xattrs::get(directory, LAYOUT, &mut [0; 256]).is_ok() {
        return Tells::Instance;
    }
    match fstatfs(directory) {
        Ok(found) if OWN.contains(&found.filesystem_type()) => Tells::Kernel,
        _ => Tells::Nothing,
    }
}

impl Tells {
    /// Is the file, which is open for reading here, open for writing somewhere, as far as anybody
    /// tells?
    pub(crate) fn is_written(self, file: BorrowedFd<'_>) -> bool {
        match self {
            Tells::Instance => {
                let mut digits = [0; 16];
                xattrs::get(file, WRITERS, &mut digits).is_ok_and(|count| digits[..count] != *b"0")
            }
            Tells::Kernel => is_refused_a_lease(file),
            Tells::Nothing => false,
        }
    }
}

/// Others than a file's owner may not ask: of theirs nothing is known.
fn is_refused_a_lease(file: BorrowedFd<'_>) -> bool {
    // SAFETY: numbers only; the descriptor is open.
    let lease =
        |kind: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if lease(libc::F_RDLCK) < 0 {
        return Errno::last() == Errno::EAGAIN;
    }
    lease(libc::F_UNLCK);
    false
}

/// Whoever opens a file for writing at the very moment of the question has the kernel tell this
/// process, by a signal that would end it.
pub(crate) fn expect_questions() {
    // SAFETY: a signal that is ignored runs no code.
    let _ = unsafe { signal(Signal::SIGIO, SigHandler::SigIgn) };
}
