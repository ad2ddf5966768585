//! Several daemons on one host, from which programs choose.
//!
//! Each daemon is a node of the instance, with a run directory of its own. Programs know the first
//! one's, and how many there are (`MAYFLY_DAEMONS`). The first one's run directory has a link to
//! that of each other, `daemons/1` and so on, and each run directory has a link to its objects.
//! These names are the same on every host, so the environment of one host is right on all.
//!
//! Who chooses, and by what, is in `mayfly_interpose`'s `process::daemons`.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{
    config::{Access, Config},
    whole_name,
};

/// Directory of links in the run directory of a host's first daemon.
const LINKS: &str = "daemons";
/// The link to the objects in each of these run directories.
const OBJECTS: &str = "objects";

/// Which of its host's daemons it is.
fn index(config: &Config) -> u32 {
    config.node.unwrap_or(0) % config.daemons.max(1)
}

/// The run directory of a daemon of the same host.
fn run_dir_of(config: &Config, wanted: u32) -> PathBuf {
    let base = whole_name(&config.name);
    let node = config.node.unwrap_or(0) - index(config) + wanted;
    config.run_dir.with_file_name(match wanted {
        0 => base.to_owned(),
        _ => format!("{base}@{node}"),
    })
}

/// Makes the links by which programs find the daemons of this host, all of which have their
/// directories.
pub(crate) fn link(config: &Config) -> Result<()> {
    if config.daemons <= 1 {
        return Ok(());
    }
    put(&config.object_dir, &config.run_dir.join(OBJECTS))?;
    if index(config) > 0 {
        return Ok(());
    }
    let links = config.run_dir.join(LINKS);
    fs::create_dir(&links).with_context(|| format!("cannot make {}", links.display()))?;
    (1..config.daemons)
        .try_for_each(|other| put(&run_dir_of(config, other), &links.join(other.to_string())))
}

fn put(target: &Path, link: &Path) -> Result<()> {
    symlink(target, link).with_context(|| format!("cannot make the link {}", link.display()))
}

/// The configuration of this host's first daemon, which programs know, and the variables that say
/// which others there are. `None` where there is one daemon.
pub(crate) fn first(config: &Config) -> Option<(Config, Vec<(&'static str, OsString)>)> {
    if config.daemons <= 1 || config.options.access().is_ok_and(|access| access == Access::Fuse) {
        return None;
    }
    let mut variables = vec![("MAYFLY_DAEMONS", config.daemons.to_string().into())];
    let own = index(config);
    if own == 0 {
        return Some((config.clone(), variables));
    }
    // Somebody has asked for this one.
    variables.push(("MAYFLY_DAEMON", own.to_string().into()));
    // While the instance ends, the first one may be gone.
    let first = Config::load(&run_dir_of(config, 0)).ok()?;
    Some((first, variables))
}

/// The configurations of all daemons of this host, this one among them.
pub(crate) fn all(config: &Config) -> Vec<Config> {
    if config.daemons <= 1 {
        return vec![config.clone()];
    }
    (0..config.daemons).filter_map(|each| Config::load(&run_dir_of(config, each)).ok()).collect()
}
