//! The way from this daemon's shards to those of other nodes and back.
//!
//! Any shard's thread sends. What comes in is taken by the serving thread alone (`incoming.rs`),
//! which hands it to the shard that it is for. A client's request that is passed on is one request
//! of the transport; its reply has the answer, or says which shard to ask instead. So whoever
//! serves a client's request never sends another one for it, and no queue of clients' requests
//! waits for another one.
//!
//! What the transport loses is sent again until its time is over: requests that changed something
//! are known again by their number (`remote/requests.rs`), questions may be asked twice.

mod given_up;
mod sent;
mod traffic;
mod waits;
pub(crate) mod words;

use std::{
    collections::VecDeque,
    io,
    net::TcpListener,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mayfly_transport_shm::layout::{NodeRegion, Traffic};
use mayfly_transport_tcp::{
    Body, Class, Config, Encryption, Endpoint, Event, Finder, Lane, MonotonicClock, NodeId,
    Request, RequestId, Secret, SendError, Ticket,
    limits::{Limits, MESSAGE_BYTES_MAX, THREADS_MAX},
};
use mayfly_types::{Errno, SessionId, limits::lease_seconds};
use mayfly_wire::Request as ClientRequest;

pub(in crate::serve) use self::sent::{Away, Sent};
use self::{
    sent::{encoded, may_wait},
    words::{Call, Reply, class_of},
};

use crate::{
    Message, Numbering, ShardId, log,
    maps::{HashMap, HashSet},
    message::{Answer, Forward, Question, request_in},
    serve::{
        Caller, Completion, Nodes, Waker,
        network::{
            door::Door,
            peer_network::{PeerNetwork, Tcp},
        },
    },
    shards::numbering::{OWN_SESSION, origin},
};

/// For what somebody may wait as long as he likes: a year.
const PATIENCE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Unless somebody chooses, a daemon has a thread that talks to other nodes for so many processors:
/// the serving thread, its clients and the network's own work in the kernel need theirs.
const PROCESSORS_EACH: usize = 8;
/// And so many of them at most: one serving thread does what they bring.
const USUAL_THREADS_MAX: usize = 8;

/// Another node.
#[derive(Debug, Default)]
struct Peer {
    /// It has heard which sessions there are.
    introduced: bool,
    /// Opens given up of which it has not heard.
    given_up: usize,
    /// What there was no room for.
    waiting: VecDeque<Sent>,
}

#[derive(Debug, Default)]
struct State {
    sent: HashMap<RequestId, Sent>,
    peers: HashMap<u32, Peer>,
    /// This node's sessions, their processes, and the nodes that know of them.
    sessions: HashMap<SessionId, (u32, HashSet<u32>)>,
    /// Requests of other nodes' clients that are being executed.
    running: HashMap<Caller, Ticket>,
    /// Those of them that nobody waits for any more: what they open is of no use.
    given_up: HashSet<Caller>,
    /// Of what was sent, how much it is for which nobody waits.
    unhurried: usize,
    /// Questions of other nodes, by the numbers that they have here, and whether nobody waits for
    /// the answer.
    asked: HashMap<u64, (Ticket, bool)>,
    last_asked: u64,
    /// What could not be sent.
    failed: Vec<Sent>,
    /// Requests for locks that may not wait for them.
    refused: Vec<Caller>,
}

/// The connections to the other nodes.
#[derive(Debug)]
pub(in crate::serve) struct Net {
    network: Box<dyn PeerNetwork>,
    numbering: Numbering,
    /// For how long a request is sent.
    deadline: Duration,
    /// What is sent and received is counted there, by node.
    traffic: &'static [Traffic],
    /// This daemon is not the node's first, so others may know sessions that it does not.
    restarted: bool,
    waker: Waker,
    state: Mutex<State>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the question has to be answered, however late.
fn must_arrive(question: &Question) -> bool {
    matches!(
        question,
        Question::Apply { .. }
            | Question::Release(_)
            | Question::Drop { .. }
            | Question::WentOn { .. }
            | Question::DropPart { .. }
            | Question::LetEnd { .. }
            | Question::IsOver(_)
            | Question::Await(_)
            | Question::Proxies(_)
    )
}

/// How many threads talk to the other nodes.
fn threads_for(nodes: &Nodes) -> usize {
    let by_processors = || {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (processors / PROCESSORS_EACH).clamp(1, USUAL_THREADS_MAX)
    };
    let others = nodes.addresses.len().saturating_sub(1);
    nodes.threads.unwrap_or_else(by_processors).clamp(1, others.clamp(1, THREADS_MAX))
}

fn lane_for(body: &Body) -> Lane {
    if body.len() > MESSAGE_BYTES_MAX { Lane::Bulk } else { Lane::Messages }
}

impl Net {
    /// Begins to listen; connects to nobody yet.
    ///
    /// # Errors
    /// What the kernel says.
    pub(in crate::serve) fn start(
        nodes: &Nodes,
        numbering: Numbering,
        node: &'static NodeRegion,
        (listener, secret): (OwnedFd, Secret),
        waker: Waker,
        door: &Door,
    ) -> io::Result<Arc<Net>> {
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let clock = MonotonicClock::default();
        let endpoint = Endpoint::new(Config {
            node: NodeId(nodes.me),
            incarnation: u64::from(traffic::starts(node).max(1)),
            secret,
            instance: nodes.instance,
            listener,
            encryption: if nodes.encrypt { Encryption::On } else { Encryption::Off },
            limits: Limits { threads: threads_for(nodes), ..Limits::default() },
            clock: Arc::new(clock),
            wake: Box::new({
                let (waker, door) = (waker.clone(), door.clone());
                move |finder| match finder {
                    Finder::Network => door.knock(&waker),
                    Finder::Caller => waker.wake(),
                }
            }),
            log: Box::new(|line| log::error("net", line)),
        })?;
        for (node, address) in (0..).zip(&nodes.addresses) {
            endpoint.set_address(NodeId(node), Some(*address));
        }
        let network = Box::new(Tcp { endpoint, clock });
        let deadline = Duration::from_millis(nodes.deadline_ms);
        Ok(Arc::new(Net::over(network, deadline, numbering, node, waker)))
    }

    /// With connections that somebody else has made.
    pub(in crate::serve) fn over(
        network: Box<dyn PeerNetwork>,
        deadline: Duration,
        numbering: Numbering,
        node: &'static NodeRegion,
        waker: Waker,
    ) -> Net {
        let (restarted, state) = (traffic::starts(node) > 1, Mutex::default());
        Net { network, numbering, deadline, traffic: &node.traffic, restarted, waker, state }
    }

    /// Whether an answer of another node is waited for.
    pub(in crate::serve) fn is_waiting(&self) -> bool {
        let state = lock(&self.state);
        state.sent.len() > state.unhurried
    }

    /// When something ends for which somebody waits so long.
    fn after(&self, patience: Duration) -> u64 {
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        self.network.now_ns().saturating_add(patience_ns)
    }

    /// When the time of a request that begins now is over.
    pub(in crate::serve) fn deadline_ns(&self) -> u64 {
        self.after(self.deadline)
    }

    /// How long an answer is waited for. A node believes an answer about a name for a lease. After
    /// half a lease more it has forgotten, and who waits for the change can be told.
    fn patience_with(&self, question: &Question) -> Duration {
        let Question::Forget { .. } = question else { return self.deadline };
        let deadline_ms = u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX);
        let lease_ms = 1000 * lease_seconds(deadline_ms).unsigned_abs();
        Duration::from_millis(lease_ms + lease_ms / 2).min(self.deadline)
    }

    /// What has come, oldest first.
    pub(in crate::serve) fn take(&self, events: &mut Vec<Event>) {
        self.network.take(events);
        for event in events.iter() {
            self.count_event(event);
        }
    }

    /// Takes what a shard has to say to one of another node; it may wait for [`Net::flush`].
    pub(in crate::serve) fn send(&self, from: ShardId, to: ShardId, message: Message) {
        let mut state = lock(&self.state);
        match message {
            Message::Forward(forward) | Message::Unheard(forward) => {
                self.pass_on(&mut state, to, *forward);
            }
            Message::Ask(id, question) => {
                let until_ns = self.after(self.patience_with(&question));
                self.dispatch(&mut state, Sent::Ask { from, to, id, question, until_ns });
            }
            Message::Answer(id, answer) => {
                if let Some((ticket, may_wait)) = state.asked.remove(&id) {
                    drop(state);
                    self.respond(ticket, &Reply::Answer(answer), &Body::default(), may_wait);
                }
            }
            // They stay on a node.
            Message::Cancel(..)
            | Message::GivenUp(_)
            | Message::LookAgain(..)
            | Message::OwnDone(_)
            | Message::SendOn(..)
            | Message::Proceed => {}
        }
    }

    /// Sends what was queued.
    pub(in crate::serve) fn flush(&self) {
        self.network.flush();
    }

    fn pass_on(&self, state: &mut State, to: ShardId, forward: Forward) {
        let Forward { caller, op, body, place } = forward;
        if origin(caller.session).is_some() {
            // Its node asks the other one itself.
            state.given_up.remove(&caller);
            if let Some(ticket) = state.running.remove(&caller) {
                let reply = Reply::Elsewhere { shard: to.0, place };
                self.respond(ticket, &reply, &Body::default(), false);
            }
            return;
        }
        if caller.session == OWN_SESSION {
            state.sessions.entry(OWN_SESSION).or_default();
        }
        let Some(&(pid, _)) = state.sessions.get(&caller.session) else { return };
        let waits = matches!(request_in(op, &body), Ok(ClientRequest::Lock(lock)) if lock.wait);
        if waits && !self.may_wait(state, to) {
            state.refused.push(caller);
            return self.waker.wake();
        }
        let until_ns = self.after(if waits { PATIENCE_MAX } else { self.deadline });
        let away = Away { caller, pid, op, body, place, to, until_ns, waits, given_up: false };
        self.dispatch(state, Sent::Forward(Box::new(away)));
    }

    /// Sends something, once more if need be.
    fn dispatch(&self, state: &mut State, sent: Sent) {
        let (node, class, until_ns) = match &sent {
            Sent::Forward(away) => (self.numbering.node_of(away.to), Class::Client, away.until_ns),
            Sent::Ask { to, question, until_ns, .. } => {
                (self.numbering.node_of(*to), class_of(question), *until_ns)
            }
            Sent::SessionEnded { node, .. } | Sent::GivenUp { node, .. } => {
                (*node, Class::Client, self.after(PATIENCE_MAX))
            }
            Sent::Notice => return,
        };
        if let Sent::Forward(away) = &sent {
            // Whoever executes it has to hear of the session's end, after it.
            let Some((_, notified)) = state.sessions.get_mut(&away.caller.session) else {
                // It may have been executed when it was sent before.
                return self.give_up_in(state, away);
            };
            if away.given_up {
                // The node was told so, and would execute it after that.
                state.failed.push(sent);
                return self.waker.wake();
            }
            notified.insert(node);
        }
        let introduced = state.peers.entry(node).or_default().introduced;
        if class == Class::Client && !introduced {
            self.introduce(state, node);
        }
        let body = encoded(&sent);
        let patience_ms = (until_ns.saturating_sub(self.network.now_ns()) / 1_000_000).max(1);
        let bytes = body.len();
        let unhurried = sent.is_unhurried();
        let request = Request { may_wait: unhurried, ..request(node, class, patience_ms, body) };
        match self.network.queue(request) {
            Ok(id) => {
                self.count_request(node, bytes);
                state.unhurried += usize::from(unhurried);
                state.sent.insert(id, sent);
            }
            Err(SendError::Full) => {
                state.peers.entry(node).or_default().waiting.push_back(sent);
            }
            Err(error) => {
                log::error("net", format_args!("to node {node}: {error}"));
                state.failed.push(sent);
                self.waker.wake();
            }
        }
    }

    /// Tells a node which sessions there are.
    fn introduce(&self, state: &mut State, node: u32) {
        state.peers.entry(node).or_default().introduced = true;
        let sessions = state.sessions.iter().map(|(session, (pid, _))| (*session, *pid)).collect();
        let body = words::encode(&Call::Introduce { sessions }, &Body::default());
        let patience_ms = PATIENCE_MAX.as_millis() as u64;
        let bytes = body.len();
        if let Ok(id) = self.network.queue(request(node, Class::Client, patience_ms, body)) {
            self.count_request(node, bytes);
            state.sent.insert(id, Sent::Notice);
        }
    }

    /// The daemon of a node is another one: what its predecessor heard may be lost.
    pub(in crate::serve) fn introduce_to(&self, node: u32) {
        self.introduce(&mut lock(&self.state), node);
        self.flush();
    }

    /// Sessions may have ended that an earlier daemon had told other nodes of.
    pub(in crate::serve) fn introduce_to_all(&self) {
        let others = (0..self.numbering.nodes).filter(|node| *node != self.numbering.node);
        let mut state = lock(&self.state);
        for node in others {
            self.introduce(&mut state, node);
        }
        drop(state);
        self.flush();
    }

    /// What could not be sent at all since the last time.
    pub(in crate::serve) fn failed(&self) -> Vec<Sent> {
        std::mem::take(&mut lock(&self.state).failed)
    }

    /// Sends again what could not be sent before.
    pub(in crate::serve) fn room(&self, node: u32) {
        let mut state = lock(&self.state);
        let waiting = std::mem::take(&mut state.peers.entry(node).or_default().waiting);
        for sent in waiting {
            self.dispatch(&mut state, sent);
        }
        drop(state);
        self.flush();
    }

    /// What the reply to a request, or its loss, is about.
    pub(in crate::serve) fn sent(&self, id: RequestId) -> Option<Sent> {
        let mut state = lock(&self.state);
        let sent = state.sent.remove(&id);
        state.unhurried -= usize::from(sent.as_ref().is_some_and(Sent::is_unhurried));
        sent
    }

    /// Sends again.
    pub(in crate::serve) fn again(&self, sent: Sent) {
        self.dispatch(&mut lock(&self.state), sent);
        self.flush();
    }

    /// The other side of a connection is another daemon than before, or has not heard of us.
    pub(in crate::serve) fn introduce_anew(&self, node: u32) {
        lock(&self.state).peers.entry(node).or_default().introduced = false;
    }

    /// What becomes of something that was lost; `late` when its time is over.
    pub(in crate::serve) fn lost(&self, sent: Sent, late: bool) -> Loss {
        match sent {
            Sent::Forward(away) if late => Loss::Client(away),
            Sent::Ask { from, to, id, question, until_ns } => {
                if !late || must_arrive(&question) {
                    let until_ns = if late { self.deadline_ns() } else { until_ns };
                    return Loss::Again(Sent::Ask { from, to, id, question, until_ns });
                }
                // A name that nobody could be made to forget is not believed any more by then.
                let forgotten = matches!(question, Question::Forget { .. });
                let answer = if forgotten { Answer::Done } else { Answer::Failed(Errno::EIO) };
                Loss::Shard { shard: from, from: to, id, answer }
            }
            Sent::Notice => Loss::Nothing,
            sent => Loss::Again(sent),
        }
    }

    pub(in crate::serve) fn say(&self, ticket: Ticket, reply: &Reply) {
        self.respond(ticket, reply, &Body::default(), false);
        self.flush();
    }

    fn respond(&self, ticket: Ticket, reply: &Reply, body: &Body, may_wait: bool) {
        let bytes = words::encode(reply, body);
        let lane = lane_for(&bytes);
        self.count_sent(ticket.node.0, bytes.len());
        if let Err(error) = self.network.reply(ticket, lane, bytes, may_wait) {
            log::error("net", format_args!("a reply to node {}: {error}", ticket.node.0));
        }
    }

    /// A request of another node's client begins; false when it is under way already.
    pub(in crate::serve) fn begin(&self, caller: Caller, ticket: Ticket) -> bool {
        lock(&self.state).running.insert(caller, ticket).is_none()
    }

    /// It is executed, and what it did is committed; the answer may wait for [`Net::flush`].
    /// False when it was given up.
    pub(in crate::serve) fn answer(&self, done: &Completion) -> bool {
        let mut state = lock(&self.state);
        let ticket = state.running.remove(&done.caller);
        let given_up = state.given_up.remove(&done.caller);
        drop(state);
        if let Some(ticket) = ticket {
            self.respond(ticket, &Reply::Done { status: done.status }, &done.body, false);
        }
        !given_up
    }

    /// The number that a question of another node gets here.
    pub(in crate::serve) fn asked(&self, ticket: Ticket, question: &Question) -> u64 {
        let mut state = lock(&self.state);
        state.last_asked += 1;
        let id = state.last_asked;
        state.asked.insert(id, (ticket, may_wait(question)));
        id
    }

    /// A process of this node attached. What an earlier daemon told of it is not known.
    pub(in crate::serve) fn session_opened(&self, session: SessionId, pid: u32, before: bool) {
        let all = 0..self.numbering.nodes;
        let others = all.filter(|node| *node != self.numbering.node);
        let notified = if before && self.restarted { others.collect() } else { HashSet::default() };
        lock(&self.state).sessions.insert(session, (pid, notified));
    }

    /// A session is over: how many nodes have to hear of it.
    pub(in crate::serve) fn session_closed(&self, session: SessionId) -> u32 {
        let mut state = lock(&self.state);
        let Some((pid, notified)) = state.sessions.remove(&session) else { return 0 };
        let successor = state.sessions.iter_mut().find(|(_, (other, _))| *other == pid);
        let successor = successor.map(|(successor, (_, knows))| {
            knows.extend(&notified);
            *successor
        });
        let count = notified.len() as u32;
        for node in notified {
            self.dispatch(&mut state, Sent::SessionEnded { node, session, pid, successor });
        }
        drop(state);
        self.flush();
        count
    }

    /// A client does not wait for this request any more.
    pub(in crate::serve) fn cancel(&self, session: SessionId, request_id: u64) {
        let mut state = lock(&self.state);
        let node = state.sent.values().find_map(|sent| match sent {
            Sent::Forward(away)
                if away.caller.session == session && away.caller.request_id == request_id =>
            {
                Some(self.numbering.node_of(away.to))
            }
            _ => None,
        });
        let Some(node) = node else { return };
        self.say_once(&mut state, node, &Call::Cancel { session, request_id });
        drop(state);
        self.flush();
    }

    /// Says something that is of no use when it comes late, or twice.
    fn say_once(&self, state: &mut State, node: u32, call: &Call) {
        let body = words::encode(call, &Body::default());
        let patience_ms = self.deadline.as_millis() as u64;
        if let Ok(id) = self.network.queue(request(node, Class::Client, patience_ms, body)) {
            state.sent.insert(id, Sent::Notice);
        }
    }
}

fn request(node: u32, class: Class, patience_ms: u64, body: Body) -> Request {
    Request { to: NodeId(node), lane: lane_for(&body), class, patience_ms, may_wait: false, body }
}

/// What becomes of something that was lost.
pub(in crate::serve) enum Loss {
    /// It is sent again.
    Again(Sent),
    /// A client is told.
    Client(Box<Away>),
    /// A shard is told.
    Shard {
        shard: ShardId,
        from: ShardId,
        id: u64,
        answer: Answer,
    },
    Nothing,
}
