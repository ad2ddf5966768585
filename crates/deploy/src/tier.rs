//! The caching tier of a running instance, as people ask for it.

mod prefetch;
mod sums;

use std::{
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    thread::{self, ScopedJoinHandle, sleep},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::Attachment;
use mayfly_types::{Errno, limits::LANES};
use mayfly_wire::{
    TierAsk,
    tier::{
        TIER_EVICT, TIER_FLUSH_LAST, TIER_FLUSH_NOW, TIER_MAY_UNLINK, TIER_STATUS, TIER_UNLINK,
        TIER_UNPIN, TierNote, TierSource, unpacked,
    },
};
use serde::Serialize;

use crate::{Config, Members, attached::attached};

/// Nodes that are asked at the same time: each takes a lane of the session.
const AT_ONCE: usize = 8;
const _: () = assert!(AT_ONCE < LANES);

pub use prefetch::{Prefetched, prefetch_tier};
pub(crate) use sums::TierSums;

/// How often what could not be flushed just now is tried again, and the time between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// What was done of an origin since the daemon began.
#[derive(Debug, Clone, Serialize)]
pub struct Counts {
    /// Reads that the daemon was asked for, of what was here.
    pub reads_here: u64,
    /// Their bytes.
    pub read_here_bytes: u64,
    /// Reads that had to wait for the origin.
    pub reads_outside: u64,
    /// Their bytes.
    pub read_outside_bytes: u64,
    /// Fetches of files and of parts of files.
    pub fetches: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Files that were written back.
    pub flushes: u64,
    /// Their bytes.
    pub flushed_bytes: u64,
    /// Files whose bytes went, since they can be fetched again.
    pub evictions: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
}

impl Counts {
    fn add(&mut self, more: &Counts) {
        self.reads_here += more.reads_here;
        self.read_here_bytes += more.read_here_bytes;
        self.reads_outside += more.reads_outside;
        self.read_outside_bytes += more.read_outside_bytes;
        self.fetches += more.fetches;
        self.fetched_bytes += more.fetched_bytes;
        self.flushes += more.flushes;
        self.flushed_bytes += more.flushed_bytes;
        self.evictions += more.evictions;
        self.evicted_bytes += more.evicted_bytes;
    }
}

/// An origin, and how much of it is here.
#[derive(Debug, Clone, Serialize)]
pub struct OriginState {
    /// The directory outside.
    pub origin: PathBuf,
    /// The directory of the instance that shows it; empty: its root.
    pub directory: PathBuf,
    /// Nothing there may be changed.
    pub read_only: bool,
    /// Files, directories and links that are known.
    pub files: u64,
    /// Bytes of files that are here.
    pub cached_bytes: u64,
    /// Files that were changed here and not written back.
    pub dirty_files: u64,
    /// Their bytes.
    pub dirty_bytes: u64,
    /// Files that are being fetched.
    pub fetching: u64,
    /// Copies that were written beside their master copies, which somebody had changed.
    pub conflicts: u64,
    /// Fetches and flushes that failed since the daemon began.
    pub errors: u64,
    /// Changes of names that are made here and not there yet.
    pub names_waiting: u64,
    /// Those of which one failed there, or waits for one that did.
    pub names_failed: u64,
    /// Files that stay here.
    pub pinned_files: u64,
    /// Their bytes.
    pub pinned_bytes: u64,
    /// What was done since the daemon began.
    pub counts: Counts,
}

/// A conflict, or something that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// The file outside.
    pub path: PathBuf,
    /// The copy beside it, of a conflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<PathBuf>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How things are.
#[derive(Debug, Clone, Serialize)]
pub struct TierState {
    /// All origins.
    pub origins: Vec<OriginState>,
    /// The latest conflicts and errors, the last one first.
    pub events: Vec<Event>,
}

/// What a flush came to.
#[derive(Debug, Clone, Default)]
pub struct Flushed {
    /// Files that were written back.
    pub files: u64,
    /// Those of which the copy is beside the master copy.
    pub conflicts: u64,
    /// Those that could not be written back, and are as dirty as before.
    pub failed: u64,
    /// The conflicts, and what failed.
    pub events: Vec<Event>,
}

/// What the daemon has told.
struct Told {
    flushed: u64,
    failed: u64,
    conflicts: u64,
    left: u64,
    bytes: u64,
    is_directory: bool,
    state: TierState,
}

/// What all nodes have told, together.
fn ask(config: &Config, attached: &Attachment, what: u32, path: &Path) -> Result<Told> {
    let nodes = Members::load(&config.run_dir)?.map_or(1, |members| members.nodes.len());
    let nodes: Vec<u32> = (0..u32::try_from(nodes)?).collect();
    let mut all: Option<Told> = None;
    for some in nodes.chunks(AT_ONCE) {
        let told: Vec<Result<Told>> = thread::scope(|scope| {
            let asks = some
                .iter()
                .map(|node| scope.spawn(move || ask_node(config, attached, (what, *node), path)));
            let asks: Vec<_> = asks.collect();
            let end = |ask: ScopedJoinHandle<'_, Result<Told>>| {
                ask.join().unwrap_or_else(|_| Err(anyhow!("a question came to nothing")))
            };
            asks.into_iter().map(end).collect()
        });
        for told in told {
            let told = told?;
            match &mut all {
                Some(all) => all.add(told),
                None => all = Some(told),
            }
        }
    }
    all.context("no node was asked")
}

