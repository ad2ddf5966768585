//! The processes that serve mounts, and what is left of those that died.
//!
//! Such a process is a child. It unmounts and ends when its line is cut, so also when the
//! supervisor is killed. When it dies itself, the supervisor unmounts: a mount without a process
//! answers every call with an error, and nothing of it stays in the table of mounts.

use std::{
    io::Read,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendFlags, Shutdown, send, shutdown},
};

use super::{Source, Watch, ears::Around};
use crate::{
    log,
    processes::fuse::{FUSE, MOUNTED},
};

/// Mounts of one instance on one node.
const MOUNTS_MAX: usize = 16;
/// Longest line that is read, bytes.
const LINE_BYTES_MAX: usize = 4096;
/// How long the kernel may write back mapped pages when the instance ends.
const FINISH_MAX: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

struct Mount {
    number: u32,
    point: PathBuf,
    child: Child,
    line: UnixStream,
    /// It is at the instance's mount point.
    main: bool,
    mounted: bool,
    /// The connection of the caller that has not been answered yet.
    asked: Option<OwnedFd>,
}

/// Words of a mount's process. `main`: that of the instance's own mount point.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MountEvent {
    Nothing,
    Mounted { main: bool },
    Failed { main: bool, why: String },
    Ended { main: bool },
}

#[derive(Default)]
pub(super) struct Mounts {
    all: Vec<Mount>,
    last: u32,
}

impl Mounts {
    /// Where the instance is mounted.
    pub(super) fn points(&self) -> Vec<PathBuf> {
        let mounted = self.all.iter().filter(|mount| mount.mounted);
        mounted.map(|mount| mount.point.clone()).collect()
    }

    /// The process that serves the instance's own mount point.
    pub(crate) fn server(&self) -> Option<u32> {
        let main = self.all.iter().find(|mount| mount.main && mount.mounted)?;
        Some(main.child.id())
    }

    /// Begins to mount at `point`; `asked` is answered, without one it is the main mount.
    pub(super) fn add(&mut self, point: &Path, asked: Option<OwnedFd>, around: &Around<'_>) {
        self.last = self.last.wrapping_add(1);
        let started = match self.all.len() {
            MOUNTS_MAX.. => Err(anyhow::anyhow!("{MOUNTS_MAX} mounts are enough; unmount one")),
            _ => Mount::start(self.last, point, around),
        };
        match started {
            Ok(mount) => self.all.push(Mount { main: asked.is_none(), asked, ..mount }),
            Err(error) => {
                log::warn(format_args!("{error:#}"));
                answer(asked, &format!("{error:#}"));
            }
        }
    }

    /// Reads what the process `number` says.
    pub(super) fn hear(&mut self, number: u32, watch: &Watch) -> MountEvent {
        let Some(place) = self.all.iter().position(|mount| mount.number == number) else {
            return MountEvent::Nothing;
        };
        let mount = &mut self.all[place];
        let mut bytes = [0; LINE_BYTES_MAX];
        let count = mount.line.read(&mut bytes).unwrap_or(0);
        let said = String::from_utf8_lossy(&bytes[..count]).trim_end().to_owned();
        if said == MOUNTED {
            mount.mounted = true;
            log::info(format_args!("mounted at {}", mount.point.display()));
            answer(mount.asked.take(), MOUNTED);
            return MountEvent::Mounted { main: mount.main };
        }
        let mut mount = self.all.swap_remove(place);
        watch.remove(&mount.line);
        let _ = mount.child.kill();
        let how = mount.child.wait().map_or_else(|error| error.to_string(), |end| end.to_string());
        mayfly_fuse::unmount(&mount.point);
        if mount.mounted {
            log::info(format_args!("not mounted any more at {}: {how}", mount.point.display()));
            return MountEvent::Ended { main: mount.main };
        }
        let why = match said.is_empty() {
            true => format!("what was to serve {} ended: {how}", mount.point.display()),
            false => said,
        };
        answer(mount.asked.take(), &why);
        MountEvent::Failed { main: mount.main, why }
    }

    /// Unmounts everything, whoever uses it.
    pub(super) fn end(&mut self) {
        for mount in &self.all {
            let _ = shutdown(&mount.line, Shutdown::Write);
        }
        for mut mount in self.all.drain(..) {
            let mut ends = [PollFd::from_borrowed_fd(mount.line.as_fd(), PollFlags::IN)];
            if !matches!(poll(&mut ends, Some(&FINISH_MAX)), Ok(1)) {
                log::warn(format_args!("what serves {} does not finish", mount.point.display()));
            }
            let _ = mount.child.kill();
            let _ = mount.child.wait();
            mayfly_fuse::unmount(&mount.point);
            answer(mount.asked.take(), "the instance ends");
        }
    }
}

impl Mount {
    fn start(number: u32, point: &Path, around: &Around<'_>) -> Result<Mount> {
        let (line, theirs) = UnixStream::pair()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg(FUSE)
            .arg(&around.config.run_dir)
            .arg(point)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stderr(around.ear.for_child()?)
            .spawn()
            .context("cannot start what serves a mount")?;
        if let Err(error) = around.watch.add(&line, Source::Mount(number)) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        let point = point.to_owned();
        Ok(Mount { number, point, child, line, main: false, mounted: false, asked: None })
    }
}

fn answer(asked: Option<OwnedFd>, word: &str) {
    if let Some(connection) = asked {
        // The caller may have gone meanwhile.
        let _ = send(&connection, word.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}
