//! Connections from other nodes, and the handshake of both sides.

use std::io::ErrorKind;

use rustix::event::epoll::EventFlags;

use super::{Cause, Core, End};
use crate::{
    Lane, NodeId, PeerState,
    clock::ms,
    complaints::Trouble,
    connection::{Channel, Connection, Rank, Stage},
    endpoint::of_node,
    handshake::{
        ANSWER_BYTES, Acceptance, Accepted, CALL_BYTES, CONFIRMATION_BYTES, Callee, Caller, Hello,
        Refusal,
    },
    peer::Token,
};

/// Pause after the kernel had no descriptor for a connection, milliseconds.
const LISTEN_AGAIN_MS: u64 = 100;

/// A peer that has proved itself.
struct Proved {
    node: NodeId,
    lane: Lane,
    rank: Rank,
    incarnation: u64,
    /// Which of this side's frames it has received.
    received: u64,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> End {
        End::Trouble(Trouble::Refused(refusal))
    }
}

impl Core {
    /// Takes the connections that wait. The number of those that have proved nothing is bounded:
    /// the oldest one is closed. An honest handshake is over before many others can have come.
    pub(crate) fn accept(&mut self) {
        loop {
            let (stream, address) = match self.door.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => return self.listen_later(),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let until_ns = self.now() + ms(self.limits.handshake_ms);
            let connection = Connection::accepted(stream, address, until_ns);
            self.enter_stranger(Box::new(connection));
        }
    }

    fn enter_stranger(&mut self, connection: Box<Connection>) -> Option<Token> {
        let token = self.enter(connection);
        if let Some(token) = token {
            self.door.add_stranger(token);
        }
        self.bound_handshakes();
        token
    }

    /// Goes on with a connection that another thread has accepted.
    pub(super) fn adopt(&mut self, connection: Box<Connection>) {
        if let Some(token) = self.enter_stranger(connection) {
            // What it has to say is read already.
            self.ready(token, EventFlags::empty());
        }
    }

    fn bound_handshakes(&mut self) {
        let most = self.limits.handshakes_max;
        loop {
            let connections = &self.connections;
            let proves = |token: &Token| connections.get(token).is_some_and(|it| !it.is_up());
            let Some(oldest) = self.door.stranger_too_many(most, proves) else { return };
            self.close(oldest, End::Trouble(Trouble::Flood));
        }
    }

    /// There is no descriptor left. Without a pause the connections that wait would wake the thread
    /// again and again.
    fn listen_later(&mut self) {
        let at_ns = self.now() + ms(LISTEN_AGAIN_MS);
        self.door.shut(&self.epoll, at_ns);
        self.arm(at_ns);
    }

    /// Goes on with the handshake as far as the received bytes allow.
    pub(super) fn shake(&mut self, token: Token, connection: &mut Connection) -> Result<(), End> {
        loop {
            match std::mem::replace(&mut connection.stage, Stage::Between) {
                Stage::Dialing(caller, call) => {
                    match rustix::net::sockopt::socket_error(connection.stream()) {
                        Ok(Ok(())) => {}
                        _ => return Err(End::Broken),
                    }
                    connection.stage = Stage::Calling(caller);
                    connection.write_raw(call);
                    connection.flush()?;
                }
                Stage::Calling(caller) => match connection.read_handshake(ANSWER_BYTES)? {
                    Some(answer) => return self.answered(token, connection, caller, &answer),
                    None => return wait(connection, Stage::Calling(caller)),
                },
                Stage::Answering => {
                    let call = connection.read_handshake(CALL_BYTES);
                    Hello::check_start(connection.start_of_input())?;
                    match call? {
                        Some(call) => {
                            self.check_thread(connection, &call)?;
                            self.called(connection, &call)?;
                        }
                        None => return wait(connection, Stage::Answering),
                    }
                }
                Stage::Confirming(accepted) => {
                    match connection.read_handshake(CONFIRMATION_BYTES)? {
                        Some(message) => {
                            return self.confirmed(token, connection, *accepted, &message);
                        }
                        None => return wait(connection, Stage::Confirming(accepted)),
                    }
                }
                stage @ (Stage::Up(_) | Stage::Between) => return wait(connection, stage),
            }
        }
    }

    /// The first message came. Whoever it is from, nothing but his number is believed.
    fn check_thread(&self, connection: &mut Connection, call: &[u8]) -> Result<(), End> {
        let thread = of_node(Hello::sender(call)?, self.limits.threads);
        if thread != self.door.thread() {
            connection.unread(call);
            connection.stage = Stage::Answering;
            return Err(End::Moved(thread));
        }
        Ok(())
    }

