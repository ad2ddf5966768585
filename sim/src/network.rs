//! The simulated network: what [`mayfly_daemon::serve::PeerNetwork`] promises, over links that are
//! slow, break, and are cut.
//!
//! It stands for `transport-tcp` and keeps to its contract: a request is delivered once at most, to
//! the life of the daemon to which it was sent; what travels on one lane keeps its order, replies
//! before requests, higher classes before lower ones; a class has credits; what was under way to a
//! daemon that was replaced is lost, what still waited is sent to its successor; a request whose
//! time is over is lost, whether it was executed or not. A connection that breaks, or a link that
//! is cut, delays: the frames are sent again over the next connection.

mod metered;
mod peer_network;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use mayfly_daemon::serve::Waker;
use mayfly_transport_tcp::{
    Body, Cause, Class, Event, Fate, Lane, NodeId, PeerState, Request, RequestId, SendError, Ticket,
};
use metered::Meter;
pub use metered::Work;
pub use peer_network::{Shared, SimPeerNetwork};

use crate::dice::Dice;

/// Nanoseconds of a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// Longer patience needs no alarm: no run is so long.
const NO_ALARM_MS: u64 = 3_600_000;
const CLASSES: usize = 4;

/// How the network behaves without faults.
#[derive(Debug, Clone)]
pub struct Weather {
    /// A frame takes at least so long, nanoseconds.
    pub delay_ns: u64,
    /// And up to so much longer.
    pub jitter_ns: u64,
    /// Requests of one class that wait for a program.
    pub credits: u64,
    /// Requests of one class to one node without a reply.
    pub outstanding_max: usize,
}

/// Something of the network's that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The next frame of a stream arrives.
    Arrive {
        /// The stream.
        from: u32,
        /// Its other end.
        to: u32,
        /// Which lane.
        lane: usize,
        /// The connection's number.
        connection: u64,
    },
    /// An attempt to connect two nodes.
    Connect(u32, u32),
    /// A request that was delivered is delivered again.
    Again(usize),
    /// A request's time is over.
    Alarm(u32, u64, RequestId),
    /// A stage of the fabric is through with what it had.
    Stage(usize),
    /// A stream may send.
    Pump(u32, u32, usize),
}

#[derive(Debug, Clone)]
enum Frame {
    Request { id: RequestId, class: Class, deadline_ns: u64, body: Arc<Vec<u8>> },
    Reply { id: RequestId, body: Arc<Vec<u8>> },
}

impl Frame {
    fn bytes(&self) -> u64 {
        let (Frame::Request { body, .. } | Frame::Reply { body, .. }) = self;
        body.len() as u64
    }
}

/// One lane from one node to another.
#[derive(Debug, Default)]
struct Stream {
    /// Given to a connection and not delivered.
    undelivered: VecDeque<Frame>,
    /// How many of them are on the way over this connection.
    flying: usize,
    urgent: VecDeque<Frame>,
    waiting: [VecDeque<Frame>; CLASSES],
    /// Sent and not taken by the other side's program.
    used: [u64; CLASSES],
    last_arrival_ns: u64,
}

impl Stream {
    fn has_work(&self) -> bool {
        !self.undelivered.is_empty()
            || !self.urgent.is_empty()
            || self.waiting.iter().any(|queue| !queue.is_empty())
    }
}

/// A pair of nodes.
#[derive(Debug, Default)]
struct Pair {
    /// Number of the connection, 0: none.
    connection: u64,
    /// Lives of the two daemons that have met last.
    lives: (u64, u64),
    connecting: bool,
    attempts: u32,
}

#[derive(Debug)]
struct Outstanding {
    to: u32,
    lane: usize,
    class: Class,
}

/// What a request used up: its sender, lane and class.
type Credit = (u32, usize, usize);

/// One daemon's end.
#[derive(Debug)]
struct End {
    life: u64,
    waker: Waker,
    inbox: VecDeque<(Event, Option<Credit>)>,
    outstanding: BTreeMap<RequestId, Outstanding>,
    /// How many of them there are for each node, lane and class.
    under_way: BTreeMap<(u32, usize, usize), usize>,
    /// Refused with Full: to whom, on which lane, for which class.
    refused: Vec<(u32, Lane, Class)>,
    next_id: u64,
}

