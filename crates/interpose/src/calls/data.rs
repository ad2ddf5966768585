//! read, write and their families, lseek, fsync, ftruncate.

use mayfly_client::{Attributes, OpenFile};
use mayfly_sys::{
    Errno,
    file::{IoVec, RWF_APPEND},
    number,
    process::{RLIMIT_FSIZE, SIGXFSZ, limit, raise},
    text::PathText,
    user,
};
use mayfly_types::FileKind;
use mayfly_wire::{ALLOCATE_ZERO_RANGE, SET_SIZE, Target};

use super::{
    names,
    serve::{argument, done},
};
use crate::{
    Call, Outcome,
    descriptors::leased,
    process::{lanes::Session, session},
};

const IOV_MAX: usize = 1024;
const RWF_HIPRI: usize = 1;
const RWF_DSYNC: usize = 2;
const RWF_SYNC: usize = 4;
const RWF_NOWAIT: usize = 8;

/// What the owner of a file may do with it.
const OWNER_MODE: u32 = 0o700;

/// Where a transfer happens.
#[derive(Debug, Clone, Copy)]
enum Position {
    /// At the file offset.
    Current,
    /// Here.
    At(i64),
}

/// read, pread64, readv, preadv, preadv2 and the writing ones, on a descriptor of ours.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn transfer(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    done(unsafe { try_transfer(call) }.map(|count| count as isize))
}

/// The same, with the number of bytes.
///
/// # Errors
/// Those of the call.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn try_transfer(call: &Call) -> Result<usize, Errno> {
    use number::*;
    let descriptor = argument(call, 0);
    if matches!(call.number, READ | PREAD64) {
        let offset = (call.number == PREAD64).then(|| argument(call, 3) as i64);
        let piece = IoVec { base: argument(call, 1) as *mut u8, bytes: argument(call, 2) };
        // SAFETY: passed on to the caller.
        if let Some(read) = unsafe { leased::read(descriptor, offset, &[piece]) } {
            return read;
        }
    }
    // SAFETY: passed on to the caller.
    if let Some(done) = unsafe { transfer_promised(call) } {
        return done;
    }
    let (session, open) = session::require_open(descriptor as i32)?;
    let position = match call.number {
        PREAD64 | PWRITE64 | PREADV | PWRITEV => Position::At(argument(call, 3) as i64),
        PREADV2 | PWRITEV2 if argument(call, 3) as i64 != -1 => {
            Position::At(argument(call, 3) as i64)
        }
        _ => Position::Current,
    };
    let flags = match call.number {
        PREADV2 | PWRITEV2 => argument(call, 5),
        _ => 0,
    };
    if flags & !(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let single = [single(call)];
    let pieces = match call.number {
        READ | WRITE | PREAD64 | PWRITE64 => &single[..],
        // SAFETY: the host passes an array of pieces.
        _ => unsafe { pieces(argument(call, 1), argument(call, 2)) }?,
    };
    // SAFETY: the host wants its memory read or written.
    let count = unsafe {
        match (call.number, position) {
            (READ | PREAD64 | READV | PREADV | PREADV2, Position::Current) => {
                session.read(open, pieces)
            }
            (READ | PREAD64 | READV | PREADV | PREADV2, Position::At(offset)) => {
                session.read_at(open, offset, pieces)
            }
            (PWRITEV2, _) if flags & RWF_APPEND != 0 => session.write_at_end(open, pieces),
            (_, Position::Current) => session.write(open, pieces),
            (_, Position::At(offset)) => session.write_at(open, offset, pieces),
        }
    }?;
    if flags & (RWF_DSYNC | RWF_SYNC) != 0 && open.writable() {
        session.sync(open.reference)?;
    }
    Ok(count)
}

/// The memory that the call is about, if it is one piece.
fn single(call: &Call) -> IoVec {
    IoVec { base: argument(call, 1) as *mut u8, bytes: argument(call, 2) }
}

/// Writes to a file that this process has submitted a moment ago, or reads from it; `None` when
/// that is too late.
///
/// # Safety
/// As [`crate::dispatch`].
unsafe fn transfer_promised(call: &Call) -> Option<Result<usize, Errno>> {
    use number::*;
    if !matches!(call.number, READ | READV | PREAD64 | WRITE | WRITEV | PWRITE64) {
        return None;
    }
    let (session, open) = session::promised(argument(call, 0) as i32)?;
    let single = [single(call)];
    let list = match call.number {
        READV | WRITEV => {
            // SAFETY: the host passes an array of pieces.
            unsafe { pieces(argument(call, 1), argument(call, 2)) }.ok()?
        }
        _ => &single[..],
    };
    let offset = match call.number {
        PREAD64 | PWRITE64 => Some(u64::try_from(argument(call, 3) as i64).ok()?),
        _ => None,
    };
    // SAFETY: the host wants its memory read or written.
    unsafe {
        match (call.number, offset) {
            (READ | READV | PREAD64, offset) => session.read_submitted(open, offset, list),
            (_, None) => submit_pieces(session, open, list),
            (_, Some(offset)) => {
                let written = session.submit_content_at(open, offset, list)?;
                Some(written.map(|(_, count)| count))
            }
        }
    }
}

/// The same with these bytes.
///
/// # Safety
/// As [`mayfly_client::Client::write`].
pub(super) unsafe fn submit_pieces(
    session: &Session,
    open: OpenFile,
    from: &[IoVec],
) -> Option<Result<usize, Errno>> {
    // SAFETY: passed on to the caller.
    let submitted = unsafe {
        session.submit_content(open, from).or_else(|| {
            // The kernel takes the umask off the object's mode.
            let may = names::umask() & OWNER_MODE == 0;
            may.then(|| session.submit_object(open, from)).flatten()
        })
    };
    if submitted.is_none() {
        let bytes = from.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.bytes));
        session.settle_to_write(open, bytes);
    }
    submitted
}

