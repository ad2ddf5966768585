//! Symbolic links of the kernel's file systems that lead below the mount point.
//!
//! The mount point is a symbolic link to itself, so the kernel ends such a walk with ELOOP. Only
//! then a call that failed is looked at again: its path is resolved link by link, and as soon as it
//! stands below the mount point it is ours. Where the mount point had to be a directory the kernel
//! finds nothing there, and ENOENT, ENOTDIR and EACCES are looked at too; most of them are names
//! that just do not exist, so that is ruled out first, with two system calls.

use core::sync::atomic::{AtomicU8, Ordering};

use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD},
    text::PathText,
};
use mayfly_types::limits::SYMLINK_FOLLOWS_MAX;

use super::text;
use crate::process::settings;

/// Could the failure mean that a link leads below the mount point?
#[inline]
pub(crate) fn is_suspicious(raw: isize) -> bool {
    if raw >= 0 {
        return false;
    }
    let missing = raw == Errno::ENOENT.as_result()
        || raw == Errno::ENOTDIR.as_result()
        || raw == Errno::EACCES.as_result();
    raw == Errno::ELOOP.as_result() || missing && mount_is_directory()
}

static MOUNT: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const LINK: u8 = 1;
const DIRECTORY: u8 = 2;

/// Is a directory in the place of the link? Found out once.
#[inline]
pub(crate) fn mount_is_directory() -> bool {
    match MOUNT.load(Ordering::Relaxed) {
        UNKNOWN => look_at_mount(),
        known => known == DIRECTORY,
    }
}

#[inline(never)]
fn look_at_mount() -> bool {
    let mut target = PathText::new();
    let Some(settings) = settings::get() else { return false };
    let directory = file::read_link(AT_FDCWD, &settings.mount, &mut target) == Err(Errno::EINVAL);
    MOUNT.store(if directory { DIRECTORY } else { LINK }, Ordering::Relaxed);
    directory
}

/// Resolves `path` as far as a place below the mount point; false when it does not lead there. A
/// link at its end is only followed when `follow` says so.
pub(crate) fn resolve(directory: i32, path: &[u8], follow: bool, to: &mut PathText) -> bool {
    try_resolve(directory, path, follow, to).unwrap_or(false)
}

fn try_resolve(
    directory: i32,
    path: &[u8],
    follow: bool,
    to: &mut PathText,
) -> Result<bool, Errno> {
    if path.is_empty() {
        return Ok(false);
    }
    make_absolute(directory, path, to)?;
    if mount_is_directory() && just_missing(to)? {
        return Ok(false);
    }
    let mount = settings::require()?.mount.as_bytes();
    let mut target = PathText::new();
    for _ in 0..SYMLINK_FOLLOWS_MAX {
        if !replace_first_link(to, follow, &mut target)? {
            return Ok(false);
        }
        if text::below(mount, to.as_bytes()).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make_absolute(directory: i32, path: &[u8], to: &mut PathText) -> Result<(), Errno> {
    to.clear();
    if path.starts_with(b"/") {
        return to.push(path);
    }
    if directory == AT_FDCWD {
        file::working_directory(to)?;
    } else {
        file::descriptor_link(directory, to)?;
    }
    to.push_component(path)
}

/// The parent exists and the path itself is no link: then it is simply not there.
fn just_missing(path: &PathText) -> Result<bool, Errno> {
    let mut target = PathText::new();
    if file::read_link(AT_FDCWD, path, &mut target).is_ok() {
        return Ok(false);
    }
    let (parent, _) = text::split_last(path.as_bytes());
    Ok(file::check_access(AT_FDCWD, &PathText::from_bytes(parent)?, 0).is_ok())
}

/// Replaces the first component that is a link by its target; false when none is.
fn replace_first_link(
    path: &mut PathText,
    follow: bool,
    target: &mut PathText,
) -> Result<bool, Errno> {
    let length = path.as_bytes().len();
    let mut end = 0;
    while end < length {
        let bytes = path.as_bytes();
        let start = end + bytes.get(end..).map_or(0, leading_slashes);
        let component = bytes.get(start..).unwrap_or(&[]);
        end = start + component.iter().position(|byte| *byte == b'/').unwrap_or(component.len());
        if start == end || end == length && !follow {
            break;
        }
        let prefix = PathText::from_bytes(bytes.get(..end).unwrap_or(&[]))?;
        match file::read_link(AT_FDCWD, &prefix, target) {
            Ok(()) => {}
            Err(Errno::EINVAL) => continue,
            Err(_) => return Ok(false),
        }
        let rest = PathText::from_bytes(bytes.get(end..).unwrap_or(&[]))?;
        path.truncate(if target.as_bytes().starts_with(b"/") { 0 } else { start });
        path.push(target.as_bytes())?;
        path.push(rest.as_bytes())?;
        return Ok(true);
    }
    Ok(false)
}

fn leading_slashes(path: &[u8]) -> usize {
    path.iter().position(|byte| *byte != b'/').unwrap_or(path.len())
}
