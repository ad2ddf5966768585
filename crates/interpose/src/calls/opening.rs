//! open, openat, openat2, creat.

use mayfly_client::{NewOwner, OpenFile, Stop};
use mayfly_sys::{
    Errno,
    file::{
        AT_FDCWD, O_ACCMODE, O_APPEND, O_ASYNC, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC,
        O_EXCL, O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_TMPFILE,
        O_TRUNC, O_WRONLY,
    },
    number,
    text::PathText,
    user,
};
use mayfly_transport_shm::tally::Kind;
use mayfly_types::{FileId, FileKind, OpenRef};
use mayfly_wire::{WALK_EMPTY, Walk};

use super::{
    locks, names,
    resolving::{self, Rules},
    serve::{AT, PLAIN, PathArguments, argument, done, with_path},
    special,
};
use crate::{
    Call, Outcome,
    descriptors::{handover, identity, leased},
    paths::{
        cwd,
        locate::{Place, locate},
    },
    process::{
        flight, owner,
        session::{self, Session},
    },
};

/// Flags that change nothing of the error when a name is to be new and is there.
const EXCLUSIVE_WITH: u32 = O_TRUNC | O_APPEND | O_LARGEFILE | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
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
const RESOLVE_NO_XDEV: u64 = 1;
const RESOLVE_KNOWN: u64 = 0x3f;
/// Restrictions that are kept here, name by name.
const CONFINING: u64 = resolving::NO_SYMLINKS | resolving::BENEATH | resolving::IN_ROOT;

/// `struct open_how`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

impl How {
    /// What the kernel refuses before it looks at the path.
    fn check(&self) -> Result<(), Errno> {
        const BOTH: u64 = resolving::BENEATH | resolving::IN_ROOT;
        const OF_PATH: u64 = (O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC) as u64;
        const TEMPORARY: u64 = (O_TMPFILE & !O_DIRECTORY) as u64;
        let has = |flags: u64| self.flags & flags != 0;
        let modes = if has(u64::from(O_CREAT) | TEMPORARY) { 0o7777 } else { 0 };
        let is_wrong = has(!u64::from(KNOWN))
            || self.resolve & !RESOLVE_KNOWN != 0
            || self.resolve & BOTH == BOTH
            || self.mode & !modes != 0
            || has(TEMPORARY) && (!has(u64::from(O_DIRECTORY)) || has(u64::from(O_CREAT)))
            || has(TEMPORARY) && !has(u64::from(O_ACCMODE))
            || has(u64::from(O_PATH)) && has(!OF_PATH);
        if is_wrong { Err(Errno::EINVAL) } else { Ok(()) }
    }
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

/// openat2.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn open_how(call: &Call) -> Outcome {
    if argument(call, 3) < size_of::<How>() {
        return Outcome::Pass;
    }
    // SAFETY: the host passes a structure of at least this size.
    let Ok(how) = (unsafe { user::read(argument(call, 2) as *const How) }) else {
        return Outcome::Pass;
    };
    let flags = how.flags as u32 & KNOWN;
    let follow = follows(flags);
    let at = AT.taking_links(flags & O_NOFOLLOW == 0);
    if how.resolve & CONFINING != 0 {
        // SAFETY: passed on to the caller.
        return match unsafe { confined(call, at, &how) } {
            Ok(None) => Outcome::Pass,
            Ok(Some((base, path))) => done(how.check().and_then(|()| {
                let rules = Rules { resolve: how.resolve, follow };
                let found = resolving::resolve(base, path.as_bytes(), rules)?;
                let place = Place::Tree { start: found.directory, path: found.name.as_bytes() };
                let flags = flags | O_LARGEFILE | O_NOFOLLOW;
                open_place(place, flags, how.mode as u32, &mut PathText::new())
                    .map_err(resolving::failed)
            })),
            Err(errno) => Outcome::Done(errno.as_result()),
        };
    }
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            how.check()?;
            match open_place(place, flags | O_LARGEFILE, how.mode as u32, escape) {
                Err(Stop::Escaped) if how.resolve & RESOLVE_NO_XDEV != 0 => {
                    Err(Stop::Failed(Errno::EXDEV))
                }
                opened => opened,
            }
        })
    }
}

