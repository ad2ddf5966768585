//! The run directory, wherever this process sees it.
//!
//! It is found by its path, until the process asks for another view of the file system: a mount, a
//! namespace, another root. Before the kernel does any of these, an `O_PATH` descriptor of the
//! directory is taken, hidden, and kept through forks ([`crate::process::view`]): the instance is
//! reached through it from then on where the path leads nowhere. A program that is executed after
//! that finds what its own root shows.

use core::sync::atomic::{AtomicI32, Ordering};

use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH},
    text::PathText,
};

use super::settings;

/// The hidden descriptor of a directory, plus one.
pub(super) struct Held(AtomicI32);

pub(super) static RUN: Held = Held(AtomicI32::new(0));
pub(super) static OBJECTS: Held = Held(AtomicI32::new(0));

impl Held {
    /// The descriptor, from the first look at another file system on.
    pub(super) fn get(&self) -> Option<i32> {
        let held = self.0.load(Ordering::Acquire);
        (held > 0).then(|| held - 1)
    }

    /// Holds `descriptor`, which is hidden.
    pub(super) fn set(&self, descriptor: i32) {
        self.0.store(descriptor + 1, Ordering::Release);
    }
}

/// Is it one of the descriptors that go with a fork?
pub(super) fn is_held(descriptor: i32) -> bool {
    RUN.get() == Some(descriptor) || OBJECTS.get() == Some(descriptor)
}

/// What `name` in the run directory is to a call with a directory and a path.
///
/// # Errors
/// ENAMETOOLONG.
pub(crate) fn entry(name: &[u8]) -> Result<(i32, PathText), Errno> {
    if let Some(directory) = RUN.get() {
        return Ok((directory, PathText::from_bytes(name)?));
    }
    let mut path = PathText::from_bytes(settings::require()?.run.as_bytes())?;
    path.push_component(name)?;
    Ok((AT_FDCWD, path))
}

/// Opens the directory of objects.
///
/// # Errors
/// The kernel's.
pub(super) fn objects(flags: u32) -> Result<i32, Errno> {
    match OBJECTS.get() {
        Some(directory) => file::open_at(directory, &PathText::from_bytes(b".")?, flags, 0),
        None => file::open_at(AT_FDCWD, &settings::require()?.objects, flags, 0),
    }
}

/// Connects, by `connect`, to the socket `name` of the run directory.
///
/// # Errors
/// What `connect` says.
pub(crate) fn connected<T>(
    name: &[u8],
    mut connect: impl FnMut(&[u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut path = PathText::from_bytes(settings::require()?.run.as_bytes())?;
    path.push_component(name)?;
    let by_path = connect(path.as_bytes());
    let (Err(_), Some(directory)) = (&by_path, RUN.get()) else { return by_path };
    // A socket has no call that takes a directory.
    let mut path = file::descriptor_path(directory)?;
    path.push_component(name)?;
    connect(path.as_bytes()).or_else(|_| from_within(directory, || connect(name)))
}

/// Does `work` with the kernel's working directory in `directory`: in a root without procfs. A
/// thread that meanwhile uses a relative path of the kernel's meets the run directory.
fn from_within<T>(directory: i32, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    let here = file::open_at(AT_FDCWD, &PathText::from_bytes(b".")?, flags, 0)?;
    let done = file::enter(directory).and_then(|()| work());
    let back = file::enter(here);
    file::close(here);
    back.and(done)
}