    /// The first message came. What it says of its sender is true, but it may be old.
    fn called(&mut self, connection: &mut Connection, call: &[u8]) -> Result<(), End> {
        let call = call.try_into().expect("a call has its length");
        let callee = Callee::start(&self.me, call)?;
        let (hello, offer) = (callee.hello, callee.offer);
        let rank = Rank { attempt: offer.attempt, by: hello.from };
        let peer = self.peer(hello.from);
        if offer.incarnation < peer.incarnation {
            return Err(End::Trouble(Trouble::Stale));
        }
        let known = offer.incarnation == peer.incarnation;
        let lane = peer.lane(hello.lane);
        lane.attempts = lane.attempts.max(offer.attempt);
        let up = lane.up.filter(|_| known);
        if [up, lane.dialing].into_iter().flatten().any(|(_, other)| other.beats(rank)) {
            return Err(End::Quiet);
        }
        let received = if known { lane.session.received() } else { 0 };
        let acceptance = Acceptance { incarnation: self.me.incarnation, received };
        let answered = callee.answer(acceptance);
        let (answer, accepted) = answered.map_err(|_| End::from(Refusal::Secret))?;
        connection.peer = Some((hello.from, hello.lane, rank));
        connection.write_raw(answer);
        connection.flush()?;
        connection.stage = Stage::Confirming(Box::new(accepted));
        Ok(())
    }

    /// The second message came: the callee is proved.
    fn answered(
        &mut self,
        token: Token,
        connection: &mut Connection,
        caller: Caller,
        answer: &[u8],
    ) -> Result<(), End> {
        let (node, lane, rank) = connection.peer.ok_or(End::Broken)?;
        let (acceptance, mut keys) = caller.finish(answer)?;
        let Acceptance { incarnation, received } = acceptance;
        self.establish(token, &Proved { node, lane, rank, incarnation, received })?;
        let received = self.peer(node).lane(lane).session.received();
        connection.write_raw(keys.confirm(received));
        self.open_channel(connection, Channel::new(lane, self.me.encryption, keys));
        Ok(())
    }

    /// The third message came: the caller is proved.
    fn confirmed(
        &mut self,
        token: Token,
        connection: &mut Connection,
        accepted: Accepted,
        message: &[u8],
    ) -> Result<(), End> {
        let (node, lane, rank) = connection.peer.ok_or(End::Broken)?;
        let Accepted { offer, sealed: mut keys } = accepted;
        let received = keys.confirmed(message)?;
        let incarnation = offer.incarnation;
        self.establish(token, &Proved { node, lane, rank, incarnation, received })?;
        self.open_channel(connection, Channel::new(lane, self.me.encryption, keys));
        Ok(())
    }

    fn open_channel(&mut self, connection: &mut Connection, channel: Channel) {
        connection.stage = Stage::Up(Box::new(channel));
        connection.heard_ns = self.now();
        connection.up_ns = connection.heard_ns;
    }

    /// The connection carries the lane from now on, unless there is a better one.
    fn establish(&mut self, token: Token, proved: &Proved) -> Result<(), End> {
        let Proved { node, lane, rank, incarnation, received } = *proved;
        let known = self.peer(node).incarnation;
        if incarnation < known {
            return Err(End::Trouble(Trouble::Stale));
        }
        if incarnation > known {
            self.restarted(node, incarnation);
        }
        let state = self.peer(node).lane(lane);
        if state.up.is_some_and(|(_, other)| other.beats(rank)) {
            return Err(End::Quiet);
        }
        state.session.attach(received)?;
        let replaced = state.up.replace((token, rank)).map(|(other, _)| other);
        let beaten = state.dialing.take_if(|(it, other)| *it == token || rank.beats(*other));
        state.retry_ns = 0;
        let beaten = beaten.map(|(other, _)| other).filter(|other| *other != token);
        for other in [replaced, beaten].into_iter().flatten() {
            self.connections.remove(&other);
        }
        self.touch(node, lane);
        if lane == Lane::Messages {
            self.tell_state(node, PeerState::Up { incarnation });
        }
        Ok(())
    }

    /// The peer has another daemon now. What was said to the earlier one is lost.
    fn restarted(&mut self, node: NodeId, incarnation: u64) {
        let peer = self.peer(node);
        peer.incarnation = incarnation;
        peer.owed.clear();
        for lane in Lane::ALL {
            let state = self.peer(node).lane(lane);
            let up = state.up.take().map(|(token, _)| token);
            state.acknowledge_ns = None;
            state.session.restart();
            self.touch(node, lane);
            if let Some(token) = up {
                self.connections.remove(&token);
            }
        }
        let mut lost = Vec::new();
        for (id, request) in self.requests.of_node(node) {
            let session = &self.peers[&node].lanes[request.lane.index()].session;
            if !session.is_waiting(request.class, id) {
                lost.push(id);
            }
        }
        lost.sort_unstable();
        for id in lost {
            self.lose(id, Cause::Restarted);
        }
    }
}

fn wait(connection: &mut Connection, stage: Stage) -> Result<(), End> {
    connection.stage = stage;
    Ok(())
}
