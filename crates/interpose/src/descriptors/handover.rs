//! Descriptors that become the kernel's.
//!
//! Where a descriptor of ours gets to somebody whom this library cannot enter, and the instance is
//! mounted too, it is replaced in place by one of the mount, with offset and flags kept. From then
//! on the kernel's offset is the only one: the description is marked as *moved*, and each process
//! that shares it asks for the same open file of the kernel's when it uses the description next,
//! puts it in place of its own descriptors, and has nothing more to do with them ([`moved`]). The
//! file is kept for them ([`mayfly_transport_shm::keeper`]), since who moved it may have ended by
//! then.
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

use super::{closed_number, identity, listing, table};
use crate::{
    Outcome,
    paths::cwd,
    process::{flight, session, settings},
};

pub(crate) mod moved;

use moved::{connect, follow, replace};
pub(crate) use moved::{has_moved, is_possible, pass_on};

/// Flags that the kernel's open file takes over; with both halves of `O_SYNC`.
const LASTING: u32 =
    O_ACCMODE | O_APPEND | O_NONBLOCK | O_DSYNC | 0o4_000_000 | O_DIRECT | O_NOATIME;

/// The process has a ring: whatever it opens may be used there, unseen.
static HAS_RING: AtomicBool = AtomicBool::new(false);

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
    let mut path = settings::require()?.mount_of_daemon()?;
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

/// Gives away every descriptor that exec leaves open.
pub(crate) fn give_inherited() {
    let Ok(session) = session::get() else { return };
    let stays = |number| {
        file::control(number, file::F_GETFD, 0).is_ok_and(|flags| flags & file::FD_CLOEXEC == 0)
    };
    if flight::child().is_some() {
        listing::each_in_kernel(|number| {
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
    closed_number::turn_off();
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
