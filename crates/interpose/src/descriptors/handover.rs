//! Descriptors that become the kernel's.
//!
//! Where a descriptor of ours gets to somebody whom this library cannot enter, and the instance is
//! mounted too, it is replaced in place by one of the mount, with offset and flags kept. From then
//! on the kernel's offset is the only one: the description is marked as *moved*, and each process
//! that shares it asks for the same open file of the kernel's when it uses the description next,
//! puts it in place of its own descriptors, and has nothing more to do with them. The file is kept
//! for them ([`mayfly_transport_shm::keeper`]), since who moved it may have ended by then.
//!
//! A lock of flock is taken along. A file that somebody has locked by fcntl stays ours: these locks
//! cannot be. So does a directory that was removed: it is opened in the mount by its path. Without
//! a mount nothing is moved; the stranger meets the placeholder then.

use core::sync::atomic::{AtomicBool, Ordering};

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    file::{
        self, AT_FDCWD, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC,
        O_NOATIME, O_NOFOLLOW, O_NONBLOCK, O_PATH,
    },
    text::PathText,
};
use mayfly_transport_shm::keeper;
use mayfly_types::{FileKind, OpenRef};

use super::{identity, kept, table};
use crate::{
    Outcome,
    paths::cwd,
    process::{flight, inherit, run_directory, session, settings},
};

/// Flags that the kernel's open file takes over; with both halves of `O_SYNC`.
const LASTING: u32 =
    O_ACCMODE | O_APPEND | O_NONBLOCK | O_DSYNC | 0o4_000_000 | O_DIRECT | O_NOATIME;

/// The process has a ring: whatever it opens may be used there, unseen.
static HAS_RING: AtomicBool = AtomicBool::new(false);

fn connect() -> Result<i32, Errno> {
    run_directory::connected(keeper::SOCKET_NAME.as_bytes(), keeper::connect)
}

/// Is the instance mounted, as far as one look tells?
pub(crate) fn is_possible() -> bool {
    run_directory::entry(keeper::SOCKET_NAME.as_bytes())
        .is_ok_and(|(directory, path)| file::check_access(directory, &path, 0).is_ok())
}

/// Has the description become the kernel's?
pub(crate) fn has_moved(reference: OpenRef) -> bool {
    session::get().is_ok_and(|session| session.has_moved(reference))
}

/// Puts the kernel's file in place of the descriptors of a description that has moved.
///
/// # Errors
/// EIO when the file is not to be had: the mount has ended.
pub(crate) fn follow(open: OpenFile) -> Result<(), Errno> {
    let kept = connect().and_then(|connection| keeper::take(connection, open.reference));
    let descriptor = kept.map_err(|_| Errno::EIO)?;
    replace(open, descriptor);
    file::close(descriptor);
    Ok(())
}

