//! Finding what a crash left.
//!
//! Only mounts so far: one of ours whose process is gone, so that every call to it fails with
//! ENOTCONN, and whose instance does not run.

use std::path::PathBuf;

use anyhow::Result;
use mayfly_fuse::Mounted;

use crate::Found;

/// Dead mounts of instances that do not run.
///
/// # Errors
/// When the instances of this user cannot be looked at.
pub fn dead_mounts() -> Result<Vec<PathBuf>> {
    let mut dead = Vec::new();
    for Mounted { name, point } in mayfly_fuse::mounted() {
        // The order matters: asking the file system of a living instance may wait for it.
        let runs = matches!(Found::look(&name), Ok(Found::Running(_)));
        if !runs && matches!(rustix::fs::statfs(&point), Err(rustix::io::Errno::NOTCONN)) {
            dead.push(point);
        }
    }
    Ok(dead)
}

/// Takes such a mount away; false when that failed.
#[must_use]
pub fn clear(point: &std::path::Path) -> bool {
    mayfly_fuse::unmount(point)
}
