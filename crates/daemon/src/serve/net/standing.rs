//! Opens under way, when another node asks for what this one stands, and opens that are given up.

use mayfly_wire::Op;

use super::{Away, Net, Sent, State, lock};
use crate::{api::Caller, maps::HashSet, message::Description};

/// So many opens are remembered that were given up and of which a node has not heard; what others
/// made there stays until the instance ends.
const GIVEN_UP_MAX: usize = 1 << 16;

impl Net {
    /// Leaves out what an open that is under way may have made: once its answer is here, a
    /// description will stand for that.
    pub(in crate::serve) fn leave_out_opens_under_way(&self, lent: &mut Vec<Description>) {
        let state = lock(&self.state);
        let waiting = state.peers.values().flat_map(|peer| &peer.waiting);
        let under_way = state.sent.values().chain(waiting).chain(&state.failed);
        let opens: HashSet<Caller> = under_way
            .filter_map(|sent| match sent {
                Sent::Forward(away) if away.op == Op::Open => Some(away.caller),
                _ => None,
            })
            .collect();
        lent.retain(|Description { session, lane, request_id, .. }| {
            let caller = Caller { session: *session, lane: *lane, request_id: *request_id };
            !opens.contains(&caller)
        });
    }

    /// An open of another node's client was given up; false when it is not under way.
    pub(in crate::serve) fn give_up_running(&self, caller: Caller) -> bool {
        let mut state = lock(&self.state);
        let is_running = state.running.contains_key(&caller);
        if is_running {
            state.given_up.insert(caller);
        }
        is_running
    }

    /// Tells a node that a request which was sent there is given up, if that may open something.
    pub(in crate::serve) fn give_up(&self, away: &Away) {
        self.give_up_in(&mut lock(&self.state), away);
        self.flush();
    }

    pub(super) fn give_up_in(&self, state: &mut State, away: &Away) {
        let node = self.numbering.node_of(away.to);
        let given_up = &mut state.peers.entry(node).or_default().given_up;
        if away.op == Op::Open && *given_up < GIVEN_UP_MAX {
            *given_up += 1;
            self.post(state, Sent::GivenUp { node, caller: away.caller });
        }
    }

    /// A node has heard of one.
    pub(in crate::serve) fn given_up_heard(&self, node: u32) {
        let mut state = lock(&self.state);
        let given_up = &mut state.peers.entry(node).or_default().given_up;
        *given_up = given_up.saturating_sub(1);
    }
}
