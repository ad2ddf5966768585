//! What a running instance says of itself.

use anyhow::{Result, anyhow};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{AttachOptions, attach};
use mayfly_wire::{Counters, Status};
use serde::Serialize;
use std::{os::unix::ffi::OsStrExt, sync::atomic::Ordering};

use crate::{Config, instance::SOCKET_NAME};

/// The state of an instance, as `mayfly status --json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// How it was started.
    #[serde(flatten)]
    pub config: Config,
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// Starts of the daemon after the first.
    pub restarts: u32,
    /// Attached processes, without the one that asks.
    pub sessions: u32,
    /// Open file descriptions.
    pub open_files: u32,
    /// Held locks.
    pub locks: u32,
    /// Regular files and symbolic links.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Unlinked files that are still open.
    pub orphans: u64,
    /// Files with an object.
    pub objects: u64,
    /// Bytes used, objects and metadata together.
    pub used_bytes: u64,
    /// Bytes that may be used.
    pub capacity_bytes: u64,
    /// Requests served by this daemon.
    pub requests: u64,
    /// Transactions committed by this daemon.
    pub transactions: u64,
}

/// Asks the instance, as an attached process does.
///
/// # Errors
/// When the instance cannot be attached to or its daemon does not answer in time.
pub fn report(config: Config) -> Result<Report> {
    let socket = config.run_dir.join(SOCKET_NAME);
    let options =
        AttachOptions { socket_path: socket.as_os_str().as_bytes(), fd_min: 3, node: None };
    let attached = attach(&options).map_err(|errno| {
        anyhow!("cannot attach to {:?} at {}: {errno}", config.name, socket.display())
    })?;
    let counters =
        attached.transport.exchange(&Status {}, Patience::Deadline, |answer| match answer {
            Answer::Done(counters) => Ok(counters),
            Answer::Failed(errno) => Err(anyhow!("the daemon of {:?}: {errno}", config.name)),
            Answer::Escaped(_) => Err(anyhow!("the daemon answers another question")),
        })?;
    let starts = attached.node.head.daemon_starts.load(Ordering::Relaxed);
    Ok(Report::new(config, &counters, starts))
}

impl Report {
    fn new(config: Config, counters: &Counters, starts: u32) -> Report {
        Report {
            config,
            daemon_pid: counters.daemon_pid,
            restarts: starts.saturating_sub(1),
            sessions: counters.sessions.saturating_sub(1),
            open_files: counters.open_files,
            locks: counters.locks,
            files: counters.files,
            directories: counters.directories,
            orphans: counters.orphans,
            objects: counters.objects,
            used_bytes: counters.used_bytes,
            capacity_bytes: counters.capacity_bytes,
            requests: counters.requests,
            transactions: counters.transactions,
        }
    }
}
