//! The sessions: shared memory and evidence of each attached process.
//!
//! A session ends by kernel evidence only: its process is gone, its connection is closed (exec
//! closes it), or the same process attached again. Its number is used again once the daemon has
//! said that it keeps nothing of it.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsFd, OwnedFd},
};

use anyhow::{Context, Result, anyhow};
use mayfly_daemon::serve::channel::{self, Message};
use mayfly_transport_shm::{hello::Answer, region::make_session};
use mayfly_types::{Errno, SessionId, limits::SESSIONS_MAX};
use rustix::{
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{Source, Watch};

struct Session {
    pid: u32,
    region: OwnedFd,
    connection: OwnedFd,
    process: OwnedFd,
    ended: bool,
}

pub(super) struct Sessions {
    instance: u64,
    all: BTreeMap<u32, Session>,
    free: VecDeque<u32>,
}

impl Sessions {
    pub(super) fn new(instance: u64) -> Sessions {
        // Number 0 means "no session" in the tables.
        Sessions { instance, all: BTreeMap::new(), free: (1..SESSIONS_MAX).collect() }
    }

    pub(super) fn of_process(&self, pid: u32) -> Vec<SessionId> {
        let of_pid = self.all.iter().filter(|(_, session)| session.pid == pid && !session.ended);
        of_pid.map(|(id, _)| SessionId(*id)).collect()
    }

    /// Makes a session for the process at the other end of `connection` and answers it.
    pub(super) fn open(
        &mut self,
        connection: OwnedFd,
        pid: u32,
        watch: &Watch,
    ) -> Result<SessionId> {
        let Some(id) = self.free.pop_front() else {
            answer(&connection, 0, Errno::ENFILE.raw() as u32, self.instance, None);
            return Err(anyhow!("{SESSIONS_MAX} processes are attached; process {pid} is refused"));
        };
        match self.make(SessionId(id), connection, pid, watch) {
            Ok(session) => {
                self.all.insert(id, session);
                Ok(SessionId(id))
            }
            Err(error) => {
                self.free.push_back(id);
                Err(error)
            }
        }
    }

    fn make(&self, id: SessionId, connection: OwnedFd, pid: u32, watch: &Watch) -> Result<Session> {
        let raw =
            i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process has a number")?;
        let process =
            pidfd_open(raw, PidfdFlags::empty()).context("the process is gone already")?;
        let region =
            make_session(id, pid).map_err(|errno| anyhow!("a session's memory: {errno}"))?;
        watch.add(&connection, Source::Evidence(id))?;
        watch.add(&process, Source::Process(id))?;
        Ok(Session { pid, region, connection, process, ended: false })
    }

    /// Tells the daemon of a new session, then answers the process.
    pub(super) fn tell(&self, id: SessionId, daemon: &OwnedFd) {
        if let Some(session) = self.all.get(&id.0) {
            // A daemon that is dying now hears of every session when it is started again.
            let _ = tell(id, session, daemon);
        }
    }

    /// Tells a fresh daemon of every session that lives.
    pub(super) fn tell_all(&self, daemon: &OwnedFd) -> Result<()> {
        for (id, session) in self.all.iter().filter(|(_, session)| !session.ended) {
            tell(SessionId(*id), session, daemon).context("the daemon does not listen")?;
        }
        Ok(())
    }

    /// Hands the regions to the process.
    pub(super) fn welcome(&self, id: SessionId, node: &OwnedFd) {
        if let Some(session) = self.all.get(&id.0) {
            let regions = Some((node, &session.region));
            answer(&session.connection, id.0, 0, self.instance, regions);
        }
    }

    /// Notes the end of a session; false when it was known.
    pub(super) fn end(&mut self, id: SessionId, watch: &Watch) -> bool {
        let Some(session) = self.all.get_mut(&id.0).filter(|session| !session.ended) else {
            return false;
        };
        session.ended = true;
        watch.remove(&session.connection);
        watch.remove(&session.process);
        true
    }

    /// The daemon keeps nothing of it any more.
    pub(super) fn forget(&mut self, id: SessionId) {
        if self.all.get(&id.0).is_some_and(|session| session.ended) {
            self.all.remove(&id.0);
            self.free.push_back(id.0);
        }
    }

    /// The daemon died: a new one never hears of the sessions that have ended.
    pub(super) fn forget_ended(&mut self) {
        let ended = self.all.iter().filter(|(_, session)| session.ended);
        for id in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.forget(SessionId(id));
        }
    }
}

fn tell(id: SessionId, session: &Session, daemon: &OwnedFd) -> Result<(), rustix::io::Errno> {
    let message = Message::Session { session: id, pid: session.pid };
    channel::send(daemon, &message, &[session.region.as_fd(), session.process.as_fd()])
}

fn answer(
    connection: &OwnedFd,
    session: u32,
    status: u32,
    instance: u64,
    regions: Option<(&OwnedFd, &OwnedFd)>,
) {
    let bytes = Answer { session, status, instance }.encode();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = regions.map(|(node, region)| [node.as_fd(), region.as_fd()]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let parts = [std::io::IoSlice::new(&bytes)];
    // A process that died meanwhile does not mind.
    let _ = sendmsg(connection, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}
