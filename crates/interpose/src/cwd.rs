//! The working directory.
//!
//! While the program works inside the mount, its directory is known here by identity, so it follows
//! a rename, and the kernel's own working directory is *parked* in a removed directory: a relative
//! path that we do not see fails there instead of reaching a wrong file. A child of vfork has a
//! working directory of its own in memory that is its parent's, so it is kept in the child's
//! record.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_client::Stop;
use mayfly_sys::{Errno, file, text::PathText, user};
use mayfly_types::{FileId, FileKind};
use mayfly_wire::Target;

use crate::{
    Call, Outcome, flight, identity, paths,
    serve::{self, PLAIN, argument, done, issue},
    session, settings,
};

static DIRECTORY: AtomicU64 = AtomicU64::new(0);
static ABOVE_MOUNT: AtomicBool = AtomicBool::new(false);

/// The program's working directory, when it is in the instance.
pub(crate) fn directory() -> Option<FileId> {
    let own = DIRECTORY.load(Ordering::Relaxed);
    let raw = flight::child().and_then(|child| child.directory()).unwrap_or(own);
    (raw != 0).then_some(FileId(raw))
}

/// Is the kernel's working directory above the mount point, or nobody knows?
pub(crate) fn is_above_mount() -> bool {
    ABOVE_MOUNT.load(Ordering::Relaxed) || flight::child().is_some()
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
    let above = match (file::working_directory(&mut path), settings::get()) {
        (Ok(()), Some(settings)) => paths::is_above(settings.mount.as_bytes(), path.as_bytes()),
        _ => false,
    };
    if flight::child().is_none() {
        ABOVE_MOUNT.store(above, Ordering::Relaxed);
    }
}

/// Takes up a directory that the program before exec worked in, if the kernel's is parked.
pub(crate) fn inherit(directory: FileId) {
    if identity::is_parked() {
        DIRECTORY.store(directory.0, Ordering::Relaxed);
    }
}

fn enter(id: FileId) -> Result<isize, Errno> {
    file::enter(identity::placeholder()?)?;
    note(id.0);
    Ok(0)
}

fn left(raw: isize) -> Outcome {
    if raw == 0 {
        note(0);
        look_at_kernel();
    }
    Outcome::Done(raw)
}

/// chdir.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn chdir(call: &Call) -> Outcome {
    let mut entered = false;
    // SAFETY: passed on to the caller.
    let outcome = unsafe {
        serve::with_path(call, PLAIN, &mut |place, escape| {
            let attr = session::get()?.stat(place.target(true)?, escape)?;
            if attr.kind != FileKind::Directory {
                return Err(Stop::Failed(Errno::ENOTDIR));
            }
            entered = true;
            Ok(enter(attr.id)?)
        })
    };
    match outcome {
        Outcome::Done(raw) if !entered => left(raw),
        other => other,
    }
}

/// fchdir to a descriptor of ours.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn fchdir(call: &Call) -> Outcome {
    match session::open_file(argument(call, 0) as i32) {
        Ok(None) => {
            // SAFETY: passed on to the caller.
            left(unsafe { issue(call) })
        }
        Ok(Some(open)) if open.kind() != FileKind::Directory => {
            Outcome::Done(Errno::ENOTDIR.as_result())
        }
        Ok(Some(open)) => done(enter(open.id())),
        Err(errno) => Outcome::Done(errno.as_result()),
    }
}

/// The absolute path of a directory of the instance.
///
/// # Errors
/// ENOENT when it was removed.
pub(crate) fn absolute(directory: FileId, to: &mut PathText) -> Result<(), Errno> {
    to.clear();
    to.push(settings::require()?.mount.as_bytes())?;
    session::get()?.path_of(directory, |below| match below {
        [] | b"/" => Ok(()),
        below => to.push_component(below),
    })
}

/// getcwd.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn getcwd(call: &Call) -> Outcome {
    let Some(directory) = directory() else { return Outcome::Pass };
    let mut path = PathText::new();
    if let Err(errno) = absolute(directory, &mut path) {
        return Outcome::Done(errno.as_result());
    }
    let bytes = path.as_bytes().len() + 1;
    if argument(call, 1) < bytes {
        return Outcome::Done(Errno::ERANGE.as_result());
    }
    // SAFETY: the text is followed by its terminating zero inside the buffer.
    let text = unsafe { core::slice::from_raw_parts(path.as_ptr(), bytes) };
    // SAFETY: the host wants that many bytes written there.
    done(unsafe { user::copy_out(text, argument(call, 0) as *mut u8) }.map(|()| bytes as isize))
}

/// The working directory as a target, for calls with an empty path.
pub(crate) fn target() -> Option<Target<'static>> {
    directory().map(Target::Directory)
}
