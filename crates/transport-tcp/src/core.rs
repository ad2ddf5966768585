//! Everything that an endpoint knows, driven by whoever holds its lock: mostly the network thread,
//! and for a moment a sender, so that what it sends needs no other thread to reach the kernel.
//!
//! The core never waits. Sockets do not block, what they bring is handled at once, and what they do
//! not take stays in the sessions. It reads the injected clock, and says in its alarm when it
//! has to be looked at again; with nothing under way that is never, so an idle endpoint makes no
//! system call.
//!
//! `accept.rs` has the handshake of either side, `dial.rs` how connections are begun and ended,
//! `receive.rs` what frames do, `send.rs` what is written, `timers.rs` what time does. `alarm.rs`,
//! `door.rs` and `requests.rs` have parts of what the core knows.

mod accept;
mod alarm;
mod dial;
mod door;
mod receive;
mod requests;
mod send;
mod timers;

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::{Arc, MutexGuard},
};

use mayfly_types::BuildFold;

use self::{
    alarm::Alarm,
    door::Door,
    requests::{Outstanding, Requests},
};
use crate::{
    Body, Cause, Class, Event, Fate, Lane, NodeId, PeerState, RequestId, Ticket,
    clock::{Clock, ms},
    complaints::{Complaints, Trouble},
    connection::Connection,
    frame::{Frame, Kind},
    handshake::Identity,
    limits::{Limits, MAY_WAIT_MS},
    peer::{Gauges, Peer, Token},
    session::Item,
};

/// The token of the listening socket.
pub(crate) const LISTENER: Token = 0;
/// The token of the descriptor that wakes the network thread.
pub(crate) const POKE: Token = 1;
const FIRST_CONNECTION: Token = 2;

/// A wish of the program.
#[derive(Debug)]
pub(crate) enum Command {
    Address(NodeId, Option<SocketAddr>),
    Request {
        id: RequestId,
        to: NodeId,
        lane: Lane,
        class: Class,
        deadline_ns: u64,
        may_wait: bool,
        body: Body,
    },
    Reply {
        ticket: Ticket,
        lane: Lane,
        may_wait: bool,
        body: Body,
    },
    Cancel(RequestId),
    /// Requests were taken from the inbox.
    Taken(Vec<Credit>),
    /// The first message of a node of this thread came to another one. It is in the connection.
    Adopt(Box<Connection>),
}

/// Whose request was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credit {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    pub(crate) lane: Lane,
    pub(crate) class: Class,
}

/// An event, and what goes back to its sender when it is taken.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) event: Event,
    pub(crate) credit: Option<Credit>,
}

/// Why a connection ends.
#[derive(Debug)]
enum End {
    /// As it should.
    Quiet,
    Trouble(Trouble),
    /// The kernel says so.
    Broken,
    /// It goes on at the thread of its node.
    Moved(usize),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> End {
        match error.kind() {
            std::io::ErrorKind::InvalidData => End::Trouble(Trouble::Broken),
            _ => End::Broken,
        }
    }
}

impl From<mayfly_wire::Malformed> for End {
    fn from(mayfly_wire::Malformed: mayfly_wire::Malformed) -> End {
        End::Trouble(Trouble::Broken)
    }
}

#[derive(Debug)]
pub(crate) struct Core {
    me: Identity,
    limits: Limits,
    clock: SharedClock,
    complaints: Complaints,
    epoll: Arc<OwnedFd>,
    poke: Arc<OwnedFd>,
    door: Door,
    peers: HashMap<NodeId, Peer, BuildFold>,
    gauges: Arc<Gauges>,
    connections: HashMap<Token, Box<Connection>, BuildFold>,
    next_token: Token,
    requests: Requests,
    /// Lanes on which something may have to be written.
    dirty: Vec<(NodeId, Lane)>,
    /// Lanes that owe an acknowledgement, or have to be tried again. Of most nodes there is nothing
    /// to say, and to look at each is to look at much that lies cold.
    timed: Vec<(NodeId, Lane)>,
    deliveries: Vec<Delivery>,
    /// Memory for the next list of them.
    commands: Vec<Command>,
    read: ReadMemory,
    alarm: Alarm,
    /// When the turn began that is under way.
    now_ns: u64,
    /// When something was last sent or received in bulk.
    bulk_ns: Option<u64>,
}

/// Memory for what the next read brings.
#[derive(Debug)]
struct ReadMemory {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
}

#[derive(Clone)]
pub(crate) struct SharedClock(pub(crate) Arc<dyn Clock>);

