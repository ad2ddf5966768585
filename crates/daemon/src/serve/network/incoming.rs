//! Messages from other nodes, as the serving thread handles them.

use std::sync::Arc;

use mayfly_transport_tcp::{Body, Cause, Class, Event, PeerState, Ticket};
use mayfly_types::{Errno, SessionId};
use mayfly_wire::Op;

use crate::{
    Message, ShardId, log,
    message::{Answer, Forward, Question, Resolved},
    serve::{
        Caller, Completion, Reached, Service,
        network::net::{
            Away, Loss, Net, Sent,
            words::{self, Call, Reply},
        },
        sessions::host_environment::HostEnvironment,
        slow::Waited,
        threads::{peers::ToShard, rounds::Serving},
    },
    shards::numbering::session_elsewhere,
};

impl<S: Service, O: HostEnvironment> Serving<S, O> {
    /// Acts on all that has come from other nodes.
    pub(in crate::serve) fn attend_nodes(&mut self) {
        let Some(net) = self.shard.peers.net().cloned() else { return };
        let mut events = std::mem::take(&mut self.others.events);
        net.take(&mut events);
        for event in events.drain(..) {
            match event {
                // Also when all is finished by now: those that were held come first.
                Event::Request { ticket, class: Class::Client, body, .. } if !self.is_open() => {
                    self.others.held.push((ticket, body));
                }
                Event::Request { ticket, body, .. } => self.hear_call(&net, ticket, body),
                Event::Reply { id, body, .. } => {
                    if let Some(sent) = net.sent(id) {
                        self.hear_reply(&net, sent, body);
                    }
                }
                Event::Lost { id, cause, .. } => {
                    if let Some(sent) = net.sent(id) {
                        self.lost(&net, sent, cause == Cause::Deadline);
                    }
                }
                Event::Room { node, .. } => net.room(node.0),
                Event::Peer { node, state: PeerState::Up { incarnation } } => {
                    let before = self.others.connected.insert(node.0, incarnation);
                    let restarted = before.is_some_and(|before| before != incarnation);
                    if restarted {
                        net.introduce_to(node.0);
                    }
                    let reached = if restarted { Reached::Restarted } else { Reached::Yes };
                    self.node_reached(node.0, reached);
                }
                Event::Peer { node, state: PeerState::Down } => {
                    self.node_reached(node.0, Reached::No);
                }
                Event::Cancelled(_) => {}
            }
        }
        self.others.events = events;
        for sent in net.failed() {
            self.lost(&net, sent, true);
        }
        for caller in net.refused() {
            self.shard.answer(Completion::failed(caller, Errno::ENOLCK), Waited::Shards);
        }
    }

    /// Takes up the requests that had to wait.
    pub(in crate::serve) fn serve_held(&mut self) {
        let Some(net) = self.shard.peers.net().cloned() else { return };
        for (ticket, body) in std::mem::take(&mut self.others.held) {
            self.hear_call(&net, ticket, body);
        }
    }

