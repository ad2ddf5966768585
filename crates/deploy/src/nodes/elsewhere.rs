//! Instances none of whose nodes is on the machine from which they were started, a login node for
//! one: the list of their nodes is kept there until they are stopped, so that they can be.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Members, NodeReport, NodeState, is_this_machine, report_all};
use crate::{Depth, instance::places};

/// In the run root, where no instance can have such a name.
const DIRECTORY: &str = ".elsewhere";

fn directory() -> PathBuf {
    places::default_run_root().join(DIRECTORY)
}

fn directory_of(name: &str) -> Result<PathBuf> {
    crate::instance::config::check_name(name)?;
    Ok(directory().join(name))
}

/// Is no node on this machine?
pub(super) fn is_elsewhere<'a>(mut hosts: impl Iterator<Item = &'a str>) -> bool {
    !hosts.any(is_this_machine)
}

/// Refuses a name that another instance has which was started from here, and serves. One that was
/// stopped from elsewhere, or is dead, is forgotten when another one serves in its place: it may be
/// that it only cannot be reached at present.
pub(super) fn expect_free(name: &str) -> Result<()> {
    let Some(members) = remembered(name)? else { return Ok(()) };
    let answers = |report: &NodeReport| matches!(report.state, NodeState::Answers(_));
    ensure!(
        !report_all(&members, Depth::Sums)?.iter().any(answers),
        "an instance {name:?} was started from here on other hosts: `mayfly stop --name {name}` \
         ends it"
    );
    Ok(())
}

/// Keeps the list of an instance that serves.
pub(super) fn remember(members: &Members) -> Result<()> {
    let directory = directory_of(&members.name)?;
    places::make_private(&directory)?;
    members.store(&directory)
}

/// The nodes of the instance `name`, if it was started from here and none of them is here.
///
/// # Errors
/// Names the file that cannot be read or understood.
pub fn remembered(name: &str) -> Result<Option<Members>> {
    let directory = directory_of(name)?;
    if directory.exists() { Members::load(&directory) } else { Ok(None) }
}

/// Names of all such instances.
#[must_use]
pub fn names_elsewhere() -> Vec<String> {
    let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// It has ended.
pub(super) fn forget(name: &str) -> Result<()> {
    let directory = directory_of(name)?;
    if directory.exists() {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
        // Empty only when this was the last one; so is the run root.
        let _ = fs::remove_dir(self::directory());
        let _ = fs::remove_dir(places::default_run_root());
    }
    Ok(())
}