impl std::fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// What a core is made of.
pub(crate) struct Parts {
    pub(crate) me: Identity,
    pub(crate) thread: usize,
    pub(crate) limits: Limits,
    pub(crate) clock: SharedClock,
    pub(crate) complaints: Complaints,
    pub(crate) epoll: Arc<OwnedFd>,
    pub(crate) poke: Arc<OwnedFd>,
    pub(crate) listener: Option<TcpListener>,
    pub(crate) gauges: Arc<Gauges>,
}

/// For so many commands there is memory without asking for it.
const COMMANDS_CAPACITY: usize = 256;
/// The next part of a transfer comes within so long.
const BULK_LASTS_NS: u64 = ms(2);
/// Bytes read at once where a frame does not say where they belong.
const SCRATCH_BYTES: usize = 128 * 1024;

impl Core {
    pub(crate) fn new(parts: Parts) -> std::io::Result<Core> {
        let mut core = Core {
            me: parts.me,
            limits: parts.limits,
            clock: parts.clock,
            complaints: parts.complaints,
            epoll: parts.epoll,
            poke: parts.poke,
            door: Door::new(parts.thread, parts.listener)?,
            peers: HashMap::default(),
            gauges: parts.gauges,
            connections: HashMap::default(),
            next_token: FIRST_CONNECTION,
            requests: Requests::default(),
            dirty: Vec::new(),
            timed: Vec::new(),
            deliveries: Vec::new(),
            commands: Vec::new(),
            read: ReadMemory { bytes: vec![0; SCRATCH_BYTES], frames: Vec::new() },
            alarm: Alarm::new(),
            now_ns: 0,
            bulk_ns: None,
        };
        core.begin();
        core.door.watch(&core.epoll)?;
        Ok(core)
    }

    fn now(&self) -> u64 {
        self.now_ns
    }

    /// A turn begins: the one look at the clock that it takes.
    pub(crate) fn begin(&mut self) {
        self.now_ns = self.clock.0.now_ns();
    }

    /// The core must be looked at then.
    fn arm(&mut self, at_ns: u64) {
        if self.alarm.set(at_ns) {
            // It cannot be full: the sleeper empties it.
            let _ = rustix::io::write(&*self.poke, &1_u64.to_ne_bytes());
        }
    }

    /// The network thread is about to sleep: how long?
    pub(crate) fn sleep(&mut self) -> Option<std::time::Duration> {
        self.begin();
        let now_ns = self.now();
        self.look_early(now_ns);
        if !self.dirty.is_empty() || !self.deliveries.is_empty() {
            return Some(std::time::Duration::ZERO);
        }
        let mut until_ns = self.alarm.next_wake_ns();
        let pause_ns = ms(self.limits.probe_after_ms);
        if self.requests.is_asking(now_ns, pause_ns) {
            // Who asks once may ask again, and will have to know when a probe is due. To look up
            // then, for nothing if he does not, is cheaper than to be woken by each request.
            until_ns = until_ns.min(now_ns + pause_ns);
        }
        self.alarm.sleep(until_ns);
        let left_ns = until_ns.saturating_sub(now_ns);
        (until_ns != u64::MAX).then(|| std::time::Duration::from_nanos(left_ns))
    }

    pub(crate) fn awake(&mut self) {
        self.begin();
        self.alarm.awake();
    }

    /// Whether no long transfer is under way.
    pub(crate) fn is_brief(&self) -> bool {
        self.bulk_ns.is_none_or(|bulk_ns| self.now_ns >= bulk_ns + BULK_LASTS_NS)
    }

    fn note_lane(&mut self, lane: Lane) {
        if lane == Lane::Bulk {
            self.bulk_ns = Some(self.now_ns);
        }
    }

