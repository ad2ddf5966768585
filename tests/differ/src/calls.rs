//! The calls, with results as printable text.

use std::ffi::{CStr, CString};
use std::io::Error;

pub(crate) fn name(text: &str) -> CString {
    CString::new(text).expect("names of this test have no zero byte")
}

/// `ok VALUE` or the name of the error.
pub(crate) fn shown(result: i64) -> String {
    if result >= 0 {
        return format!("ok {result}");
    }
    errno()
}

pub(crate) fn errno() -> String {
    format!("errno {}", Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn permission_and_type(mode: u32) -> String {
    format!("{mode:o}")
}

fn stat_text(result: i32, stat: &libc::stat) -> String {
    if result != 0 {
        return errno();
    }
    let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let size = if directory { -1 } else { stat.st_size };
    let old = stat.st_mtime < 1_000_000_000;
    let mtime = if old { stat.st_mtime * 1000 + stat.st_mtime_nsec / 1_000_000 } else { -1 };
    format!(
        "mode {} links {} size {size} mtime {mtime}",
        permission_and_type(stat.st_mode),
        stat.st_nlink
    )
}

fn empty_stat() -> libc::stat {
    // SAFETY: `stat` is plain numbers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

pub(crate) fn stat(path: &CStr) -> String {
    let mut stat = empty_stat();
    // SAFETY: both pointers are valid for the call.
    let result = unsafe { libc::stat(path.as_ptr(), &raw mut stat) };
    stat_text(result, &stat)
}

pub(crate) fn lstat(path: &CStr) -> String {
    let mut stat = empty_stat();
    // SAFETY: both pointers are valid for the call.
    let result = unsafe { libc::lstat(path.as_ptr(), &raw mut stat) };
    stat_text(result, &stat)
}

pub(crate) fn fstat(fd: i32) -> String {
    let mut stat = empty_stat();
    // SAFETY: the pointer is valid for the call.
    let result = unsafe { libc::fstat(fd, &raw mut stat) };
    stat_text(result, &stat)
}

/// Of a name from an open directory on.
pub(crate) fn stat_at(at: i32, path: &CStr) -> String {
    let mut stat = empty_stat();
    // SAFETY: both pointers are valid for the call.
    let result = unsafe { libc::fstatat(at, path.as_ptr(), &raw mut stat, 0) };
    stat_text(result, &stat)
}

fn of_open(fd: i32) -> Option<libc::stat> {
    let mut stat = empty_stat();
    // SAFETY: the pointer is valid for the call.
    let result = unsafe { libc::fstat(fd, &raw mut stat) };
    (result == 0).then_some(stat)
}

pub(crate) fn is_directory(fd: i32) -> bool {
    of_open(fd).is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

/// Whether both are open, and the same file.
pub(crate) fn same_file(one: i32, other: i32) -> bool {
    let both = of_open(one).zip(of_open(other));
    both.is_some_and(|(one, other)| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// How long an open file is; nothing of what is none.
pub(crate) fn bytes_of(fd: i32) -> usize {
    let regular = |stat: &libc::stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    of_open(fd).filter(regular).map_or(0, |stat| stat.st_size as usize)
}

pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> i32 {
    // SAFETY: the path is a C string.
    unsafe { libc::open(path.as_ptr(), flags, mode) }
}

pub(crate) fn path_call(call: unsafe extern "C" fn(*const i8) -> i32, path: &CStr) -> String {
    // SAFETY: the callers pass calls of libc that take one path.
    shown(i64::from(unsafe { call(path.as_ptr()) }))
}

pub(crate) fn two_paths(
    call: unsafe extern "C" fn(*const i8, *const i8) -> i32,
    from: &CStr,
    to: &CStr,
) -> String {
    // SAFETY: the callers pass calls of libc that take two paths.
    shown(i64::from(unsafe { call(from.as_ptr(), to.as_ptr()) }))
}

/// rename. A kernel that finds a directory which others have moved, not through its mount, in the
/// middle of a rename to another directory answers ESTALE (docs/design/fuse.md). It knows where the
/// directory is once it was looked at.
pub(crate) fn rename(from: &CStr, to: &CStr) -> String {
    let done = two_paths(libc::rename, from, to);
    if done != format!("errno {}", libc::ESTALE) {
        return done;
    }
    lstat(from);
    lstat(to);
    two_paths(libc::rename, from, to)
}

pub(crate) fn readlink(path: &CStr) -> String {
    let mut buffer = [0_u8; 300];
    // SAFETY: the buffer has the length given.
    let result = unsafe { libc::readlink(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    match usize::try_from(result) {
        Ok(count) => format!("-> {}", String::from_utf8_lossy(&buffer[..count])),
        Err(_) => errno(),
    }
}

/// Names of a directory, sorted, with their types.
pub(crate) fn list(path: &str) -> String {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return format!("errno {}", error.raw_os_error().unwrap_or(0)),
    };
    let mut names = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => names.push(format!(
                "{}:{}",
                entry.file_name().to_string_lossy(),
                entry.file_type().map_or("?", |kind| if kind.is_dir() {
                    "d"
                } else if kind.is_symlink() {
                    "l"
                } else {
                    "f"
                })
            )),
            Err(error) => return format!("errno {}", error.raw_os_error().unwrap_or(0)),
        }
    }
    names.sort();
    names.join(" ")
}

/// FNV-1a, to print contents in a word.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
