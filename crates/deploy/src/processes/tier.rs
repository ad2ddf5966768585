//! The process that works for the daemon outside the instance.

use std::{
    io::Write,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
};

use anyhow::{Result, ensure};
use mayfly_tier::Origins;

use crate::{Config, Origin, instance::SOCKET_NAME, signals, tier::first_shard};

/// The hidden subcommand that keeps the caching tier: `__tier RUN_DIR`. Its standard input is the
/// line to the supervisor: it says a line there when it has begun, and ends when that is cut.
pub const TIER: &str = "__tier";

/// Keeps the tier of the instance in `run_dir` until standard input ends.
///
/// # Errors
/// Says why it cannot.
pub fn run_tier(run_dir: &Path) -> Result<()> {
    signals::outlive()?;
    let config = Config::load(run_dir)?;
    let origins = &config.options.origins;
    ensure!(!origins.is_empty(), "{:?} has no origin", config.name);
    let look_every = config.options.write_back.look_every()?;
    let shard = first_shard(&config, config.node.unwrap_or(0))?;
    let origins = Origins {
        shard,
        look_every,
        socket: config.run_dir.join(SOCKET_NAME),
        objects: config.object_dir.clone(),
        notes: config.data_dir.join("tier"),
        outside: origins.iter().map(Origin::opened).collect(),
    };
    let line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut said = line.try_clone()?;
    // Who does not listen has gone, and the line with it.
    mayfly_tier::keep(&origins, line, || drop(said.write_all(b"\n")))
}
