//! What a running instance says of itself.
//!
//! The supervisor is asked first: it answers whatever its daemon does. Then the daemon is asked, as
//! an attached process asks it, unless it is known that no answer would come.
//!
//! [`activity`] says what a node has done since it began. [`work`] says what its processes do; each
//! process counts that in shared memory. All this is only read. So a look at an instance costs the
//! instance nothing.

pub(crate) mod activity;
mod work;

use anyhow::{Result, anyhow};
use mayfly_fuse::Way;
use mayfly_metrics::work::{Detail, Work};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{Attachment, layout::Waiting, submission_ring::SubmissionRing};
use mayfly_types::Errno;
use mayfly_wire::{Counters, Status};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, sync::atomic::Ordering::Relaxed};

use crate::{
    Config,
    attached::attached,
    instance::whole_name,
    processes::proc_stat::ProcStat,
    supervisor::control::{self, View},
    tier::TierSums,
};
use activity::{Activity, Usage};

/// Whether the daemon answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It does.
    Serving,
    /// It cannot: somebody has stopped its process (SIGSTOP, a debugger).
    Stopped,
    /// It did not answer within a request's deadline.
    Silent,
    /// It died, and the content of the instance with it (`--durability none`).
    Lost,
}

/// The state of an instance, as `mayfly status --json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// How it was started.
    #[serde(flatten)]
    pub config: Config,
    /// Whether the daemon answers.
    pub state: State,
    /// Process id of the daemon, 0 when there is none at the moment.
    pub daemon_pid: u32,
    /// Starts of the daemon after the first.
    pub restarts: u32,
    /// Attached processes, without the one that asks and those that serve mounts.
    pub sessions: u32,
    /// How programs reach the instance: `preload`, `fuse`, `both`, or `none` do.
    pub access: &'static str,
    /// How it was mounted at its mount point: `root`, `fusermount3` or `namespace`.
    pub mounted_by: Option<&'static str>,
    /// Where the instance is mounted.
    pub mounts: Vec<PathBuf>,
    /// The memory and processor time that its processes take.
    pub processes: Vec<Usage>,
    /// What the daemon says.
    #[serde(flatten)]
    pub counted: Option<Counted>,
    /// What its processes did one by one, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<Detail>>,
}

/// How much the report has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Depth {
    /// Sums.
    Sums,
    /// Each process, directory and file too.
    Everything,
}

/// What only the daemon knows.
#[derive(Debug, Clone, Serialize)]
pub struct Counted {
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
    /// Bytes that files can still have: what names are kept room for is taken off.
    pub free_bytes: u64,
    /// Requests served by this daemon.
    pub requests: u64,
    /// Transactions committed by this daemon.
    pub transactions: u64,
    /// Files that processes have made without waiting for it, since the instance began.
    pub posted: u64,
    /// Files, directories and removals among these that were not executed yet.
    pub posted_waiting: u64,
    /// Processes with a request that no thread has taken up yet.
    pub processes_waiting: u64,
    /// How its waits for requests went.
    pub waits: Waits,
    /// What the daemon did, by kind.
    pub activity: Activity,
    /// What processes did.
    pub work: Work,
    /// What the node has of origins, if the instance has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierSums>,
}

/// The waits of the thread that takes requests, and their ends, since the instance began.
#[derive(Debug, Clone, Serialize)]
pub struct Waits {
    /// Polls that found something to do.
    pub polls: u64,
    /// Polls that found nothing.
    pub polls_in_vain: u64,
    /// Sleeps, from which a request has to wake it.
    pub sleeps: u64,
    /// Moves to another processor than that of its clients.
    pub moves: u64,
}

/// What stands in the node's shared memory.
#[derive(Debug)]
struct Words {
    posted: u64,
    posted_waiting: u64,
    processes_waiting: u64,
    waits: Waits,
    activity: Activity,
    work: Work,
    tier: Option<TierSums>,
    detail: Option<Box<Detail>>,
}

impl Words {
    fn of(config: &Config, attached: &Attachment, depth: Depth) -> Words {
        let node = attached.node;
        let posted = node.submission_rings.iter().map(SubmissionRing::count).map(u64::from).sum();
        let posted_waiting =
            node.submission_rings.iter().map(SubmissionRing::waiting).map(u64::from).sum();
        let marks = node.head.sessions_pending.iter().map(|marks| marks.load(Relaxed).count_ones());
        let processes_waiting = marks.map(u64::from).sum();
        let (waits, activity) = (Waits::of(&node.head.waiting), Activity::of(node));
        let detail = match depth {
            Depth::Sums => None,
            Depth::Everything => Some(Box::new(work::detail(node, &attached.transport))),
        };
        let work = work::of_node(node);
        let tier = TierSums::of(config, attached);
        Words { posted, posted_waiting, processes_waiting, waits, activity, work, tier, detail }
    }
}

