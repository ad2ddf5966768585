//! Small files and directories that this process opens, reads and closes without asking the daemon
//! ([`mayfly_client`]'s `leases`).
//!
//! What is not done here falls to the call's own function, which finds an ordinary description:
//! that it was leased is the client's affair. A child of vfork does nothing here, since it shares
//! the memory with its parent but not the descriptors; nor does a process that has a ring, whose
//! descriptors may be used unseen, or one that has taken locks, which go with any close of the
//! file.

use mayfly_client::OpenFile;
use mayfly_sys::{
    Errno,
    file::{AT_EMPTY_PATH, IoVec, O_CLOEXEC, O_PATH},
    number,
};
use mayfly_types::{Attr, FileId, OpenRef};
use mayfly_wire::Walk;

use super::{handover, identity};
use crate::{
    Call,
    calls::{
        locks,
        serve::{AT, are_refused, argument},
    },
    process::{
        flight,
        session::{self, Session},
    },
};

/// Opens a file, if that can be done here.
pub(crate) fn open(
    session: &'static Session,
    walk: &Walk<'_>,
    flags: u32,
) -> Option<Result<isize, Errno>> {
    if flight::child().is_some() || handover::has_ring() || locks::were_taken() {
        return None;
    }
    let open = match session.open_leased(walk, flags)? {
        Ok(open) => open,
        Err(errno) => return Some(Err(errno)),
    };
    Some(assign(session, open, flags))
}

fn assign(session: &'static Session, open: OpenFile, flags: u32) -> Result<isize, Errno> {
    match identity::assign(open, flags & O_CLOEXEC) {
        Ok(descriptor) => Ok(descriptor as isize),
        Err(errno) => {
            identity::end_unmade(session, open.reference);
            Err(errno)
        }
    }
}

/// What a descriptor refers to that may be leased.
fn reference(descriptor: usize) -> Option<(&'static Session, OpenRef)> {
    session::reference(descriptor as i32)
}

/// Is it leased, so that there are no locks that go with its close?
pub(crate) fn is(session: &Session, reference: OpenRef) -> bool {
    !locks::were_taken() && session.is_leased(reference)
}

/// Reads at the file offset or at `offset`.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn read(
    descriptor: usize,
    offset: Option<i64>,
    pieces: &[IoVec],
) -> Option<Result<usize, Errno>> {
    let (session, reference) = reference(descriptor)?;
    // What is before the file's beginning has an errno of its own.
    let offset = offset.map(u64::try_from).transpose().ok()?;
    // SAFETY: passed on to the caller.
    unsafe { session.read_leased(reference, offset, pieces) }
}

/// Is it read without asking?
pub(crate) fn is_read_so(descriptor: usize) -> bool {
    reference(descriptor).is_some_and(|(session, reference)| session.is_leased(reference))
}

/// Is it leased, and do its bytes stand in the records?
pub(crate) fn has_no_object(descriptor: usize) -> bool {
    reference(descriptor)
        .is_some_and(|(session, reference)| session.is_leased_in_records(reference))
}

/// Is it leased, and do the records tell all attributes of the file?
pub(crate) fn has_attributes(descriptor: usize) -> bool {
    reference(descriptor)
        .is_some_and(|(session, reference)| session.stat_leased(reference).is_some())
}

/// Is it leased, and do the records tell that the file has no extended attributes?
pub(crate) fn has_no_xattrs(descriptor: usize) -> bool {
    reference(descriptor).is_some_and(|(session, reference)| {
        !session.has_origins() && session.stat_leased(reference).is_some()
    })
}

/// Does it stand for no more than a name, as far as it is leased?
pub(crate) fn is_path(descriptor: usize) -> bool {
    let flags =
        reference(descriptor).and_then(|(session, reference)| session.leased_flags(reference));
    flags.is_none_or(|flags| flags & O_PATH != 0)
}

/// Is it leased, and has nobody the file open for writing?
pub(crate) fn is_unwritten(descriptor: usize) -> bool {
    reference(descriptor)
        .is_some_and(|(session, reference)| session.is_leased_and_unwritten(reference))
}

/// lseek.
pub(crate) fn seek(call: &Call) -> Option<Result<isize, Errno>> {
    let (session, reference) = reference(argument(call, 0))?;
    let (distance, whence) = (argument(call, 1) as i64, argument(call, 2) as u32 as usize);
    let sought = session.seek_leased(reference, distance, whence)?;
    Some(sought.map(|offset| offset as isize))
}

/// Attributes of what one of the stat family is about.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn attributes(call: &Call) -> Option<Attr> {
    let flags = match call.number {
        number::FSTAT => AT_EMPTY_PATH,
        number::NEWFSTATAT => argument(call, 3),
        number::STATX => argument(call, 2),
        _ => return None,
    };
    if flags & AT_EMPTY_PATH == 0 || are_refused(call.number, flags) {
        return None;
    }
    let (session, reference) = reference(argument(call, 0))?;
    // SAFETY: passed on to the caller.
    let empty = call.number == number::FSTAT
        || argument(call, 1) == 0
        || unsafe { AT.path_of(call) } == Ok(b"");
    if empty { session.stat_leased(reference) } else { None }
}

/// The file that a descriptor refers to, if it is leased.
pub(crate) fn file(descriptor: usize) -> Option<FileId> {
    let (session, reference) = reference(descriptor)?;
    session.leased_file(reference)
}

/// The directory that a descriptor refers to, if it can be listed and is leased.
pub(crate) fn listed(descriptor: usize) -> Option<(&'static Session, OpenFile)> {
    let (session, reference) = reference(descriptor)?;
    session.directory_leased(reference).map(|open| (session, open))
}

/// Status flags of what a call's first argument refers to.
pub(crate) fn flags(call: &Call) -> Option<u32> {
    let (session, reference) = reference(argument(call, 0))?;
    session.leased_flags(reference)
}
