//! What [`crate::files::data`] keeps and works with.

use mayfly_meta::record::{Content, Inode};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, limits::FILE_BYTES_MAX};
use mayfly_wire::{GRANT_OBJECT, GRANT_PART, GRANT_READ, GRANT_WRITE, Grant};

use crate::{fault::Outcome, files::descriptions::Open};

/// An allowance grows by at least this, bytes.
pub(crate) const ALLOWANCE_STEP_MIN: u64 = 1 << 20;

/// An allowance grows by at most this beyond what was asked for, bytes.
pub(crate) const ALLOWANCE_STEP_MAX: u64 = 64 << 20;

pub(crate) fn object_of(inode: &Inode) -> Option<ObjectId> {
    match inode.content {
        Content::Object(generation) => Some(ObjectId { file: inode.id, generation }),
        _ => None,
    }
}

/// An allowance that covers `base`, and more if there is room.
pub(crate) fn generous(base: u64, room: u64, end_max: u64) -> Option<u64> {
    // A sixteenth of the room at most: what idle writers have set aside is lost to everybody else.
    let step = base.clamp(ALLOWANCE_STEP_MIN, ALLOWANCE_STEP_MAX).min(room / 16);
    match base.saturating_add(step).min(end_max) {
        generous if generous <= room => Some(generous),
        _ if base <= room => Some(base),
        _ => None,
    }
}

pub(crate) fn check_grant(open: &Open, grant: &Grant) -> Outcome<()> {
    if grant.want & !(GRANT_READ | GRANT_WRITE | GRANT_OBJECT | GRANT_PART) != 0 {
        return Err(Errno::EINVAL.into());
    }
    if grant.want & GRANT_READ != 0 && !open.may_read()
        || grant.want & GRANT_WRITE != 0 && !open.may_write()
    {
        return Err(Errno::EBADF.into());
    }
    if grant.want & GRANT_WRITE != 0 && grant.end > FILE_BYTES_MAX {
        return Err(Errno::EFBIG.into());
    }
    Ok(())
}

/// Whether the object itself is wanted, to be mapped or started: then all bytes have to be in it.
/// Who only writes far away wants one, too, but is served without.
pub(crate) fn needs_object(grant: &Grant) -> bool {
    grant.want & (GRANT_READ | GRANT_OBJECT) == GRANT_READ | GRANT_OBJECT
}

/// As much of `bytes` as fits below the longest file.
pub(crate) fn fitting(start: u64, bytes: &[u8]) -> Outcome<&[u8]> {
    if start > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let room = FILE_BYTES_MAX.checked_sub(start).filter(|room| *room > 0).ok_or(Errno::EFBIG)?;
    Ok(&bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))])
}
