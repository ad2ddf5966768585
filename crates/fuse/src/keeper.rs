//! The process that keeps the files which descriptions have become (see
//! [`mayfly_transport_shm::keeper`]).
//!
//! It is a process of its own: one that serves a mount must not hold a file of it, since closing it
//! would wait for that process. A file is kept until the last descriptor of the description's slot
//! file is closed, which the kernel tells, or until the mount's process ends.

use std::{
    collections::HashMap,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use mayfly_transport_shm::keeper::{REQUEST_BYTES, SOCKET_NAME, Wish, decode};
use mayfly_types::{Errno, OpenRef};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
        bind, listen, recvmsg, sendmsg, socket_with, sockopt,
    },
};

/// Files kept at a time; beyond that a description stays what it was.
const KEPT_MAX: usize = 4096;
/// Connections that wait to be accepted.
const WAITING_MAX: i32 = 64;
/// How long one process may keep the others waiting.
const TIMEOUT: Duration = Duration::from_secs(1);

struct HeldFile {
    generation: u32,
    watch: i32,
    file: OwnedFd,
}

struct Keeper<'a> {
    /// The directory of slot files.
    slots: &'a Path,
    closes: OwnedFd,
    files: HashMap<u32, HeldFile>,
}

/// Keeps files for the instance in `run_dir` until `stop` hangs up. Calls `ready` when it can be
/// asked.
///
/// # Errors
/// Says why it cannot.
pub fn keep(run_dir: &Path, stop: impl AsFd, ready: impl FnOnce()) -> Result<()> {
    let path = run_dir.join(SOCKET_NAME);
    // An earlier one may have left it behind.
    let _ = std::fs::remove_file(&path);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(&path)?)
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    listen(&socket, WAITING_MAX)?;
    ready();
    let closes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let slots = run_dir.join("ofd");
    let mut keeper = Keeper { slots: &slots, closes, files: HashMap::new() };
    loop {
        let mut ends = [
            PollFd::new(&stop, PollFlags::IN),
            PollFd::new(&socket, PollFlags::IN),
            PollFd::new(&keeper.closes, PollFlags::IN),
        ];
        match poll(&mut ends, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [stopped, asked, closed] = ends.map(|end| !end.revents().is_empty());
        if stopped {
            let _ = std::fs::remove_file(&path);
            return Ok(());
        }
        if closed {
            keeper.let_go();
        }
        if asked && let Ok(caller) = accept_with(&socket, SocketFlags::CLOEXEC) {
            keeper.attend(&caller);
        }
    }
}

impl Keeper<'_> {
    /// A caller that asks wrongly, or does not wait, gets no answer.
    fn attend(&mut self, caller: &OwnedFd) {
        for side in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            let _ = sockopt::set_socket_timeout(caller, side, Some(TIMEOUT));
        }
        let Some((wish, open, file)) = receive(caller) else { return };
        let done = match (wish, file) {
            (Wish::Keep, Some(file)) => self.put(open, file).map(|()| None),
            (Wish::Keep, None) => Err(Errno::EINVAL),
            (Wish::Take, _) => self.get(open).map(Some),
        };
        answer(caller, done);
    }

    fn put(&mut self, open: OpenRef, file: OwnedFd) -> Result<(), Errno> {
        if self.files.len() >= KEPT_MAX {
            return Err(Errno::ENFILE);
        }
        // The caller holds the slot file open, so its last close is still to come.
        let path = self.slots.join(open.index.to_string());
        let watch =
            inotify::add_watch(&self.closes, path, WatchFlags::CLOSE).map_err(|_| Errno::ENOENT)?;
        self.files.insert(open.index, HeldFile { generation: open.generation, watch, file });
        Ok(())
    }

    fn get(&self, open: OpenRef) -> Result<BorrowedFd<'_>, Errno> {
        let held = self.files.get(&open.index).filter(|held| held.generation == open.generation);
        held.map(|held| held.file.as_fd()).ok_or(Errno::ENOENT)
    }

    /// Closes the files of descriptions that have ended.
    fn let_go(&mut self) {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.closes, &mut space);
        let (mut ended, mut lost) = (Vec::new(), false);
        while let Ok(event) = reader.next() {
            lost |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            ended.push(event.wd());
        }
        // With events lost, all are given up that nobody asked for yet; the others fail with EIO,
        // which is better than a file that stays open for good.
        self.files.retain(|_, held| !lost && !ended.contains(&held.watch));
        for watch in ended {
            let _ = inotify::remove_watch(&self.closes, watch);
        }
    }
}

fn receive(caller: &OwnedFd) -> Option<(Wish, OpenRef, Option<OwnedFd>)> {
    let mut bytes = [0; REQUEST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(caller, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    let (wish, open) = decode(bytes.get(..got.bytes)?)?;
    Some((wish, open, file))
}

fn answer(caller: &OwnedFd, done: Result<Option<BorrowedFd<'_>>, Errno>) {
    let status = done.as_ref().err().map_or(0, |errno| errno.raw());
    let files: Vec<BorrowedFd<'_>> = done.ok().flatten().into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let bytes = status.to_le_bytes();
    let _ = sendmsg(caller, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, os::unix::net::UnixStream};

    use rustix::net::connect;

    use super::*;

    /// A program started before the keeper could be asked, bound a socket by the library, and the
    /// kernel's mount, which was there a moment later, knew of none: ECONNREFUSED.
    #[test]
    fn it_is_not_ready_before_it_can_be_asked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET_NAME);
        let (line, stop) = UnixStream::pair().unwrap();
        let asked = Cell::new(false);
        let ready = || {
            let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
            connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            asked.set(true);
            drop(line);
        };
        keep(directory.path(), &stop, ready).unwrap();
        assert!(asked.get() && !path.exists(), "it ends with the line, and leaves nothing");
    }
}
