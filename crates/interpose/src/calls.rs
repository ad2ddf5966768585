//! The calls: a table from a number to the function that serves it, one file a family.
//!
//! [`dispatch`] is the way in. Its table says two things of a call: which function serves it,
//! and whether it is served only when a descriptor among its arguments is ours. The functions take
//! the registers of the call and return an [`Outcome`]. What they know of the process they take
//! from [`crate::process`], what they know of numbers from [`crate::descriptors`], and where a path
//! leads from [`crate::paths`].
//!
//! A call that has a path is carried out by [`serve`], which also issues calls to the kernel; one
//! on a descriptor goes through [`ours`]. The work of the file system is not done here: that is
//! `client`.

mod asynchronous;
pub(crate) mod attributes;
pub(crate) mod data;
mod descriptor;
mod dirs;
pub(crate) mod locks;
mod mapping;
mod messages;
mod moving;
pub(crate) mod names;
mod opening;
pub(crate) mod ours;
mod polling;
mod refused;
mod resolving;
pub(crate) mod serve;
mod sockets;
pub(crate) mod special;
mod watching;
mod xattrs;

use mayfly_sys::{Errno, number};

use ours::{again_if_replaced, on_ours};

use crate::{
    Call, Outcome,
    descriptors::{handover, identity},
    process::{exec, flight, fork, owner, session, view},
};

/// Serves one call. The parts of the table are functions of their own, so that each has a frame for
/// what it serves and no more.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn dispatch(call: &mut Call) -> Outcome {
    fork::notice();
    flight::settle();
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            0..=99 => low(call),
            100..=199 => middle(call),
            _ => high(call),
        }
    }
}

/// # Safety
/// As [`crate::dispatch`].
#[inline(never)]
unsafe fn low(call: &Call) -> Outcome {
    use number::*;
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            READ | WRITE | PREAD64 | PWRITE64 | READV | WRITEV => {
                on_ours(call, |call| data::transfer(call))
            }
            OPEN | CREAT => opening::open(call),
            CLOSE => descriptor::close(call),
            STAT | LSTAT => attributes::stat(call),
            FSTAT => on_ours(call, |call| attributes::stat(call)),
            LSEEK => on_ours(call, data::seek),
            MMAP => on_mapped(call),
            IOCTL => on_ours(call, |call| descriptor::ioctl(call)),
            ACCESS => attributes::access(call),
            POLL => polling::poll(call),
            SELECT => polling::select(call),
            DUP => descriptor::dup(call),
            DUP2 => descriptor::dup_onto(call),
            SENDFILE => moving::send_file(call),
            SENDMSG => messages::send(call),
            BIND => sockets::bind(call),
            CONNECT => sockets::connect(call),
            SENDTO => sockets::send_to(call),
            GETSOCKNAME | GETPEERNAME => sockets::name(call),
            RECVMSG => messages::receive(call),
            CLONE | FORK | VFORK => fork::before(call),
            EXECVE => exec::exec(call),
            FCNTL => on_ours(call, |call| descriptor::fcntl(call)),
            FLOCK => on_ours(call, locks::flock),
            FSYNC | FDATASYNC => on_ours(call, data::sync),
            TRUNCATE => attributes::truncate(call),
            FTRUNCATE => on_ours(call, data::truncate),
            GETDENTS => refused::on_descriptor(call, Errno::ENOSYS),
            GETCWD => dirs::getcwd(call),
            CHDIR => dirs::chdir(call),
            FCHDIR => dirs::fchdir(call),
            RENAME => names::rename(call),
            MKDIR => names::mkdir(call),
            RMDIR | UNLINK => names::remove(call),
            LINK => names::link(call),
            SYMLINK => names::symlink(call),
            READLINK => names::readlink(call),
            CHMOD => attributes::chmod(call),
            FCHMOD => on_ours(call, |call| attributes::chmod(call)),
            CHOWN | LCHOWN => attributes::chown(call),
            FCHOWN => on_ours(call, |call| attributes::chown(call)),
            UMASK => names::set_umask(call),
            _ => Outcome::Pass,
        }
    }
}

