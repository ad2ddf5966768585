//! The working directory.
//!
//! While the program works inside the mount, its directory is known here by identity, so it follows
//! a rename. The kernel's own working directory is the same one where the instance is mounted: what
//! looks at the process from outside sees it, and a core dump lands there. Elsewhere it is *parked*
//! in a removed directory whose name tells the identity to those who are served: a relative path
//! that we do not see fails there instead of reaching a wrong file. To show the directory to others
//! costs a hundred times what a change of it does without, so one that changes all the time is
//! parked without a name, until the process forks, executes a program, or changes it again a while
//! later. A child of vfork has a working directory of its own in memory that is its parent's, so it
//! is kept in the child's record.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_sys::{
    Errno, clock,
    file::{self, AT_FDCWD},
    text::PathText,
};
use mayfly_types::FileId;
use mayfly_wire::Target;

use super::text;
use crate::{
    Outcome,
    descriptors::{handover::moved, identity},
    process::{flight, session, settings},
};

/// Its name, which costs a tenth of what the link of procfs does.
const OWN: &[u8] = b".";
/// The link of procfs, which shows the name of a removed one too.
const OWN_LINK: &[u8] = b"/proc/self/cwd";

static DIRECTORY: AtomicU64 = AtomicU64::new(0);
static NEAR: AtomicBool = AtomicBool::new(false);

/// Changes that are shown to others in one second.
const SHOWN_MAX: u64 = 32;
/// The second of the last change, above a byte with the number of changes in it.
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// The directory is not shown.
static UNSHOWN: AtomicBool = AtomicBool::new(false);

/// The program's working directory, when it is in the instance.
pub(crate) fn directory() -> Option<FileId> {
    let own = DIRECTORY.load(Ordering::Relaxed);
    let raw = flight::child().and_then(|child| child.directory()).unwrap_or(own);
    (raw != 0).then_some(FileId(raw))
}

/// Is the kernel's working directory above the mount point or in procfs, or nobody knows?
pub(crate) fn is_near() -> bool {
    NEAR.load(Ordering::Relaxed) || flight::child().is_some()
}

/// The program's working directory is `directory` (0: the kernel's).
fn note(directory: u64) {
    match flight::child() {
        Some(child) => child.set_directory(directory),
        None => DIRECTORY.store(directory, Ordering::Relaxed),
    }
}

/// The kernel's working directory may have changed.
pub(crate) fn look_at_kernel() {
    let mut path = PathText::new();
    note_near(file::working_directory(&mut path).ok().map(|()| &path));
}

/// The program begins. The kernel's working directory is taken up where that is in the mount: who
/// started the program was not served, as a shell that was there before the instance.
pub(crate) fn look_at_start() {
    let mut path = PathText::new();
    let path = file::working_directory(&mut path).ok().map(|()| &path);
    if DIRECTORY.load(Ordering::Relaxed) == 0
        && let Some(found) = path.and_then(kernels_in_mount)
    {
        DIRECTORY.store(found.0, Ordering::Relaxed);
    }
    note_near(path);
}

fn note_near(path: Option<&PathText>) {
    let near = path.zip(settings::get()).is_some_and(|(path, settings)| {
        text::is_above(settings.mount.as_bytes(), path.as_bytes())
            || path.as_bytes().starts_with(b"/proc")
    });
    if flight::child().is_none() {
        NEAR.store(near, Ordering::Relaxed);
    }
}

/// Takes up a directory that the program before exec worked in, if the kernel's stands for it: who
/// is not served may have changed it meanwhile.
pub(crate) fn inherit(directory: FileId) {
    if stands_for(directory).unwrap_or(false) {
        DIRECTORY.store(directory.0, Ordering::Relaxed);
    }
}

/// The kernel's working directory at `path`, if that is in the mount. What is mounted inside the
/// mount is none of ours.
fn kernels_in_mount(path: &PathText) -> Option<FileId> {
    let settings = settings::get()?;
    text::below(settings.mount.as_bytes(), path.as_bytes())?;
    let own = file::known_inode(&PathText::from_bytes(OWN).ok()?).ok()?;
    let mount = file::known_inode(&settings.mount).ok()?;
    (own.device == mount.device).then_some(FileId(own.inode))
}

fn stands_for(directory: FileId) -> Result<bool, Errno> {
    let mut path = PathText::new();
    let name = match file::working_directory(&mut path) {
        Ok(()) => PathText::from_bytes(OWN)?,
        Err(_) => {
            let name = PathText::from_bytes(OWN_LINK)?;
            file::read_link(AT_FDCWD, &name, &mut path)?;
            name
        }
    };
    Ok(match identity::removed_in(path.as_bytes()) {
        Some(parked) => parked.is_none_or(|parked| parked == directory),
        // A mount that has died says nothing; what it showed was right.
        None => in_mount(&name, path.as_bytes())
            .is_some_and(|inode| inode.is_none_or(|inode| inode == directory)),
    })
}