    fn hear_call(&mut self, net: &Net, ticket: Ticket, bytes: Vec<u8>) {
        let node = ticket.node.0;
        let call = if self.is_member(node) { words::decode_call(&bytes) } else { None };
        let call = call.map(|(call, body)| (call, bytes.len() - body.len()));
        match call {
            Some((Call::Forward { to, session, pid, lane, request_id, op, place }, head)) => {
                let Some(op) = Op::from_raw(op).filter(|_| self.is_mine(to)) else {
                    let status = Errno::EPROTO.raw() as u32;
                    return net.say(ticket, &Reply::Done { status });
                };
                let known = self.others.known.entry(node).or_default();
                // One that was held, and whose daemon is gone meanwhile, the next one sends again
                // if somebody still waits; that was asked for what it stands without it.
                let last = self.others.connected.get(&node).copied().unwrap_or_default();
                if known.incarnation != ticket.incarnation || last > ticket.incarnation {
                    return net.say(ticket, &Reply::Unknown);
                }
                let session = self.meet(node, session, pid);
                let caller = Caller { session, lane, request_id };
                if net.begin(caller, ticket) {
                    let body = Body::from(bytes).without(head);
                    let forward = Forward { caller, op, body, place };
                    self.hand(ShardId(to), ShardId(to), Message::Forward(Box::new(forward)));
                } else if matches!(op, Op::Lock | Op::Open) {
                    // A daemon that was restarted knows only now where its process waits, and will
                    // stand for what is being opened.
                    for shard in self.shard.peers.numbering().here() {
                        self.hand(shard, shard, Message::LookAgain(session, request_id));
                    }
                }
            }
            Some((Call::Ask { from, to, question }, _)) => {
                self.hear_question(net, ticket, (from, to), question);
            }
            Some((Call::Cancel { session, request_id }, _)) => {
                let session = session_elsewhere(node, session);
                for shard in self.shard.peers.numbering().here() {
                    self.hand(shard, shard, Message::Cancel(session, request_id));
                }
                net.say(ticket, &Reply::Heard);
            }
            Some((Call::GivenUp { session, lane, request_id }, _)) => {
                let session = session_elsewhere(node, session);
                let caller = Caller { session, lane, request_id };
                net.give_up_running(caller);
                for shard in self.shard.peers.numbering().here() {
                    self.hand(shard, shard, Message::GivenUp(caller));
                }
                net.say(ticket, &Reply::Heard);
            }
            Some((Call::SessionEnded { session, pid, successor }, _)) => {
                if let Some(successor) = successor {
                    self.meet(node, successor, pid);
                }
                self.meet(node, session, pid);
                self.part(node, session);
                net.say(ticket, &Reply::Heard);
            }
            Some((Call::Introduce { sessions }, _)) => {
                self.introduced(ticket, &sessions);
                net.say(ticket, &Reply::Heard);
            }
            None => net.say(ticket, &Reply::Answer(Answer::Failed(Errno::EPROTO))),
        }
    }

    fn hear_question(
        &mut self,
        net: &Net,
        ticket: Ticket,
        (from, to): (u32, u32),
        mut question: Question,
    ) {
        let theirs = self.shard.peers.numbering().node_of(ShardId(from)) == ticket.node.0;
        if !theirs || !self.is_mine(to) {
            return net.say(ticket, &Reply::Answer(Answer::Failed(Errno::EPROTO)));
        }
        if let Question::Proxies(proxied) = &mut question {
            net.leave_out_opens_under_way(proxied);
        }
        let id = net.asked(ticket, &question);
        self.hand(ShardId(from), ShardId(to), Message::Ask(id, question));
    }

    /// Whether there is such a node. Whoever knows the secret can say any number.
    fn is_member(&self, node: u32) -> bool {
        let numbering = self.shard.peers.numbering();
        node < numbering.nodes && node != numbering.node
    }

    fn is_mine(&self, shard: u32) -> bool {
        self.shard.peers.numbering().is_here(ShardId(shard))
    }

    /// Gives a message to a shard of this node.
    pub(in crate::serve) fn hand(&mut self, from: ShardId, to: ShardId, message: Message) {
        match self.shard.peers.numbering().own(to) {
            0 => self.shard.deliver(from, message),
            own => self.shard.peers.hand(own, ToShard::Message { from, message }),
        }
    }

    /// What a process of another node is called here; every shard knows it from now on.
    fn meet(&mut self, node: u32, session: SessionId, pid: u32) -> SessionId {
        let here = session_elsewhere(node, session);
        if self.others.known.entry(node).or_default().sessions.insert(session) {
            self.shard.service.session_opened(here, pid);
            self.shard.peers.tell_others(|| ToShard::StrangerCame { session: here, pid });
        }
        here
    }

    /// It is over.
    fn part(&mut self, node: u32, session: SessionId) {
        let here = session_elsewhere(node, session);
        if self.others.known.entry(node).or_default().sessions.remove(&session) {
            self.shard.close_session(here);
            self.shard.peers.tell_others(|| ToShard::StrangerLeft(here));
        }
    }

    fn introduced(&mut self, ticket: Ticket, sessions: &[(SessionId, u32)]) {
        let node = ticket.node.0;
        let known = self.others.known.entry(node).or_default();
        if ticket.incarnation < known.incarnation {
            return;
        }
        known.incarnation = ticket.incarnation;
        let lives = |known: &SessionId| sessions.iter().any(|(session, _)| session == known);
        let gone: Vec<SessionId> =
            known.sessions.iter().copied().filter(|known| !lives(known)).collect();
        for session in gone {
            self.part(node, session);
        }
        // Of others an earlier daemon of ours may have kept something.
        self.shard.end_strangers(node, sessions);
        let living: Arc<[(SessionId, u32)]> = sessions.into();
        self.shard
            .peers
            .tell_others(|| ToShard::StrangersAre { node, sessions: Arc::clone(&living) });
    }