/// Which shard of all is the first one of a node, which has all that the node has of origins.
pub(crate) fn first_shard(config: &Config, node: u32) -> Result<u32> {
    node.checked_mul(config.options.shards).context("an impossible number of shards")
}

fn ask_node(
    config: &Config,
    attached: &Attachment,
    (what, node): (u32, u32),
    path: &Path,
) -> Result<Told> {
    let shard = first_shard(config, node)?;
    try_ask(config, attached, (what, shard), path)
        .map_err(|errno| anyhow!("the daemon of node {node} of {:?}: {errno}", config.name))
}

/// Asks a shard.
fn try_ask(
    config: &Config,
    attached: &Attachment,
    (what, shard): (u32, u32),
    path: &Path,
) -> Result<Told, Errno> {
    let ask = TierAsk { what, shard, path: path.as_os_str().as_bytes() };
    attached.transport.exchange(&ask, Patience::Interruptible, |answer| match answer {
        Answer::Done(told) => {
            let state = state(config, told.sources, told.notes).ok_or(Errno::EPROTO)?;
            let (flushed, failed) = (told.flushed, told.failed);
            let (conflicts, left) = (told.conflicts, told.left);
            let (bytes, is_directory) = (told.bytes, told.is_directory);
            Ok(Told { flushed, failed, conflicts, left, bytes, is_directory, state })
        }
        Answer::Failed(errno) => Err(errno),
        Answer::Escaped(_) => Err(Errno::EPROTO),
    })
}

impl Told {
    /// Takes in what another node has told.
    fn add(&mut self, other: Told) {
        self.flushed += other.flushed;
        self.failed += other.failed;
        self.conflicts += other.conflicts;
        self.left += other.left;
        for (origin, more) in self.state.origins.iter_mut().zip(other.state.origins) {
            origin.files += more.files;
            origin.cached_bytes += more.cached_bytes;
            origin.dirty_files += more.dirty_files;
            origin.dirty_bytes += more.dirty_bytes;
            origin.fetching += more.fetching;
            origin.conflicts += more.conflicts;
            origin.errors += more.errors;
            origin.names_waiting += more.names_waiting;
            origin.names_failed += more.names_failed;
            origin.pinned_files += more.pinned_files;
            origin.pinned_bytes += more.pinned_bytes;
            origin.counts.add(&more.counts);
        }
        self.state.events.extend(other.state.events);
    }
}

