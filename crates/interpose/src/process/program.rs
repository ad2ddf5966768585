//! The program that runs: what it is called when it came from the mount.
//!
//! A program in the mount is run from its object or from a copy in memory, so the kernel's
//! `/proc/self/exe` names that. The path in the mount travels in `MAYFLY_EXE`.
//!
//! The loader takes `$ORIGIN` from that link before we are there. So a copy's name has a slash in
//! it, which gives every program of the mount an origin that nothing else is called; paths that
//! begin with it are taken for paths that begin with the program's directory
//! ([`crate::paths::locate`]).

use mayfly_sys::{
    file::{self, AT_FDCWD},
    process,
    text::PathText,
};

use mayfly_client::Stop;
use mayfly_types::{Errno, FileId, limits::SYMLINK_FOLLOWS_MAX};

use super::{session::Session, settings};
use crate::paths::{
    cwd,
    locate::Place,
    text::{self, Special},
};

/// Name of a copy in memory; the part up to the slash is its directory in `/proc/self/exe`.
pub(super) const COPY_NAME: &[u8] = b"mayfly-exec/copy";

/// What the kernel shows of it.
pub(super) const COPY_LINK: &[u8] = b"/memfd:mayfly-exec/copy";

/// The directory of the object or copy that runs, by the kernel's name of the program; `None` when
/// it is neither.
pub(super) fn disguise(objects: &[u8]) -> Option<PathText> {
    let mut link = PathText::new();
    let name = PathText::from_bytes(b"/proc/self/exe").ok()?;
    file::read_link(AT_FDCWD, &name, &mut link).ok()?;
    let text = link.as_bytes();
    let is_object = || {
        !objects.is_empty() && text.strip_prefix(objects).is_some_and(|rest| rest.starts_with(b"/"))
    };
    if !text.starts_with(COPY_LINK) && !is_object() {
        return None;
    }
    let directory = text::split_last(text).0;
    PathText::from_bytes(directory.strip_suffix(b"/").unwrap_or(directory)).ok()
}

/// Is what the kernel runs called like the file at `path`? On the way there may be links.
pub(crate) fn is(path: &[u8]) -> bool {
    let mut link = PathText::new();
    PathText::from_bytes(b"/proc/self/exe")
        .and_then(|name| file::read_link(AT_FDCWD, &name, &mut link))
        .is_ok_and(|()| text::split_last(link.as_bytes()).1 == text::split_last(path).1)
}

/// The program itself, when `path` is procfs's link to it and the kernel's is another's: to the
/// library that has loaded it.
pub(super) fn own(path: &[u8]) -> Option<&'static [u8]> {
    let is_link = || matches!(text::special(path, process::process_id), Some(Special::Program));
    let program = settings::get()?.program.as_bytes();
    (path.starts_with(b"/proc/") && !program.is_empty() && is_link()).then_some(program)
}

/// The absolute path of a file without symbolic links, as the kernel shows it.
///
/// # Errors
/// ENAMETOOLONG, ELOOP; ENOENT when a directory on the way is gone.
pub(super) fn canonical(
    session: &Session,
    start: FileId,
    path: &[u8],
    to: &mut PathText,
) -> Result<(), Errno> {
    let failed = |stop| match stop {
        Stop::Failed(errno) => errno,
        Stop::Escaped => Errno::ENOENT,
    };
    let mut start = start;
    let mut path = PathText::from_bytes(path)?;
    let mut room = PathText::new();
    for _ in 0..SYMLINK_FOLLOWS_MAX {
        let (parent, last) = text::split_last(path.as_bytes());
        let parent = if parent.is_empty() { b"." } else { parent };
        let place = Place::Tree { start, path: parent };
        start = session.stat(place.target(true)?, &mut room).map_err(failed)?.id;
        cwd::absolute(start, to)?;
        to.push_component(last)?;
        let mut target = PathText::new();
        let place = Place::Tree { start, path: last };
        match session.read_link(place.target(false)?, &mut room, |text| target.push(text)) {
            Err(Stop::Failed(Errno::EINVAL)) => return Ok(()),
            Err(stop) => return Err(failed(stop)),
            Ok(()) => path = target,
        }
    }
    Err(Errno::ELOOP)
}