impl End {
    /// A request is under way no more.
    fn is_over(&mut self, id: RequestId) -> Option<Outstanding> {
        let of = self.outstanding.remove(&id)?;
        let under_way = self.under_way.entry((of.to, of.lane, of.class as usize)).or_default();
        *under_way = under_way.saturating_sub(1);
        Some(of)
    }
}

/// What a link does to frames of one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    /// So many faults have cut it.
    cuts: u32,
    /// Frames take longer by this.
    slower_ns: u64,
}

/// What a network that is broken on purpose does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Some requests are delivered a second time, long after the first.
    Twice,
    /// Some losses are not told.
    Silent,
}

/// All nodes' connections.
#[derive(Debug)]
pub struct Network {
    now_ns: u64,
    dice: Dice,
    weather: Weather,
    ends: Vec<Option<End>>,
    pairs: BTreeMap<(u32, u32), Pair>,
    streams: BTreeMap<(u32, u32, usize), Stream>,
    links: BTreeMap<(u32, u32), Link>,
    last_connection: u64,
    planted: Option<Planted>,
    again: Vec<(u32, Event)>,
    meter: Meter,
    /// What is due, and when.
    pub agenda: Vec<(u64, Due)>,
    /// Requests between nodes so far.
    pub requests: u64,
}

fn lane_of(lane: usize) -> Lane {
    if lane == 0 { Lane::Messages } else { Lane::Bulk }
}

fn index_of(lane: Lane) -> usize {
    usize::from(lane == Lane::Bulk)
}

impl Network {
    /// Without any daemon.
    #[must_use]
    pub fn new(nodes: u32, weather: Weather, dice: Dice, planted: Option<Planted>) -> Network {
        Network {
            now_ns: 0,
            dice,
            weather,
            ends: (0..nodes).map(|_| None).collect(),
            pairs: BTreeMap::new(),
            streams: BTreeMap::new(),
            links: BTreeMap::new(),
            last_connection: 0,
            planted,
            again: Vec::new(),
            meter: Meter::new(nodes),
            agenda: Vec::new(),
            requests: 0,
        }
    }

    /// Time goes on.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// A daemon begins.
    pub fn begin(&mut self, node: u32, life: u64, waker: Waker) {
        self.ends[node as usize] = Some(End {
            life,
            waker,
            inbox: VecDeque::new(),
            outstanding: BTreeMap::new(),
            under_way: BTreeMap::new(),
            refused: Vec::new(),
            next_id: 0,
        });
        self.connect_those_with_work();
    }

    /// A daemon dies.
    pub fn end(&mut self, node: u32) {
        self.ends[node as usize] = None;
        for other in 0..self.ends.len() as u32 {
            if other != node {
                self.disconnect(node, other);
                for lane in 0..2 {
                    self.streams.remove(&(node, other, lane));
                }
            }
        }
    }

    /// Cuts the way from one node to another, or takes one cut back.
    pub fn cut(&mut self, from: u32, to: u32, cut: bool) {
        let link = self.links.entry((from, to)).or_default();
        link.cuts = if cut { link.cuts + 1 } else { link.cuts.saturating_sub(1) };
        if cut {
            self.disconnect(from, to);
        } else {
            self.connect_those_with_work();
        }
    }

    /// Makes the way from one node to another slower.
    pub fn slow(&mut self, from: u32, to: u32, slower_ns: u64) {
        self.links.entry((from, to)).or_default().slower_ns = slower_ns;
    }

    /// The connection of two nodes breaks.
    pub fn disconnect(&mut self, a: u32, b: u32) {
        let pair = self.pairs.entry((a.min(b), a.max(b))).or_default();
        if std::mem::take(&mut pair.connection) == 0 {
            return;
        }
        for lane in 0..2 {
            for (from, to) in [(a, b), (b, a)] {
                if let Some(stream) = self.streams.get_mut(&(from, to, lane)) {
                    stream.flying = 0;
                }
            }
        }
        for (node, other) in [(a, b), (b, a)] {
            self.tell(node, Event::Peer { node: NodeId(other), state: PeerState::Down });
        }
        self.connect_if_needed(a, b);
    }

    fn tell(&mut self, node: u32, event: Event) {
        if let Some(end) = &mut self.ends[node as usize] {
            end.inbox.push_back((event, None));
            end.waker.wake();
        }
    }

