//! The rounds of the serving loop.

use std::{
    collections::HashSet,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
};

use mayfly_transport_shm::{
    layout::{DAEMON_ABSENT, DAEMON_AWAKE, OPEN_SHARED},
    region::SessionMapping,
    server::{Incoming, LaneRef, Reply, Server},
};
use mayfly_types::{Errno, SessionId};
use mayfly_wire::{Op, Request};
use rustix::event::epoll;

use super::{
    Caller, Completion, Handover, Progress, Service, Waker,
    channel::{self, Message},
    control::{Control, Event},
    idle::Idle,
    releases,
};

/// Requests of one transaction at most, so that the first does not wait long for the last.
const BATCH_MAX: usize = 128;

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The supervisor asked for it.
    Stopped,
    /// The supervisor is gone.
    Orphaned,
    /// The store cannot commit. Whoever relied on it was told EIO; a new daemon starts from the
    /// last commit.
    StoreFailed(Errno),
}

/// A reply that is stored and waits for its transaction.
#[derive(Debug, Clone, Copy)]
struct Stored {
    at: LaneRef,
    op: Op,
    request_id: u64,
    transaction: u64,
}

/// The serving loop.
#[derive(Debug)]
pub struct Serving<S> {
    service: S,
    server: Server,
    control: Arc<Control>,
    waker: Waker,
    idle: Idle,
    slot_files: PathBuf,
    /// The processes of the sessions, by pidfd, watched for their end.
    processes: OwnedFd,
    handles: Vec<Option<OwnedFd>>,
    /// Sessions whose end the service knows of, before the supervisor said so.
    closed: HashSet<SessionId>,
    lanes: Vec<LaneRef>,
    body: Vec<u8>,
    stored: Vec<Stored>,
    failed: Option<Errno>,
}

impl<S: Service> Serving<S> {
    /// Takes up the sessions and gets ready to serve. `slot_files` is the directory of the slot
    /// files.
    ///
    /// # Errors
    /// When the kernel refuses a thread or a descriptor.
    pub fn new(handover: Handover, service: S, slot_files: PathBuf) -> std::io::Result<Serving<S>> {
        let waker = handover.waker();
        let restarted = handover.starts() > 1;
        let Handover { channel, node, releases, sessions, .. } = handover;
        let mut serving = Serving {
            service,
            server: Server::new(node),
            control: Control::start(channel, releases, waker.clone())?,
            idle: Idle::new(waker.clone()),
            waker,
            slot_files,
            processes: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            handles: Vec::new(),
            closed: HashSet::new(),
            lanes: Vec::new(),
            body: Vec::new(),
            stored: Vec::new(),
            failed: None,
        };
        for known in sessions {
            serving.open_session(known.session, known.pid, known.region, known.process);
        }
        if restarted {
            serving.release_unheld();
        }
        Ok(serving)
    }

    /// Serves until told to stop.
    pub fn run(mut self) -> Ending {
        self.server.node().head.daemon_state.store(DAEMON_AWAKE, SeqCst);
        self.tell(&Message::Ready);
        // What taking up the sessions changed.
        self.finish_round();
        let ending = loop {
            if let Some(ending) = self.round() {
                break ending;
            }
        };
        self.server.node().head.daemon_state.store(DAEMON_ABSENT, SeqCst);
        ending
    }

    fn round(&mut self) -> Option<Ending> {
        if self.waker.was_poked() {
            if let Some(ending) = self.events() {
                return Some(ending);
            }
            self.finish_round();
        }
        self.server.collect(&mut self.lanes);
        if !self.lanes.is_empty() {
            self.serve_lanes();
        } else if self.service.idle_work() {
            self.finish_round();
        } else {
            self.idle.wait();
        }
        self.failed.map(Ending::StoreFailed)
    }

    fn tell(&self, message: &Message) {
        // When the supervisor is gone the control thread says so.
        let _told = channel::send(&self.control.channel, message, &[]);
    }

    fn serve_lanes(&mut self) {
        let lanes = std::mem::take(&mut self.lanes);
        for batch in lanes.chunks(BATCH_MAX) {
            for at in batch {
                self.serve(*at);
            }
            self.finish_round();
            if self.failed.is_some() {
                break;
            }
        }
        self.lanes = lanes;
        self.lanes.clear();
    }

    /// Executes the request of a lane, or finds that an earlier daemon did.
    fn serve(&mut self, at: LaneRef) {
        // What a dead process still had in its lanes nobody waits for, and nothing may be opened
        // for it that no end of the session would close.
        if self.closed.contains(&at.session) {
            return;
        }
        let mut body = std::mem::take(&mut self.body);
        if let Some(incoming) = self.server.take(at, &mut body) {
            let done = incoming.answered_transaction;
            if done.is_some_and(|done| done != 0 && done <= self.service.committed_transaction()) {
                self.server.publish(at);
            } else {
                self.execute(at, &incoming, &body);
            }
        }
        self.body = body;
    }

    fn execute(&mut self, at: LaneRef, incoming: &Incoming, body: &[u8]) {
        let Ok(request) = Request::decode(incoming.op, body) else {
            self.store(at, incoming.op, incoming.request_id, Errno::EPROTO.raw() as u32, 0);
            return;
        };
        if matches!(request, Request::Lock(_) | Request::TestLock(_)) {
            self.gather_evidence();
        }
        let caller = Caller { session: at.session, lane: at.lane, request_id: incoming.request_id };
        let Some(reply) = self.server.reply_body(at) else { return };
        match self.service.handle(caller, request, reply) {
            Progress::Replied(status, bytes) => {
                self.store(at, incoming.op, incoming.request_id, status, bytes);
            }
            Progress::Pending => {}
        }
    }

