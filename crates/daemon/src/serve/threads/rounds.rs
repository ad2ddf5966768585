//! The rounds of the serving thread: events, messages, the lanes of all sessions.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
};

use mayfly_transport_shm::{
    layout::{DAEMON_ABSENT, DAEMON_AWAKE, OPEN_SHARED},
    region::SessionMapping,
    server::{Incoming, LaneRef, Session},
};
use mayfly_transport_tcp::{Bytes, limits::SHARED_BYTES_MIN};
use mayfly_types::{Errno, SessionId};
use mayfly_wire::Request;

use crate::serve::{
    Caller, Completion, Progress, Service,
    network::{net::Net, others::Others},
    sessions::{
        channel::Message, contents, ends::Ends, event::Event, host_environment::HostEnvironment,
    },
    slow::Waited,
    threads::{
        driver::{BATCH_MAX, Driver},
        idle::{For, Idle, Wakes},
        peers::{Call, Report, ToShard},
    },
};

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The supervisor asked for it.
    Stopped,
    /// The supervisor is gone.
    Orphaned,
    /// The store of a shard cannot commit. Whoever relied on it was told EIO; a new daemon starts
    /// from the last commit.
    StoreFailed(Errno),
}

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Turn {
    /// Something; there may be more.
    Done,
    /// Nothing, until this comes.
    Idle(For),
    /// It was the last.
    Over(Ending),
}

/// A session that was there before the loop.
#[derive(Debug)]
pub(in crate::serve) struct Mapped {
    pub(in crate::serve) shared: Arc<Session>,
    pub(in crate::serve) pid: u32,
    pub(in crate::serve) process: OwnedFd,
}

/// The serving loop.
#[derive(Debug)]
pub(in crate::serve) struct Serving<S, O> {
    pub(in crate::serve) shard: Driver<S>,
    host: O,
    pub(in crate::serve) idle: Idle,
    /// Sessions whose end the service knows of.
    ends: Ends,
    lanes: Vec<LaneRef>,
    body: Vec<u8>,
    inbox: VecDeque<ToShard>,
    pub(in crate::serve) others: Others,
    /// Shards that finish what earlier daemons left.
    recovering: u32,
    /// This one is among them.
    mine: bool,
    /// A request was answered at once since the last wait.
    answered: bool,
    /// Clients are served.
    is_open: bool,
    /// How it ended, when somebody else than the serving thread has seen it.
    ending: Option<Ending>,
}

impl<S: Service, O: HostEnvironment> Serving<S, O> {
    /// For a shard whose lanes to look at first are `lanes`.
    pub(in crate::serve) fn new(shard: Driver<S>, host: O, lanes: Vec<LaneRef>) -> Serving<S, O> {
        let shards = shard.peers.count();
        Serving {
            idle: Idle::new(shard.peers.waker().clone()),
            ends: Ends::new(shards - 1),
            recovering: shards,
            mine: true,
            answered: false,
            is_open: false,
            ending: None,
            shard,
            host,
            lanes,
            body: Vec::new(),
            inbox: VecDeque::new(),
            others: Others::default(),
        }
    }

    /// Takes up what outlived an earlier daemon.
    pub(in crate::serve) fn take_up(&mut self, sessions: Vec<Mapped>, restarted: bool) {
        for Mapped { shared, pid, process } in sessions {
            self.welcome(&shared, pid, process, true);
        }
        if restarted {
            self.release_unheld();
            if let Some(net) = self.shard.peers.net() {
                net.introduce_to_all();
            }
        }
    }

    /// Says that nobody serves any more.
    pub(in crate::serve) fn close_the_doors(&mut self) {
        // What was submitted is kept, and nothing is submitted any more.
        if self.shard.failed().is_none() && self.shard.service.recall() {
            self.shard.finish();
        }
        self.shard.wake_all();
        self.shard.node().head.daemon_state.store(DAEMON_ABSENT, SeqCst);
    }

    /// Ends the batch of what taking up the sessions changed.
    pub(in crate::serve) fn begin(&mut self) {
        self.shard.finish();
    }

