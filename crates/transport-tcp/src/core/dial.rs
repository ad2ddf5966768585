//! How connections are begun and how they end.

use std::net::SocketAddr;

use rustix::event::epoll::{self, EventFlags};

use super::{Core, End};
use crate::{
    Lane, NodeId, PeerState,
    clock::ms,
    connection::{Connection, Rank, Stage},
    handshake::Caller,
    peer::Token,
};

/// Attempts after which the pause grows no more.
const DOUBLINGS_MAX: u32 = 16;

/// A connection that lived so long is made again at once. One that breaks sooner is as good as an
/// attempt that failed: two nodes that cannot agree shall not keep a processor busy.
const STABLE_MS: u64 = 1_000;

impl Core {
    /// A new connection, watched.
    pub(super) fn enter(&mut self, mut connection: Box<Connection>) -> Option<Token> {
        let token = self.next_token;
        self.next_token += 1;
        connection.wants_write = matches!(connection.stage, Stage::Dialing(..));
        let data = epoll::EventData::new_u64(token);
        let flags = interest(connection.wants_write);
        epoll::add(&*self.epoll, connection.stream(), data, flags).ok()?;
        self.arm(connection.handshake_until_ns);
        self.connections.insert(token, connection);
        Some(token)
    }

    /// Connects, unless that is under way or it is too early.
    pub(super) fn dial(&mut self, node: NodeId, lane: Lane) {
        let now_ns = self.now();
        let me = self.me.node;
        let Some(address) = self.peer(node).address else { return };
        let state = self.peer(node).lane(lane);
        if state.dialing.is_some() {
            return;
        }
        if now_ns < state.retry_ns {
            let at_ns = state.retry_ns;
            return self.arm_lane(node, lane, at_ns);
        }
        state.attempts = state.attempts.saturating_add(1);
        let rank = Rank { attempt: state.attempts, by: me };
        let (caller, call) = Caller::start(&self.me, node, lane, rank.attempt);
        let until_ns = now_ns + ms(self.limits.handshake_ms);
        let dialed = Connection::dial(address, Stage::Dialing(caller, call), until_ns);
        let token = dialed.ok().and_then(|mut connection| {
            connection.peer = Some((node, lane, rank));
            self.enter(Box::new(connection))
        });
        match token {
            Some(token) => self.peer(node).lane(lane).dialing = Some((token, rank)),
            None => self.dial_failed(node, lane),
        }
    }

    /// The next attempt comes later, and later each time.
    fn dial_failed(&mut self, node: NodeId, lane: Lane) {
        let now_ns = self.now();
        let (first_ms, max_ms) = (self.limits.backoff_ms, self.limits.backoff_ms_max);
        let state = self.peer(node).lane(lane);
        let doublings = state.failures.min(DOUBLINGS_MAX);
        state.failures = state.failures.saturating_add(1);
        let pause_ms = first_ms.saturating_mul(1 << doublings).min(max_ms);
        state.retry_ns = now_ns + ms(pause_ms);
        let (at_ns, is_up) = (state.retry_ns, state.up.is_some());
        self.arm_lane(node, lane, at_ns);
        if lane == Lane::Messages && !is_up {
            self.tell_state(node, PeerState::Down);
        }
    }

    pub(super) fn readdress(&mut self, node: NodeId, address: Option<SocketAddr>) {
        let peer = self.peer(node);
        if peer.address == address {
            return;
        }
        peer.address = address;
        for lane in Lane::ALL {
            // Failures at the old address say nothing about the new one.
            let state = self.peer(node).lane(lane);
            state.retry_ns = 0;
            state.failures = 0;
            if let Some((token, _)) = state.dialing.take() {
                self.connections.remove(&token);
            }
            self.touch(node, lane);
        }
    }

    /// Ends a connection; one that is needed is made again.
    pub(super) fn close(&mut self, token: Token, end: End) {
        if let Some(connection) = self.connections.remove(&token) {
            self.closed(token, &connection, &end);
        }
    }

    pub(super) fn closed(&mut self, token: Token, connection: &Connection, end: &End) {
        let now_ns = self.now();
        let claimed = connection.peer;
        if let End::Trouble(trouble) = end {
            match claimed {
                Some((node, ..)) => {
                    let who = format!("node {} at {}", node.0, connection.address);
                    self.complaints.say(now_ns, *trouble, who);
                }
                None => self.complaints.say(now_ns, *trouble, connection.address),
            }
        }
        let Some((node, lane, _)) = claimed else { return };
        let state = self.peer(node).lane(lane);
        if state.dialing.take_if(|(it, _)| *it == token).is_some() {
            self.dial_failed(node, lane);
            self.touch(node, lane);
        } else if state.up.take_if(|(it, _)| *it == token).is_some() {
            state.acknowledge_ns = None;
            if now_ns.saturating_sub(connection.up_ns) >= ms(STABLE_MS) {
                state.failures = 0;
            } else {
                self.dial_failed(node, lane);
            }
            self.touch(node, lane);
            if lane == Lane::Messages {
                self.tell_state(node, PeerState::Down);
            }
        }
    }

    /// Epoll reports what the connection waits for.
    pub(super) fn watch(&mut self, token: Token, connection: &mut Connection) {
        let dialing = matches!(connection.stage, Stage::Dialing(..));
        let wants_write = dialing || connection.output_bytes() > 0;
        if wants_write != connection.wants_write {
            connection.wants_write = wants_write;
            let data = epoll::EventData::new_u64(token);
            // It is registered; if the kernel disagrees, the probe finds the silence.
            let flags = interest(wants_write);
            let _ = epoll::modify(&*self.epoll, connection.stream(), data, flags);
        }
    }
}

fn interest(wants_write: bool) -> EventFlags {
    if wants_write { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}
