//! What [`crate::namespace::open`] keeps and works with.

use mayfly_types::Errno;

use crate::{fault::Outcome, namespace::temporary};

pub(crate) const O_CREAT: u32 = 0o100;

pub(crate) const O_EXCL: u32 = 0o200;

pub(crate) const O_TRUNC: u32 = 0o1000;

pub(crate) const O_DIRECTORY: u32 = 0o200_000;

pub(crate) const O_NOFOLLOW: u32 = 0o400_000;

pub(crate) const O_CLOEXEC: u32 = 0o2_000_000;

pub(crate) const O_PATH: u32 = 0o10_000_000;

pub(crate) const O_TMPFILE: u32 = 0o20_000_000;

/// The flags that count: with `O_PATH` most do not.
pub(crate) fn effective(flags: u32) -> Outcome<u32> {
    if flags & O_PATH != 0 {
        return Ok(flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    }
    if flags & O_CREAT != 0 && flags & O_DIRECTORY != 0 {
        return Err(Errno::EINVAL.into());
    }
    if flags & O_TMPFILE != 0 {
        temporary::check_flags(flags)?;
    }
    Ok(flags)
}
