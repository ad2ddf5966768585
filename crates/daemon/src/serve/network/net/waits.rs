//! How many requests may wait for locks at another node.

use crate::{
    api::Caller,
    serve::network::net::{Net, Sent, State, lock},
    shards::slots::ShardId,
};

impl Net {
    /// Whether one more request may wait at a node until others give a lock back: as long as those
    /// that do are less than half of what may be under way, so that these others can.
    pub(super) fn may_wait(&self, state: &State, to: ShardId) -> bool {
        let node = self.numbering.node_of(to);
        let peer = state.peers.get(&node);
        let unsent = || peer.into_iter().flat_map(|peer| &peer.waiting);
        let max = (self.network.outstanding_max() / 2).max(1);
        if state.sent.len() + unsent().count() < max {
            return true;
        }
        let waits = |sent: &&Sent| match sent {
            Sent::Forward(away) => away.waits && self.numbering.node_of(away.to) == node,
            _ => false,
        };
        state.sent.values().chain(unsent()).filter(waits).count() < max
    }

    /// Requests, since the last time, for a lock for which too many wait already.
    pub(in crate::serve) fn refused(&self) -> Vec<Caller> {
        std::mem::take(&mut lock(&self.state).refused)
    }
}