    fn connect_those_with_work(&mut self) {
        let pairs: Vec<(u32, u32)> =
            self.streams.iter().filter(|of| of.1.has_work()).map(|of| (of.0.0, of.0.1)).collect();
        for (a, b) in pairs {
            self.connect_if_needed(a, b);
        }
    }

    fn connect_if_needed(&mut self, a: u32, b: u32) {
        let has_work = |of: (u32, u32, usize)| self.streams.get(&of).is_some_and(Stream::has_work);
        let work = |from, to| (0..2).any(|lane| has_work((from, to, lane)));
        // Who waits for an answer connects, too: it may have been with a daemon that is gone.
        let waits = |node: u32, other| {
            let end = &self.ends[node as usize];
            end.iter().flat_map(|end| end.outstanding.values()).any(|of| of.to == other)
        };
        let pair = self.pairs.entry((a.min(b), a.max(b))).or_default();
        let needed = work(a, b) || work(b, a) || waits(a, b) || waits(b, a);
        if needed && pair.connection == 0 && !pair.connecting {
            pair.connecting = true;
            let pause = ((10 * MS) << pair.attempts.min(7)).min(SECOND);
            let pause = pause * u64::from(pair.attempts > 0);
            pair.attempts += 1;
            let due = self.now_ns + pause + self.weather.delay_ns * 3 + self.dice.below(MS);
            self.agenda.push((due, Due::Connect(a.min(b), a.max(b))));
        }
    }

    /// Something is due.
    pub fn happen(&mut self, due: Due) {
        match due {
            Due::Arrive { from, to, lane, connection } => self.arrive(from, to, lane, connection),
            Due::Connect(a, b) => self.connect(a, b),
            Due::Again(at) => {
                let (to, event) = self.again[at].clone();
                self.tell(to, event);
            }
            Due::Alarm(node, life, id) => self.alarm(node, life, id),
            Due::Stage(stage) => self.stage(stage),
            Due::Pump(from, to, lane) => self.pump(from, to, lane),
        }
    }

    fn is_cut(&self, from: u32, to: u32) -> bool {
        self.links.get(&(from, to)).is_some_and(|link| link.cuts > 0)
    }

    fn life(&self, node: u32) -> Option<u64> {
        self.ends[node as usize].as_ref().map(|end| end.life)
    }

    fn connect(&mut self, a: u32, b: u32) {
        let reachable = !self.is_cut(a, b) && !self.is_cut(b, a);
        let lives = (self.life(a), self.life(b));
        let pair = self.pairs.entry((a, b)).or_default();
        pair.connecting = false;
        let ((Some(of_a), Some(of_b)), true) = (lives, reachable) else {
            return self.connect_if_needed(a, b);
        };
        if pair.connection != 0 {
            return;
        }
        self.last_connection += 1;
        pair.connection = self.last_connection;
        pair.attempts = 0;
        let before = std::mem::replace(&mut pair.lives, (of_a, of_b));
        if before.0 != 0 && before.0 != of_a {
            self.replaced(b, a);
        }
        if before.1 != 0 && before.1 != of_b {
            self.replaced(a, b);
        }
        for (node, other, incarnation) in [(a, b, of_b), (b, a, of_a)] {
            let state = PeerState::Up { incarnation };
            self.tell(node, Event::Peer { node: NodeId(other), state });
        }
        for (from, to) in [(a, b), (b, a)] {
            for lane in 0..2 {
                self.pump(from, to, lane);
            }
        }
    }

    /// `node` learns that the daemon of `other` is another one.
    fn replaced(&mut self, node: u32, other: u32) {
        let mut waiting = Vec::new();
        for lane in 0..2 {
            let Some(stream) = self.streams.get_mut(&(node, other, lane)) else { continue };
            stream.undelivered.clear();
            stream.urgent.clear();
            stream.flying = 0;
            stream.used = [0; CLASSES];
            for frame in stream.waiting.iter().flatten() {
                if let Frame::Request { id, .. } = frame {
                    waiting.push(*id);
                }
            }
        }
        let Some(end) = &self.ends[node as usize] else { return };
        let lost = end.outstanding.iter().filter(|(_, of)| of.to == other);
        let lost: Vec<RequestId> =
            lost.map(|(id, _)| *id).filter(|id| !waiting.contains(id)).collect();
        for id in lost {
            self.lose(node, id, Cause::Restarted);
        }
    }

