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
/// Ours when the descriptor in the first argument is, and looked at while the watched word is not
/// zero ([`crate::watched_word`]).
pub const DESCRIPTOR_FIRST_WATCHED: u8 = 4;
/// Never ours, and looked at while that word is not zero.
pub const PASS_WATCHED: u8 = 5;
/// Always looked at, by the entry itself first ([`crate::first`]): the first argument is a path.
pub const PATH_FIRST: u8 = 6;
/// The same with a directory in the first argument and the path in the second.
pub const PATH_SECOND: u8 = 7;

/// Calls on one descriptor.
pub(crate) const ON_DESCRIPTOR: &[usize] = &[
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

/// Calls on one path, the first argument. [`crate::quick`] decides most of them by the path's text.
pub(crate) const ON_PATH: &[usize] = &[
    OPEN,
    CREAT,
    STAT,
    LSTAT,
    ACCESS,
    MKDIR,
    RMDIR,
    UNLINK,
    READLINK,
    CHMOD,
    CHOWN,
    LCHOWN,
    UTIME,
    UTIMES,
    TRUNCATE,
    STATFS,
    SETXATTR,
    LSETXATTR,
    GETXATTR,
    LGETXATTR,
    LISTXATTR,
    LLISTXATTR,
    REMOVEXATTR,
    LREMOVEXATTR,
];

/// The same with a directory in the first argument and the path in the second.
pub(crate) const ON_PATH_AT: &[usize] = &[
    OPENAT, NEWFSTATAT, STATX, FACCESSAT, FACCESSAT2, MKDIRAT, UNLINKAT, READLINKAT, FCHMODAT,
    FCHMODAT2, FCHOWNAT, UTIMENSAT, FUTIMESAT,
];

/// Calls with other paths, with several descriptors, or on the process as a whole.
const INSPECTED: &[usize] = &[
    // Paths.
    OPENAT2,
    RENAME,
    RENAMEAT,
    RENAMEAT2,
    LINK,
    LINKAT,
    SYMLINK,
    SYMLINKAT,
    CHDIR,
    // From inside to a directory of the kernel's too.
    FCHDIR,
    GETCWD,
    MKNOD,
    MKNODAT,
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
    IO_URING_SETUP,
    KCMP,
    // Names of sockets.
    BIND,
    CONNECT,
    SENDTO,
    GETSOCKNAME,
    GETPEERNAME,
    // Credentials.
    SETUID,
    SETGID,
    SETREUID,
    SETREGID,
    SETRESUID,
    SETRESGID,
    SETFSUID,
    SETFSGID,
    SETNS,
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

/// Calls on one descriptor that free a number, take one, or show which ones are taken.
const ON_DESCRIPTOR_WATCHED: &[usize] = &[CLOSE, DUP, FCNTL, IOCTL, GETDENTS, GETDENTS64];

/// Calls that pass, and take a number, mean one, or limit them.
const WATCHED: &[usize] = &[
    // Take numbers.
    SOCKET,
    SOCKETPAIR,
    ACCEPT,
    ACCEPT4,
    PIPE,
    PIPE2,
    EPOLL_CREATE,
    EPOLL_CREATE1,
    EVENTFD,
    EVENTFD2,
    SIGNALFD,
    SIGNALFD4,
    TIMERFD_CREATE,
    INOTIFY_INIT,
    INOTIFY_INIT1,
    FANOTIFY_INIT,
    MEMFD_CREATE,
    MEMFD_SECRET,
    USERFAULTFD,
    PERF_EVENT_OPEN,
    BPF,
    FSOPEN,
    FSMOUNT,
    MQ_OPEN,
    PIDFD_OPEN,
    PIDFD_GETFD,
    LANDLOCK_CREATE_RULESET,
    SECCOMP,
    // Mean one.
    GETSOCKOPT,
    SETSOCKOPT,
    LISTEN,
    SHUTDOWN,
    RECVFROM,
    EPOLL_WAIT,
    EPOLL_PWAIT,
    EPOLL_PWAIT2,
    EPOLL_CTL_OLD,
    EPOLL_WAIT_OLD,
    INOTIFY_RM_WATCH,
    TIMERFD_GETTIME,
    TIMERFD_SETTIME,
    MQ_GETSETATTR,
    MQ_NOTIFY,
    MQ_TIMEDRECEIVE,
    MQ_TIMEDSEND,
    PIDFD_SEND_SIGNAL,
    PROCESS_MADVISE,
    PROCESS_MRELEASE,
    WAITID,
    FSCONFIG,
    IO_URING_ENTER,
    IO_URING_REGISTER,
    KEXEC_FILE_LOAD,
    LANDLOCK_ADD_RULE,
    LANDLOCK_RESTRICT_SELF,
    // Limit them.
    SETRLIMIT,
    PRLIMIT64,
];

/// Puts `class` in the places of `calls`.
pub(crate) const fn put(classes: &mut [u8; CALLS_MAX], calls: &[usize], class: u8) {
    let mut at = 0;
    while at < calls.len() {
        classes[calls[at]] = class;
        at += 1;
    }
}

const fn classes() -> [u8; CALLS_MAX] {
    let mut classes = [PASS; CALLS_MAX];
    put(&mut classes, ON_DESCRIPTOR, DESCRIPTOR_FIRST);
    put(&mut classes, ON_DESCRIPTOR_WATCHED, DESCRIPTOR_FIRST_WATCHED);
    put(&mut classes, WATCHED, PASS_WATCHED);
    put(&mut classes, ON_PATH, PATH_FIRST);
    put(&mut classes, ON_PATH_AT, PATH_SECOND);
    put(&mut classes, INSPECTED, ALWAYS);
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
        let paths = ON_PATH.iter().chain(ON_PATH_AT);
        let others = INSPECTED.iter().chain(WATCHED).chain(&[MMAP]);
        for call in ON_DESCRIPTOR.iter().chain(paths).chain(others) {
            assert!(!core::mem::replace(&mut seen[*call], true), "call {call} stands twice");
        }
    }
}
