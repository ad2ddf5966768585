//! Files of origins that are fetched before anybody reads them.
//!
//! Some threads take paths, each asks the daemon for one at a time, and what is in a directory is
//! taken next. So as many files are fetched at once as there are threads, and what is kept in mind
//! is the names of the directories on the way to where the threads are.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{scope, sleep},
    time::Duration,
};

use anyhow::{Result, ensure};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::Attachment;
use mayfly_types::{Errno, FileId, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{
    Close, List, Open, WALK_EMPTY, Walk, listing,
    tier::{TIER_PIN, TIER_PREFETCH, TIER_STATUS},
};
use serde::Serialize;

use super::{PAUSE, TRIES, Told, ask, first_shard, try_ask};
use crate::{Config, attached::attached};

/// Failures that are told one by one.
const FAILURES_MAX: usize = 100;
/// How often what is done so far is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(500);
const O_DIRECTORY: u32 = 0o200_000;

/// What a prefetch has come to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Prefetched {
    /// Files of origins that are here now.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that were fetched for this.
    pub fetched_files: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Directories that were gone through.
    pub directories: u64,
    /// Files and directories of which it is not here what should be.
    pub failed: u64,
    /// They are more than the instance has room for: the rest was left out.
    pub full: bool,
    /// The first failures.
    pub failures: Vec<Failure>,
}

/// A path that could not be fetched.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// From the root of the instance.
    pub path: PathBuf,
    /// Why not.
    pub error: String,
}

type Paths<'a> = &'a mut (dyn Iterator<Item = PathBuf> + Send + 'a);

/// What is to be done, and was.
#[derive(Default)]
struct State {
    /// Found in directories; the last one is next.
    found: Vec<PathBuf>,
    /// Threads that may find more.
    at_work: usize,
    /// One of them waits for the next path that is wanted.
    is_reading: bool,
    /// There are no more of those.
    is_read: bool,
    done: Prefetched,
}

struct Crew<'a> {
    config: &'a Config,
    attached: Attachment,
    wanted: Mutex<Paths<'a>>,
    state: Mutex<State>,
    changed: Condvar,
    /// More bytes than this do not stay.
    bytes_max: u64,
    /// `TIER_PREFETCH` or `TIER_PIN`.
    what: u32,
    /// The first shard of this node: the path leads to the one that has it.
    shard: u32,
}

/// Fetches files, and what is below directories, so many at a time. Paths are from the root of the
/// instance. With `pins` they stay. `show` is told now and then what was done so far.
///
/// # Errors
/// When the daemon does not answer. What could not be fetched is told.
pub fn prefetch_tier<'a>(
    config: &'a Config,
    paths: Paths<'a>,
    (at_once, pins): (usize, bool),
    show: &mut dyn FnMut(&Prefetched),
) -> Result<Prefetched> {
    ensure!(!config.options.origins.is_empty(), "{:?} has no --origin", config.name);
    let attached = attached(config)?;
    ask(config, &attached, TIER_STATUS, Path::new(""))?;
    let bytes_max = room(&attached)?;
    let what = if pins { TIER_PIN } else { TIER_PREFETCH };
    let (wanted, state, changed) = (Mutex::new(paths), Mutex::default(), Condvar::new());
    let shard = first_shard(config, config.node.unwrap_or(0))?;
    let crew = Crew { config, attached, wanted, state, changed, bytes_max, what, shard };
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        let threads: Vec<_> = (0..at_once.max(1)).map(|_| scope.spawn(|| crew.work())).collect();
        scope.spawn(|| {
            threads.into_iter().for_each(|thread| drop(thread.join()));
            is_over.store(true, Relaxed);
            crew.changed.notify_all();
        });
        let mut state = crew.lock();
        while !is_over.load(Relaxed) {
            let waited = crew.changed.wait_timeout(state, SHOWN_EVERY);
            let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            if timeout.timed_out() {
                show(&state.done);
            }
        }
    });
    let state = crew.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(state.done)
}

/// Bytes that the instance can hold.
fn room(attached: &Attachment) -> Result<u64> {
    let used =
        attached.transport.exchange(&mayfly_wire::StatFs {}, Patience::Deadline, |answer| {
            match answer {
                Answer::Done(used) => Ok(used),
                Answer::Failed(errno) => Err(errno),
                Answer::Escaped(_) => Err(Errno::EPROTO),
            }
        })?;
    let kept = used.capacity_bytes / mayfly_types::limits::TIER_RESERVE_SHARE;
    Ok(used.capacity_bytes.saturating_sub(kept + used.kept_bytes))
}

