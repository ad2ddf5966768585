//! The daemon's side of being started: from the configuration to the serving loop.

use std::{
    fs,
    num::NonZero,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use mayfly_daemon::{
    Config as CoreConfig, Consistency, Directories, LayoutWords, LeaseTimes, Link, Roles, Seams,
    Shard, Survivors, SystemClock, Totals,
    serve::{self, Ending, Opener, Place},
};
use mayfly_meta::{LmdbOptions, LmdbStore, MemoryStore, Store, TreeOptions, TreeStore};
use mayfly_object::{DirectoryStore, ObjectStore};
use mayfly_types::{Durability, limits};

use super::processors;
use crate::{Config, Members, Origin, nodes, signals};

/// The hidden subcommand that the daemon runs as. Its standard input is the channel to the
/// supervisor.
pub const DAEMON: &str = "__daemon";

/// Dentries of directories and symbolic links that a daemon remembers; about 100 bytes each.
const CACHED_DENTRIES_MAX: usize = 262_144;
/// What a shard's records may always take, as far as the capacity goes, bytes.
const LIMIT_BYTES_MIN: u64 = 64 << 20;

/// Runs the daemon of the instance in `run_dir` until the supervisor ends it.
///
/// # Errors
/// When a store cannot be opened, or the supervisor does not speak as expected.
pub fn run_daemon(run_dir: &Path) -> Result<()> {
    signals::outlive()?;
    let config = Config::load(run_dir)?;
    if let Some(cpus) = &config.options.cpus {
        processors::keep_to(cpus)?;
    }
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    let slot_files = config.run_dir.join("ofd");
    let shards = config.options.shards;
    let members = match config.node {
        Some(_) => Some(Members::load(&config.run_dir)?.context("the list of nodes is gone")?),
        None => None,
    };
    let nodes = members.as_ref().and_then(|members| nodes(&config, members));
    let roles = members.as_ref().map(roles).unwrap_or_default();
    let opener = Shards { config, roles, totals: Arc::new(Totals::new(shards)) };
    match serve::run(channel, &slot_files, shards, nodes, &opener)? {
        Ending::Stopped => Ok(()),
        other => Err(anyhow!("the daemon ends: {other:?}")),
    }
}

/// The other nodes, where there are some.
fn nodes(config: &Config, members: &Members) -> Option<serve::Nodes> {
    let me = config.node?;
    let mut instance = [0; 16];
    instance[..8].copy_from_slice(&config.instance.to_le_bytes());
    Some(serve::Nodes {
        me,
        addresses: members.nodes.iter().map(|member| member.address).collect(),
        instance,
        encrypt: members.encrypt,
        threads: config.options.network_threads.map(|threads| threads as usize),
        deadline_ms: config.options.deadline_ms(),
    })
}

/// Who has what.
fn roles(members: &Members) -> Roles {
    let those = |chosen: fn(&nodes::Roles) -> bool| {
        let all = (0..).zip(&members.nodes);
        all.filter(|(_, member)| chosen(&member.roles)).map(|(node, _)| node).collect()
    };
    Roles { metadata: those(|roles| roles.metadata), servers: those(|roles| roles.server) }
}

/// Opens the shards of an instance.
struct Shards {
    config: Config,
    roles: Roles,
    totals: Arc<Totals>,
}

/// What a shard keeps.
struct ShardStores {
    objects: DirectoryStore,
    capacity_bytes: u64,
    records: Box<dyn Store>,
}

impl Opener for Shards {
    type Store = ShardStores;
    type Service = Shard;
    type Error = anyhow::Error;

    fn store(&self, place: &Place) -> Result<(ShardStores, u64)> {
        let config = &self.config;
        let objects = DirectoryStore::open(&config.object_dir)
            .map_err(|errno| anyhow!("cannot open {}: {errno}", config.object_dir.display()))?;
        let capacity_bytes = capacity(config, &objects)?;
        let records = open_store(config, place, capacity_bytes)?;
        let committed = records.committed_transaction();
        Ok((ShardStores { objects, capacity_bytes, records }, committed))
    }

    fn service(&self, place: &Place, stores: ShardStores) -> Result<Shard> {
        let waker = place.waker();
        let parts = Seams {
            store: stores.records,
            objects: Arc::new(stores.objects),
            node: place.node(),
            clock: Box::new(SystemClock),
            shard: place.shard(),
            numbering: place.numbering(),
            totals: Arc::clone(&self.totals),
            wake: Box::new(move || waker.wake()),
        };
        let roles = self.roles.clone();
        let config = CoreConfig { roles, ..core_config(&self.config, stores.capacity_bytes)? };
        let survivors = Survivors { sessions: place.sessions().to_vec() };
        let failed = |error| anyhow!("{error}");
        let mut shard = Shard::open(config, parts, &survivors).map_err(failed)?;
        let links: Vec<Link> = self.config.options.origins.iter().map(Origin::link).collect();
        shard.link_origins(&links, self.config.options.valid_ms()?).map_err(failed)?;
        shard.write_back(self.config.options.write_back.when()?);
        Ok(shard)
    }

    fn slow_after(&self) -> Option<Duration> {
        let slow_ms = self.config.options.slow_ms;
        (slow_ms > 0).then(|| Duration::from_millis(slow_ms))
    }
}

fn core_config(config: &Config, capacity_bytes: u64) -> Result<CoreConfig> {
    let layout = config.options.placement()?;
    let pools = config.options.pools.clone();
    let pool = layout.number_of_pool(&pools).context("the pool of the layout is missing")?;
    let LayoutWords { policy, width, .. } = layout;
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    Ok(CoreConfig {
        instance: config.instance,
        mount: config.mount.as_os_str().as_bytes().to_vec(),
        capacity_bytes,
        home_bytes_max: u64::MAX,
        chunk_bytes: config.options.chunk_bytes,
        policy,
        width,
        roles: Roles::default(),
        pool,
        pools,
        times: config.options.times()?,
        durability: config.options.durability()?,
        locks: config.options.locks,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        cached_dentries_max: CACHED_DENTRIES_MAX,
        io_threads: config.options.io_threads as usize,
        processors,
        directories: config.options.names()?,
        leases: LeaseTimes {
            seconds: limits::lease_seconds(config.options.deadline_ms()),
            at_rest_ms: limits::AT_REST_MS,
            consistency: match config.options.consistency()? {
                mayfly_fuse::Consistency::Strict => Consistency::Strict,
                mayfly_fuse::Consistency::Session => Consistency::Session,
            },
        },
    })
}

/// How far one shard's records may grow. Where names are dealt out by their hashes each has about
/// as many: twice an even part is never the first bound that is met, which is the capacity over all
/// shards. One that has whole directories may have them all.
fn limit_bytes(capacity_bytes: u64, shards: u32, directories: Directories) -> u64 {
    let even = (capacity_bytes / u64::from(shards)).saturating_mul(2).max(LIMIT_BYTES_MIN);
    match directories {
        Directories::Spread => even.min(capacity_bytes),
        Directories::Whole | Directories::Restless => capacity_bytes,
    }
}

fn open_store(config: &Config, place: &Place, capacity_bytes: u64) -> Result<Box<dyn Store>> {
    let durability = config.options.durability()?;
    let limit_bytes = limit_bytes(capacity_bytes, config.options.shards, config.options.names()?);
    let directory = config.meta_dir_of(place.shard());
    let store = open_records(&directory, durability, limit_bytes)?;
    // Where a directory's names are all over the shards, little could be found in one tree. Whole
    // directories are at the first one.
    let is_found = match config.options.names()? {
        Directories::Spread => place.numbering().all() == 1,
        Directories::Whole | Directories::Restless => place.shard() == 0,
    };
    if is_found && durability == Durability::Process {
        show_records(&config.run_dir, &directory)?;
    }
    Ok(store)
}

/// Lets the instance's processes find the file of a tree, to look into it.
fn show_records(run_dir: &Path, directory: &Path) -> Result<()> {
    let (file, shown) = (TreeStore::records_in(directory), run_dir.join("records"));
    // Of an earlier daemon.
    let _ = fs::remove_file(&shown);
    if !TreeStore::is_in(directory) {
        return Ok(());
    }
    std::os::unix::fs::symlink(&file, &shown)
        .with_context(|| format!("cannot make {}", shown.display()))
}

/// What need not outlive this process is kept in its memory, which is faster; what must outlive the
/// machine in LMDB. What is in LMDB already stays there.
fn open_records(
    directory: &Path,
    durability: Durability,
    limit_bytes: u64,
) -> Result<Box<dyn Store>> {
    if durability == Durability::None {
        return Ok(Box::new(MemoryStore::volatile(limit_bytes)));
    }
    let sync = durability == Durability::Sync;
    if sync && TreeStore::is_in(directory) {
        bail!(
            "the metadata in {} were kept without --durability sync, which cannot be had later",
            directory.display()
        );
    }
    let boot_id = fs::read("/proc/sys/kernel/random/boot_id").context("the kernel's boot id")?;
    let (shown, directory) = (directory.display(), directory.to_owned());
    let failed = |error| anyhow!("the metadata in {shown}: {error}");
    if sync || LmdbStore::is_in(&directory) {
        let options = LmdbOptions { directory, limit_bytes, sync, boot_id };
        return Ok(Box::new(LmdbStore::open(&options).map_err(failed)?));
    }
    let options = TreeOptions { directory, limit_bytes, boot_id };
    Ok(Box::new(TreeStore::open(&options).map_err(failed)?))
}

/// What the user set, or what the file system holds now and could still take. Daemons of one host
/// share it.
fn capacity(config: &Config, objects: &DirectoryStore) -> Result<u64> {
    let part = |bytes: u64| bytes / u64::from(config.daemons.max(1));
    if let Some(bytes) = config.options.capacity_bytes {
        return Ok(part(bytes));
    }
    let space = objects.space().map_err(|errno| {
        anyhow!("cannot learn the space in {}: {errno}", config.object_dir.display())
    })?;
    Ok(part(space.total_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_one_shard_may_take_all_and_those_of_many_no_less_than_their_part() {
        assert_eq!(limit_bytes(1 << 40, 1, Directories::Spread), 1 << 40);
        assert_eq!(limit_bytes(1 << 40, 2, Directories::Spread), 1 << 40);
        assert_eq!(limit_bytes(1 << 40, 16, Directories::Spread), 1 << 37);
        assert_eq!(limit_bytes(80 << 20, 16, Directories::Spread), 64 << 20);
        assert_eq!(limit_bytes(1 << 20, 16, Directories::Spread), 1 << 20);
        assert_eq!(limit_bytes(1 << 40, 16, Directories::Whole), 1 << 40);
    }

    #[test]
    fn what_is_in_lmdb_stays_there_and_a_tree_is_not_taken_for_synced() {
        let directory = std::env::temp_dir().join(format!("mayfly-kept-{}", std::process::id()));
        let open = |name: &str, durability| {
            let opened = open_records(&directory.join(name), durability, 1 << 30);
            opened.map(|mut store| {
                let there = store.get(b"key").unwrap().is_some();
                store.put(b"key", b"value").unwrap();
                store.commit().unwrap();
                there
            })
        };
        assert!(!open("old", Durability::Sync).unwrap());
        assert!(open("old", Durability::Process).unwrap());
        assert!(!TreeStore::is_in(&directory.join("old")));
        assert!(!open("new", Durability::Process).unwrap());
        assert!(open("new", Durability::Process).unwrap());
        let refused = open("new", Durability::Sync).unwrap_err().to_string();
        assert!(refused.contains("without --durability sync"), "{refused}");
        assert!(!open("none", Durability::None).unwrap());
        fs::remove_dir_all(&directory).unwrap();
    }
}