    fn store(&mut self, at: LaneRef, op: Op, request_id: u64, status: u32, body_bytes: usize) {
        let transaction = self.service.batch_transaction();
        let reply = Reply { op, request_id, status, body_bytes, transaction };
        self.server.store_reply(at, &reply);
        self.stored.push(Stored { at, op, request_id, transaction });
    }

    fn complete(&mut self, completion: &Completion) {
        let Caller { session, lane, request_id } = completion.caller;
        let at = LaneRef { session, lane };
        // The session may have ended meanwhile.
        let Some(op) = self.server.under_way(at, request_id) else { return };
        let Some(reply) = self.server.reply_body(at) else { return };
        let count = completion.body.len().min(reply.len());
        reply[..count].copy_from_slice(&completion.body[..count]);
        self.store(at, op, request_id, completion.status, count);
    }

    /// Commits and shows every stored reply. Pending requests that the commit completed, or
    /// somebody else, are answered after it; what becomes of them rests on nothing that is still
    /// open.
    fn finish_round(&mut self) {
        self.commit();
        for completion in self.service.completions() {
            self.complete(&completion);
        }
        self.commit();
    }

    fn commit(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if self.service.batch_transaction() != 0
            && let Err(errno) = self.service.commit()
        {
            self.fail_stored();
            self.failed = Some(errno);
        }
        for stored in std::mem::take(&mut self.stored) {
            self.server.publish(stored.at);
        }
    }

    /// The commit failed: nothing that rests on it happened. The caller cannot be told the
    /// difference between that and "nobody knows", so it is EIO.
    fn fail_stored(&mut self) {
        for stored in self.stored.iter().filter(|stored| stored.transaction != 0) {
            let Stored { at, op, request_id, .. } = *stored;
            let status = Errno::EIO.raw() as u32;
            let reply = Reply { op, request_id, status, body_bytes: 0, transaction: 0 };
            self.server.store_reply(at, &reply);
        }
    }

    /// Acts on what the control thread has gathered.
    fn events(&mut self) -> Option<Ending> {
        for event in self.control.take() {
            match event {
                Event::Session { session, pid, region, process } => {
                    self.open_session(session, pid, region, process);
                }
                Event::End(session) => self.end_session(session),
                Event::Released(index) => self.release(index),
                Event::Overflow => self.release_unheld(),
                Event::Stop => return Some(Ending::Stopped),
                Event::Orphaned => return Some(Ending::Orphaned),
            }
        }
        None
    }

    fn open_session(&mut self, session: SessionId, pid: u32, region: OwnedFd, process: OwnedFd) {
        // A region that cannot be mapped is a client that waits in vain, until its deadline.
        let Ok(mapping) = SessionMapping::map(&region) else { return };
        self.service.session_opened(session, pid);
        let data = epoll::EventData::new_u64(u64::from(session.0));
        // Without the watch, its end is known as soon as the supervisor says so.
        let _watched = epoll::add(&self.processes, &process, data, epoll::EventFlags::IN);
        let place = session.0 as usize;
        if self.handles.len() <= place {
            self.handles.resize_with(place + 1, || None);
        }
        self.handles[place] = Some(process);
        self.server.add_session(session, mapping, &mut self.lanes);
    }

    fn end_session(&mut self, session: SessionId) {
        if !self.closed.remove(&session) {
            self.service.session_closed(session);
        }
        self.forget_process(session);
        self.server.remove_session(session);
        self.lanes.retain(|lane| lane.session != session);
        // The end must be durable before the number is used again.
        self.finish_round();
        self.tell(&Message::Ended(session));
    }

    fn forget_process(&mut self, session: SessionId) {
        let handle = self.handles.get_mut(session.0 as usize).and_then(Option::take);
        if let Some(handle) = handle {
            // It is watched no more, or was not.
            let _removed = epoll::delete(&self.processes, &handle);
        }
    }

    /// What the kernel knows by now about processes that ended and descriptors that were closed: a
    /// lock whose holder's death its parent has seen must not stand in anybody's way.
    fn gather_evidence(&mut self) {
        let released = self.control.take_releases();
        for index in released.indexes {
            self.release(index);
        }
        if released.overflow {
            self.release_unheld();
        }
        let mut ended = Vec::with_capacity(16);
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut ended);
        // An interrupted look is as good as none: the supervisor will say it.
        let _looked = epoll::wait(&self.processes, room, Some(&none));
        for event in ended {
            let session = SessionId(event.data.u64() as u32);
            self.forget_process(session);
            if self.closed.insert(session) {
                self.service.session_closed(session);
            }
        }
    }

    fn release(&mut self, index: u32) {
        let entry = self.server.node().opens.get(index as usize);
        if entry.is_some_and(|entry| entry.state.load(Relaxed) == OPEN_SHARED) {
            self.service.open_released(index);
        }
    }

    /// Releases every shared open file description that no process holds.
    fn release_unheld(&mut self) {
        let shared: Vec<u32> = (0_u32..)
            .zip(&self.server.node().opens)
            .filter(|(_, entry)| entry.state.load(Relaxed) == OPEN_SHARED)
            .map(|(index, _)| index)
            .collect();
        if shared.is_empty() {
            return;
        }
        let held = releases::holders(&self.slot_files);
        for index in shared.into_iter().filter(|index| !held.contains(index)) {
            self.service.open_released(index);
        }
    }
}
