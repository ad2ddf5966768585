//! flock and the byte-range locks of fcntl.
//!
//! Locks are held at the file's home. Those of the process (POSIX) go with the first close of any
//! descriptor of the file in this process, so files on which the process took one are marked.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_client::OpenFile;
use mayfly_sys::{Errno, user};
use mayfly_types::limits::FILES_OPEN_MAX;
use mayfly_wire::{
    LOCK_FLOCK, LOCK_OFD, LOCK_POSIX, LOCK_READ, LOCK_UNLOCK, LOCK_WRITE, LockRange,
};

use super::serve::{argument, done};
use crate::{
    Call, Outcome,
    process::session::{self, Session},
};

const F_GETLK: usize = 5;
const F_SETLKW: usize = 7;
const F_OFD_GETLK: usize = 36;
const F_OFD_SETLK: usize = 37;
const F_OFD_SETLKW: usize = 38;

/// A bit for each open file of the node: this process has taken a POSIX lock on it.
static MARKED: [AtomicU64; FILES_OPEN_MAX as usize / 64] =
    [const { AtomicU64::new(0) }; FILES_OPEN_MAX as usize / 64];

/// It has taken one on some file.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// `struct flock`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct KernelLock {
    kind: i16,
    whence: i16,
    padding: i32,
    start: i64,
    length: i64,
    process: i32,
    padding_after: i32,
}

const _: () = assert!(size_of::<KernelLock>() == 32);

/// A child of fork has none of its parent's POSIX locks.
pub(crate) fn forget() {
    TAKEN.store(false, Ordering::Relaxed);
    for word in &MARKED {
        // Looking first leaves the untouched pages shared with the parent.
        if word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Has this process taken a POSIX lock, on whichever file?
pub(crate) fn were_taken() -> bool {
    TAKEN.load(Ordering::Relaxed)
}

fn mark(file: u32) -> Option<(&'static AtomicU64, u64)> {
    Some((MARKED.get(file as usize / 64)?, 1 << (file % 64)))
}

/// A descriptor of `open` was closed.
pub(crate) fn released(session: &Session, open: OpenFile) {
    let Some((word, bit)) = session.file_index(open).ok().and_then(mark) else { return };
    if word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    {
        let all = LockRange { owner: LOCK_POSIX, kind: LOCK_UNLOCK, start: 0, end: u64::MAX };
        // The session's end gives them up too.
        let _ = session.lock(open.reference, all, false);
    }
}

/// flock.
pub(super) fn flock(call: &Call) -> Outcome {
    const NONBLOCKING: usize = 4;
    let operation = argument(call, 1) as u32 as usize;
    done(session::require_open(argument(call, 0) as i32).and_then(|(session, open)| {
        if open.is_path() {
            return Err(Errno::EBADF);
        }
        let kind = match operation & !NONBLOCKING {
            1 => LOCK_READ,
            2 => LOCK_WRITE,
            8 => LOCK_UNLOCK,
            _ => return Err(Errno::EINVAL),
        };
        let range = LockRange { owner: LOCK_FLOCK, kind, start: 0, end: u64::MAX };
        session.lock(open.reference, range, operation & NONBLOCKING == 0).map(|()| 0)
    }))
}

/// The locking commands of fcntl.
///
/// # Safety
/// `argument` is the address of a `struct flock` of the host.
pub(super) unsafe fn range(
    session: &Session,
    open: OpenFile,
    command: usize,
    argument: usize,
) -> Outcome {
    // SAFETY: passed on to the caller.
    done(unsafe { try_range(session, open, command, argument as *mut KernelLock) })
}

/// # Safety
/// As [`range`].
unsafe fn try_range(
    session: &Session,
    open: OpenFile,
    command: usize,
    at: *mut KernelLock,
) -> Result<isize, Errno> {
    // SAFETY: passed on to the caller.
    let lock = unsafe { user::read(at) }?;
    let ofd = matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
    if ofd && lock.process != 0 {
        return Err(Errno::EINVAL);
    }
    let owner = if ofd { LOCK_OFD } else { LOCK_POSIX };
    let (start, end) = extent(session, open, &lock)?;
    let kind = match lock.kind {
        0 => LOCK_READ,
        1 => LOCK_WRITE,
        2 => LOCK_UNLOCK,
        _ => return Err(Errno::EINVAL),
    };
    let range = LockRange { owner, kind, start, end };
    if matches!(command, F_GETLK | F_OFD_GETLK) {
        if kind == LOCK_UNLOCK {
            return Err(Errno::EINVAL);
        }
        let conflict = session.test_lock(open.reference, range)?;
        let answer = describe(&lock, &conflict);
        // SAFETY: passed on to the caller.
        unsafe { user::write(&answer, at) }?;
        return Ok(0);
    }
    if kind == LOCK_READ && !open.readable() || kind == LOCK_WRITE && !open.writable() {
        return Err(Errno::EBADF);
    }
    if owner == LOCK_POSIX
        && let Some((word, bit)) = mark(session.file_index(open)?)
    {
        TAKEN.store(true, Ordering::Relaxed);
        word.fetch_or(bit, Ordering::Relaxed);
    }
    let wait = matches!(command, F_SETLKW | F_OFD_SETLKW);
    session.lock(open.reference, range, wait).map(|()| 0)
}

/// First byte and the offset after the last; `u64::MAX` for "to the end".
fn extent(session: &Session, open: OpenFile, lock: &KernelLock) -> Result<(u64, u64), Errno> {
    let base = match lock.whence {
        0 => 0,
        1 => session.position(open),
        2 => session.size(open)?,
        _ => return Err(Errno::EINVAL),
    };
    span(base, lock.start, lock.length)
}

fn span(base: u64, start: i64, length: i64) -> Result<(u64, u64), Errno> {
    let base = i64::try_from(base).map_err(|_| Errno::EOVERFLOW)?;
    let first = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
    let (first, end) = match length {
        0 => (first, None),
        1.. => (first, Some(first.checked_add(length).ok_or(Errno::EOVERFLOW)?)),
        // A negative length covers the bytes before the start.
        _ => (first.checked_add(length).ok_or(Errno::EINVAL)?, Some(first)),
    };
    let first = u64::try_from(first).map_err(|_| Errno::EINVAL)?;
    let end = end.map_or(Ok(u64::MAX), |end| u64::try_from(end).map_err(|_| Errno::EINVAL))?;
    Ok((first, end))
}

fn describe(asked: &KernelLock, conflict: &mayfly_wire::Conflict) -> KernelLock {
    let range = conflict.range;
    if range.kind == LOCK_UNLOCK {
        return KernelLock { kind: 2, ..*asked };
    }
    let length = if range.end == u64::MAX { 0 } else { (range.end - range.start) as i64 };
    KernelLock {
        kind: range.kind as i16,
        whence: 0,
        start: range.start as i64,
        length,
        process: conflict.pid,
        ..*asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_from_their_base() {
        assert_eq!(span(0, 10, 5), Ok((10, 15)));
        assert_eq!(span(100, -10, 0), Ok((90, u64::MAX)));
        assert_eq!(span(100, 0, -30), Ok((70, 100)));
        assert_eq!(span(0, -1, 0), Err(Errno::EINVAL));
        assert_eq!(span(0, 0, -1), Err(Errno::EINVAL));
        assert_eq!(span(0, i64::MAX, 1), Err(Errno::EOVERFLOW));
    }
}