impl Crew<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next path; none when all is done, or there is no more room.
    fn next(&self) -> Option<PathBuf> {
        let mut state = self.lock();
        loop {
            if state.done.full {
                return None;
            }
            if let Some(path) = state.found.pop() {
                state.at_work += 1;
                return Some(path);
            }
            if !state.is_read && !state.is_reading {
                // That may take long, and the others go on meanwhile.
                state.is_reading = true;
                drop(state);
                let path = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).next();
                state = self.lock();
                state.is_reading = false;
                self.changed.notify_all();
                if path.is_some() {
                    state.at_work += 1;
                    return path;
                }
                state.is_read = true;
                continue;
            }
            if state.is_read && state.at_work == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some(path) = self.next() {
            let told = self.fetch(&path);
            let names = match &told {
                Ok(told) if told.is_directory => self.names(&path),
                _ => Ok(Vec::new()),
            };
            let mut state = self.lock();
            state.at_work -= 1;
            let done = &mut state.done;
            match told.and_then(|told| names.map(|names| (told, names))) {
                Ok((told, names)) => {
                    done.note(&told, self.bytes_max);
                    // The first one is taken first.
                    let names = names.into_iter().rev();
                    state.found.extend(names.map(|name| path.join(name)));
                }
                Err(errno) => {
                    done.failed += 1;
                    if done.failures.len() < FAILURES_MAX {
                        done.failures.push(Failure { path, error: errno.to_string() });
                    }
                }
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn fetch(&self, path: &Path) -> Result<Told, Errno> {
        let mut tried = 0;
        loop {
            tried += 1;
            match try_ask(self.config, &self.attached, (self.what, self.shard), path) {
                // There is much to do that somebody waits for.
                Err(Errno::EAGAIN | Errno::ETIMEDOUT) if tried < TRIES => sleep(PAUSE),
                told => return told,
            }
        }
    }

    /// What is in a directory.
    fn names(&self, path: &Path) -> Result<Vec<OsString>, Errno> {
        let walk =
            Walk { start: FileId::ROOT, path: path.as_os_str().as_bytes(), flags: WALK_EMPTY };
        let request = Open { walk, flags: O_DIRECTORY, mode: 0, uid: 0, gid: 0 };
        let transport = &self.attached.transport;
        let open = transport.exchange(&request, Patience::Deadline, |answer| match answer {
            Answer::Done(reply) => Ok(reply.opened.open),
            Answer::Failed(errno) => Err(errno),
            Answer::Escaped(_) => Err(Errno::EPROTO),
        })?;
        let (mut names, mut cookie) = (Vec::new(), 0);
        let listed = loop {
            let list = List { open, cookie, bytes_max: TRANSFER_BYTES_MAX as u32 };
            let before = cookie;
            let listed = transport.exchange(&list, Patience::Deadline, |answer| match answer {
                Answer::Done(listing) => {
                    for entry in listing::entries(listing.entries) {
                        let entry = entry.map_err(|_| Errno::EPROTO)?;
                        cookie = entry.next_cookie;
                        if entry.name != b"." && entry.name != b".." {
                            names.push(OsString::from_vec(entry.name.to_vec()));
                        }
                    }
                    Ok(())
                }
                Answer::Failed(errno) => Err(errno),
                Answer::Escaped(_) => Err(Errno::EPROTO),
            });
            if listed.is_err() || cookie == before {
                break listed;
            }
        };
        // Whatever becomes of it: the session's end closes it, too.
        let _ = transport.exchange(&Close { open }, Patience::Deadline, |_| Ok::<_, Errno>(()));
        listed.map(|()| names)
    }
}

impl Prefetched {
    fn note(&mut self, told: &Told, bytes_max: u64) {
        if told.is_directory {
            self.directories += 1;
            return;
        }
        if told.left > 0 {
            // It has no bytes outside.
            return;
        }
        self.files += 1;
        self.bytes += told.bytes;
        if told.flushed > 0 {
            self.fetched_files += 1;
            self.fetched_bytes += told.bytes;
        }
        self.full |= self.bytes > bytes_max;
    }
}
