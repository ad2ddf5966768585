//! The descriptors that sessions hold, so that the child of a fork can close its copies.
//!
//! A table of a fixed size, without a lock: a fork copies it in whatever state it is. What does not
//! fit is not closed by children, and does no harm there. With each number stands the file's
//! identity, since a child may have closed the number by itself, and have something else under it.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
    sync::atomic::{
        AtomicI32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use mayfly_client::{Descriptors, Mirror};
use mayfly_sys::{Errno, file, text::PathText};
use mayfly_types::mirror;

/// Twice what a session holds open.
const PLACES: usize = 1024;
/// Places that are looked at for one number.
const TRIES: usize = 16;

struct Place {
    /// The number plus one; zero for none.
    descriptor: AtomicI32,
    identity: AtomicU64,
}

static PLACES_TAKEN: [Place; PLACES] =
    [const { Place { descriptor: AtomicI32::new(0), identity: AtomicU64::new(0) } }; PLACES];

fn places_of(descriptor: i32) -> impl Iterator<Item = &'static Place> {
    let first = descriptor as usize % PLACES;
    (first..first + TRIES).map(|at| &PLACES_TAKEN[at % PLACES])
}

/// Which file it is, among those that are there at the moment.
fn identity(descriptor: i32) -> Option<u64> {
    // SAFETY: the number is used for the duration of one call of the kernel's, which says whether
    // it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let stat = rustix::fs::fstat(borrowed.as_fd()).ok()?;
    Some(stat.st_ino ^ stat.st_dev.rotate_left(32))
}

/// Remembers a descriptor.
pub(crate) fn note(descriptor: i32) {
    let Some(identity) = identity(descriptor) else { return };
    for place in places_of(descriptor) {
        if place.descriptor.compare_exchange(0, descriptor + 1, AcqRel, Relaxed).is_ok() {
            place.identity.store(identity, Relaxed);
            return;
        }
    }
}

fn forget(descriptor: i32) {
    let held = descriptor + 1;
    for place in places_of(descriptor) {
        if place.descriptor.compare_exchange(held, 0, AcqRel, Relaxed).is_ok() {
            return;
        }
    }
}

/// Closes all that are remembered: this is the child of a fork.
pub(crate) fn close_all() {
    for place in &PLACES_TAKEN {
        let descriptor = place.descriptor.swap(0, AcqRel) - 1;
        if descriptor >= 0 && identity(descriptor) == Some(place.identity.load(Acquire)) {
            file::close(descriptor);
        }
    }
}

/// The client's descriptors stay where they are, close-on-exec: Python has no use for the numbers.
#[derive(Debug)]
pub(crate) struct PythonDescriptors {
    pub(crate) run_dir: PathBuf,
}

impl Descriptors for PythonDescriptors {
    fn conceal(&self, descriptor: i32) -> Result<i32, Errno> {
        note(descriptor);
        Ok(descriptor)
    }

    fn release(&self, descriptor: i32) {
        forget(descriptor);
        file::close(descriptor);
    }

    fn mirror(&self) -> Result<Mirror, Errno> {
        use std::os::unix::ffi::OsStrExt;
        let mut path = PathText::from_bytes(self.run_dir.as_os_str().as_bytes())?;
        path.push_component(mirror::DIRECTORY.as_bytes())?;
        Ok(Mirror { start: file::AT_FDCWD, path })
    }
}
