//! Calls that make, remove and move names: mkdir, rmdir, unlink, rename, link, symlink, readlink,
//! mknod; and the umask, which they all heed.

use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_client::{NewOwner, Stop};
use mayfly_sys::{
    Errno,
    arch::{syscall3, syscall6},
    file::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW},
    number, process,
    text::PathText,
    user,
};
use mayfly_transport_shm::tally::Kind;
use mayfly_types::{FileId, FileKind};
use mayfly_wire::{SPECIAL_FIFO, SPECIAL_SOCKET, Target};

use super::{
    serve::{self, AT, PLAIN, PathArguments, Work, are_refused, argument, done, issue, with_path},
    special,
};
use crate::{
    Call, Outcome,
    paths::{
        cwd,
        locate::{Place, locate},
        procfs,
        text::{self, Special},
    },
    process::{flight, owner, session, settings},
};

static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// Bits that new files do not get.
pub(super) fn umask() -> u32 {
    UMASK.load(Ordering::Relaxed)
}

/// Reads the kernel's umask, by changing it: at start, when there is one thread.
pub(crate) fn look_at_umask() {
    // SAFETY: touches no memory.
    let mask = unsafe { syscall3(number::UMASK, 0o077, 0, 0) };
    // SAFETY: as above.
    unsafe { syscall3(number::UMASK, mask as usize, 0, 0) };
    UMASK.store(mask as u32 & 0o777, Ordering::Relaxed);
}

/// umask: the kernel keeps it too.
pub(super) fn set_umask(call: &Call) -> Outcome {
    if flight::child().is_none() {
        UMASK.store(argument(call, 0) as u32 & 0o777, Ordering::Relaxed);
    }
    Outcome::Pass
}

pub(super) fn new_owner(mode: usize) -> NewOwner {
    let (uid, gid) = owner::get();
    NewOwner { mode: mode as u32 & 0o7777 & !umask(), uid, gid }
}

/// mkdir, mkdirat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn mkdir(call: &Call) -> Outcome {
    let (at, mode) = match call.number {
        number::MKDIR => (PLAIN, argument(call, 1)),
        _ => (AT, argument(call, 2)),
    };
    // The set-id bits are not for directories made by mkdir.
    let mode = mode & 0o1777;
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            let session = session::get()?;
            let (walk, owner) = (place.walk(false)?, new_owner(mode));
            if flight::child().is_some() || !session.submit_directory(walk, owner) {
                if session.is_taken(&walk, Kind::Mkdir) {
                    return Err(Stop::Failed(Errno::EEXIST));
                }
                session.make_directory(walk, owner, escape)?;
            }
            Ok(0)
        })
    }
}

/// unlink, rmdir, unlinkat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn remove(call: &Call) -> Outcome {
    let flags = argument(call, 2);
    let (at, directory) = match call.number {
        number::UNLINK => (PLAIN, false),
        number::RMDIR => (PLAIN, true),
        _ => (AT, flags & AT_REMOVEDIR != 0),
    };
    let bad_flags = call.number == number::UNLINKAT && flags as u32 & !(AT_REMOVEDIR as u32) != 0;
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            if bad_flags {
                return Err(Stop::Failed(Errno::EINVAL));
            }
            let session = session::get()?;
            let walk = place.walk(false)?;
            if flight::child().is_none() && session.submit_removal(walk, directory) {
                return Ok(0);
            }
            if directory {
                session.remove_directory(walk, escape)?;
            } else {
                session.unlink(walk, escape)?;
            }
            Ok(0)
        })
    }
}

/// symlink, symlinkat: the first argument is what the link says.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn symlink(call: &Call) -> Outcome {
    let at = match call.number {
        number::SYMLINK => PathArguments::plain(1),
        _ => PathArguments::at(1),
    };
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            let text = user::path(argument(call, 0) as *const u8)?;
            if text.is_empty() {
                return Err(Stop::Failed(Errno::ENOENT));
            }
            let (session, at, owner) = (session::get()?, place.walk(false)?, new_owner(0o777));
            if flight::child().is_some() || !session.submit_symlink(text, at, owner) {
                session.symlink(text, at, owner, escape)?;
            }
            Ok(0)
        })
    }
}