/// Where a walk with restrictions begins, and its path from there; `None` when that is the kernel's
/// business.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn confined(
    call: &Call,
    at: PathArguments,
    how: &How,
) -> Result<Option<(FileId, PathText)>, Errno> {
    // SAFETY: passed on to the caller.
    let Ok(path) = (unsafe { at.path_of(call) }) else { return Ok(None) };
    let directory = at.directory_of(call);
    let base = match directory {
        AT_FDCWD => cwd::directory(),
        descriptor => match session::open_file(descriptor)? {
            Some(open) if open.kind() == FileKind::Directory => Some(open.id()),
            Some(_) => return Err(Errno::ENOTDIR),
            None => None,
        },
    };
    if how.resolve & (resolving::BENEATH | resolving::IN_ROOT) != 0 {
        return base.map(|base| Ok((base, PathText::from_bytes(path)?))).transpose();
    }
    let mut joined = PathText::new();
    match locate(directory, path, &mut joined)? {
        Place::Kernel => Ok(None),
        Place::Tree { start, path } => Ok(Some((start, PathText::from_bytes(path)?))),
        // A link of procfs.
        Place::Open(_) => Err(Errno::ELOOP),
    }
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

/// Does an open with these flags follow a link at the end?
fn follows(flags: u32) -> bool {
    flags & O_NOFOLLOW == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL
}

fn open_place(
    place: Place<'_>,
    flags: u32,
    mode: u32,
    escape: &mut PathText,
) -> Result<isize, Stop> {
    let follow = follows(flags);
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
    // One that is there and is written to. Who may read it, too, may do so by the ring.
    if flags & O_CREAT == 0
        && let Some(open) = submit_existing(session, walk, flags)
    {
        return submitted(session, open, flags);
    }
    if let Some(opened) = leased::open(session, &walk, flags) {
        return opened.map_err(Stop::Failed);
    }
    let makes = flags & (O_CREAT | O_TMPFILE) != 0;
    if !makes && session.is_nothing_to_open(&walk) {
        return Err(Stop::Failed(Errno::ENOENT));
    }
    let (uid, gid) = if makes { owner::get() } else { (0, 0) };
    let mode = mode & !names::umask();
    if flags & O_CREAT != 0
        && flight::child().is_none()
        && let Some(open) =
            session.submit_create(walk, flags & !O_CLOEXEC, NewOwner { mode, uid, gid })
    {
        return submitted(session, open, flags);
    }
    if flags & O_CREAT != 0
        && let Some(open) = submit_existing(session, walk, flags)
    {
        return submitted(session, open, flags);
    }
    if flags & !O_CLOEXEC & !O_ACCMODE & !EXCLUSIVE_WITH == O_CREAT | O_EXCL
        && session.is_taken(&walk, Kind::Create)
    {
        return Err(Stop::Failed(Errno::EEXIST));
    }
    if flags & (O_CREAT | O_TMPFILE) == O_CREAT && session.is_nowhere(&walk) {
        return Err(Stop::Failed(Errno::ENOENT));
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

/// Opens a file that is there for writing, without asking. A process with locks is told apart: any
/// close of a file gives its locks up.
fn submit_existing(session: &Session, walk: Walk<'_>, flags: u32) -> Option<OpenFile> {
    let may = flight::child().is_none() && !locks::were_taken();
    may.then(|| session.submit_replacement(walk, flags & !O_CLOEXEC)).flatten()
}

/// A descriptor for a file that was submitted. Its description is made when it is used.
fn submitted(session: &Session, open: OpenFile, flags: u32) -> Result<isize, Stop> {
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
