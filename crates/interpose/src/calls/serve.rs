//! How a call with a path is carried out, wherever the path leads.
//!
//! The path is located. In the instance, the call's own function does the work; the daemon may
//! answer that the walk left the instance, and the call goes on at the absolute path it names,
//! which may be back in the instance. In the kernel, the call is issued here rather than passed, so
//! that a failure can be looked at: a link of the kernel's may lead below the mount point
//! ([`crate::paths::links`]).

use mayfly_client::Stop;
use mayfly_sys::{
    Errno,
    arch::syscall6,
    file::{
        AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW,
        RENAME_EXCHANGE,
    },
    number,
    text::PathText,
    user,
};
use mayfly_types::limits::SYMLINK_FOLLOWS_MAX;

use crate::{
    Call, Outcome,
    descriptors::closed_number,
    paths::{
        links,
        locate::{Place, locate},
    },
};

/// Which arguments of a call are a path and the directory it starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathArguments {
    /// Index of the directory descriptor; `None` for the working directory.
    pub(crate) directory: Option<usize>,
    /// Index of the path.
    pub(super) path: usize,
    /// False when the kernel answers ELOOP to a link at the path's end.
    pub(super) takes_links: bool,
}

/// A call whose first argument is its path.
pub(crate) const PLAIN: PathArguments = PathArguments::plain(0);
/// A call whose first two arguments are a directory and a path.
pub(crate) const AT: PathArguments = PathArguments::at(0);

/// Whether a call does not know some of its flags. The kernel refuses it before it looks at any
/// path.
pub(crate) fn are_refused(number: usize, flags: usize) -> bool {
    const NO_AUTOMOUNT: usize = 0x800;
    const SYNC_TYPE: usize = 0x6000;
    const RENAME_KNOWN: usize = 7;
    let known = match number {
        number::RENAME | number::RENAMEAT | number::RENAMEAT2 => {
            return flags & !RENAME_KNOWN != 0
                || flags & RENAME_EXCHANGE != 0 && flags != RENAME_EXCHANGE;
        }
        number::LINK | number::LINKAT => AT_SYMLINK_FOLLOW | AT_EMPTY_PATH,
        number::STATX | number::NEWFSTATAT => {
            AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | NO_AUTOMOUNT | SYNC_TYPE
        }
        number::FACCESSAT2 => AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_EACCESS,
        _ => AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH,
    };
    // They are an `int`.
    flags as u32 as usize & !known != 0
}

impl PathArguments {
    /// A path relative to the working directory.
    pub(super) const fn plain(path: usize) -> PathArguments {
        PathArguments { directory: None, path, takes_links: true }
    }

    /// A directory, and behind it a path.
    pub(super) const fn at(directory: usize) -> PathArguments {
        PathArguments { directory: Some(directory), path: directory + 1, takes_links: true }
    }

    /// The same, with or without links at the path's end.
    pub(super) const fn taking_links(self, takes_links: bool) -> PathArguments {
        PathArguments { takes_links, ..self }
    }

    /// The directory of `call`.
    pub(crate) fn directory_of(self, call: &Call) -> i32 {
        self.directory.map_or(AT_FDCWD, |index| argument(call, index) as i32)
    }

    /// The path of `call`.
    ///
    /// # Errors
    /// EFAULT, ENAMETOOLONG.
    ///
    /// # Safety
    /// The argument is what the host passes to the kernel as a path.
    pub(crate) unsafe fn path_of<'a>(self, call: &Call) -> Result<&'a [u8], Errno> {
        // SAFETY: passed on to the caller.
        unsafe { user::path(argument(call, self.path) as *const u8) }
    }
}

