//! The keeper of the caching tier as a child process. When it dies, another one is started: what it
//! was at is done again.

use std::{
    io::Read,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};

use super::{Source, ears::Around};
use crate::{log, processes::tier::TIER};

/// Starts in a row that come to nothing before nobody tries any more.
const FRUITLESS_MAX: u32 = 10;
/// Pause before a start after a fruitless one, times their number.
const BACK_OFF: Duration = Duration::from_millis(20);
/// How long it may take to end.
const FINISH_MAX: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

struct Running {
    child: Child,
    line: UnixStream,
}

#[derive(Default)]
pub(super) struct TierKeeper {
    running: Option<Running>,
    fruitless: u32,
}

impl TierKeeper {
    pub(super) fn start(&mut self, around: &Around<'_>) -> Result<()> {
        let (line, theirs) = UnixStream::pair()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg(TIER)
            .arg(&around.config.run_dir)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stderr(around.ear.for_child()?)
            .spawn()
            .context("cannot start the keeper of the caching tier")?;
        if let Err(error) = around.watch.add(&line, Source::Tier) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        self.running = Some(Running { child, line });
        Ok(())
    }

    /// It has begun, or its line was cut: it has ended, or is about to.
    pub(super) fn hear(&mut self, around: &Around<'_>) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        if running.line.read(&mut [0; 16]).is_ok_and(|count| count > 0) {
            self.fruitless = 0;
            self.running = Some(running);
            return Ok(());
        }
        self.fruitless += 1;
        around.watch.remove(&running.line);
        let _ = running.child.kill();
        let how =
            running.child.wait().map_or_else(|error| error.to_string(), |end| end.to_string());
        if self.fruitless > FRUITLESS_MAX {
            log::error(format_args!(
                "the keeper of the caching tier ends again and again ({how}): what is not here of \
                 the origins cannot be had, and nothing is written back"
            ));
            return Ok(());
        }
        log::warn(format_args!("the keeper of the caching tier ended ({how}); starting another"));
        std::thread::sleep(BACK_OFF * self.fruitless);
        self.start(around)
    }

    /// Ends it.
    pub(super) fn stop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let _ = shutdown(&running.line, Shutdown::Write);
        let mut ends = [PollFd::from_borrowed_fd(running.line.as_fd(), PollFlags::IN)];
        let _ = poll(&mut ends, Some(&FINISH_MAX));
        let _ = running.child.kill();
        let _ = running.child.wait();
    }
}