    fn alarm(&mut self, node: u32, life: u64, id: RequestId) {
        if self.life(node) == Some(life) {
            self.lose(node, id, Cause::Deadline);
        }
    }

    fn lose(&mut self, node: u32, id: RequestId, cause: Cause) {
        let Some(end) = &mut self.ends[node as usize] else { return };
        let Some(of) = end.is_over(id) else { return };
        let mut fate = Fate::Unknown;
        if let Some(stream) = self.streams.get_mut(&(node, of.to, of.lane)) {
            let queue = &mut stream.waiting[of.class as usize];
            let is_it = |frame: &Frame| matches!(frame, Frame::Request { id: of, .. } if *of == id);
            if let Some(place) = queue.iter().position(is_it) {
                queue.remove(place);
                fate = Fate::Unsent;
            }
        }
        if self.planted == Some(Planted::Silent) && self.dice.once_in(2) {
            return;
        }
        self.tell(node, Event::Lost { id, to: NodeId(of.to), cause, fate });
        self.make_room(node, of.to, of.lane, of.class);
    }

    fn make_room(&mut self, node: u32, to: u32, lane: usize, class: Class) {
        let Some(end) = &mut self.ends[node as usize] else { return };
        let refused = (to, lane_of(lane), class);
        if let Some(place) = end.refused.iter().position(|of| *of == refused) {
            end.refused.remove(place);
            self.tell(node, Event::Room { node: NodeId(to), lane: refused.1, class });
        }
    }

    /// Sends what may be sent.
    fn pump(&mut self, from: u32, to: u32, lane: usize) {
        if self.meter.holds((from, to, lane)) {
            return;
        }
        let connection =
            self.pairs.get(&(from.min(to), from.max(to))).map_or(0, |of| of.connection);
        if connection == 0 {
            return self.connect_if_needed(from, to);
        }
        let link = self.links.get(&(from, to)).copied().unwrap_or_default();
        let (now_ns, credits) = (self.now_ns, self.weather.credits);
        let has_fabric = self.fabric().is_some();
        let mut loads = Vec::new();
        let stream = self.streams.entry((from, to, lane)).or_default();
        loop {
            if stream.flying == stream.undelivered.len() {
                let mut next = stream.urgent.pop_front();
                for class in (0..CLASSES).rev() {
                    if next.is_none() && stream.used[class] < credits {
                        next = stream.waiting[class].pop_front();
                        stream.used[class] += u64::from(next.is_some());
                    }
                }
                let Some(next) = next else { break };
                stream.undelivered.push_back(next);
            }
            stream.flying += 1;
            let due = Due::Arrive { from, to, lane, connection };
            if has_fabric {
                loads.extend(
                    stream.undelivered.get(stream.flying - 1).map(|frame| (due, frame.bytes())),
                );
                continue;
            }
            let jitter = self.dice.below(self.weather.jitter_ns + 1);
            let arrival = now_ns + self.weather.delay_ns + jitter + link.slower_ns;
            let arrival = arrival.max(stream.last_arrival_ns + 1);
            stream.last_arrival_ns = arrival;
            self.agenda.push((arrival, due));
        }
        for (due, bytes) in loads {
            self.load(due, bytes);
        }
    }

    fn arrive(&mut self, from: u32, to: u32, lane: usize, connection: u64) {
        let current = self.pairs.get(&(from.min(to), from.max(to))).map_or(0, |of| of.connection);
        if current != connection {
            return;
        }
        let Some(incarnation) = self.life(from) else { return };
        let Some(stream) = self.streams.get_mut(&(from, to, lane)) else { return };
        let Some(frame) = stream.undelivered.pop_front() else { return };
        stream.flying -= 1;
        match frame {
            Frame::Request { class, deadline_ns, .. } if deadline_ns <= self.now_ns => {
                stream.used[class as usize] -= 1;
                self.pump(from, to, lane);
            }
            Frame::Request { id, class, deadline_ns, body } => {
                let ticket = Ticket { node: NodeId(from), incarnation, id };
                let left_ms = u32::try_from((deadline_ns - self.now_ns) / MS).unwrap_or(u32::MAX);
                let body = Arc::unwrap_or_clone(body);
                let event = Event::Request { ticket, class, left_ms, body };
                self.deliver_request(to, event, (from, lane, class as usize));
            }
            Frame::Reply { id, body } => {
                let Some(end) = &mut self.ends[to as usize] else { return };
                let Some(of) = end.is_over(id) else { return };
                let body = Arc::unwrap_or_clone(body);
                self.tell(to, Event::Reply { id, from: NodeId(from), body });
                self.make_room(to, of.to, of.lane, of.class);
            }
        }
    }