    /// Does what there is to do.
    pub(in crate::serve) fn turn(&mut self) -> Turn {
        match self.ending {
            Some(ending) => Turn::Over(ending),
            None if self.is_open => self.round(),
            None => self.recover(),
        }
    }

    /// Waits as [`Idle::lie_down`] does.
    pub(in crate::serve) fn lie_down(&mut self, what: For) -> Option<Wakes> {
        let server = &self.shard.server;
        let wakes = self.idle.lie_down(what, || server.is_asked_again());
        self.shard.server.beside_others(self.idle.knows_of_others());
        wakes
    }

    /// There are no more turns.
    pub(in crate::serve) fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// Acts on all but the clients until every shard has finished what earlier daemons left.
    fn recover(&mut self) -> Turn {
        if self.mine && !self.shard.service.is_recovering() {
            self.mine = false;
            self.recovering -= 1;
        }
        if let Some(errno) = self.shard.failed() {
            return Turn::Over(Ending::StoreFailed(errno));
        }
        if self.recovering == 0 {
            self.open_the_doors();
            return Turn::Done;
        }
        if self.shard.peers.waker().was_poked() {
            if let Some(ending) = self.attend() {
                return Turn::Over(ending);
            }
            self.shard.finish();
        } else if self.shard.service.idle_work() {
            self.shard.finish();
        } else {
            return Turn::Idle(For::Waker);
        }
        Turn::Done
    }

    /// Whether clients are served.
    pub(in crate::serve) fn is_open(&self) -> bool {
        self.is_open
    }

    fn open_the_doors(&mut self) {
        self.is_open = true;
        self.serve_held();
        self.shard.finish();
        self.shard.node().head.daemon_state.store(DAEMON_AWAKE, SeqCst);
        self.tell(&Message::Ready);
    }

    fn round(&mut self) -> Turn {
        let poked = self.shard.peers.waker().was_poked();
        if poked && let Some(ending) = self.attend() {
            return Turn::Over(ending);
        }
        self.shard.server.collect(&mut self.lanes);
        let mut idle = false;
        let asked = !self.lanes.is_empty();
        self.shard.call = if self.lanes.len() < 2 { Call::StandIn } else { Call::Wake };
        if asked {
            self.serve_lanes();
            self.idle.leave_crowd();
        } else if poked || self.shard.service.idle_work() {
            self.shard.finish();
        } else {
            idle = true;
        }
        if let Some((processor, submitted)) = self.shard.service.submitted_on() {
            self.idle.served(processor);
            if !asked {
                self.idle.served_submitted(processor, submitted);
                let server = &self.shard.server;
                self.idle.gather(|| server.is_asked_again());
            }
        }
        match self.shard.failed() {
            Some(errno) => Turn::Over(Ending::StoreFailed(errno)),
            None if idle && self.shard.server.has_put_off() => {
                self.attend_put_off();
                Turn::Done
            }
            None if idle => {
                self.idle.roused(self.shard.has_woken());
                let answered = std::mem::take(&mut self.answered);
                let is_waiting = |net: &Arc<Net>| net.is_waiting();
                let away = !answered && self.shard.peers.net().is_some_and(is_waiting);
                Turn::Idle(if away { For::Answers } else { For::Requests })
            }
            None => Turn::Done,
        }
    }

    /// Wakes the next of those that are to be woken later, unless somebody asks: what is asked ends
    /// with a look at who is due.
    fn attend_put_off(&mut self) {
        let server = &self.shard.server;
        if !self.idle.is_asked_soon(|| server.is_asked_again()) {
            self.shard.wake_next();
        }
        self.shard.server.beside_others(self.idle.knows_of_others());
    }

    fn tell(&mut self, message: &Message) {
        self.host.tell(message);
    }

    fn serve_lanes(&mut self) {
        let lanes = std::mem::take(&mut self.lanes);
        for batch in lanes.chunks(BATCH_MAX) {
            for at in batch {
                self.serve_lane(*at);
            }
            self.shard.finish();
            if self.shard.failed().is_some() {
                break;
            }
        }
        self.lanes = lanes;
        self.lanes.clear();
    }

