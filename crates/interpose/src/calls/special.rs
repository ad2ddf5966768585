//! Pipes with a name: the kernel's own, at a place of the node.
//!
//! What is opened is the kernel's and stays so: waiting, poll and the rest are as the kernel does
//! them, and the descriptor is none of ours. Where the instance is mounted the pipe is the one that
//! the kernel keeps for the name there, so that programs outside this library reach it too.
//! Otherwise it stands in a directory of the node. Either way the record says on which node it was
//! made, and a process of another one is told that nobody is there (ENXIO).

use mayfly_client::{NewOwner, Stop};
use mayfly_sys::{
    Errno,
    arch::{syscall3, syscall6},
    file::{self, AT_FDCWD, O_CREAT, O_EXCL, O_NOFOLLOW},
    number, result,
    text::PathText,
};
use mayfly_types::special::{SPECIAL_DIRECTORY, parse_place};
use mayfly_wire::{SPECIAL_FIFO, SPECIAL_SOCKET};

use crate::{
    descriptors::{closed_number, handover},
    paths::{cwd, locate::Place},
    process::{session, settings},
};

/// A new place.
///
/// # Errors
/// ENAMETOOLONG; EIO when no number is to be had.
pub(super) fn draw_place() -> Result<PathText, Errno> {
    // So that all numbers have the same length.
    const TOP: u64 = 1 << 63;
    let mut number = 0_u64;
    let to = core::ptr::from_mut(&mut number) as usize;
    // SAFETY: the number is as long as said and outlives the call.
    let raw = unsafe { syscall3(number::GETRANDOM, to, size_of::<u64>(), 0) };
    if raw != size_of::<u64>() as isize {
        return Err(Errno::EIO);
    }
    // Programs of all daemons of the host meet there.
    let mut path = PathText::from_bytes(settings::require()?.host_run.as_bytes())?;
    path.push_component(SPECIAL_DIRECTORY.as_bytes())?;
    path.push(b"/")?;
    path.push_hexadecimal(number | TOP)?;
    Ok(path)
}

/// Is it a place of this node?
pub(super) fn is_here(place: &[u8]) -> bool {
    let run = settings::get().map(|settings| settings.host_run.as_bytes());
    parse_place(place).is_some_and(|(directory, _)| Some(directory) == run)
}

/// The path of a place in the instance from the root of the machine: the mount's, where there is
/// one.
///
/// # Errors
/// ENAMETOOLONG; ENOENT below a removed directory; ENXIO for a descriptor.
pub(super) fn in_mount(place: Place<'_>) -> Result<PathText, Errno> {
    let Place::Tree { start, path } = place else { return Err(Errno::ENXIO) };
    let mut whole = PathText::new();
    if path.starts_with(b"/") {
        whole.push(settings::require()?.mount.as_bytes())?;
    } else {
        cwd::absolute(start, &mut whole)?;
    }
    whole.push_component(path)?;
    Ok(whole)
}

/// Removes the kernel's file at a place.
pub(super) fn remove(place: &PathText) {
    // SAFETY: the path is a terminated string that outlives the call.
    unsafe { syscall3(number::UNLINK, place.as_ptr() as usize, 0, 0) };
}

/// mknod of a pipe, or of a socket that nobody is bound to.
pub(super) fn make(
    at: Place<'_>,
    what: u32,
    new: NewOwner,
    escape: &mut PathText,
) -> Result<isize, Stop> {
    let (session, walk) = (session::get()?, at.walk(false)?);
    if what == SPECIAL_SOCKET {
        session.make_special(walk, what, new, b"", escape)?;
        return Ok(0);
    }
    // Where the instance is mounted, the place only says on which node the kernel keeps the pipe.
    let place = draw_place()?;
    if !handover::is_possible() {
        make_pipe(&place)?;
    }
    session
        .make_special(walk, what, new, place.as_bytes(), escape)
        .inspect_err(|_| remove(&place))?;
    Ok(0)
}

fn make_pipe(place: &PathText) -> Result<(), Errno> {
    const PIPE_OF_THE_USERS: usize = 0o010_600;
    // SAFETY: the path is a terminated string that outlives the call.
    let raw = unsafe { syscall3(number::MKNOD, place.as_ptr() as usize, PIPE_OF_THE_USERS, 0) };
    result(raw).map(|_| ())
}

/// open of what the daemon has told to be a pipe or a socket.
pub(crate) fn open(at: Place<'_>, flags: u32, escape: &mut PathText) -> Result<isize, Stop> {
    let follow = flags & O_NOFOLLOW == 0;
    let mut path = PathText::new();
    session::get()?.reach(at.target(follow)?, escape, |what, place| match what {
        SPECIAL_FIFO => path.push(place),
        _ => Err(Errno::ENXIO),
    })?;
    // One without a place was made through a mount.
    let placed = !path.as_bytes().is_empty();
    if placed && !is_here(path.as_bytes()) {
        return Err(Stop::Failed(Errno::ENXIO));
    }
    let mounted = !placed || handover::is_possible();
    if mounted {
        path = in_mount(at)?;
    }
    let flags = flags & !(O_CREAT | O_EXCL);
    closed_number::give_up();
    // SAFETY: the path is a terminated string that outlives the call, which may wait.
    let raw = unsafe {
        let path = path.as_ptr() as usize;
        syscall6(number::OPENAT, AT_FDCWD as usize, path, flags as usize, 0, 0, 0)
    };
    match result(raw) {
        Ok(descriptor) => Ok(descriptor as isize),
        Err(Errno::ENOENT) if !mounted => Err(Stop::Failed(Errno::ENXIO)),
        Err(errno) => Err(Stop::Failed(errno)),
    }
}

/// Closes what was opened for a moment, if it was.
pub(super) fn close_directory(directory: Option<i32>) {
    if let Some(directory) = directory {
        file::close(directory);
    }
}
