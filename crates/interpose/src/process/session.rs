//! The process's session, and what its descriptors are there.
//!
//! The session is made at the first call that needs it ([`attach`]). A description may have become
//! the kernel's since this process used it last; whoever asks for it here finds that its descriptor
//! is the kernel's, too.

use mayfly_client::OpenFile;
use mayfly_sys::Errno;
use mayfly_types::{FileId, OpenRef};

use super::flight;
pub(crate) use super::lanes::Session;
use crate::descriptors::{
    handover::moved,
    identity,
    table::{self, Meaning},
};

pub(crate) mod attach;

pub(super) use attach::hold_attaching;
pub(crate) use attach::{device_minor, existing, forget, get};

/// The open file description that `descriptor` of the calling process refers to, if it is ours.
///
/// # Errors
/// EBADF when the descriptor is hidden or its description is gone; EIO when it has become the
/// kernel's and that is not to be had.
pub(crate) fn open_file(descriptor: i32) -> Result<Option<OpenFile>, Errno> {
    let found = match flight::child() {
        Some(_) => identify(descriptor)?,
        None => match table::get(descriptor) {
            Meaning::Foreign => None,
            Meaning::Hidden => return Err(Errno::EBADF),
            Meaning::Open(open) => Some(get()?.open_file(open)?),
        },
    };
    match found {
        Some(open) if open.is_moved() => moved::follow(open).map(|()| None),
        found => Ok(found),
    }
}

/// What a descriptor of a child of vfork is.
///
/// # Errors
/// EBADF for a hidden one.
fn identify(descriptor: i32) -> Result<Option<OpenFile>, Errno> {
    if table::get(descriptor) == Meaning::Hidden {
        return Err(Errno::EBADF);
    }
    match identity::slot_of(descriptor) {
        Some(index) => get()?.open_file_at(index).map(Some),
        None => Ok(None),
    }
}

/// As [`open_file`], for a call that can only be about a descriptor of ours.
///
/// # Errors
/// EBADF.
pub(crate) fn require_open(descriptor: i32) -> Result<(&'static Session, OpenFile), Errno> {
    let open = open_file(descriptor)?.ok_or(Errno::EBADF)?;
    Ok((get()?, open))
}

/// What `descriptor` refers to that may be promised or leased.
pub(crate) fn reference(descriptor: i32) -> Option<(&'static Session, OpenRef)> {
    let Meaning::Open(open) = table::get(descriptor) else { return None };
    if flight::child().is_some() {
        return None;
    }
    Some((existing()?, open))
}

/// The directory that `descriptor` refers to, if it was opened without asking.
pub(crate) fn leased_directory(descriptor: i32) -> Option<FileId> {
    let (session, open) = reference(descriptor)?;
    session.directory_id_leased(open)
}

/// The description that `descriptor` refers to, if it was promised and is not made yet.
pub(crate) fn promised(descriptor: i32) -> Option<(&'static Session, OpenFile)> {
    let (session, open) = reference(descriptor)?;
    session.promised(open).map(|open| (session, open))
}
