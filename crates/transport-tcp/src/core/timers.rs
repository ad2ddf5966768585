//! Everything that happens by time. All timers share one look at everything. It is taken when the
//! first timer is due, or before a sleep. It takes a hundredth of the time at most, and never
//! happens when nothing is under way.

use super::{Cause, Core, End};
use crate::{
    Lane, NodeId, clock::ms, complaints::Trouble, connection::Stage, frame::Kind,
    limits::LOOK_EARLY_NS_EACH, peer::Token,
};

impl Core {
    pub(crate) fn tick(&mut self) {
        let now_ns = self.now();
        if self.alarm.is_due(now_ns) {
            self.look(now_ns);
        }
    }

    /// Most timers are not needed any more when they are due, and nobody has taken them back. So a
    /// thread that is awake anyway looks now and then. Then it is not woken for nothing later.
    pub(crate) fn look_early(&mut self, now_ns: u64) {
        let pause_ns = LOOK_EARLY_NS_EACH * (self.peers.len() + self.connections.len()) as u64;
        if self.alarm.is_set_since(now_ns, pause_ns) {
            self.look(now_ns);
        }
    }

    fn look(&mut self, now_ns: u64) {
        self.alarm.begin_look(now_ns);
        self.pass_deadlines(now_ns);
        self.listen_again(now_ns);
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        for token in tokens {
            match self.judge(token, now_ns) {
                Ok(Some(at_ns)) => self.arm(at_ns),
                Ok(None) => {}
                Err(end) => self.close(token, end),
            }
        }
        self.look_at_lanes(now_ns);
    }

    fn pass_deadlines(&mut self, now_ns: u64) {
        while let Some((deadline_ns, id)) = self.requests.first_deadline() {
            if deadline_ns > now_ns {
                return self.arm(deadline_ns);
            }
            self.requests.drop_first_deadline();
            self.lose(id, Cause::Deadline);
        }
    }

    fn listen_again(&mut self, now_ns: u64) {
        let Some(at_ns) = self.door.again_ns() else { return };
        if at_ns > now_ns || self.door.watch(&self.epoll).is_err() {
            return self.arm(at_ns.max(now_ns + ms(1)));
        }
        self.door.opened();
    }

    /// Is the connection too slow? If not, when must that be asked again?
    fn judge(&mut self, token: Token, now_ns: u64) -> Result<Option<u64>, End> {
        let limits = self.limits;
        let Some(connection) = self.connections.get(&token) else { return Ok(None) };
        let (until_ns, since_ns) = (connection.handshake_until_ns, connection.frame_since_ns);
        match &connection.stage {
            Stage::Up(_) => {}
            Stage::Dialing(..) | Stage::Calling(_) if until_ns <= now_ns => {
                return Err(End::Broken);
            }
            _ if until_ns <= now_ns => return Err(End::Trouble(Trouble::SlowHandshake)),
            _ => return Ok(Some(until_ns)),
        }
        let frame_until_ns = since_ns.map(|since_ns| since_ns + ms(limits.frame_ms));
        if frame_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            return Err(End::Trouble(Trouble::SlowFrame));
        }
        let Some((node, lane, _)) = connection.peer else { return Ok(None) };
        let (heard_ns, probed_ns) = (connection.heard_ns, connection.probed_ns);
        let probe_until_ns = if !self.peer(node).waits(lane) {
            None
        } else if let Some(probed_ns) = probed_ns {
            let until_ns = probed_ns + ms(limits.probe_ms);
            if until_ns <= now_ns {
                return Err(End::Trouble(Trouble::Silent));
            }
            Some(until_ns)
        } else if heard_ns + ms(limits.probe_after_ms) <= now_ns {
            self.probe(token, node, lane, now_ns)?;
            Some(now_ns + ms(limits.probe_ms))
        } else {
            Some(heard_ns + ms(limits.probe_after_ms))
        };
        Ok(frame_until_ns.into_iter().chain(probe_until_ns).min())
    }

    fn probe(&mut self, token: Token, node: NodeId, lane: Lane, now_ns: u64) -> Result<(), End> {
        let Some(peer) = self.peers.get_mut(&node) else { return Ok(()) };
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let header = super::send::control(Kind::Probe, &mut peer.lane(lane).session, 0);
        connection.probed_ns = Some(now_ns);
        connection.write_frame(header, Default::default());
        self.touch(node, lane);
        Ok(())
    }

    /// Acknowledgements that are due, and connections to be tried again.
    fn look_at_lanes(&mut self, now_ns: u64) {
        let mut timed = std::mem::take(&mut self.timed);
        timed.retain(|(node, lane)| {
            let next_ns = self.next_of_lane(*node, *lane);
            match next_ns {
                Some(at_ns) if at_ns > now_ns => self.arm(at_ns),
                Some(_) => self.touch(*node, *lane),
                None => self.peer(*node).lane(*lane).timed = false,
            }
            next_ns.is_some()
        });
        self.timed = timed;
    }

    /// When the lane has to acknowledge something, send what could wait, or be tried again.
    fn next_of_lane(&mut self, node: NodeId, lane: Lane) -> Option<u64> {
        let peer = self.peer(node);
        let state = &peer.lanes[lane.index()];
        let is_down = state.up.is_none() && state.dialing.is_none();
        let is_tried = is_down && peer.address.is_some() && peer.needs(lane);
        let retry_ns = is_tried.then_some(state.retry_ns);
        retry_ns.into_iter().chain(state.acknowledge_ns).chain(state.late_ns).min()
    }
}