/// # Safety
/// As [`crate::dispatch`].
#[inline(never)]
unsafe fn middle(call: &Call) -> Outcome {
    use number::*;
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            UTIME => attributes::set_times(call),
            MKNOD => names::mknod(call),
            STATFS => attributes::statfs(call),
            FSTATFS => on_ours(call, |call| attributes::statfs(call)),
            SYNC => {
                sync_all();
                Outcome::Pass
            }
            READAHEAD => on_ours(call, data::advise),
            FSETXATTR | FGETXATTR | FLISTXATTR | FREMOVEXATTR => {
                on_ours(call, |call| xattrs::serve(call))
            }
            SETUID | SETGID | SETREUID | SETREGID | SETRESUID | SETRESGID | SETFSUID | SETFSGID => {
                prepare_for_another_user();
                owner::change()
            }
            SETXATTR | LSETXATTR | GETXATTR | LGETXATTR | LISTXATTR | LLISTXATTR | REMOVEXATTR
            | LREMOVEXATTR => xattrs::serve(call),
            _ => refuse_path(call),
        }
    }
}

/// # Safety
/// As [`crate::dispatch`].
#[inline(never)]
unsafe fn high(call: &mut Call) -> Outcome {
    use number::*;
    // SAFETY: passed on to the caller.
    unsafe {
        match call.number {
            INOTIFY_ADD_WATCH => watching::add(call),
            OPENAT => opening::open(call),
            OPENAT2 => opening::open_how(call),
            NEWFSTATAT => again_if_replaced(call, |call| attributes::stat(call)),
            STATX => again_if_replaced(call, |call| attributes::statx(call)),
            GETDENTS64 => on_ours(call, |call| dirs::list(call)),
            FACCESSAT | FACCESSAT2 => attributes::access(call),
            MKDIRAT => names::mkdir(call),
            MKNODAT => names::mknod(call),
            UNLINKAT => names::remove(call),
            RENAMEAT | RENAMEAT2 => names::rename(call),
            LINKAT => names::link(call),
            SYMLINKAT => names::symlink(call),
            READLINKAT => names::readlink(call),
            FCHMODAT | FCHMODAT2 => attributes::chmod(call),
            FCHOWNAT => attributes::chown(call),
            UTIMES | FUTIMESAT | UTIMENSAT => attributes::set_times(call),
            PREADV | PWRITEV | PREADV2 | PWRITEV2 => on_ours(call, |call| data::transfer(call)),
            DUP3 => descriptor::dup_onto(call),
            CLOSE_RANGE => descriptor::close_range(call),
            EXIT_GROUP => descriptor::before_exit(),
            CLONE3 => fork::before(call),
            EXECVEAT => exec::exec(call),
            PPOLL => polling::poll(call),
            PSELECT6 => polling::select(call),
            EPOLL_CTL => refused::epoll(call),
            IO_SUBMIT => asynchronous::submit(call),
            IO_URING_SETUP => handover::set_up_ring(),
            KCMP => descriptor::compare(call),
            SPLICE | TEE | COPY_FILE_RANGE | VMSPLICE => moving::between(call),
            SENDMMSG => messages::send_many(call),
            RECVMMSG => messages::receive_many(call),
            FADVISE64 => on_ours(call, data::advise),
            SYNC_FILE_RANGE | SYNCFS => on_ours(call, data::sync),
            FALLOCATE => on_ours(call, data::allocate),
            CACHESTAT | QUOTACTL_FD | FINIT_MODULE => {
                refused::on_descriptor(call, Errno::EOPNOTSUPP)
            }
            SETNS | UNSHARE => {
                view::before_another_view();
                owner::change()
            }
            SETXATTRAT | GETXATTRAT | LISTXATTRAT | REMOVEXATTRAT => xattrs::serve(call),
            OPEN_BY_HANDLE_AT => refused::on_descriptor(call, Errno::EOPNOTSUPP),
            _ => refuse_path(call),
        }
    }
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn on_mapped(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    if let Some(mapped) = unsafe { mapping::map_leased(call) } {
        return mapped;
    }
    match session::open_file(call.args[4] as i32) {
        Ok(None) => Outcome::Pass,
        // SAFETY: passed on to the caller.
        _ => unsafe { mapping::map(call) },
    }
}

/// What another user could not get, since the run directory is its owner's alone: the directory
/// that numbers are taken with. Who has not come to the instance by then is not let in as another.
fn prepare_for_another_user() {
    if flight::child().is_none() && session::existing().is_some() {
        // Without it the next new number fails and says so.
        let _ = identity::placeholder();
    }
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn refuse_path(call: &Call) -> Outcome {
    if refused::changes_view(call.number) {
        view::before_another_view();
    }
    match refused::path_call(call.number) {
        // SAFETY: passed on to the caller.
        Some((at, errno)) => unsafe { refused::with_paths(call, at, errno) },
        None => Outcome::Pass,
    }
}

/// sync also means ours, if this process has to do with the instance at all.
fn sync_all() {
    if let Some(session) = session::existing() {
        // The call cannot fail; what could not be synced is reported by fsync.
        let _ = session.sync_all();
    }
}
