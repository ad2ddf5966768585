//! Symbolic links of the kernel's file systems that lead below the mount point.
//!
//! The kernel follows such a link to a place where it finds nothing, so a call that failed with
//! ENOENT, ENOTDIR or EACCES is looked at again: its path is resolved link by link, and as soon as
//! it stands below the mount point it is ours. Most failures are names that just do not exist, so
//! that is ruled out first, with two system calls.

use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD},
    text::PathText,
};
use mayfly_types::limits::SYMLINK_FOLLOWS_MAX;

use crate::{paths, settings};

/// Could the failure mean that a link leads below the mount point?
pub(crate) fn is_suspicious(raw: isize) -> bool {
    raw == Errno::ENOENT.as_result()
        || raw == Errno::ENOTDIR.as_result()
        || raw == Errno::EACCES.as_result()
}

/// Resolves `path` as far as a place below the mount point; false when it does not lead there.
pub(crate) fn resolve(directory: i32, path: &[u8], to: &mut PathText) -> bool {
    try_resolve(directory, path, to).unwrap_or(false)
}

fn try_resolve(directory: i32, path: &[u8], to: &mut PathText) -> Result<bool, Errno> {
    if path.is_empty() {
        return Ok(false);
    }
    make_absolute(directory, path, to)?;
    if just_missing(to)? {
        return Ok(false);
    }
    let mount = settings::require()?.mount.as_bytes();
    let mut target = PathText::new();
    for _ in 0..SYMLINK_FOLLOWS_MAX {
        if !replace_first_link(to, &mut target)? {
            return Ok(false);
        }
        if paths::below(mount, to.as_bytes()).is_some() {
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
    let (parent, _) = paths::split_last(path.as_bytes());
    Ok(file::check_access(&PathText::from_bytes(parent)?, 0).is_ok())
}

/// Replaces the first component that is a link by its target; false when none is.
fn replace_first_link(path: &mut PathText, target: &mut PathText) -> Result<bool, Errno> {
    let length = path.as_bytes().len();
    let mut end = 0;
    while end < length {
        let bytes = path.as_bytes();
        let start = end + bytes.get(end..).map_or(0, leading_slashes);
        let component = bytes.get(start..).unwrap_or(&[]);
        end = start + component.iter().position(|byte| *byte == b'/').unwrap_or(component.len());
        if start == end {
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
