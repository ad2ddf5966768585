//! The run directory, wherever this process sees it.
//!
//! It is found by its path, until the process asks for another view of the file system: a mount, a
//! namespace, another root. Before the kernel does any of these, an `O_PATH` descriptor of the
//! directory is taken, hidden, and kept through forks: the instance is reached through it from then
//! on where the path leads nowhere. A program that is executed after that finds what its own root
//! shows.

use core::sync::atomic::{AtomicI32, Ordering};

use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD, O_CLOEXEC, O_DIRECTORY, O_PATH},
    text::PathText,
};

use super::{flight, settings};
use crate::{descriptors::hidden, paths::cwd, report};

/// The hidden descriptors, plus one.
static RUN: AtomicI32 = AtomicI32::new(0);
static OBJECTS: AtomicI32 = AtomicI32::new(0);

fn held(place: &AtomicI32) -> Option<i32> {
    let held = place.load(Ordering::Acquire);
    (held > 0).then(|| held - 1)
}

/// Is it one of the descriptors that go with a fork?
pub(super) fn is_held(descriptor: i32) -> bool {
    held(&RUN) == Some(descriptor) || held(&OBJECTS) == Some(descriptor)
}

/// The process is about to see another file system.
pub(crate) fn before_another_view() {
    let Some(settings) = settings::get() else { return };
    // A child of vfork is another program soon; its numbers must not get into its parent's memory.
    if flight::child().is_some() {
        return;
    }
    cwd::settle();
    for (place, path) in [(&RUN, &settings.run), (&OBJECTS, &settings.objects)] {
        if held(place).is_some() {
            continue;
        }
        let flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
        if let Ok(directory) = file::open_at(AT_FDCWD, path, flags, 0).and_then(hidden::conceal) {
            place.store(directory + 1, Ordering::Release);
        }
    }
}

/// What `name` in the run directory is to a call with a directory and a path.
///
/// # Errors
/// ENAMETOOLONG.
pub(crate) fn entry(name: &[u8]) -> Result<(i32, PathText), Errno> {
    if let Some(directory) = held(&RUN) {
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
    match held(&OBJECTS) {
        Some(directory) => file::open_at(directory, &PathText::from_bytes(b".")?, flags, 0),
        None => file::open_at(AT_FDCWD, &settings::require()?.objects, flags, 0),
    }
}

/// Says so where the program at `path`, which is about to be executed, cannot be served: its root
/// does not show the library.
pub(super) fn warn_of_another_root(directory: i32, path: &PathText) {
    let Some(settings) = settings::get().filter(|_| held(&RUN).is_some()) else { return };
    if file::check_access(AT_FDCWD, &settings.library, 0).is_ok()
        || file::check_access(directory, path, 0).is_err()
    {
        return;
    }
    let parts = [
        &b"mayfly: "[..],
        path.as_bytes(),
        b" is not served: its root does not show ",
        settings.run.as_bytes(),
        b"; bind that directory and the data directory there\n",
    ];
    let mut line = PathText::new();
    // Without a line, or where nobody reads it, the program fails as it would.
    if parts.iter().try_for_each(|part| line.push(part)).is_ok() {
        report::write(line.as_bytes());
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
    let (Err(_), Some(directory)) = (&by_path, held(&RUN)) else { return by_path };
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
