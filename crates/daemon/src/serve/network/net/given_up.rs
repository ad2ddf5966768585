//! Opens under way, when another node asks for what this one stands, and requests that were given
//! up.

use mayfly_wire::Op;

use crate::{
    api::Caller,
    maps::HashSet,
    message::Description,
    serve::network::net::{Away, Net, Sent, State, lock, words::Call},
    shards::slots::ShardId,
};

/// So many opens are remembered that were given up and of which a node has not heard; what others
/// made there stays until the instance ends.
const GIVEN_UP_MAX: usize = 1 << 16;

impl Net {
    /// Leaves out what an open that is under way may have made: once its answer is here, a
    /// description will stand for that.
    pub(in crate::serve) fn leave_out_opens_under_way(&self, proxied: &mut Vec<Description>) {
        let state = lock(&self.state);
        let waiting = state.peers.values().flat_map(|peer| &peer.waiting);
        let under_way = state.sent.values().chain(waiting).chain(&state.failed);
        let opens: HashSet<Caller> = under_way
            .filter_map(|sent| match sent {
                Sent::Forward(away) if away.op == Op::Open => Some(away.caller),
                _ => None,
            })
            .collect();
        proxied.retain(|Description { session, lane, request_id, .. }| {
            let caller = Caller { session: *session, lane: *lane, request_id: *request_id };
            !opens.contains(&caller)
        });
    }

    /// A request of another node's client was given up: if it is under way, what it opens is of no
    /// use.
    pub(in crate::serve) fn give_up_running(&self, caller: Caller) {
        let mut state = lock(&self.state);
        if state.running.contains_key(&caller) {
            state.given_up.insert(caller);
        }
    }

    /// Tells a node that a request which was sent there is given up.
    pub(in crate::serve) fn give_up(&self, away: &Away) {
        self.give_up_in(&mut lock(&self.state), away);
        self.flush();
    }

    /// The same for a request of this node's client, wherever it is. True when it will not be
    /// answered: there was no room yet to send it.
    pub(in crate::serve) fn give_up_away(&self, caller: Caller) -> bool {
        let mut state = lock(&self.state);
        let is_it = |sent: &Sent| matches!(sent, Sent::Forward(away) if away.caller == caller);
        let mut waiting = state.peers.values_mut().map(|peer| &mut peer.waiting);
        let unsent = waiting.find_map(|waiting| waiting.remove(waiting.iter().position(is_it)?));
        if let Some(Sent::Forward(away)) = unsent {
            // It may have been sent before, by a connection that was lost.
            self.give_up_in(&mut state, &away);
            drop(state);
            self.flush();
            return true;
        }
        let under_way = state.sent.values_mut().find_map(|sent| match sent {
            Sent::Forward(away) if away.caller == caller => {
                away.given_up = true;
                Some((away.to, away.op))
            }
            _ => None,
        });
        if let Some((to, op)) = under_way {
            self.tell_given_up(&mut state, caller, to, op);
            drop(state);
            self.flush();
        }
        false
    }

    pub(super) fn give_up_in(&self, state: &mut State, away: &Away) {
        self.tell_given_up(state, away.caller, away.to, away.op);
    }

    /// What an open makes would stay, so of that a node is told until it has heard. Any other
    /// request only waits there for longer than it has to.
    fn tell_given_up(&self, state: &mut State, caller: Caller, to: ShardId, op: Op) {
        let node = self.numbering.node_of(to);
        if op != Op::Open {
            let Caller { session, lane, request_id } = caller;
            return self.say_once(state, node, &Call::GivenUp { session, lane, request_id });
        }
        let given_up = &mut state.peers.entry(node).or_default().given_up;
        if *given_up < GIVEN_UP_MAX {
            *given_up += 1;
            self.dispatch(state, Sent::GivenUp { node, caller });
        }
    }

    /// A node has heard of one.
    pub(in crate::serve) fn given_up_heard(&self, node: u32) {
        let mut state = lock(&self.state);
        let given_up = &mut state.peers.entry(node).or_default().given_up;
        *given_up = given_up.saturating_sub(1);
    }
}
