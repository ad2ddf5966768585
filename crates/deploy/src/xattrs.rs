//! Extended attributes, copied by calls of the C library.
//!
//! The program that copies is served by the preload library, which sees the system calls of the C
//! library and not those that a Rust crate makes itself; the standard library has no such calls.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// All names of a file's attributes together, and one value, have at most this many bytes (the
/// kernel's XATTR_LIST_MAX and XATTR_SIZE_MAX).
const BYTES_MAX: usize = 64 * 1024;

/// Gives `to` the attributes of `from` that programs may set: those called `user.…`.
///
/// # Errors
/// One cannot be read, or not be set: the file system of `to` may know none.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (text(from)?, text(to)?);
    let mut names = vec![0; BYTES_MAX];
    let used = match list(&source, &mut names) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
        used => used?,
    };
    let mut value = Vec::new();
    for name in names[..used].split_inclusive(|byte| *byte == 0) {
        if !name.starts_with(b"user.") {
            continue;
        }
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        value.resize(BYTES_MAX, 0);
        let bytes = get(&source, name, &mut value)?;
        set(&target, name, &value[..bytes]).map_err(|error| {
            let name = name.to_string_lossy();
            io::Error::new(error.kind(), format!("the extended attribute {name}: {error}"))
        })?;
    }
    Ok(())
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// The number of bytes that a call returned, or its errno.
fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn list(path: &CStr, names: &mut [u8]) -> io::Result<usize> {
    let room = names.as_mut_ptr().cast::<c_char>();
    // SAFETY: the path ends with a zero, and the buffer has that many bytes.
    checked(unsafe { libc::llistxattr(path.as_ptr(), room, names.len()) })
}

fn get(path: &CStr, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    let room = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: path and name end with a zero, and the buffer has that many bytes.
    checked(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), room, value.len()) })
}

fn set(path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
    let bytes = value.as_ptr().cast::<c_void>();
    // SAFETY: path and name end with a zero, and the value has that many bytes.
    let result = unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), bytes, value.len(), 0) };
    checked(result as isize).map(|_| ())
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
