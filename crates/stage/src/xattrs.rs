//! Extended attributes that programs may set: those called `user.…`.

use std::{
    ffi::{CStr, c_char, c_void},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::errno::Errno;

/// All names of a file's attributes together, and one value, have at most this many bytes (the
/// kernel's XATTR_LIST_MAX and XATTR_SIZE_MAX).
const BYTES_MAX: usize = 64 * 1024;
/// Most files have none, or a few: so much is tried first.
const BYTES_USUAL: usize = 256;

/// Hands each attribute that could not be set to `lost`, with why.
///
/// # Errors
/// Those of the source cannot be read.
pub(crate) fn copy(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    mut lost: impl FnMut(&CStr, Errno),
) -> Result<(), Errno> {
    let mut room = [0; BYTES_USUAL];
    let used = match list(from, &mut room) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) | Ok(0) => return Ok(()),
        Err(Errno::ERANGE) => None,
        used => Some(used?),
    };
    let names = match used {
        Some(used) => room[..used].to_vec(),
        None => {
            let mut names = vec![0; BYTES_MAX];
            let used = list(from, &mut names)?;
            names.truncate(used);
            names
        }
    };
    let mut value = vec![0; BYTES_MAX];
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if name.to_bytes().starts_with(b"user.") {
            let bytes = get(from, name, &mut value)?;
            set(to, name, &value[..bytes]).unwrap_or_else(|errno| lost(name, errno));
        }
    }
    Ok(())
}

/// Hands the names of those that programs may set to `take`. Who cannot be asked has none.
pub(crate) fn names(file: impl AsFd, mut take: impl FnMut(&CStr)) {
    let mut names = vec![0; BYTES_MAX];
    let used = list(file.as_fd(), &mut names).unwrap_or(0);
    for name in names[..used].split_inclusive(|byte| *byte == 0) {
        if let Ok(name) = CStr::from_bytes_with_nul(name)
            && name.to_bytes().starts_with(b"user.")
        {
            take(name);
        }
    }
}

/// The number of bytes that a call returned, or its errno.
fn checked(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::last())
}

fn list(file: BorrowedFd<'_>, names: &mut [u8]) -> Result<usize, Errno> {
    let room = names.as_mut_ptr().cast::<c_char>();
    // SAFETY: the descriptor is open, and the buffer has that many bytes.
    checked(unsafe { libc::flistxattr(file.as_raw_fd(), room, names.len()) })
}

pub(crate) fn get(file: BorrowedFd<'_>, name: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
    let room = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: the descriptor is open, the name ends with a zero, the buffer has that many bytes.
    checked(unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), room, value.len()) })
}

fn set(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    let bytes = value.as_ptr().cast::<c_void>();
    // SAFETY: the descriptor is open, the name ends with a zero, the value has that many bytes.
    let result = unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), bytes, value.len(), 0) };
    checked(result as isize).map(|_| ())
}