fn state(config: &Config, sources: &[u8], notes: &[u8]) -> Option<TierState> {
    let origins = &config.options.origins;
    let source = |of: TierSource| {
        let origin = origins.get(of.source as usize)?;
        Some(OriginState {
            origin: origin.outside.clone(),
            directory: origin.inside.clone(),
            read_only: origin.read_only,
            files: of.files,
            cached_bytes: of.cached_bytes,
            dirty_files: of.dirty_files,
            dirty_bytes: of.dirty_bytes,
            fetching: of.fetching,
            conflicts: of.conflicts,
            errors: of.errors,
            names_waiting: of.names_waiting,
            names_failed: of.names_failed,
            pinned_files: of.pinned_files,
            pinned_bytes: of.pinned_bytes,
            counts: Counts {
                reads_here: of.counts.reads_here,
                read_here_bytes: of.counts.read_here_bytes,
                reads_outside: of.counts.reads_outside,
                read_outside_bytes: of.counts.read_outside_bytes,
                fetches: of.counts.fetches,
                fetched_bytes: of.counts.fetched_bytes,
                flushes: of.counts.flushes,
                flushed_bytes: of.counts.flushed_bytes,
                evictions: of.counts.evictions,
                evicted_bytes: of.counts.evicted_bytes,
            },
        })
    };
    let event = |note: TierNote<'_>| {
        let origin = origins.get(note.source as usize)?;
        let outside = |path: &[u8]| origin.outside.join(std::ffi::OsString::from_vec(path.into()));
        let path = outside(note.path);
        let copy = (note.errno == 0)
            .then(|| path.with_file_name(std::ffi::OsString::from_vec(note.copy.into())));
        let errno = i32::try_from(note.errno).ok().and_then(Errno::from_raw);
        Some(Event { path, copy, error: errno.map(|errno| errno.to_string()) })
    };
    Some(TierState {
        origins: unpacked(sources)?.filter_map(source).collect(),
        events: unpacked(notes)?.filter_map(event).collect(),
    })
}

/// How the tier of an instance is.
///
/// # Errors
/// When it has none, or its daemon does not answer.
pub fn tier_state(config: &Config) -> Result<TierState> {
    ensure!(!config.options.origins.is_empty(), "{:?} has no --origin", config.name);
    Ok(ask(config, &attached(config)?, TIER_STATUS, Path::new(""))?.state)
}

/// Writes back what is dirty in the instance, or below a path of it. `last`: nobody uses the files
/// any more.
///
/// # Errors
/// When the daemon does not answer.
pub fn flush_tier(config: &Config, path: &Path, last: bool) -> Result<Flushed> {
    ensure!(!config.options.origins.is_empty(), "{:?} has no --origin", config.name);
    let attached = attached(config)?;
    let what = if last { TIER_FLUSH_LAST } else { TIER_FLUSH_NOW };
    let mut flushed = Flushed::default();
    for tried in 1..=TRIES {
        let told = ask(config, &attached, what, path).context("what is dirty is not flushed")?;
        flushed.files += told.flushed;
        flushed.conflicts += told.conflicts;
        flushed.failed = told.failed;
        flushed.events = told.state.events;
        if told.left == 0 {
            break;
        }
        if tried == TRIES {
            flushed.failed += told.left;
        }
        sleep(PAUSE);
    }
    Ok(flushed)
}

/// Frees the space of what can be fetched again, of the instance or below a path of it; of how many
/// files.
///
/// # Errors
/// When the daemon does not answer.
pub fn evict_tier(config: &Config, path: &Path) -> Result<u64> {
    ensure!(!config.options.origins.is_empty(), "{:?} has no --origin", config.name);
    Ok(ask(config, &attached(config)?, TIER_EVICT, path).context("nothing is freed")?.flushed)
}

/// What is pinned in the instance, or below a path of it, may go again; how many files.
///
/// # Errors
/// When the daemon does not answer.
pub fn unpin_tier(config: &Config, path: &Path) -> Result<u64> {
    ensure!(!config.options.origins.is_empty(), "{:?} has no --origin", config.name);
    Ok(ask(config, &attached(config)?, TIER_UNPIN, path)?.flushed)
}

/// The directory at this path shows its origin no more. Everything was flushed.
///
/// # Errors
/// When none is shown there, something of it is dirty or open, or the daemon does not answer.
pub fn unlink_tier(config: &Config, path: &Path) -> Result<()> {
    let attached = attached(config)?;
    for _ in 0..TRIES {
        // No node begins before all have been asked.
        let mut told = ask(config, &attached, TIER_MAY_UNLINK, path)?;
        if told.left + told.failed == 0 {
            told = ask(config, &attached, TIER_UNLINK, path)?;
        }
        ensure!(told.failed == 0, "{} files or directories of it are open", told.failed);
        if told.left == 0 {
            return Ok(());
        }
        sleep(PAUSE);
    }
    Err(anyhow!("something of it is dirty, or is being fetched or changed, all the time"))
}

/// The path of a file of the instance from its root.
///
/// # Errors
/// When it is none.
pub fn path_inside(config: &Config, path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let inside = absolute.strip_prefix(&config.mount);
    let inside = inside.with_context(|| {
        format!(
            "{} is not in {:?}, which is at {}",
            path.display(),
            config.name,
            config.mount.display()
        )
    })?;
    Ok(inside.to_owned())
}
