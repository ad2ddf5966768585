//! The daemon's side of being started: from the configuration to the serving loop.

use std::{
    fs,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result, anyhow};
use mayfly_daemon::{
    Config as CoreConfig, Core, Parts, Survivors, SystemClock,
    serve::{self, Ending, Handover},
};
use mayfly_meta::{LmdbOptions, LmdbStore};
use mayfly_object::{DirectoryStore, ObjectStore};
use mayfly_types::Durability;

use crate::Config;

/// The hidden subcommand that the daemon runs as. Its standard input is the channel to the
/// supervisor.
pub const DAEMON: &str = "__daemon";

/// Dentries of directories and symbolic links that a daemon remembers; about 100 bytes each.
const CACHED_DENTRIES_MAX: usize = 262_144;
/// Threads that wait for the disk so that the shard does not.
const IO_THREADS: usize = 2;

/// Runs the daemon of the instance in `run_dir` until the supervisor ends it.
///
/// # Errors
/// When the store cannot be opened, or the supervisor does not speak as expected.
pub fn run_daemon(run_dir: &Path) -> Result<()> {
    let config = Config::load(run_dir)?;
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    let slot_files = config.run_dir.join("ofd");
    match serve::run(channel, &slot_files, |handover| open(&config, handover))? {
        Ending::Stopped => Ok(()),
        other => Err(anyhow!("the daemon ends: {other:?}")),
    }
}

fn open(config: &Config, handover: &Handover) -> Result<Core> {
    let objects = DirectoryStore::open(&config.object_dir)
        .map_err(|errno| anyhow!("cannot open {}: {errno}", config.object_dir.display()))?;
    let capacity_bytes = capacity(config, &objects)?;
    let durability = config.options.durability()?;
    let store = LmdbStore::open(&LmdbOptions {
        directory: config.meta_dir.clone(),
        limit_bytes: capacity_bytes,
        sync: durability == Durability::Sync,
        boot_id: fs::read("/proc/sys/kernel/random/boot_id").context("the kernel's boot id")?,
    })
    .map_err(|error| anyhow!("the metadata in {}: {error}", config.meta_dir.display()))?;
    let waker = handover.waker();
    let parts = Parts {
        store: Box::new(store),
        objects: Arc::new(objects),
        node: handover.node(),
        clock: Box::new(SystemClock),
        wake: Box::new(move || waker.wake()),
    };
    let core = CoreConfig {
        instance: config.instance,
        mount: config.mount.as_os_str().as_bytes().to_vec(),
        capacity_bytes,
        chunk_bytes: config.options.chunk_bytes,
        times: config.options.times()?,
        durability,
        locks: config.options.locks,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        cached_dentries_max: CACHED_DENTRIES_MAX,
        io_threads: IO_THREADS,
    };
    let survivors = Survivors { sessions: handover.sessions().collect() };
    Core::open(core, parts, &survivors).map_err(|error| anyhow!("{error}"))
}

/// What the user set, or what the file system holds now and could still take.
fn capacity(config: &Config, objects: &DirectoryStore) -> Result<u64> {
    if let Some(bytes) = config.options.capacity_bytes {
        return Ok(bytes);
    }
    let space = objects.space().map_err(|errno| {
        anyhow!("cannot learn the space in {}: {errno}", config.object_dir.display())
    })?;
    Ok(space.total_bytes)
}