/// Does a call's work at a place in the instance; the second argument receives the way out.
pub(super) type Work<'w> = &'w mut dyn FnMut(Place<'_>, &mut PathText) -> Result<isize, Stop>;

/// An argument of the call.
pub(crate) fn argument(call: &Call, index: usize) -> usize {
    call.args.get(index).copied().unwrap_or(0)
}

/// The result of something done here.
pub(crate) fn done(result: Result<isize, Errno>) -> Outcome {
    match result {
        Ok(value) => Outcome::Done(value),
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// Issues the call as it stands, with the kernel's descriptors as the host knows them.
///
/// # Safety
/// The host is about to issue this call, which is not one that starts a process.
pub(crate) unsafe fn issue(call: &Call) -> isize {
    closed_number::give_up();
    let [a, b, c, d, e, f] = call.args;
    // SAFETY: the host vouches for its own call.
    unsafe { syscall6(call.number, a, b, c, d, e, f) }
}

/// Carries out a call with one path.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn with_path(call: &Call, at: PathArguments, work: Work<'_>) -> Outcome {
    // SAFETY: passed on to the caller.
    let Ok(path) = (unsafe { at.path_of(call) }) else { return Outcome::Pass };
    let directory = at.directory_of(call);
    let mut joined = PathText::new();
    let place = match locate(directory, path, &mut joined) {
        Ok(place) => place,
        Err(errno) => return Outcome::Done(errno.as_result()),
    };
    if place == Place::Kernel {
        // SAFETY: passed on to the caller.
        return unsafe { in_kernel(call, at, directory, path, work) };
    }
    let mut escape = PathText::new();
    match work(place, &mut escape) {
        // SAFETY: passed on to the caller.
        Err(Stop::Escaped) => unsafe { elsewhere(call, at, &mut escape, work) },
        Err(Stop::Failed(errno)) => Outcome::Done(errno.as_result()),
        Ok(value) => Outcome::Done(value),
    }
}

/// # Safety
/// As [`with_path`].
#[inline(never)]
unsafe fn in_kernel(
    call: &Call,
    at: PathArguments,
    directory: i32,
    path: &[u8],
    work: Work<'_>,
) -> Outcome {
    // SAFETY: passed on to the caller.
    let raw = unsafe { issue(call) };
    if !links::is_suspicious(raw) {
        return Outcome::Done(raw);
    }
    let mut resolved = PathText::new();
    if !links::resolve(directory, path, at.takes_links, &mut resolved) {
        return Outcome::Done(raw);
    }
    // SAFETY: passed on to the caller.
    unsafe { elsewhere(call, at, &mut resolved, work) }
}

/// Goes on at an absolute path of the host, as often as that leads somewhere else again.
///
/// # Safety
/// As [`with_path`].
#[inline(never)]
unsafe fn elsewhere(
    call: &Call,
    at: PathArguments,
    path: &mut PathText,
    work: Work<'_>,
) -> Outcome {
    let mut next = PathText::new();
    for _ in 0..SYMLINK_FOLLOWS_MAX {
        let mut joined = PathText::new();
        match locate(AT_FDCWD, path.as_bytes(), &mut joined) {
            Ok(Place::Kernel) => {
                let mut moved = Call { number: call.number, args: call.args };
                set(&mut moved, at, path);
                // SAFETY: the host's call with another path, which outlives it.
                let raw = unsafe { issue(&moved) };
                // A link of the kernel's on this path may lead back.
                let back = links::is_suspicious(raw)
                    && links::resolve(AT_FDCWD, path.as_bytes(), at.takes_links, &mut next);
                if !back {
                    return Outcome::Done(raw);
                }
                core::mem::swap(path, &mut next);
            }
            Ok(place) => match work(place, &mut next) {
                Ok(value) => return Outcome::Done(value),
                Err(Stop::Failed(errno)) => return Outcome::Done(errno.as_result()),
                Err(Stop::Escaped) => core::mem::swap(path, &mut next),
            },
            Err(errno) => return Outcome::Done(errno.as_result()),
        }
    }
    Outcome::Done(Errno::ELOOP.as_result())
}

/// Puts an absolute path into the call's arguments.
pub(super) fn set(call: &mut Call, at: PathArguments, path: &PathText) {
    if let Some(argument) = at.directory.and_then(|index| call.args.get_mut(index)) {
        *argument = AT_FDCWD as usize;
    }
    if let Some(argument) = call.args.get_mut(at.path) {
        *argument = path.as_ptr() as usize;
    }
}