/// mknod, mknodat: regular files, pipes and sockets.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn mknod(call: &Call) -> Outcome {
    const TYPE: usize = 0o170_000;
    const DIRECTORY: usize = 0o040_000;
    let (at, mode) = match call.number {
        number::MKNOD => (PLAIN, argument(call, 1)),
        _ => (AT, argument(call, 2)),
    };
    if mode & TYPE == DIRECTORY {
        // Refused before the path is looked at.
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| match mode & TYPE {
            0 | 0o100_000 => make_regular(place, mode, escape),
            0o010_000 => special::make(place, SPECIAL_FIFO, new_owner(mode), escape),
            0o140_000 => special::make(place, SPECIAL_SOCKET, new_owner(mode), escape),
            0o020_000 | 0o060_000 => refuse_node(place, Errno::EPERM, escape),
            _ => Err(Stop::Failed(Errno::EINVAL)),
        })
    }
}

fn make_regular(place: Place<'_>, mode: usize, escape: &mut PathText) -> Result<isize, Stop> {
    use mayfly_sys::file::{O_CREAT, O_EXCL, O_WRONLY};
    let session = session::get()?;
    let flags = O_CREAT | O_EXCL | O_WRONLY;
    let opened = session.open(place.walk(false)?, flags, new_owner(mode), escape)?;
    session.close(session.open_file(opened.open)?)?;
    Ok(0)
}

/// Why a device is not made: first what is wrong with its name, since programs ask so whether it is
/// there.
fn refuse_node(place: Place<'_>, errno: Errno, escape: &mut PathText) -> Result<isize, Stop> {
    let session = session::get()?;
    match session.stat(place.target(false)?, escape) {
        Ok(_) => Err(Stop::Failed(Errno::EEXIST)),
        Err(Stop::Failed(Errno::ENOENT)) => {
            session.stat(place.parent().target(true)?, escape)?;
            Err(Stop::Failed(errno))
        }
        Err(stop) => Err(stop),
    }
}

/// readlink, readlinkat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn readlink(call: &Call) -> Outcome {
    let (at, shift) = if call.number == number::READLINK { (PLAIN, 0) } else { (AT, 1) };
    let (buffer, size) = (argument(call, 1 + shift), argument(call, 2 + shift));
    // SAFETY: passed on to the caller.
    let Ok(path) = (unsafe { at.path_of(call) }) else { return Outcome::Pass };
    let mut text = PathText::new();
    let copy = |bytes: &[u8]| {
        let bytes = bytes.get(..size).unwrap_or(bytes);
        // SAFETY: the host wants up to `size` bytes written there.
        unsafe { user::copy_out(bytes, buffer as *mut u8) }.map(|()| bytes.len() as isize)
    };
    let may_be_special = path.starts_with(b"/proc/") || path.starts_with(b"/dev/fd/");
    if may_be_special && special_target(path, &mut text) {
        return done(if size as i32 <= 0 { Err(Errno::EINVAL) } else { copy(text.as_bytes()) });
    }
    let directory = at.directory_of(call);
    if path.is_empty()
        && call.number == number::READLINKAT
        && let Ok(Some(open)) = session::open_file(directory)
    {
        let target = Target::Open(open.reference);
        let read = session::get()
            .map_err(Stop::Failed)
            .and_then(|session| session.read_link(target, &mut text, copy));
        return done(read.map_err(|stop| match stop {
            Stop::Failed(errno) => errno,
            Stop::Escaped => Errno::EINVAL,
        }));
    }
    let names_itself = path.ends_with(b".");
    // SAFETY: passed on to the caller.
    unsafe {
        with_path(call, at, &mut |place, escape| {
            if size as i32 <= 0 {
                return Err(Stop::Failed(Errno::EINVAL));
            }
            // A name relative to a directory of procfs.
            let shown = match place {
                Place::Open(open) => Some(session::get()?.open_file(open)?.id()),
                Place::Tree { start, path: b"." } if !names_itself => Some(start),
                _ => None,
            };
            if let Some(file) = shown {
                show(file, escape)?;
                return Ok(copy(escape.as_bytes())?);
            }
            session::get()?.read_link(place.target(false)?, escape, copy)
        })
    }
}