impl Waits {
    fn of(waiting: &Waiting) -> Waits {
        Waits {
            polls: waiting.polls.load(Relaxed),
            polls_in_vain: waiting.polls_in_vain.load(Relaxed),
            sleeps: waiting.sleeps.load(Relaxed),
            moves: waiting.moves.load(Relaxed),
        }
    }
}

/// Asks the instance.
///
/// # Errors
/// When the supervisor does not answer, or its answer makes no sense. A daemon that does not answer
/// is no error here: see [`Report::trouble`].
pub fn report(config: Config) -> Result<Report> {
    report_in(config, Depth::Sums)
}

/// The same, with as many details as are wanted.
///
/// # Errors
/// As [`report`].
pub fn report_in(config: Config, depth: Depth) -> Result<Report> {
    let view = control::look(&config)?;
    if view.lost.is_some() {
        return Ok(Report::without_daemon(config, &view, State::Lost));
    }
    if view.daemon_pid.is_some_and(is_stopped) {
        return Ok(Report::without_daemon(config, &view, State::Stopped));
    }
    match counters(&config, depth)? {
        Ok((counters, words)) => Ok(Report::new(config, &view, &counters, words)),
        Err(Errno::EIO) => Ok(Report::without_daemon(config, &view, State::Silent)),
        Err(errno) => Err(anyhow!("the daemon of {:?}: {errno}", config.name)),
    }
}

/// Asks the daemon.
fn counters(config: &Config, depth: Depth) -> Result<Result<(Counters, Words), Errno>> {
    let attached = attached(config)?;
    let asked =
        attached.transport.exchange(&Status {}, Patience::Deadline, |answer| match answer {
            Answer::Done(counters) => Ok(Ok(counters)),
            Answer::Failed(errno) => Ok(Err(errno)),
            Answer::Escaped(_) => Err(anyhow!("the daemon answers another question")),
        })?;
    Ok(asked.map(|counters| (counters, Words::of(config, &attached, depth))))
}

/// Has somebody stopped this process?
fn is_stopped(pid: u32) -> bool {
    ProcStat::of(pid).is_some_and(|stat| matches!(stat.state(), Some("T" | "t")))
}

impl Report {
    fn without_daemon(config: Config, view: &View, state: State) -> Report {
        let mounts = view.mounts.clone();
        let access = match (mounts.contains(&config.mount), config.options.access.as_str()) {
            (true, "fuse") => "fuse",
            (true, _) => "both",
            (false, _) if !config.serves_programs => "none",
            (false, _) => "preload",
        };
        let is_mounted = mounts.contains(&config.mount);
        let way = is_mounted.then(|| config.way().ok().flatten()).flatten();
        Report {
            mounted_by: way.map(Way::word),
            config,
            state,
            access,
            daemon_pid: view.daemon_pid.unwrap_or(0),
            restarts: view.starts.saturating_sub(1),
            sessions: view.sessions.saturating_sub(mounts.len() as u32),
            mounts,
            processes: activity::usage(view.supervisor_pid),
            counted: None,
            detail: None,
        }
    }

    fn new(config: Config, view: &View, counters: &Counters, words: Words) -> Report {
        Report {
            daemon_pid: counters.daemon_pid,
            sessions: counters.sessions.saturating_sub(1 + view.mounts.len() as u32),
            counted: Some(Counted {
                open_files: counters.open_files,
                locks: counters.locks,
                files: counters.files,
                directories: counters.directories,
                orphans: counters.orphans,
                objects: counters.objects,
                used_bytes: counters.used_bytes,
                capacity_bytes: counters.capacity_bytes,
                free_bytes: counters.free_bytes,
                requests: counters.requests,
                transactions: counters.transactions,
                posted: words.posted,
                posted_waiting: words.posted_waiting,
                processes_waiting: words.processes_waiting,
                waits: words.waits,
                activity: words.activity,
                work: words.work,
                tier: words.tier,
            }),
            detail: words.detail,
            ..Report::without_daemon(config, view, State::Serving)
        }
    }

    /// Why the daemon said nothing, and what to do.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let (name, pid) = (&self.config.name, self.daemon_pid);
        Some(match self.state {
            State::Serving => return None,
            State::Stopped => format!(
                "the daemon of {name:?} (process {pid}) does not answer: it is stopped. \
                 `kill -CONT {pid}` lets it go on"
            ),
            State::Lost => format!(
                "the content of {name:?} is lost: its daemon died, and with --durability none \
                 nothing outlives it. `mayfly stop --name {name}` removes the instance"
            ),
            State::Silent => format!(
                "the daemon of {name:?} (process {pid}) does not answer within {} s; \
                 `mayfly logs {} --since 10m` may tell why",
                self.config.options.deadline_seconds,
                whole_name(name)
            ),
        })
    }
}
