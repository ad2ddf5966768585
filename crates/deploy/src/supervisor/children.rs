//! The daemon as a child process, and how often it is started again.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use mayfly_daemon::serve::channel::{self, Message};
use mayfly_transport_shm::layout::{DAEMON_ABSENT, NodeRegion};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::Pid,
};

use super::process_end;
use crate::{log, processes::daemon::DAEMON};

/// Starts in a row that come to nothing before the supervisor gives up.
const FRUITLESS_MAX: u32 = 5;
/// Pause before a start after a fruitless one, times their number.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How long a daemon may take to finish before it is killed.
const FINISH_MAX: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// A daemon that lived this long has not died of its start.
const SETTLED: Duration = Duration::from_secs(2);

/// The variable with settings of the C library.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The memory of a large message serves the next one: otherwise it would be mapped, cleared and
/// given back for each, which costs more than the copies. A daemon keeps 16 MiB of it at most.
const MEMORY_IS_KEPT: &str =
    "glibc.malloc.mmap_threshold=4194304:glibc.malloc.trim_threshold=16777216";

/// A running daemon.
pub(super) struct Daemon {
    child: Child,
    /// Readable when the process is gone.
    pub(super) exit: OwnedFd,
    /// See `serve::channel`. Nothing on it blocks on this side.
    pub(super) channel: OwnedFd,
}

impl Daemon {
    /// What it says of trouble goes to `words`.
    pub(super) fn start(run_dir: &Path, words: Stdio) -> Result<Daemon> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // Of our end only: the other is another file description.
        rustix::io::ioctl_fionbio(&ours, true)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(DAEMON).arg(run_dir).stdin(Stdio::from(theirs)).stderr(words);
        if std::env::var_os(TUNABLES).is_none() {
            command.env(TUNABLES, MEMORY_IS_KEPT);
        }
        let child = command.spawn().context("cannot start the daemon")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let exit = process_end::of(pid.context("a process has a number")?)?;
        Ok(Daemon { child, exit, channel: ours })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended.
    pub(super) fn reap(mut self) -> String {
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Tells it to finish, when there is room in the channel or soon will be; whether it was told.
    fn ask_to_stop(&self) -> bool {
        let mut ready =
            [PollFd::new(&self.exit, PollFlags::IN), PollFd::new(&self.channel, PollFlags::OUT)];
        // The result of the send says whether it worked.
        let _ = poll(&mut ready, Some(&FINISH_MAX));
        channel::send(&self.channel, &Message::Stop, &[]).is_ok()
    }

    /// Lets it finish, and kills it when it does not.
    pub(super) fn stop(mut self) {
        let told = self.ask_to_stop();
        let mut exit = [PollFd::from_borrowed_fd(self.exit.as_fd(), PollFlags::IN)];
        let ended = told && matches!(poll(&mut exit, Some(&FINISH_MAX)), Ok(1));
        if !ended {
            log::warn("the daemon does not finish and is killed");
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Counts starts that came to nothing.
pub(super) struct Restarts {
    node: &'static NodeRegion,
    fruitless: u32,
    ready: bool,
    said_ready: bool,
    started: Instant,
    why: String,
}

impl Restarts {
    pub(super) fn new(node: &'static NodeRegion) -> Restarts {
        Restarts {
            node,
            fruitless: 0,
            ready: false,
            said_ready: false,
            started: Instant::now(),
            why: "it dies before it serves".to_owned(),
        }
    }

    /// A daemon is being started. Until it serves, nobody needs to wake it.
    pub(super) fn starting(&mut self) {
        self.node.head.daemon_state.store(DAEMON_ABSENT, SeqCst);
        self.node.head.daemon_starts.fetch_add(1, SeqCst);
        self.node.head.writers.store(0, SeqCst);
        self.ready = false;
        self.started = Instant::now();
    }

    /// The daemon serves; true the first time.
    pub(super) fn served(&mut self) -> bool {
        self.ready = true;
        !std::mem::replace(&mut self.said_ready, true)
    }

    /// Has any daemon of this instance served?
    pub(super) fn has_served(&self) -> bool {
        self.said_ready
    }

    /// The daemon says why it cannot serve.
    pub(super) fn failed(&mut self, why: String) {
        self.why = why;
    }

    /// The daemon is gone: may another be started?
    pub(super) fn again(&mut self) -> Result<(), String> {
        self.node.head.daemon_state.store(DAEMON_ABSENT, SeqCst);
        if self.ready || self.started.elapsed() > SETTLED {
            self.fruitless = 0;
            return Ok(());
        }
        self.fruitless += 1;
        // The first start tells the user what is wrong; a later one is worth more patience.
        if !self.said_ready || self.fruitless >= FRUITLESS_MAX {
            return Err(self.why.clone());
        }
        std::thread::sleep(BACK_OFF * self.fruitless);
        Ok(())
    }
}
