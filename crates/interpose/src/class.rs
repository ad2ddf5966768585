//! Which system calls the filter in the trampolines must look at.
//!
//! The filter runs in every call of the host, so it decides by one byte for each call number and,
//! for calls on one descriptor, by one load from the descriptor table.

use mayfly_sys::number::*;

/// Descriptor numbers the table covers; a descriptor at or above it is never ours.
pub const DESCRIPTORS_MAX: usize = 1 << 20;
/// Call numbers the class table covers; a call at or above it passes.
pub const CALLS_MAX: usize = 512;

/// Never ours: issue it.
pub const PASS: u8 = 0;
/// Ours when the descriptor in the first argument is.
pub const DESCRIPTOR_FIRST: u8 = 1;
/// Always looked at in Rust.
pub const ALWAYS: u8 = 2;
/// Ours when the descriptor in the fifth argument is (mmap).
pub const DESCRIPTOR_FIFTH: u8 = 3;

/// Calls on one descriptor.
const ON_DESCRIPTOR: &[usize] = &[
    READ,
    WRITE,
    CLOSE,
    FSTAT,
    LSEEK,
    IOCTL,
    PREAD64,
    PWRITE64,
    READV,
    WRITEV,
    PREADV,
    PWRITEV,
    PREADV2,
    PWRITEV2,
    DUP,
    FCNTL,
    FLOCK,
    FSYNC,
    FDATASYNC,
    FTRUNCATE,
    GETDENTS,
    GETDENTS64,
    FCHMOD,
    FCHOWN,
    FSTATFS,
    READAHEAD,
    FSETXATTR,
    FGETXATTR,
    FLISTXATTR,
    FREMOVEXATTR,
    FADVISE64,
    SYNC_FILE_RANGE,
    FALLOCATE,
    SYNCFS,
    CACHESTAT,
    FINIT_MODULE,
    QUOTACTL_FD,
    VMSPLICE,
];

/// Calls with a path, with several descriptors, or on the process as a whole.
const LOOKED_AT: &[usize] = &[
    // Paths.
    OPEN,
    OPENAT,
    OPENAT2,
    CREAT,
    STAT,
    LSTAT,
    NEWFSTATAT,
    STATX,
    ACCESS,
    FACCESSAT,
    FACCESSAT2,
    MKDIR,
    MKDIRAT,
    RMDIR,
    UNLINK,
    UNLINKAT,
    RENAME,
    RENAMEAT,
    RENAMEAT2,
    LINK,
    LINKAT,
    SYMLINK,
    SYMLINKAT,
    READLINK,
    READLINKAT,
    CHMOD,
    FCHMODAT,
    FCHMODAT2,
    CHOWN,
    LCHOWN,
    FCHOWNAT,
    UTIME,
    UTIMES,
    FUTIMESAT,
    UTIMENSAT,
    TRUNCATE,
    STATFS,
    CHDIR,
    // From inside to a directory of the kernel's too.
    FCHDIR,
    GETCWD,
    MKNOD,
    MKNODAT,
    SETXATTR,
    LSETXATTR,
    GETXATTR,
    LGETXATTR,
    LISTXATTR,
    LLISTXATTR,
    REMOVEXATTR,
    LREMOVEXATTR,
    SETXATTRAT,
    GETXATTRAT,
    LISTXATTRAT,
    REMOVEXATTRAT,
    INOTIFY_ADD_WATCH,
    FANOTIFY_MARK,
    NAME_TO_HANDLE_AT,
    OPEN_BY_HANDLE_AT,
    CHROOT,
    MOUNT,
    UMOUNT2,
    PIVOT_ROOT,
    ACCT,
    SWAPON,
    SWAPOFF,
    QUOTACTL,
    USELIB,
    OPEN_TREE,
    MOVE_MOUNT,
    FSPICK,
    MOUNT_SETATTR,
    FILE_GETATTR,
    FILE_SETATTR,
    OPEN_TREE_ATTR,
    // Several descriptors.
    DUP2,
    DUP3,
    CLOSE_RANGE,
    SENDFILE,
    SPLICE,
    TEE,
    COPY_FILE_RANGE,
    POLL,
    PPOLL,
    SELECT,
    PSELECT6,
    EPOLL_CTL,
    SENDMSG,
    SENDMMSG,
    RECVMSG,
    RECVMMSG,
    IO_SUBMIT,
    IO_URING_REGISTER,
    KCMP,
    // The process as a whole.
    FORK,
    VFORK,
    CLONE,
    CLONE3,
    EXECVE,
    EXECVEAT,
    UMASK,
    SYNC,
    UNSHARE,
    EXIT_GROUP,
];

const fn classes() -> [u8; CALLS_MAX] {
    let mut classes = [PASS; CALLS_MAX];
    let mut at = 0;
    while at < ON_DESCRIPTOR.len() {
        classes[ON_DESCRIPTOR[at]] = DESCRIPTOR_FIRST;
        at += 1;
    }
    let mut at = 0;
    while at < LOOKED_AT.len() {
        classes[LOOKED_AT[at]] = ALWAYS;
        at += 1;
    }
    classes[MMAP] = DESCRIPTOR_FIFTH;
    classes
}

/// The class of each call number.
pub static CLASSES: [u8; CALLS_MAX] = classes();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_stands_in_two_lists() {
        let mut seen = [false; CALLS_MAX];
        for call in ON_DESCRIPTOR.iter().chain(LOOKED_AT).chain(&[MMAP]) {
            assert!(!core::mem::replace(&mut seen[*call], true), "call {call} stands twice");
        }
    }
}
