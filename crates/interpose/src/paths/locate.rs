//! Where a path of the host leads: to the kernel or to the instance.
//!
//! Paths of others must cost nanoseconds, so the tests are ordered by how rarely they apply, and
//! only the rare ones make a system call. What a path means inside the instance is the daemon's
//! business; a walk that leaves the instance comes back as an absolute path of the host
//! ([`crate::calls::serve`]).

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD},
    process,
    text::PathText,
};
use mayfly_types::{FileId, FileKind, OpenRef};
use mayfly_wire::{Target, WALK_EMPTY, WALK_FOLLOW, Walk};

use super::{
    cwd,
    procfs::{self, Behind},
    text::{self, Special},
};
use crate::process::{
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
    /// The path names this open file description, by a name in procfs.
    Open(OpenRef),
}

impl<'p> Place<'p> {
    /// As the daemon understands it.
    ///
    /// # Errors
    /// EXDEV for the kernel's.
    pub(crate) fn target(self, follow: bool) -> Result<Target<'p>, Errno> {
        match self {
            Place::Kernel => Err(Errno::EXDEV),
            Place::Tree { start, path } => Ok(Target::Path(walk(start, path, follow))),
            Place::Open(open) => Ok(Target::Open(open)),
        }
    }

    /// The directory in which the path's last component is a name.
    pub(crate) fn parent(self) -> Place<'p> {
        match self {
            Place::Tree { start, path } => match text::split_last(path) {
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
            Place::Open(_) => Err(Errno::EPERM),
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
        return match text::below(mount, path) {
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
        let leads = text::may_lead_below(mount, path) || text::may_lead_through_procfs(path);
        let near = cwd::is_near() && leads;
        if !near && !text::goes_up(path) {
            return Ok(Place::Kernel);
        }
        if file::working_directory(joined).is_err() {
            return Ok(Place::Kernel);
        }
    } else {
        if let Some(start) = session::leased_directory(directory) {
            return Ok(Place::Tree { start, path });
        }
        if let Some(open) = session::open_file(directory)? {
            if open.kind() != FileKind::Directory {
                return Err(Errno::ENOTDIR);
            }
            return Ok(Place::Tree { start: open.id(), path });
        }
        if !text::may_lead_below(mount, path) && !text::may_lead_through_procfs(path) {
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
    let joined = joined.as_bytes();
    match text::below(mount, joined) {
        Some(path) => Ok(Place::Tree { start: FileId::ROOT, path }),
        None if joined.starts_with(b"/proc/") => {
            text::special(joined, process::process_id).map_or(Ok(Place::Kernel), behind)
        }
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
    match text::below(settings.mount.as_bytes(), joined.as_bytes()) {
        Some(path) => Ok(Place::Tree { start: FileId::ROOT, path }),
        None => Ok(Place::Kernel),
    }
}

/// Names in procfs and devfs that stand for descriptors or directories of ours.
fn special<'p>(path: &'p [u8], joined: &'p mut PathText) -> Result<Place<'p>, Errno> {
    if !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/") {
        return Ok(Place::Kernel);
    }
    match text::special(path, process::process_id) {
        None => Ok(Place::Kernel),
        Some(Special::Program) => {
            let settings = settings::require()?;
            joined.clear();
            joined.push(settings.program.as_bytes())?;
            match text::below(settings.mount.as_bytes(), joined.as_bytes()) {
                Some(path) => Ok(Place::Tree { start: FileId::ROOT, path }),
                None => Ok(Place::Kernel),
            }
        }
        Some(special) => behind(special),
    }
}

/// What stands behind such a name, a program's apart.
fn behind(special: Special<'_>) -> Result<Place<'_>, Errno> {
    let below = |directory: Option<FileId>, rest| match directory {
        Some(start) => Ok(Place::Tree { start, path: relative(rest) }),
        None => Ok(Place::Kernel),
    };
    match special {
        Special::Program => Ok(Place::Kernel),
        Special::Descriptor(descriptor, rest) => {
            through(session::open_file(descriptor).unwrap_or(None), rest)
        }
        Special::WorkingDirectory(rest) => below(cwd::directory(), rest),
        Special::Others(link, rest) => match procfs::behind(link) {
            Some(Behind::Open(open)) => through(Some(open), rest),
            Some(Behind::Directory(directory)) => below(Some(directory), rest),
            None => Ok(Place::Kernel),
        },
    }
}

/// Is the path the name of a link in procfs that stands for something of ours?
pub(crate) fn is_link_of_procfs(directory: i32, path: &[u8]) -> bool {
    if path.starts_with(b"/") {
        return text::is_special_link(path);
    }
    let mut joined = PathText::new();
    text::may_lead_through_procfs(path)
        && matches!(locate(directory, path, &mut joined), Ok(Place::Open(_)))
}

/// What a descriptor's name leads to, with `rest` behind it.
fn through(open: Option<OpenFile>, rest: &[u8]) -> Result<Place<'_>, Errno> {
    match open {
        None => Ok(Place::Kernel),
        Some(open) if rest.is_empty() => Ok(Place::Open(open.reference)),
        Some(open) if open.kind() == FileKind::Directory => {
            Ok(Place::Tree { start: open.id(), path: relative(rest) })
        }
        Some(_) => Err(Errno::ENOTDIR),
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