/// What becomes of a call on a descriptor whose description has moved.
pub(crate) fn pass_on(reference: OpenRef) -> Outcome {
    let open = session::get().and_then(|session| session.open_file(reference));
    match open.and_then(follow) {
        Ok(()) => Outcome::Pass,
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// Makes all descriptors that this process has of `open` the kernel's.
///
/// # Errors
/// Why they stay ours.
pub(crate) fn give(open: OpenFile) -> Result<(), Errno> {
    let open_there = match open.kind() {
        FileKind::Regular if !open.is_path() => open_in_mount,
        FileKind::Directory => open_directory_in_mount,
        _ => return Err(Errno::EBADF),
    };
    if open.is_moved() {
        return follow(open);
    }
    let session = session::get()?;
    if session.is_locked(open) && open.kind() != FileKind::Regular {
        return Err(Errno::EBUSY);
    }
    if flight::child().is_none() {
        identity::share(open)?;
    }
    let moved = session.move_away(open, |position| {
        let connection = connect()?;
        let descriptor = open_there(open, position).inspect_err(|_| file::close(connection))?;
        keeper::keep(connection, open.reference, descriptor)
            .inspect_err(|_| file::close(descriptor))?;
        if session.is_locked(open) {
            take_lock(open, descriptor).inspect_err(|_| file::close(descriptor))?;
        }
        Ok(descriptor)
    })?;
    let Some(descriptor) = moved else { return follow(open) };
    replace(open, descriptor);
    file::close(descriptor);
    Ok(())
}

/// The last thing that can go wrong: the lock does not come back.
fn take_lock(open: OpenFile, descriptor: i32) -> Result<(), Errno> {
    let OpenRef { index, generation } = open.reference;
    let argument = u64::from(index) | u64::from(generation) << 32;
    file::command(descriptor, keeper::TAKE_LOCK, argument).map(drop)
}

fn open_in_mount(open: OpenFile, position: u64) -> Result<i32, Errno> {
    let mut path = PathText::from_bytes(settings::require()?.mount.as_bytes())?;
    path.push_component(keeper::NAME_PREFIX.as_bytes())?;
    for number in [open.reference.index, open.reference.generation] {
        path.push(b"-")?;
        path.push_decimal(u64::from(number))?;
    }
    let flags = open.flags() & LASTING | O_CREAT | O_CLOEXEC;
    let descriptor = file::open_at(AT_FDCWD, &path, flags, 0)?;
    let position = i64::try_from(position).map_err(|_| Errno::EINVAL)?;
    file::seek(descriptor, position, 0).inspect_err(|_| file::close(descriptor))?;
    Ok(descriptor)
}

fn put_over(descriptor: i32, placeholder: i32) -> Result<i32, Errno> {
    let flags = file::control(placeholder, file::F_GETFD, 0)?;
    let cloexec = if flags & file::FD_CLOEXEC == 0 { 0 } else { O_CLOEXEC };
    file::duplicate_onto(descriptor, placeholder, cloexec)
}

/// A directory may have been moved between the look at its path and the open.
fn open_directory_in_mount(open: OpenFile, position: u64) -> Result<i32, Errno> {
    let mut path = PathText::new();
    cwd::absolute(open.id(), &mut path)?;
    let path_alone = if open.is_path() { O_PATH } else { 0 };
    let flags = open.flags() & LASTING | path_alone | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    let descriptor = file::open_at(AT_FDCWD, &path, flags, 0)?;
    let inode = file::inode(descriptor);
    let ready = inode.and_then(|id| if id == open.id().0 { Ok(()) } else { Err(Errno::ESTALE) });
    // The kernel's offset in a directory of the mount is the daemon's cookie, as ours is.
    let place = |()| match (open.is_path(), i64::try_from(position)) {
        (true, _) => Ok(()),
        (false, Ok(position)) => file::seek(descriptor, position, 0).map(drop),
        (false, Err(_)) => Err(Errno::EINVAL),
    };
    ready.and_then(place).inspect_err(|_| file::close(descriptor))?;
    Ok(descriptor)
}

/// A placeholder that could not be replaced stays one, and is tried again at its next use.
fn replace(open: OpenFile, descriptor: i32) {
    if flight::child().is_some() {
        // The child's numbers are the kernel's alone.
        inherit::each_in_kernel(|number| {
            if identity::slot_of(number) == Some(open.reference.index) {
                let _ = put_over(descriptor, number);
            }
        });
        return;
    }
    let _held = identity::hold_numbers();
    for (number, reference) in table::each_open() {
        if reference == open.reference && put_over(descriptor, number).is_ok() {
            table::release(number);
        }
    }
}

/// Gives away every descriptor that exec leaves open.
pub(crate) fn give_inherited() {
    let Ok(session) = session::get() else { return };
    let stays = |number| {
        file::control(number, file::F_GETFD, 0).is_ok_and(|flags| flags & file::FD_CLOEXEC == 0)
    };
    if flight::child().is_some() {
        inherit::each_in_kernel(|number| {
            if stays(number)
                && let Some(index) = identity::slot_of(number)
                && let Ok(open) = session.open_file_at(index)
            {
                // What cannot be given stays a placeholder, which fails loudly.
                let _ = give(open);
            }
        });
        return;
    }
    for (number, reference) in table::each_open() {
        if stays(number)
            && let Ok(open) = session.open_file(reference)
        {
            let _ = give(open);
        }
    }
}

/// io_uring_setup: what is asked for in a ring is not seen, so from now on all files of this
/// process are the kernel's. Without a mount there is no ring to be had, and libraries do without.
pub(crate) fn set_up_ring() -> Outcome {
    if !is_possible() {
        return Outcome::Done(Errno::ENOSYS.as_result());
    }
    HAS_RING.store(true, Ordering::Relaxed);
    kept::turn_off();
    if !table::is_empty()
        && let Ok(session) = session::get()
    {
        for (_, reference) in table::each_open() {
            let _ = session.open_file(reference).and_then(give);
        }
    }
    Outcome::Pass
}

/// Has the process a ring, which uses files unseen?
pub(crate) fn has_ring() -> bool {
    HAS_RING.load(Ordering::Relaxed)
}

/// A file was opened.
pub(crate) fn opened(open: OpenFile) {
    if has_ring() {
        let _ = give(open);
    }
}