/// What a name in procfs shows, when it shows something of ours.
fn special_target(path: &[u8], to: &mut PathText) -> bool {
    match text::special(path, process::process_id) {
        Some(Special::Program) => settings::get().is_some_and(|settings| {
            let program = settings.program.as_bytes();
            !program.is_empty() && to.push(program).is_ok()
        }),
        Some(Special::WorkingDirectory(b"")) => {
            cwd::directory().is_some_and(|directory| show(directory, to).is_ok())
        }
        Some(Special::Descriptor(descriptor, b"")) => {
            let Ok(Some(open)) = session::open_file(descriptor) else { return false };
            show(open.id(), to).is_ok()
        }
        Some(Special::Others(link, b"")) => {
            procfs::behind(link).is_some_and(|behind| show(behind.id(), to).is_ok())
        }
        _ => false,
    }
}

/// The path of an open file or a directory as procfs writes it. A made-up one stands for a file
/// that has several names, and for one that has none.
fn show(file: FileId, to: &mut PathText) -> Result<(), Errno> {
    let named = cwd::absolute(file, to);
    if named.is_ok() {
        return Ok(());
    }
    to.clear();
    to.push(settings::require()?.mount.as_bytes())?;
    to.push(b"/.file-")?;
    to.push_hexadecimal(file.0)?;
    if named == Err(Errno::ENOENT) { to.push(b" (deleted)") } else { Ok(()) }
}

/// rename, renameat, renameat2.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn rename(call: &Call) -> Outcome {
    let (from, to, flags) = match call.number {
        number::RENAME => (PLAIN, PathArguments::plain(1), 0),
        number::RENAMEAT => (AT, PathArguments::at(2), 0),
        _ => (AT, PathArguments::at(2), argument(call, 4) as u32),
    };
    if are_refused(call.number, flags as usize) {
        return Outcome::Pass;
    }
    let (from, to) = (from.taking_links(false), to.taking_links(false));
    // SAFETY: passed on to the caller.
    unsafe {
        let empty = with_empty_path(call, from, to, &mut |place, escape| {
            let parent = place.parent().target(true)?;
            match session::get()?.stat(parent, escape)?.kind {
                FileKind::Directory => Ok(0),
                _ => Err(Stop::Failed(Errno::ENOTDIR)),
            }
        });
        if let Some(outcome) = empty {
            return outcome;
        }
        two_paths(call, from, to, &mut |from, to, escape| {
            let (session, from, to) = (session::get()?, from.walk(false)?, to.walk(false)?);
            if flight::child().is_none() && session.submit_rename(from, to, flags) {
                return Ok(());
            }
            session.rename(from, to, flags, escape)
        })
    }
}

/// link, linkat.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn link(call: &Call) -> Outcome {
    let (from, to, flags) = match call.number {
        number::LINK => (PLAIN, PathArguments::plain(1), 0),
        _ => (AT, PathArguments::at(2), argument(call, 4)),
    };
    if are_refused(call.number, flags) {
        return Outcome::Pass;
    }
    let follow = flags & AT_SYMLINK_FOLLOW != 0;
    let (from, to) = (from.taking_links(follow), to.taking_links(false));
    // SAFETY: passed on to the caller.
    unsafe {
        if flags & AT_EMPTY_PATH != 0 && from.path_of(call) == Ok(b"") {
            return link_descriptor(call, from.directory_of(call), to);
        }
        let empty = with_empty_path(call, from, to, &mut |place, escape| {
            session::get()?.stat(place.target(follow)?, escape).map(|_| 0)
        });
        if let Some(outcome) = empty {
            return outcome;
        }
        two_paths(call, from, to, &mut |from, to, escape| {
            // The link in procfs itself is of another file system.
            if matches!(from, Place::Open(_)) && !follow {
                return Err(Stop::Failed(Errno::EXDEV));
            }
            let (session, from, to) = (session::get()?, from.target(follow)?, to.walk(false)?);
            if flight::child().is_none() && session.submit_link(from, to) {
                return Ok(());
            }
            session.link(from, to, escape)
        })
    }
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn link_descriptor(call: &Call, descriptor: i32, to: PathArguments) -> Outcome {
    let open = match session::open_file(descriptor) {
        Ok(Some(open)) => open,
        Ok(None) => return Outcome::Pass,
        Err(errno) => return Outcome::Done(errno.as_result()),
    };
    // SAFETY: passed on to the caller.
    let Ok(path) = (unsafe { to.path_of(call) }) else { return Outcome::Pass };
    if path.is_empty() {
        return Outcome::Done(Errno::ENOENT.as_result());
    }
    let mut joined = PathText::new();
    let mut escape = PathText::new();
    done(locate(to.directory_of(call), path, &mut joined).and_then(|place| {
        let linked =
            session::get()?.link(Target::Open(open.reference), place.walk(false)?, &mut escape);
        match linked {
            Ok(()) => Ok(0),
            Err(Stop::Failed(errno)) => Err(errno),
            Err(Stop::Escaped) => Err(Errno::EXDEV),
        }
    }))
}

