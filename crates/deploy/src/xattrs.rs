//! Extended attributes, by calls of the C library.
//!
//! The program that asks is served by the preload library, which sees the system calls of the C
//! library and not those that a Rust crate makes itself; the standard library has no such calls.

use std::{
    ffi::{CString, c_void},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// All names of a file's attributes together, and one value, have at most this many bytes (the
/// kernel's XATTR_LIST_MAX and XATTR_SIZE_MAX).
const BYTES_MAX: usize = 64 * 1024;

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// The number of bytes that a call returned, or its errno.
fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The value of one attribute of the file to which the path leads.
///
/// # Errors
/// As of `getxattr`.
pub(crate) fn read(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let (path, name) = (text(path)?, text(Path::new(name))?);
    let mut value = vec![0; BYTES_MAX];
    let room = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: path and name end with a zero, and the buffer has that many bytes.
    let result = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), room, value.len()) };
    value.truncate(checked(result)?);
    Ok(value)
}

/// Sets one attribute of the file to which the path leads.
///
/// # Errors
/// As of `setxattr`.
pub(crate) fn write(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let (path, name) = (text(path)?, text(Path::new(name))?);
    let bytes = value.as_ptr().cast::<c_void>();
    // SAFETY: path and name end with a zero, and the value has that many bytes.
    let result = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), bytes, value.len(), 0) };
    checked(result as isize).map(|_| ())
}
