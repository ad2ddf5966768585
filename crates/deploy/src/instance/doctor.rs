//! Finding what a crash left.
//!
//! A mount of ours whose process is gone, so that every call to it fails with ENOTCONN, and whose
//! instance does not run. A run directory that no supervisor holds, with what its configuration
//! names: mount point, data.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use mayfly_fuse::Mounted;

use super::{LOCK_NAME, places};
use crate::{Found, instance};

/// A run directory without a lock file may be that of an instance which is just being made; not
/// after so long.
const MAKING_MAX: Duration = Duration::from_secs(10);

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

/// What an instance, or a node of one, has left that died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// Its name.
    pub name: String,
    /// Its run directory.
    pub run_dir: PathBuf,
}

/// Instances of this user whose supervisors are dead.
#[must_use]
pub fn dead_instances() -> Vec<Dead> {
    let entries = std::fs::read_dir(places::default_run_root()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut dead: Vec<Dead> = names.filter_map(dead).collect();
    dead.sort_by(|one, other| one.name.cmp(&other.name));
    dead
}

fn dead(name: String) -> Option<Dead> {
    let Ok(Found::Stale(run_dir)) = Found::look(&name) else { return None };
    if !run_dir.is_dir() || is_being_made(&run_dir) {
        return None;
    }
    Some(Dead { name, run_dir })
}

fn is_being_made(run_dir: &Path) -> bool {
    let age = std::fs::metadata(run_dir).and_then(|found| found.modified());
    let age = age.ok().and_then(|changed| changed.elapsed().ok());
    !run_dir.join(LOCK_NAME).exists() && age.is_none_or(|age| age < MAKING_MAX)
}

/// Removes what a dead instance has left.
///
/// # Errors
/// Names what is to be kept, or cannot be removed.
pub fn remove(dead: &Dead) -> Result<()> {
    instance::clear_stale(&dead.run_dir)
}