    fn deliver_request(&mut self, to: u32, event: Event, credit: Credit) {
        if self.planted == Some(Planted::Twice)
            && self.dice.once_in(3)
            && let Event::Request { ticket, class, left_ms, body } = &event
        {
            // Its reply is for nobody.
            let ticket = Ticket { id: RequestId(ticket.id.0 | 1 << 62), ..*ticket };
            let (class, left_ms, body) = (*class, *left_ms, body.clone());
            self.again.push((to, Event::Request { ticket, class, left_ms, body }));
            let due = self.now_ns + self.dice.below(SECOND);
            self.agenda.push((due, Due::Again(self.again.len() - 1)));
        }
        let Some(end) = &mut self.ends[to as usize] else { return };
        end.inbox.push_back((event, Some(credit)));
        end.waker.wake();
    }

    fn outstanding_max(&self) -> usize {
        self.weather.outstanding_max
    }

    fn queue(&mut self, node: u32, request: Request) -> Result<RequestId, SendError> {
        let (to, lane, class) = (request.to.0, index_of(request.lane), request.class);
        if request.body.len() > request.lane.bytes_max() {
            return Err(SendError::TooLong);
        }
        if to == node || to as usize >= self.ends.len() {
            return Err(SendError::NoSuchNode);
        }
        let now_ns = self.now_ns;
        let most = self.weather.outstanding_max;
        // The daemon that asks lives.
        let Some(end) = &mut self.ends[node as usize] else { return Err(SendError::NoSuchNode) };
        let under_way = end.under_way.entry((to, lane, class as usize)).or_default();
        if *under_way >= most {
            end.refused.push((to, request.lane, class));
            return Err(SendError::Full);
        }
        *under_way += 1;
        end.next_id += 1;
        let id = RequestId(end.next_id);
        end.outstanding.insert(id, Outstanding { to, lane, class });
        let deadline_ns = now_ns.saturating_add(request.patience_ms.saturating_mul(MS));
        if request.patience_ms < NO_ALARM_MS {
            self.agenda.push((deadline_ns, Due::Alarm(node, end.life, id)));
        }
        self.requests += 1;
        self.meter.sends(node, true, request.body.len());
        let frame =
            Frame::Request { id, class, deadline_ns, body: Arc::new(request.body.to_vec()) };
        let stream = self.streams.entry((node, to, lane)).or_default();
        stream.waiting[class as usize].push_back(frame);
        self.pump(node, to, lane);
        Ok(id)
    }

    fn reply(&mut self, node: u32, ticket: Ticket, lane: Lane, body: &Body) {
        // An answer to an earlier daemon is for nobody.
        let to = ticket.node.0;
        if self.life(to) != Some(ticket.incarnation) || ticket.id.0 >> 62 != 0 {
            return;
        }
        self.meter.sends(node, false, body.len());
        let frame = Frame::Reply { id: ticket.id, body: Arc::new(body.to_vec()) };
        self.streams.entry((node, to, index_of(lane))).or_default().urgent.push_back(frame);
        self.pump(node, to, index_of(lane));
    }

    fn take(&mut self, node: u32, events: &mut Vec<Event>) {
        let Some(end) = &mut self.ends[node as usize] else { return };
        let mut credits = Vec::new();
        for (event, credit) in end.inbox.drain(..) {
            self.meter.takes(node, &event);
            events.push(event);
            credits.extend(credit);
        }
        for (from, lane, class) in credits {
            if let Some(stream) = self.streams.get_mut(&(from, node, lane)) {
                stream.used[class] = stream.used[class].saturating_sub(1);
            }
            self.pump(from, node, lane);
        }
    }
}