/// A call with two paths of which one is empty. The kernel complains about the first at once, about
/// the second when it has looked up the first one, which `lookup` does for one of ours.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn with_empty_path(
    call: &Call,
    from: PathArguments,
    to: PathArguments,
    lookup: Work<'_>,
) -> Option<Outcome> {
    // SAFETY: passed on to the caller.
    let (path, second) = unsafe { (from.path_of(call).ok()?, to.path_of(call).ok()?) };
    if path.is_empty() {
        return Some(Outcome::Pass);
    }
    if !second.is_empty() {
        return None;
    }
    let (mut joined, mut escape) = (PathText::new(), PathText::new());
    let found = match locate(from.directory_of(call), path, &mut joined) {
        Ok(Place::Kernel) => return Some(Outcome::Pass),
        Ok(place) => lookup(place, &mut escape),
        Err(errno) => Err(Stop::Failed(errno)),
    };
    Some(Outcome::Done(match found {
        Err(Stop::Failed(errno)) => errno.as_result(),
        Ok(_) | Err(Stop::Escaped) => Errno::ENOENT.as_result(),
    }))
}

type TwoPaths<'w> = &'w mut dyn FnMut(Place<'_>, Place<'_>, &mut PathText) -> Result<(), Stop>;

/// A call with two paths: both ours, both the kernel's, or EXDEV.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn two_paths(
    call: &Call,
    from: PathArguments,
    to: PathArguments,
    work: TwoPaths<'_>,
) -> Outcome {
    // SAFETY: passed on to the caller.
    let Ok(from_path) = (unsafe { from.path_of(call) }) else { return Outcome::Pass };
    let (from_at, to_at) = (from.directory_of(call), to.directory_of(call));
    let (mut from_room, mut to_room) = (PathText::new(), PathText::new());
    // SAFETY: passed on to the caller.
    let to_path = match unsafe { to.path_of(call) } {
        Ok(path) => path,
        // The kernel would complain about the first path, which is not its.
        Err(errno) => {
            return match locate(from_at, from_path, &mut from_room) {
                Ok(Place::Kernel) => Outcome::Pass,
                Ok(_) | Err(_) => Outcome::Done(errno.as_result()),
            };
        }
    };
    let places = locate(from_at, from_path, &mut from_room)
        .and_then(|from| Ok((from, locate(to_at, to_path, &mut to_room)?)));
    let mut escape = PathText::new();
    let result = match places {
        Err(errno) => return Outcome::Done(errno.as_result()),
        Ok((Place::Kernel, Place::Kernel)) => {
            // SAFETY: passed on to the caller.
            let raw = unsafe { issue(call) };
            if !crate::paths::links::is_suspicious(raw) {
                return Outcome::Done(raw);
            }
            let known = Outcome::Done(raw);
            // SAFETY: passed on to the caller.
            return unsafe { again(call, (from, from_at, from_path), (to, to_at, to_path), work) }
                .unwrap_or(known);
        }
        Ok((Place::Kernel, _) | (_, Place::Kernel)) => Err(Stop::Escaped),
        Ok((from, to)) => work(from, to, &mut escape),
    };
    match result {
        Ok(()) => Outcome::Done(0),
        Err(Stop::Failed(errno)) => Outcome::Done(errno.as_result()),
        Err(Stop::Escaped) => {
            // SAFETY: passed on to the caller.
            unsafe { again(call, (from, from_at, from_path), (to, to_at, to_path), work) }
                .unwrap_or_else(|| across(call, (from_at, from_path), (to_at, to_path)))
        }
    }
}