/// The host's array of pieces, where it stands.
///
/// # Safety
/// The array is what the host passes to the kernel.
pub(super) unsafe fn pieces<'a>(start: usize, count: usize) -> Result<&'a [IoVec], Errno> {
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if !start.is_multiple_of(8) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: passed on to the caller.
    unsafe { user::look_over(start, count * size_of::<IoVec>()) }?;
    // SAFETY: the host vouches for the array during its call.
    Ok(unsafe { core::slice::from_raw_parts(start as *const IoVec, count) })
}

/// lseek.
pub(crate) fn seek(call: &Call) -> Outcome {
    if let Some(sought) = leased::seek(call) {
        return done(sought);
    }
    let (distance, whence) = (argument(call, 1) as i64, argument(call, 2) as u32 as usize);
    if let Some((session, open)) = session::promised(argument(call, 0) as i32)
        && let Some(sought) = session.seek_promised(open, distance, whence)
    {
        return done(sought.map(|offset| offset as isize));
    }
    done(session::require_open(argument(call, 0) as i32).and_then(|(session, open)| {
        session.seek(open, distance, whence).map(|offset| offset as isize)
    }))
}

/// What sync_file_range refuses, whatever the file.
fn check_range(call: &Call) -> Result<(), Errno> {
    const FLAGS_KNOWN: usize = 7;
    let (start, length) = (argument(call, 1) as i64, argument(call, 2) as i64);
    let end = start.checked_add(length).filter(|end| *end >= start);
    let bad = argument(call, 3) & !FLAGS_KNOWN != 0 || start < 0 || end.is_none();
    if bad { Err(Errno::EINVAL) } else { Ok(()) }
}

/// fsync, fdatasync, sync_file_range, syncfs.
pub(super) fn sync(call: &Call) -> Outcome {
    done(session::require_open(argument(call, 0) as i32).and_then(|(session, open)| {
        if open.is_path() {
            return Err(Errno::EBADF);
        }
        if call.number == number::SYNC_FILE_RANGE {
            check_range(call)?;
        }
        if call.number == number::SYNCFS {
            session.sync_all()?;
        } else {
            session.sync(open.reference)?;
        }
        Ok(0)
    }))
}

/// ftruncate.
pub(super) fn truncate(call: &Call) -> Outcome {
    if let Some((session, open)) = session::promised(argument(call, 0) as i32)
        && let Ok(size_bytes) = u64::try_from(argument(call, 1) as i64)
    {
        let to = Attributes { which: SET_SIZE, size_bytes, ..Default::default() };
        if session.submit_attributes(Target::Open(open.reference), &to) {
            return Outcome::Done(0);
        }
    }
    done(session::require_open(argument(call, 0) as i32).and_then(|(session, open)| {
        let size = u64::try_from(argument(call, 1) as i64).map_err(|_| Errno::EINVAL)?;
        if open.is_path() {
            return Err(Errno::EBADF);
        }
        if !open.writable() || open.kind() != FileKind::Regular {
            return Err(Errno::EINVAL);
        }
        check_size(size)?;
        let to = Attributes { which: SET_SIZE, size_bytes: size, ..Default::default() };
        let mut escape = PathText::new();
        match session.set_attributes(Target::Open(open.reference), &to, &mut escape) {
            Ok(_) => Ok(0),
            Err(mayfly_client::Stop::Failed(errno)) => Err(errno),
            Err(mayfly_client::Stop::Escaped) => Err(Errno::EIO),
        }
    }))
}

/// fallocate.
pub(super) fn allocate(call: &Call) -> Outcome {
    done(session::require_open(argument(call, 0) as i32).and_then(|(session, open)| {
        if open.is_path() {
            return Err(Errno::EBADF);
        }
        let mode = argument(call, 1) as u32;
        let positive = |index| u64::try_from(argument(call, index) as i64);
        let offset = positive(2).map_err(|_| Errno::EINVAL)?;
        let bytes = positive(3).ok().filter(|bytes| *bytes > 0).ok_or(Errno::EINVAL)?;
        let end = offset.saturating_add(bytes);
        let may_grow = open.writable() && matches!(mode, 0 | ALLOCATE_ZERO_RANGE);
        // What is within the file already is allowed, whatever the process's limit.
        if may_grow && end > limit(RLIMIT_FSIZE).soft && end > session.size(open)? {
            check_size(end)?;
        }
        session.allocate(open, mode, offset, bytes).map(|()| 0)
    }))
}

/// A new length within what files and this process may have.
///
/// # Errors
/// EFBIG, with the signal that belongs to the process's limit.
pub(super) fn check_size(size: u64) -> Result<(), Errno> {
    if size > mayfly_types::limits::FILE_BYTES_MAX {
        return Err(Errno::EFBIG);
    }
    if size > limit(RLIMIT_FSIZE).soft {
        raise(SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    Ok(())
}

/// posix_fadvise and readahead: advice may be ignored.
pub(super) fn advise(call: &Call) -> Outcome {
    const ADVICES: u32 = 6;
    let is_known = argument(call, 2) as i64 >= 0 && (argument(call, 3) as u32) < ADVICES;
    if call.number == number::FADVISE64 && is_known && leased::flags(call).is_some() {
        return Outcome::Done(0);
    }
    done(session::require_open(argument(call, 0) as i32).and_then(|(_, open)| {
        if open.is_path() || call.number == number::READAHEAD && !open.readable() {
            return Err(Errno::EBADF);
        }
        if call.number == number::FADVISE64 && !is_known {
            return Err(Errno::EINVAL);
        }
        Ok(0)
    }))
}