    fn node_reached(&mut self, node: u32, reached: Reached) {
        match reached {
            Reached::No if self.others.lost.insert(node) => {
                log::warn("net", format_args!("node {node} cannot be reached"));
            }
            Reached::Yes if self.others.lost.remove(&node) => {
                log::info("net", format_args!("node {node} can be reached again"));
            }
            Reached::Restarted => {
                self.others.lost.remove(&node);
                log::info("net", format_args!("node {node} has another daemon"));
            }
            Reached::No | Reached::Yes => {}
        }
        self.shard.node_reached(node, reached);
        self.shard.peers.tell_others(|| ToShard::NodeReached { node, reached });
    }

    fn hear_reply(&mut self, net: &Net, sent: Sent, bytes: Vec<u8>) {
        let Some((reply, body)) = words::decode::<Reply>(&bytes) else {
            return self.lost(net, sent, true);
        };
        let head = bytes.len() - body.len();
        match (sent, reply) {
            (Sent::Forward(away), Reply::Done { status }) => {
                self.done(*away, status, Body::from(bytes).without(head));
            }
            (Sent::Forward(away), Reply::Elsewhere { shard, place }) => {
                self.elsewhere(net, *away, ShardId(shard), place);
            }
            (Sent::Forward(away), Reply::Unknown) => {
                let node = self.shard.peers.numbering().node_of(away.to);
                net.introduce_anew(node);
                net.again(Sent::Forward(away));
            }
            (Sent::Ask { from, to, id, .. }, Reply::Answer(answer)) => {
                self.hand(to, from, Message::Answer(id, answer));
            }
            (Sent::SessionEnded { session, .. }, Reply::Heard) => self.session_heard(session),
            (Sent::GivenUp { node, .. }, Reply::Heard) => net.given_up_heard(node),
            (Sent::Notice, _) => {}
            (sent, _) => self.lost(net, sent, true),
        }
    }

    /// Another node has executed a client's request.
    fn done(&mut self, away: Away, status: u32, body: Body) {
        let Away { caller, op, to, .. } = away;
        let (status, body) = if op == Op::Open && status == 0 {
            let (request, answer) = (away.body.to_vec(), body.to_vec());
            let (status, body) = self.shard.service.adopt_open(caller, to, &request, &answer);
            (status, body.into())
        } else {
            (status, body)
        };
        let node = self.shard.peers.numbering().node_of(to);
        self.shard.service.done_elsewhere(node, op, &away.body);
        self.shard.answer(Completion::new(caller, status, body), Waited::Node(node));
    }

    fn elsewhere(&mut self, net: &Net, away: Away, shard: ShardId, place: Resolved) {
        self.shard.service.learn(&place);
        let numbering = self.shard.peers.numbering();
        if shard.0 >= numbering.all() {
            self.shard.answer(Completion::failed(away.caller, Errno::EIO), Waited::Shards);
        } else if numbering.is_here(shard) {
            let Away { caller, op, body, .. } = away;
            let forward = Forward { caller, op, body, place };
            self.hand(shard, shard, Message::Forward(Box::new(forward)));
        } else if self.shard.service.is_behind_at(numbering.node_of(shard)) {
            // It is sent on when what is to be there before it is.
            let Away { caller, op, body, .. } = away;
            let forward = Forward { caller, op, body, place };
            self.hand(shard, numbering.front(), Message::SendOn(shard, Box::new(forward)));
        } else {
            net.again(Sent::Forward(Box::new(Away { to: shard, place, ..away })));
        }
    }

    fn lost(&mut self, net: &Net, sent: Sent, late: bool) {
        match net.lost(sent, late) {
            Loss::Again(sent) => net.again(sent),
            Loss::Client(away) => {
                // It may be executed all the same, or was.
                net.give_up(&away);
                let node = self.shard.peers.numbering().node_of(away.to);
                let failed = Completion::failed(away.caller, Errno::EIO);
                self.shard.answer(failed, Waited::Node(node));
            }
            Loss::Shard { shard, from, id, answer } => {
                self.hand(from, shard, Message::Answer(id, answer));
            }
            Loss::Nothing => {}
        }
    }
}