fn is_own(name: &PathText) -> bool {
    matches!(name.as_bytes(), OWN | OWN_LINK)
}

/// Is the kernel's working directory in a mount that has ended, or is outside of this root?
fn is_cut_off() -> bool {
    let mut path = PathText::new();
    file::working_directory(&mut path).is_ok() && path.as_bytes().starts_with(b"(unreachable)")
}

/// Does `name`, a link of procfs, lead into the mount when it shows `link`? And to which directory,
/// if that can be found out?
fn in_mount(name: &PathText, link: &[u8]) -> Option<Option<FileId>> {
    let settings = settings::get()?;
    if text::below(settings.mount.as_bytes(), link).is_none() && !(is_own(name) && is_cut_off()) {
        return None;
    }
    Some(file::known_inode(name).ok().map(|known| FileId(known.inode)))
}

/// The program's working directory becomes `id`, which is a directory of the instance.
///
/// # Errors
/// Why the kernel's cannot be put there.
pub(crate) fn enter(id: FileId) -> Result<isize, Errno> {
    if directory() == Some(id) {
        return Ok(0);
    }
    if changes_all_the_time() {
        if !UNSHOWN.swap(true, Ordering::Relaxed) {
            file::enter(identity::placeholder()?)?;
        }
    } else {
        show(id)?;
    }
    note(id.0);
    Ok(0)
}

/// A child of vfork executes a program soon, and its numbers must not get into its parent's memory.
fn changes_all_the_time() -> bool {
    if flight::child().is_some() {
        return false;
    }
    let second = clock::monotonic_ns() / 1_000_000_000;
    let last = CHANGES.load(Ordering::Relaxed);
    let count = if last >> 8 == second { (last & 0xff) + 1 } else { 1 };
    CHANGES.store(second << 8 | count.min(SHOWN_MAX + 1), Ordering::Relaxed);
    count > SHOWN_MAX
}

fn show(id: FileId) -> Result<(), Errno> {
    enter_mount(id).or_else(|_| park(id))?;
    if flight::child().is_none() {
        UNSHOWN.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// Another process is about to begin in this one's working directory.
pub(crate) fn settle() {
    if UNSHOWN.load(Ordering::Relaxed)
        && let Some(id) = directory()
    {
        // Where it cannot be shown, the new program is told by its environment.
        let _ = show(id);
    }
}

/// The kernel's working directory becomes the mount's.
fn enter_mount(id: FileId) -> Result<(), Errno> {
    if !moved::is_possible() {
        return Err(Errno::ENOENT);
    }
    let mut path = PathText::new();
    absolute(id, &mut path)?;
    file::change_directory(&path)?;
    // It may have been moved between the look at its path and the call.
    let entered = in_mount(&PathText::from_bytes(OWN)?, path.as_bytes());
    if entered.flatten() == Some(id) { Ok(()) } else { Err(Errno::ESTALE) }
}

/// The kernel's working directory becomes a removed one that is named after `id`. Without room for
/// another, nobody else learns which one it is.
fn park(id: FileId) -> Result<(), Errno> {
    match identity::removed_directory(Some(id)) {
        Ok(directory) => {
            let entered = file::enter(directory);
            file::close(directory);
            entered
        }
        Err(_) => file::enter(identity::placeholder()?),
    }
}

/// The working directory of a process of which the kernel shows `link`.
pub(crate) fn parked(link: &[u8]) -> Option<FileId> {
    identity::removed_in(link).flatten()
}

/// The working directory that the link of procfs at `name` leads to, whatever became of the path
/// that it shows.
pub(crate) fn behind(name: &PathText, link: &[u8]) -> Option<FileId> {
    parked(link).or_else(|| in_mount(name, link).flatten())
}

/// The kernel's working directory was changed for a program that did not start.
pub(crate) fn enter_again() {
    if let Some(id) = directory() {
        let _ = show(id);
    }
}

/// The kernel was asked for another working directory, and has answered.
pub(crate) fn left(raw: isize) -> Outcome {
    if raw == 0 {
        note(0);
        if flight::child().is_none() {
            UNSHOWN.store(false, Ordering::Relaxed);
        }
        look_at_kernel();
    }
    Outcome::Done(raw)
}

/// The absolute path of a directory of the instance, or of an open file.
///
/// # Errors
/// ENOENT when it was removed, ENOTDIR for a file of which no name is known.
pub(crate) fn absolute(file: FileId, to: &mut PathText) -> Result<(), Errno> {
    to.clear();
    to.push(settings::require()?.mount.as_bytes())?;
    session::get()?.path_of(file, |below| match below {
        [] | b"/" => Ok(()),
        below => to.push_component(below),
    })
}

/// The working directory as a target, for calls with an empty path.
pub(crate) fn target() -> Option<Target<'static>> {
    directory().map(Target::Directory)
}
