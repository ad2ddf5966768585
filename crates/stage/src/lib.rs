//! Staging: trees are copied between the outside and an instance, in parallel, completely or not at
//! all.
//!
//! The engine knows nothing of instances: both sides are directories. It runs in a process that the
//! instance serves, so one of them may be in it. A stage takes [`Pair`]s of a source and a
//! destination in turn. Each tree is walked once, by all threads: what a directory has is read once
//! and dealt out in batches ([`walk::queue`]), large files in ranges. A file is written under a
//! temporary name beside its own and renamed when it is whole ([`copy::whole`]); a directory gets
//! its mode and times when all that is in it is done ([`walk::tree`]). What fails is noted and
//! everything else goes on ([`report`]).

mod bucket;
mod copy;
mod inherited;
mod journal;
mod priority;
mod remote;
mod report;
mod stager;
mod walk;
mod writers;
mod xattrs;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub use bucket::download::download;
pub use bucket::files::{About, Child, Expected, Object, Refused};
pub use bucket::upload::upload;
pub use bucket::{BadBucket, Bucket};
pub use copy::settle::Moment;
pub use inherited::{hand_on, inherited};
pub use journal::{Journal, JournalError, registry};
pub use priority::stand_back;
pub use remote::Worker;
pub use remote::worker::work;
pub use report::counts::Counts;
pub use report::{Note, Problem, Report, Watcher};
pub use walk::listed::{BadPath, Listed};
pub use walk::now_at;
pub use walk::select::{BadPattern, Selection, Wanted};
pub use walk::{stage, stage_with};

/// One tree or file, and where it goes: `source` itself becomes `destination`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// A file or directory.
    pub source: PathBuf,
    /// What it becomes. Directories above it are made.
    pub destination: PathBuf,
    /// Only what these patterns name, below the source; all of it when there are none.
    pub patterns: Vec<String>,
    /// An earlier copy on the same file system: what has not changed since becomes another name of
    /// the file there.
    pub like: Option<PathBuf>,
}

/// How to stage.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is copied.
    pub wanted: Wanted,
    /// What is as long and as old at the destination is left alone.
    pub changed: bool,
    /// What the source has not, and the patterns would have copied, goes at the destination.
    pub delete: bool,
    /// Nothing is written; what would be done is told.
    pub dry_run: bool,
    /// Symbolic links become what they lead to.
    pub follow: bool,
    /// What was copied is read again on both sides.
    pub verify: bool,
    /// What was copied is on the destination's disk before the stage ends.
    pub sync: bool,
    /// What becomes of a file that somebody has open for writing.
    pub open: WhenOpen,
    /// Nobody looks at the destination meanwhile: in directories that the stage makes files have
    /// their own names at once.
    pub unwatched: bool,
    /// Permissions of directories that are made above a destination.
    pub above: u32,
    /// This node's place of what every node has at a place of its own: a mount point.
    pub root: Option<PathBuf>,
    /// Other nodes stand back too ([`stand_back`]).
    pub idle: bool,
    /// Threads, on each node.
    pub streams: usize,
    /// Bytes a second, at most.
    pub bandwidth: Option<u64>,
    /// Files a second, at most.
    pub files_per_second: Option<u64>,
}

/// What becomes of a file that is open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum WhenOpen {
    /// It is left out, and named.
    #[default]
    Skip,
    /// It is copied when all who have it open for writing have closed it.
    Wait,
    /// It is copied as any other.
    Copy,
}

/// At most so many threads.
pub const STREAMS_MAX: usize = 256;

impl Default for Options {
    fn default() -> Options {
        Options {
            wanted: Wanted::default(),
            changed: false,
            delete: false,
            dry_run: false,
            follow: false,
            verify: false,
            sync: false,
            open: WhenOpen::default(),
            unwatched: false,
            above: 0o777,
            root: None,
            idle: false,
            streams: usual_streams(),
            bandwidth: None,
            files_per_second: None,
        }
    }
}

/// As many threads as keep the processors and a file system at a distance busy.
#[must_use]
pub fn usual_streams() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).clamp(4, 32)
}

/// From here on new files of this process get the bits that they are made with, so that a copy
/// needs no change for its own; what they did not get before.
#[must_use]
pub fn clear_umask() -> u32 {
    nix::sys::stat::umask(nix::sys::stat::Mode::empty()).bits()
}

/// Makes this process one of its own session, so that it outlives its terminal.
///
/// # Errors
/// It is a group's leader.
pub fn leave_terminal() -> std::io::Result<()> {
    nix::unistd::setsid()?;
    Ok(())
}

/// Ends a stage early: what is under way is given up, what is done stays.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Nothing more is begun.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Was it?
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a handler of signals.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