/// Two paths of which one is the kernel's. A descriptor that is none, a path below a file, and that
/// there is nothing to link, are errors before it matters that the file systems are two.
#[inline(never)]
fn across(call: &Call, from: (i32, &[u8]), to: (i32, &[u8])) -> Outcome {
    let follows = call.number == number::LINKAT && argument(call, 4) & AT_SYMLINK_FOLLOW != 0;
    let both = [(true, from), (false, to)];
    let wrong = both.into_iter().find_map(|(is_from, (directory, path))| {
        let mut joined = PathText::new();
        if locate(directory, path, &mut joined) != Ok(Place::Kernel) {
            return None;
        }
        let text = PathText::from_bytes(path).ok()?;
        let (at, path) = (directory as usize, text.as_ptr() as usize);
        // SAFETY: the path is a terminated string that outlives the call.
        let raw = unsafe { syscall3(number::FACCESSAT, at, path, 0) };
        let errors = [Errno::EBADF, Errno::ENOTDIR].map(Errno::as_result);
        let nothing = Errno::ENOENT.as_result();
        let links = matches!(call.number, number::LINK | number::LINKAT);
        // A link that leads nowhere can be linked itself.
        let is_link = || {
            let mut byte = 0_u8;
            // SAFETY: as above; one byte is written at most.
            unsafe {
                syscall6(number::READLINKAT, at, path, (&raw mut byte) as usize, 1, 0, 0) == 1
            }
        };
        let is_nothing = || raw == nothing && (follows || !is_link());
        let counts = errors.contains(&raw) || links && is_from && is_nothing();
        counts.then_some(raw)
    });
    Outcome::Done(wrong.unwrap_or(Errno::EXDEV.as_result()))
}

/// Finds out where each path really leads and tries again there; `None` when nothing new comes out.
///
/// # Safety
/// As [`crate::dispatch`].
#[inline(never)]
unsafe fn again(
    call: &Call,
    from: (PathArguments, i32, &[u8]),
    to: (PathArguments, i32, &[u8]),
    work: TwoPaths<'_>,
) -> Option<Outcome> {
    let (mut from_real, mut to_real) = (PathText::new(), PathText::new());
    let moved_from = real_place(from, &mut from_real);
    let moved_to = real_place(to, &mut to_real);
    if !moved_from && !moved_to {
        return None;
    }
    let mut moved = Call { number: call.number, args: call.args };
    if moved_from {
        serve::set(&mut moved, from.0, &from_real);
    }
    if moved_to {
        serve::set(&mut moved, to.0, &to_real);
    }
    let (mut from_room, mut to_room) = (PathText::new(), PathText::new());
    let from_text = if moved_from { (AT_FDCWD, from_real.as_bytes()) } else { (from.1, from.2) };
    let to_text = if moved_to { (AT_FDCWD, to_real.as_bytes()) } else { (to.1, to.2) };
    let from_place = locate(from_text.0, from_text.1, &mut from_room).ok()?;
    let to_place = locate(to_text.0, to_text.1, &mut to_room).ok()?;
    let mut escape = PathText::new();
    Some(match (from_place, to_place) {
        // SAFETY: the host's call with other paths, which outlive it.
        (Place::Kernel, Place::Kernel) => Outcome::Done(unsafe { issue(&moved) }),
        (Place::Kernel, _) | (_, Place::Kernel) => across(call, from_text, to_text),
        (from, to) => match work(from, to, &mut escape) {
            Ok(()) => Outcome::Done(0),
            Err(Stop::Failed(errno)) => Outcome::Done(errno.as_result()),
            Err(Stop::Escaped) => Outcome::Done(Errno::EXDEV.as_result()),
        },
    })
}

/// Where the parent of `path` really is, with the last component appended, when it is not where it
/// looks: out of the instance by a link, or in it by a link of the kernel's.
fn real_place((at, directory, path): (PathArguments, i32, &[u8]), to: &mut PathText) -> bool {
    let mut room = PathText::new();
    match locate(directory, path, &mut room) {
        Ok(Place::Kernel) => crate::paths::links::resolve(directory, path, at.takes_links, to),
        Ok(Place::Tree { start, path }) => {
            let (_, last) = text::split_last(path);
            let Ok(target) = (Place::Tree { start, path }).parent().target(true) else {
                return false;
            };
            let Ok(session) = session::get() else { return false };
            session.stat(target, to) == Err(Stop::Escaped) && to.push_component(last).is_ok()
        }
        _ => false,
    }
}