    /// Executes the request of a lane.
    fn serve_lane(&mut self, at: LaneRef) {
        // Nobody waits for requests that a dead process still had in its lanes. And nothing may be
        // opened for it: the end of its session would not close that any more.
        if self.ends.contains(at.session) {
            self.shard.server.give_up(at.session);
            return;
        }
        let mut body = std::mem::take(&mut self.body);
        if let Some(incoming) = self.shard.server.take(at, &mut body) {
            self.idle.served(incoming.processor);
            if body.len() >= SHARED_BYTES_MIN {
                return self.execute_with_shared_body(at, &incoming, body);
            }
            self.execute(at, &incoming, &body);
        } else if let Some(request_id) = self.shard.server.detach(at) {
            let LaneRef { session, lane } = at;
            self.give_up(Caller { session, lane, request_id });
        }
        for late in self.shard.server.given_up() {
            self.shard.slow.given_up(&late);
        }
        self.body = body;
    }

    /// A process waits no more for a request that is not answered. Whoever is at it hears of that;
    /// the lane is free already.
    fn give_up(&mut self, caller: Caller) {
        for shard in self.shard.peers.numbering().here() {
            self.hand(shard, shard, crate::Message::GivenUp(caller));
        }
        let net = self.shard.peers.net();
        if net.is_some_and(|net| net.give_up_away(caller)) {
            self.shard.answer(Completion::failed(caller, Errno::EIO), Waited::Shards);
        }
    }

    /// Executes a request whose body is long: who needs its bytes for longer has a share of them.
    fn execute_with_shared_body(&mut self, at: LaneRef, incoming: &Incoming, body: Vec<u8>) {
        let body = Bytes::from(body);
        self.shard.service.share_body(body.clone());
        self.execute(at, incoming, &body);
        self.shard.service.share_body(Bytes::default());
    }

    fn execute(&mut self, at: LaneRef, incoming: &Incoming, body: &[u8]) {
        let Incoming { op, request_id, .. } = *incoming;
        let Ok(request) = Request::decode(op, body) else {
            self.shard.store(at, op, request_id, Errno::EPROTO.raw() as u32, 0);
            return;
        };
        if matches!(request, Request::Lock(_) | Request::TestLock(_)) {
            self.gather_evidence();
        }
        if let (Request::Cancel(cancel), Some(net)) = (&request, self.shard.peers.net()) {
            net.cancel(at.session, cancel.request_id);
        }
        let caller = Caller { session: at.session, lane: at.lane, request_id };
        let node = self.shard.node();
        let Some(reply) = self.shard.server.reply_body(at) else { return };
        match self.shard.service.handle(caller, request, reply) {
            Progress::Replied(status, bytes) => {
                self.answered = true;
                let more = match request {
                    Request::Open(open) if status == 0 => {
                        let service = &mut self.shard.service;
                        contents::append(service, node, &open, reply, bytes)
                    }
                    _ => 0,
                };
                self.shard.store(at, op, request_id, status, bytes + more);
            }
            Progress::Pending => self.shard.server.leave(at),
        }
    }

    /// Acts on what the control thread has gathered and on what the other shards say.
    fn attend(&mut self) -> Option<Ending> {
        for event in self.host.take() {
            match event {
                Event::Session { session, pid, region, process } => {
                    self.open_session(session, pid, &region, process);
                }
                Event::End(session) => self.end_session(session),
                Event::Released(index) => self.release(index),
                Event::Overflow => self.release_unheld(),
                Event::Stop => return Some(Ending::Stopped),
                Event::Orphaned => return Some(Ending::Orphaned),
            }
        }
        self.shard.peers.take(&mut self.inbox);
        while let Some(item) = self.inbox.pop_front() {
            match item {
                ToShard::Message { from, message } => self.shard.deliver(from, message),
                ToShard::Report(report) => {
                    if let Some(ending) = self.hear(&report) {
                        return Some(ending);
                    }
                }
                // Only this thread says such things.
                ToShard::SessionOpened { .. }
                | ToShard::SessionClosed(_)
                | ToShard::StrangerCame { .. }
                | ToShard::StrangerLeft(_)
                | ToShard::StrangersAre { .. }
                | ToShard::OpenReleased { .. }
                | ToShard::NodeReached { .. }
                | ToShard::Stop => {}
            }
        }
        self.attend_nodes();
        None
    }

