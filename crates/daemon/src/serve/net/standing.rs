//! Opens under way, when another node asks for what this one stands.

use mayfly_wire::Op;

use super::{Net, Sent, lock};
use crate::{api::Caller, maps::HashSet, message::Description};

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
}
