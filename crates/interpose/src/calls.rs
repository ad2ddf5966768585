//! The calls: a table from a number to the function that serves it, one file a family.
//!
//! [`dispatch`] is the only way in. Its table says two things of a call: which function serves it,
//! and whether it is served only when a descriptor among its arguments is ours. The functions take
//! the registers of the call and return an [`Outcome`]. What they know of the process they take
//! from [`crate::process`], what they know of numbers from [`crate::descriptors`], and where a path
//! leads from [`crate::paths`].
//!
//! A call that has a path is carried out by [`serve`], which also issues calls to the kernel. The
//! work of the file system is not done here: that is `client`.

mod asynchronous;
pub(crate) mod attributes;
mod data;
mod descriptor;
mod dirs;
pub(crate) mod locks;
mod mapping;
mod messages;
mod moving;
pub(crate) mod names;
mod opening;
mod polling;
mod refused;
mod resolving;
pub(crate) mod serve;
mod sockets;
pub(crate) mod special;
mod watching;
mod xattrs;

use mayfly_sys::{Errno, number};

use crate::{
    Call, Outcome,
    descriptors::{handover, identity, table},
    process::{exec, flight, fork, owner, session, view},
};

/// So often a call begins again because its descriptor was replaced meanwhile.
const REPLACEMENTS_MAX: usize = 32;

/// Serves one call.
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

/// A call on its first descriptor, when that is ours: a child of vfork may have replaced it.
fn on_ours(call: &Call, serve: impl Fn(&Call) -> Outcome) -> Outcome {
    if flight::child().is_some()
        && let Ok(None) = session::open_file(call.args[0] as i32)
    {
        return Outcome::Pass;
    }
    again_if_replaced(call, |call| match table::get(call.args[0] as i32) {
        table::Meaning::Foreign if flight::child().is_none() => Outcome::Pass,
        table::Meaning::Open(open) if flight::child().is_none() => {
            if handover::has_moved(open) {
                return handover::pass_on(open);
            }
            match serve(call) {
                // Another process has moved it meanwhile; nothing has been done.
                Outcome::Done(raw)
                    if raw == Errno::ESTALE.as_result() && handover::has_moved(open) =>
                {
                    handover::pass_on(open)
                }
                outcome => outcome,
            }
        }
        _ => serve(call),
    })
}

/// Serves a call on its first descriptor, and once more when that fails because another thread put
/// another file in the descriptor's place and the old one ended under the call. The kernel holds a
/// file for the length of a call; we find it gone.
fn again_if_replaced(call: &Call, serve: impl Fn(&Call) -> Outcome) -> Outcome {
    let descriptor = call.args[0] as i32;
    let mut meaning = table::get(descriptor);
    for _ in 0..REPLACEMENTS_MAX {
        let outcome = serve(call);
        let now = table::get(descriptor);
        if now == meaning || outcome != Outcome::Done(Errno::EBADF.as_result()) {
            return outcome;
        }
        meaning = now;
    }
    serve(call)
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn on_mapped(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    if let Some(mapped) = unsafe { mapping::map_lent(call) } {
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
