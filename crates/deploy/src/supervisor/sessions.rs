//! The sessions: shared memory and evidence of each attached process.
//!
//! A session ends by kernel evidence only: its process is gone, its connection is closed (exec
//! closes it), or the same process attached again. Its number is used again once the daemon has
//! said that it keeps nothing of it, or when the daemon never heard of it.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering::Relaxed,
};

use anyhow::{Context, Result, anyhow};
use mayfly_daemon::serve::channel::{self, Message};
use mayfly_transport_shm::{
    Earlier,
    hello::Answer,
    layout::NodeRegion,
    region::{know_rate, make_session},
};
use mayfly_types::{SessionId, limits::SESSIONS_MAX};
use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::Pid,
};

use super::process_end;
use super::{Source, Watch};

/// The supervisor's part of a session, held as long as the process lives.
struct Session {
    pid: u32,
    /// Whether it ended earlier sessions of its process, and ends itself when a later one begins.
    earlier: Earlier,
    region: OwnedFd,
    connection: OwnedFd,
    process: OwnedFd,
}

/// So many sessions that have ended are remembered at least, with what they did, before one of
/// their numbers is used again.
const ENDED_KEPT: usize = 512;

pub(super) struct Sessions {
    instance: u64,
    node: &'static NodeRegion,
    /// `None`: ended, and the daemon has not confirmed it yet.
    all: BTreeMap<u32, Option<Session>>,
    /// Numbers of sessions that are over, the oldest first.
    free: VecDeque<u32>,
    /// The next number that was never used.
    unused: u32,
}

impl Sessions {
    pub(super) fn new(instance: u64, node: &'static NodeRegion) -> Sessions {
        // Number 0 means "no session" in the tables.
        Sessions { instance, node, all: BTreeMap::new(), free: VecDeque::new(), unused: 1 }
    }

    fn next_number(&mut self) -> Option<u32> {
        if self.free.len() >= ENDED_KEPT || self.unused == SESSIONS_MAX {
            return self.free.pop_front();
        }
        self.unused += 1;
        Some(self.unused - 1)
    }

    /// Keeps what the last process of this number did, and begins the tally of another one.
    fn begin_tally(&self, id: u32, pid: u32) {
        know_rate(self.node);
        let Some(tally) = self.node.tallies.get(id as usize) else { return };
        // One that nobody has had takes no memory, and would if it were looked at.
        if tally.pid.load(Relaxed) != 0 {
            self.node.past.add_all(tally);
            tally.reset();
        }
        tally.pid.store(pid, Relaxed);
    }

    /// The sessions of a process that end when it attaches anew in this way. One that was made
    /// beside others ends with its connection.
    pub(super) fn succeeded_by(&self, pid: u32, earlier: Earlier) -> Vec<SessionId> {
        let both_end =
            |session: &Session| (session.earlier, earlier) == (Earlier::Ends, Earlier::Ends);
        let of_pid = self.living().filter(|(_, session)| session.pid == pid && both_end(session));
        of_pid.map(|(id, _)| id).collect()
    }

    fn living(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        let all = self.all.iter();
        all.filter_map(|(id, session)| Some((SessionId(*id), session.as_ref()?)))
    }

    /// The sessions whose processes live.
    pub(super) fn alive(&self) -> impl Iterator<Item = SessionId> {
        self.living().map(|(id, _)| id)
    }

    /// How many processes are attached.
    pub(super) fn attached(&self) -> u32 {
        self.living().count() as u32
    }

    fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id.0)?.as_ref()
    }

    /// Makes a session for the process at the other end of `connection` and answers it.
    pub(crate) fn open(
        &mut self,
        connection: OwnedFd,
        (pid, earlier): (u32, Earlier),
        watch: &Watch,
    ) -> Result<SessionId> {
        let Some(id) = self.next_number() else {
            self.refuse(&connection, mayfly_types::Errno::ENFILE);
            let ended = self.all.len() as u32 - self.attached();
            return Err(anyhow!(
                "process {pid} is refused: {} processes are attached, and the daemon has not yet \
                 confirmed the end of {ended} others",
                self.attached()
            ));
        };
        match self.make(SessionId(id), connection, (pid, earlier), watch) {
            Ok(session) => {
                self.begin_tally(id, pid);
                self.all.insert(id, Some(session));
                Ok(SessionId(id))
            }
            Err(error) => {
                self.free.push_back(id);
                Err(error)
            }
        }
    }

    fn make(
        &self,
        id: SessionId,
        connection: OwnedFd,
        (pid, earlier): (u32, Earlier),
        watch: &Watch,
    ) -> Result<Session> {
        let raw =
            i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process has a number")?;
        let process = process_end::of(raw).context("the process is gone already")?;
        let region =
            make_session(id, pid).map_err(|errno| anyhow!("a session's memory: {errno}"))?;
        watch.add(&connection, Source::Evidence(id))?;
        watch.add(&process, Source::Process(id))?;
        Ok(Session { pid, earlier, region, connection, process })
    }

    /// Tells a process that it cannot attach.
    pub(super) fn refuse(&self, connection: &OwnedFd, why: mayfly_types::Errno) {
        answer(connection, 0, why.raw() as u32, self.instance, &[]);
    }

    /// Tells the daemon of a session.
    pub(super) fn tell(&self, id: SessionId, daemon: &OwnedFd) -> Result<(), Errno> {
        // One that has ended is owed nothing but its end.
        let Some(session) = self.get(id) else { return Ok(()) };
        let message = Message::Session { session: id, pid: session.pid };
        channel::send(daemon, &message, &[session.region.as_fd(), session.process.as_fd()])
    }

    /// Hands the regions to the process.
    pub(super) fn welcome(&self, id: SessionId, node: &OwnedFd) {
        if let Some(session) = self.get(id) {
            let regions = [node.as_fd(), session.region.as_fd()];
            answer(&session.connection, id.0, 0, self.instance, &regions);
        }
    }

    /// Notes the end of a session, and lets go of all but its number; false when it was known.
    pub(super) fn end(&mut self, id: SessionId, watch: &Watch) -> bool {
        let Some(session) = self.all.get_mut(&id.0).and_then(Option::take) else { return false };
        watch.remove(&session.connection);
        watch.remove(&session.process);
        true
    }

    /// The daemon keeps nothing of it any more.
    pub(super) fn forget(&mut self, id: SessionId) {
        if self.all.get(&id.0).is_some_and(Option::is_none) {
            self.all.remove(&id.0);
            self.free.push_back(id.0);
        }
    }

    /// The daemon died: a new one never hears of the sessions that have ended.
    pub(super) fn forget_ended(&mut self) {
        let ended = self.all.iter().filter(|(_, session)| session.is_none());
        for id in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.forget(SessionId(id));
        }
    }
}

/// Answers a process that has just connected.
pub(super) fn answer(
    connection: &OwnedFd,
    session: u32,
    status: u32,
    instance: u64,
    fds: &[BorrowedFd<'_>],
) {
    let bytes = Answer { session, status, instance }.encode();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let parts = [std::io::IoSlice::new(&bytes)];
    // A process that died meanwhile does not mind.
    let _ = sendmsg(connection, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}