    fn hear(&mut self, report: &Report) -> Option<Ending> {
        match *report {
            Report::Recovered => self.recovering -= 1,
            Report::SessionGone(session) => self.session_heard(session),
            Report::Failed(errno) => return Some(Ending::StoreFailed(errno)),
        }
        None
    }

    /// Another shard, or another node, has nothing left of a session.
    pub(in crate::serve) fn session_heard(&mut self, session: SessionId) {
        if self.ends.end_by_shard(session) {
            self.tell(&Message::Ended(session));
        }
    }

    fn open_session(&mut self, session: SessionId, pid: u32, region: &OwnedFd, process: OwnedFd) {
        // A region that cannot be mapped is a client that waits in vain, until its deadline.
        let Ok(mapping) = SessionMapping::map(region) else { return };
        let added = self.shard.server.add_session(session, mapping, &mut self.lanes);
        if let Some(shared) = added {
            self.welcome(&shared, pid, process, false);
        }
    }

    /// All shards hear of a session before any request of it.
    fn welcome(&mut self, shared: &Arc<Session>, pid: u32, process: OwnedFd, before: bool) {
        let session = shared.number();
        if let Some(net) = self.shard.peers.net() {
            net.session_opened(session, pid, before);
        }
        self.shard.open_session(session, pid);
        self.shard.peers.tell_others(|| ToShard::SessionOpened { pid, shared: Arc::clone(shared) });
        self.host.watch(session, process);
    }

    /// All shards hear of an end once.
    fn close_session(&mut self, session: SessionId) {
        if !self.ends.contains(session) {
            // Before another node hears that the session is over, every descriptor of it is.
            let nodes = self.shard.peers.net().map_or(0, |net| net.session_closed(session));
            self.ends.begin(session, nodes);
            self.shard.close_session(session);
            self.shard.peers.tell_others(|| ToShard::SessionClosed(session));
        }
    }

    fn end_session(&mut self, session: SessionId) {
        self.close_session(session);
        self.host.forget(session);
        self.shard.server.remove_session(session);
        self.lanes.retain(|lane| lane.session != session);
        // The end must be durable before the number is used again.
        self.shard.finish();
        if self.shard.failed().is_none() && self.ends.end_by_supervisor(session) {
            self.tell(&Message::Ended(session));
        }
    }

    /// What the kernel knows by now about processes that ended and descriptors that were closed: a
    /// lock whose holder's death its parent has seen must not stand in anybody's way. The other
    /// shards find it in their inboxes before whatever follows from the lock request.
    fn gather_evidence(&mut self) {
        let released = self.host.take_releases();
        for index in released.indexes {
            self.release(index);
        }
        if released.overflow {
            self.release_unheld();
        }
        for session in self.host.ended() {
            self.close_session(session);
        }
    }

    fn release(&mut self, index: u32) {
        let entry = self.shard.node().opens.get(index as usize);
        let shared = entry.filter(|entry| entry.state.load(Relaxed) == OPEN_SHARED);
        if let Some(entry) = shared {
            let generation = entry.generation.load(Relaxed);
            self.shard.release(index);
            self.shard.peers.tell_others(|| ToShard::OpenReleased { index, generation });
        }
    }

    /// Releases every shared open file description that no process holds.
    fn release_unheld(&mut self) {
        let shared: Vec<u32> = (0_u32..)
            .zip(&self.shard.node().opens)
            .filter(|(_, entry)| entry.state.load(Relaxed) == OPEN_SHARED)
            .map(|(index, _)| index)
            .collect();
        if shared.is_empty() {
            return;
        }
        let held = self.host.held();
        for index in shared.into_iter().filter(|index| !held.contains(index)) {
            self.release(index);
        }
    }
}
