//! open, openat, openat2, creat.

use mayfly_client::{NewOwner, OpenFile, Stop};
use mayfly_sys::{
    Errno,
    file::{
        O_APPEND, O_ASYNC, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL, O_LARGEFILE,
        O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_TMPFILE, O_TRUNC, O_WRONLY,
    },
    number,
    text::PathText,
    user,
};
use mayfly_types::OpenRef;
use mayfly_wire::{WALK_EMPTY, Walk};

use crate::{
    Call, Outcome, flight, handover, identity, lent,
    locate::{Place, locate},
    names, owner,
    serve::{AT, PLAIN, PathArguments, argument, with_path},
    session::{self, Session},
    special,
};

const O_SYNC: u32 = 0o4_000_000 | O_DSYNC;
/// Every flag of open; others are ignored by open and refused by openat2.
const KNOWN: u32 = 3
    | O_CREAT
    | O_EXCL
    | O_NOCTTY
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_SYNC
    | O_ASYNC
    | O_DIRECT
    | O_LARGEFILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_CLOEXEC
    | O_PATH
    | O_TMPFILE;
const RESOLVE_NO_SYMLINKS: u64 = 4;
const RESOLVE_BENEATH: u64 = 8;
const RESOLVE_IN_ROOT: u64 = 16;
const RESOLVE_KNOWN: u64 = 0x3f;

/// `struct open_how`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// open, openat, creat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn open(call: &Call) -> Outcome {
    let (at, flags, mode) = match call.number {
        number::OPEN => (PLAIN, argument(call, 1) as u32, argument(call, 2)),
        number::CREAT => (PLAIN, O_CREAT | O_WRONLY | O_TRUNC, argument(call, 1)),
        _ => (AT, argument(call, 2) as u32, argument(call, 3)),
    };
    // SAFETY: passed on to the caller.
    unsafe { open_with(call, at, flags & KNOWN, mode as u32 & 0o7777) }
}

/// openat2. Restrictions on the walk that the daemon does not know are refused, never ignored.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn open_how(call: &Call) -> Outcome {
    if argument(call, 3) < size_of::<How>() {
        return Outcome::Pass;
    }
    // SAFETY: the host passes a structure of at least this size.
    let Ok(how) = (unsafe { user::read(argument(call, 2) as *const How) }) else {
        return Outcome::Pass;
    };
    let unknown = how.flags & !u64::from(KNOWN) != 0 || how.resolve & !RESOLVE_KNOWN != 0;
    let refused = how.resolve & (RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0;
    let mut flags = how.flags as u32 & KNOWN;
    let mode = how.mode as u32 & 0o7777;
    // SAFETY: passed on to the caller.
    unsafe {
        let at = AT.taking_links(flags & O_NOFOLLOW == 0);
        if how.resolve & RESOLVE_NO_SYMLINKS != 0 && is_the_kernels(call, at) {
            return Outcome::Pass;
        }
        with_path(call, at, &mut |place, escape| {
            if unknown {
                return Err(Stop::Failed(Errno::EINVAL));
            }
            if refused {
                return Err(Stop::Failed(Errno::EOPNOTSUPP));
            }
            flags |= O_LARGEFILE;
            open_place(place, flags, mode, escape)
        })
    }
}

/// Does the path lead to the kernel as it is written?
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn is_the_kernels(call: &Call, at: PathArguments) -> bool {
    // SAFETY: passed on to the caller.
    let Ok(path) = (unsafe { at.path_of(call) }) else { return true };
    let mut joined = PathText::new();
    locate(at.directory_of(call), path, &mut joined) == Ok(Place::Kernel)
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn open_with(call: &Call, at: PathArguments, flags: u32, mode: u32) -> Outcome {
    let at = at.taking_links(flags & O_NOFOLLOW == 0);
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            open_place(place, flags | O_LARGEFILE, mode, escape)
        })
    }
}

fn open_place(
    place: Place<'_>,
    flags: u32,
    mode: u32,
    escape: &mut PathText,
) -> Result<isize, Stop> {
    let follow = flags & O_NOFOLLOW == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
    let walk = match place {
        Place::Open(open) => return reopen(open, flags, mode, escape),
        place => place.walk(follow)?,
    };
    match open_walk(walk, flags, mode, escape) {
        Err(Stop::Failed(Errno::ENXIO)) => special::open(place, flags, escape),
        opened => opened,
    }
}

fn open_walk(walk: Walk<'_>, flags: u32, mode: u32, escape: &mut PathText) -> Result<isize, Stop> {
    let session = session::get()?;
    if let Some(opened) = lent::open(session, &walk, flags) {
        return opened.map_err(Stop::Failed);
    }
    let makes = flags & (O_CREAT | O_TMPFILE) != 0;
    let (uid, gid) = if makes { owner::get() } else { (0, 0) };
    let mode = mode & !names::umask();
    if flags & O_CREAT != 0
        && flight::child().is_none()
        && let Some(open) =
            session.post_create(walk, flags & !O_CLOEXEC, NewOwner { mode, uid, gid })
    {
        return posted(session, open, flags);
    }
    // The bit for exec belongs to the descriptor, not to the description.
    let opened = session.open(walk, flags & !O_CLOEXEC, NewOwner { mode, uid, gid }, escape)?;
    let open = session.open_file(opened.open)?;
    match identity::assign(open, flags & O_CLOEXEC) {
        Ok(descriptor) => {
            handover::opened(open);
            Ok(descriptor as isize)
        }
        Err(errno) => {
            // What the host is told is that no descriptor was to be had.
            let _ = session.close(open);
            Err(Stop::Failed(errno))
        }
    }
}

/// A descriptor for a file that was posted. Its description is made when it is used.
fn posted(session: &Session, open: OpenFile, flags: u32) -> Result<isize, Stop> {
    match identity::assign(open, flags & O_CLOEXEC) {
        Ok(descriptor) => {
            if handover::has_ring() {
                handover::opened(session.open_file(open.reference)?);
            }
            Ok(descriptor as isize)
        }
        Err(errno) => {
            identity::end_unmade(session, open.reference);
            Err(Stop::Failed(errno))
        }
    }
}

/// Opens what a descriptor refers to, by its name in procfs: by identity, a description of its own.
fn reopen(open: OpenRef, flags: u32, mode: u32, escape: &mut PathText) -> Result<isize, Stop> {
    let open = session::get()?.open_file(open)?;
    if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL {
        return Err(Stop::Failed(Errno::EEXIST));
    }
    if flags & O_NOFOLLOW != 0 && flags & O_PATH == 0 {
        return Err(Stop::Failed(Errno::ELOOP));
    }
    let walk = Walk { start: open.id(), flags: WALK_EMPTY, path: b"" };
    open_walk(walk, flags & !O_CREAT, mode, escape)
}
