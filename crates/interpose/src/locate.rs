//! Where a path of the host leads: to the kernel or to the instance.
//!
//! Paths of others must cost nanoseconds, so the tests are ordered by how rarely they apply, and
//! only the rare ones make a system call. What a path means inside the instance is the daemon's
//! business; a walk that leaves the instance comes back as an absolute path of the host
//! ([`crate::serve`]).

use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD},
    process,
    text::PathText,
};
use mayfly_types::{FileId, FileKind};
use mayfly_wire::{Target, WALK_EMPTY, WALK_FOLLOW, Walk};

use crate::{
    cwd,
    paths::{self, Special},
    session,
    settings::{self, Settings},
};

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'p> {
    /// The kernel's business.
    Kernel,
    /// Below a directory of the instance.
    Tree {
        /// The directory.
        start: FileId,
        /// The path from there; with a leading slash, from the root of the instance.
        path: &'p [u8],
    },
    /// The path names this descriptor, which is ours.
    Descriptor(i32),
}

impl<'p> Place<'p> {
    /// As the daemon understands it.
    ///
    /// # Errors
    /// EBADF for a descriptor that is gone.
    pub(crate) fn target(self, follow: bool) -> Result<Target<'p>, Errno> {
        match self {
            Place::Kernel => Err(Errno::EXDEV),
            Place::Tree { start, path } => Ok(Target::Path(walk(start, path, follow))),
            Place::Descriptor(descriptor) => {
                session::require_open(descriptor).map(|(_, open)| Target::Open(open.reference))
            }
        }
    }

    /// The directory in which the path's last component is a name.
    pub(crate) fn parent(self) -> Place<'p> {
        match self {
            Place::Tree { start, path } => match paths::split_last(path) {
                ([], _) => Place::Tree { start, path: b"." },
                (parent, _) => Place::Tree { start, path: parent },
            },
            other => other,
        }
    }

    /// As the daemon understands it, for calls that need a name. The names of descriptors are links
    /// of procfs that nobody may change.
    ///
    /// # Errors
    /// EPERM.
    pub(crate) fn walk(self, follow: bool) -> Result<Walk<'p>, Errno> {
        match self {
            Place::Tree { start, path } => Ok(walk(start, path, follow)),
            Place::Kernel => Err(Errno::EXDEV),
            Place::Descriptor(_) => Err(Errno::EPERM),
        }
    }
}

fn walk(start: FileId, path: &[u8], follow: bool) -> Walk<'_> {
    let follow = if follow { WALK_FOLLOW } else { 0 };
    let empty = if path.is_empty() { WALK_EMPTY } else { 0 };
    Walk { start, flags: follow | empty, path }
}

/// Where `path`, relative to `directory`, leads. `joined` is room for a path that has to be put
/// together.
///
/// # Errors
/// EBADF and ENOTDIR for a bad `directory`.
pub(crate) fn locate<'p>(
    directory: i32,
    path: &'p [u8],
    joined: &'p mut PathText,
) -> Result<Place<'p>, Errno> {
    let settings = settings::require()?;
    let mount = settings.mount.as_bytes();
    if let [b'/', ..] = path {
        return match paths::below(mount, path) {
            Some(path) => Ok(Place::Tree { start: FileId::ROOT, path }),
            None => match beside_program(settings, path) {
                Some(rest) => below_program(settings, rest, joined),
                None => special(path, joined),
            },
        };
    }
    if path.is_empty() {
        return Ok(Place::Kernel);
    }
    if directory == AT_FDCWD {
        if let Some(start) = cwd::directory() {
            return Ok(Place::Tree { start, path });
        }
        let near = cwd::is_above_mount() && paths::may_lead_below(mount, path);
        if !near && !paths::goes_up(path) {
            return Ok(Place::Kernel);
        }
        if file::working_directory(joined).is_err() {
            return Ok(Place::Kernel);
        }
    } else {
        if let Some(open) = session::open_file(directory)? {
            if open.kind() != FileKind::Directory {
                return Err(Errno::ENOTDIR);
            }
            return Ok(Place::Tree { start: open.id(), path });
        }
        if !paths::may_lead_below(mount, path) {
            return Ok(Place::Kernel);
        }
        if file::descriptor_link(directory, joined).is_err() || !joined.as_bytes().starts_with(b"/")
        {
            return Ok(Place::Kernel);
        }
    }
    if joined.push_component(path).is_err() {
        return Ok(Place::Kernel);
    }
    match paths::below(mount, joined.as_bytes()) {
        Some(path) => Ok(Place::Tree { start: FileId::ROOT, path }),
        None => Ok(Place::Kernel),
    }
}

/// The rest of a path that the loader made from `$ORIGIN`.
fn beside_program<'p>(settings: &Settings, path: &'p [u8]) -> Option<&'p [u8]> {
    let origin = settings.origin.as_bytes();
    if origin.is_empty() {
        return None;
    }
    path.strip_prefix(origin).filter(|rest| rest.starts_with(b"/"))
}

/// `rest`, from the directory in which the program lies.
fn below_program<'p>(
    settings: &Settings,
    rest: &[u8],
    joined: &'p mut PathText,
) -> Result<Place<'p>, Errno> {
    joined.clear();
    joined.push(settings.home.as_bytes())?;
    joined.push_component(rest)?;
    match paths::below(settings.mount.as_bytes(), joined.as_bytes()) {
        Some(path) => Ok(Place::Tree { start: FileId::ROOT, path }),
        None => Ok(Place::Kernel),
    }
}

/// Names in procfs and devfs that stand for descriptors or directories of ours.
fn special<'p>(path: &'p [u8], joined: &'p mut PathText) -> Result<Place<'p>, Errno> {
    if !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/") {
        return Ok(Place::Kernel);
    }
    match paths::special(path, process::process_id) {
        None => Ok(Place::Kernel),
        Some(Special::Descriptor(descriptor, rest)) => {
            match session::open_file(descriptor).unwrap_or(None) {
                None => Ok(Place::Kernel),
                Some(_) if rest.is_empty() => Ok(Place::Descriptor(descriptor)),
                Some(open) if open.kind() == FileKind::Directory => {
                    Ok(Place::Tree { start: open.id(), path: relative(rest) })
                }
                Some(_) => Err(Errno::ENOTDIR),
            }
        }
        Some(Special::WorkingDirectory(rest)) => match cwd::directory() {
            Some(start) => Ok(Place::Tree { start, path: relative(rest) }),
            None => Ok(Place::Kernel),
        },
        Some(Special::Program) => {
            let settings = settings::require()?;
            joined.clear();
            joined.push(settings.program.as_bytes())?;
            match paths::below(settings.mount.as_bytes(), joined.as_bytes()) {
                Some(path) => Ok(Place::Tree { start: FileId::ROOT, path }),
                None => Ok(Place::Kernel),
            }
        }
    }
}

/// Without leading slashes, which would mean the root; `.` for nothing.
fn relative(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    match path.get(start..) {
        None | Some([]) => b".",
        Some(rest) => rest,
    }
}
