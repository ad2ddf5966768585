//! Calls that can name something of ours and are not served: a clear error, never a silent success,
//! and never the placeholder's own answer.

use mayfly_client::Stop;
use mayfly_sys::{Errno, number};

use super::serve::{AT, PLAIN, PathArguments, argument, with_path};
use crate::{Call, Outcome, process::session};

/// A call on a descriptor of ours.
pub(super) fn on_descriptor(call: &Call, errno: Errno) -> Outcome {
    match session::open_file(argument(call, 0) as i32) {
        Ok(None) => Outcome::Pass,
        Ok(Some(open)) if open.is_path() => Outcome::Done(Errno::EBADF.as_result()),
        Ok(Some(_)) => Outcome::Done(errno.as_result()),
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// A call with a path: refused when the path is ours, issued otherwise.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn with_paths(call: &Call, at: PathArguments, errno: Errno) -> Outcome {
    if argument(call, at.path) == 0 {
        return Outcome::Pass;
    }
    let follow = call.number != number::NAME_TO_HANDLE_AT;
    // SAFETY: passed on to the caller.
    if unsafe { at.path_of(call) } == Ok(b"") && at.directory.is_some() {
        // With AT_EMPTY_PATH it is about the descriptor; without, it fails anyway.
        return match session::open_file(at.directory_of(call)) {
            Ok(None) => Outcome::Pass,
            Ok(Some(_)) => Outcome::Done(errno.as_result()),
            Err(errno) => Outcome::Done(errno.as_result()),
        };
    }
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            // The walk decides whether the name exists, and whether it is ours at all.
            session::get()?.stat(place.target(follow)?, escape)?;
            Err(Stop::Failed(errno))
        })
    }
}

/// epoll_ctl: regular files cannot be waited for.
pub(super) fn epoll(call: &Call) -> Outcome {
    match session::open_file(argument(call, 2) as i32) {
        Ok(None) => Outcome::Pass,
        Ok(Some(open)) if open.is_path() => Outcome::Done(Errno::EBADF.as_result()),
        Ok(Some(_)) => Outcome::Done(Errno::EPERM.as_result()),
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// May paths lead elsewhere after this call?
pub(super) fn changes_view(number: usize) -> bool {
    use number::*;
    matches!(number, CHROOT | MOUNT | UMOUNT2 | PIVOT_ROOT | MOVE_MOUNT)
}

/// The path arguments and the error of a refused call with a path; `None` for one that is not in
/// the list.
pub(super) fn path_call(number: usize) -> Option<(PathArguments, Errno)> {
    use number::*;
    const SECOND: PathArguments = PathArguments::plain(1);
    Some(match number {
        NAME_TO_HANDLE_AT | FILE_GETATTR | FILE_SETATTR => (AT, Errno::EOPNOTSUPP),
        FANOTIFY_MARK => (PathArguments::at(3), Errno::EOPNOTSUPP),
        CHROOT | UMOUNT2 | PIVOT_ROOT | ACCT | SWAPON | SWAPOFF | USELIB => (PLAIN, Errno::EPERM),
        MOUNT | QUOTACTL => (SECOND, Errno::EPERM),
        OPEN_TREE | OPEN_TREE_ATTR | MOVE_MOUNT | FSPICK | MOUNT_SETATTR => (AT, Errno::EPERM),
        _ => return None,
    })
}