    /// What happened since the last time.
    pub(crate) fn deliveries(&mut self) -> std::vec::Drain<'_, Delivery> {
        self.deliveries.drain(..)
    }

    /// The connections that go on at other threads.
    pub(crate) fn moved(&mut self) -> std::vec::Drain<'_, (usize, Box<Connection>)> {
        self.door.moved()
    }

    fn peer(&mut self, node: NodeId) -> &mut Peer {
        let (gauges, limits) = (&self.gauges, &self.limits);
        self.peers.entry(node).or_insert_with(|| Peer::new(limits, gauges.of(node)))
    }

    /// Something may have to be written on the lane.
    fn touch(&mut self, node: NodeId, lane: Lane) {
        self.note_lane(lane);
        if !std::mem::replace(&mut self.peer(node).lane(lane).listed, true) {
            self.dirty.push((node, lane));
        }
    }

    /// Something has to be done on the lane at that time.
    fn arm_lane(&mut self, node: NodeId, lane: Lane, at_ns: u64) {
        if !std::mem::replace(&mut self.peer(node).lane(lane).timed, true) {
            self.timed.push((node, lane));
        }
        self.arm(at_ns);
    }

    fn tell(&mut self, event: Event) {
        self.deliveries.push(Delivery { event, credit: None });
    }

    /// Says how the node is, when that is new.
    fn tell_state(&mut self, node: NodeId, state: PeerState) {
        let announced = self.peer(node).announced.replace(state);
        if announced != Some(state) {
            self.tell(Event::Peer { node, state });
        }
    }

    /// Does what is wanted. The list goes back to its lock at once, with memory of the last time.
    pub(crate) fn apply_all(&mut self, mut list: MutexGuard<'_, Vec<Command>>) {
        let mut commands = std::mem::take(&mut self.commands);
        std::mem::swap(&mut *list, &mut commands);
        drop(list);
        commands.drain(..).for_each(|command| self.apply(command));
        if commands.capacity() <= COMMANDS_CAPACITY {
            self.commands = commands;
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Address(node, address) => self.readdress(node, address),
            Command::Request { id, to, lane, class, deadline_ns, may_wait, body } => {
                let kind = Kind::Request(class);
                let body = body.into_pieces();
                let item = Item { kind, request_id: id.0, deadline_ns, body };
                let outstanding = Outstanding { to, lane, class, deadline_ns, cancelled: false };
                self.requests.ask(id.0, outstanding, self.now_ns);
                self.arm(deadline_ns);
                self.send(to, lane, item, may_wait);
            }
            Command::Reply { ticket, lane, may_wait, body } => {
                let peer = self.peer(ticket.node);
                // Its daemon was replaced, or it was answered before.
                if peer.incarnation != ticket.incarnation || !peer.owed.remove(&ticket.id.0) {
                    return;
                }
                let (kind, body) = (Kind::Reply, body.into_pieces());
                let item = Item { kind, request_id: ticket.id.0, deadline_ns: u64::MAX, body };
                self.send(ticket.node, lane, item, may_wait);
            }
            Command::Cancel(id) => self.cancel(id),
            Command::Adopt(connection) => self.adopt(connection),
            Command::Taken(credits) => {
                for Credit { node, incarnation, lane, class } in credits {
                    let peer = self.peer(node);
                    if peer.incarnation == incarnation {
                        let session = &mut peer.lane(lane).session;
                        session.take(class);
                        if session.owes_grants() {
                            self.touch(node, lane);
                        }
                    }
                }
            }
        }
    }

    fn send(&mut self, to: NodeId, lane: Lane, item: Item, may_wait: bool) {
        let now_ns = self.now();
        let state = self.peer(to).lane(lane);
        // Where something else goes too seldom, the other side is awake now and not later.
        if !may_wait || state.pause_ns > ms(MAY_WAIT_MS) {
            if !may_wait {
                state.pause_ns = now_ns.saturating_sub(state.sent_ns);
                state.sent_ns = now_ns;
            }
            return self.push(to, lane, item);
        }
        let at_ns = now_ns + ms(MAY_WAIT_MS);
        state.session.push_late(item);
        let at_ns = *state.late_ns.get_or_insert(at_ns);
        self.arm_lane(to, lane, at_ns);
    }

    fn push(&mut self, to: NodeId, lane: Lane, item: Item) {
        let state = self.peer(to).lane(lane);
        if state.late_ns.take().is_some() {
            state.session.send_late();
        }
        state.session.push(item);
        self.touch(to, lane);
    }

    fn cancel(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(id.0) else { return };
        if std::mem::replace(&mut request.cancelled, true) {
            return;
        }
        let (to, lane, class, deadline_ns) =
            (request.to, request.lane, request.class, request.deadline_ns);
        if self.peer(to).lane(lane).session.is_waiting(class, id.0) {
            self.lose(id.0, Cause::Cancelled);
        } else {
            let body = Default::default();
            self.push(to, lane, Item { kind: Kind::Cancel, request_id: id.0, deadline_ns, body });
        }
    }

    /// The request is over, with a reply or without.
    fn finish(&mut self, id: u64) -> Option<Outstanding> {
        let request = self.requests.remove(id)?;
        let Outstanding { to, lane, class, .. } = request;
        if self.peer(to).gauge.leave(lane, class) {
            self.tell(Event::Room { node: to, lane, class });
        }
        Some(request)
    }

    fn lose(&mut self, id: u64, cause: Cause) {
        let Some(Outstanding { to, lane, class, .. }) = self.finish(id) else { return };
        let withdrawn = self.peer(to).lane(lane).session.withdraw(class, id);
        let fate = if withdrawn { Fate::Unsent } else { Fate::Unknown };
        self.tell(Event::Lost { id: RequestId(id), to, cause, fate });
    }
}
