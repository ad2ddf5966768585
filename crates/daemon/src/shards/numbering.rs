//! How shards and sessions are numbered over the nodes of an instance.
//!
//! Every node has the same number of shards, so a shard's number says where it is. What a node
//! numbers by itself (its sessions) gets the node's number in front where others hear of it.

use mayfly_types::{SessionId, limits::SESSIONS_MAX};

use crate::shards::slots::ShardId;

/// Numbers from here on are no process's: [`Numbering::session_of_node`].
const NODES_SESSIONS: u32 = 1 << 30;

/// The daemon of the node itself, among the sessions of its node: no process has this number.
pub(crate) const OWN_SESSION: SessionId = SessionId(0);

/// Which shards there are, and which of them are this daemon's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbering {
    /// Number of this node.
    pub node: u32,
    /// Nodes of the instance, at least one.
    pub nodes: u32,
    /// Shards of each node, at least one.
    pub shards: u32,
}

impl Numbering {
    /// For an instance of one node with so many shards.
    #[must_use]
    pub fn of_one_node(shards: u32) -> Numbering {
        Numbering { node: 0, nodes: 1, shards: shards.max(1) }
    }

    /// Shards of all nodes together.
    #[must_use]
    pub fn all(&self) -> u32 {
        self.nodes * self.shards
    }

    /// A shard of this node.
    #[must_use]
    pub fn shard(&self, own: u32) -> ShardId {
        ShardId(self.node * self.shards + own)
    }

    /// The shards of this node.
    pub(crate) fn here(&self) -> impl Iterator<Item = ShardId> + use<> {
        (self.node * self.shards..(self.node + 1) * self.shards).map(ShardId)
    }

    /// The node of a shard.
    #[must_use]
    pub fn node_of(&self, shard: ShardId) -> u32 {
        shard.0 / self.shards
    }

    /// The number of a shard on its node.
    #[must_use]
    pub fn own(&self, shard: ShardId) -> u32 {
        shard.0 % self.shards
    }

    /// Whether a shard is this node's.
    #[must_use]
    pub fn is_here(&self, shard: ShardId) -> bool {
        self.node_of(shard) == self.node
    }

    /// The shard of a node that takes its clients' requests.
    #[must_use]
    pub fn front_of(&self, node: u32) -> ShardId {
        ShardId(node * self.shards)
    }

    /// The same of this node.
    #[must_use]
    pub fn front(&self) -> ShardId {
        self.front_of(self.node)
    }

    /// What all nodes call a session that is called this here.
    pub(crate) fn session_of_all(&self, session: SessionId) -> SessionId {
        match origin(session) {
            Some(_) => session,
            None => session_elsewhere(self.node, session),
        }
    }

    /// What is called here what all nodes call so.
    pub(crate) fn session_here(&self, session: SessionId) -> SessionId {
        match origin(session) {
            Some((node, own)) if node == self.node => own,
            _ => session,
        }
    }
}

/// What other nodes call a session of `node`.
#[must_use]
pub(crate) fn session_elsewhere(node: u32, session: SessionId) -> SessionId {
    SessionId((node + 1) * SESSIONS_MAX + session.0)
}

/// The node of a session that is another one's, and what it is called there.
#[must_use]
pub(crate) fn origin(session: SessionId) -> Option<(u32, SessionId)> {
    let node = (session.0 / SESSIONS_MAX).checked_sub(1)?;
    (session.0 < NODES_SESSIONS).then_some((node, SessionId(session.0 % SESSIONS_MAX)))
}

/// To whom the descriptions belong here that processes of another node have.
#[must_use]
pub(crate) fn session_of_node(node: u32) -> SessionId {
    SessionId(NODES_SESSIONS + node)
}

/// The node that such a description belongs to.
#[must_use]
pub(crate) fn node_of_owner(session: SessionId) -> Option<u32> {
    session.0.checked_sub(NODES_SESSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_where_a_shard_is() {
        let numbering = Numbering { node: 2, nodes: 4, shards: 3 };
        assert_eq!(numbering.here().collect::<Vec<_>>(), [ShardId(6), ShardId(7), ShardId(8)]);
        assert_eq!((numbering.shard(1), numbering.front()), (ShardId(7), ShardId(6)));
        assert_eq!((numbering.node_of(ShardId(5)), numbering.own(ShardId(5))), (1, 2));
        assert!(numbering.is_here(ShardId(8)) && !numbering.is_here(ShardId(9)));
        assert_eq!(numbering.all(), 12);
    }

    #[test]
    fn sessions_of_other_nodes_have_numbers_of_their_own() {
        let session = SessionId(SESSIONS_MAX - 1);
        assert_eq!(origin(session), None);
        for node in [0, 1, 65_535] {
            let there = session_elsewhere(node, session);
            assert_eq!(origin(there), Some((node, session)));
            assert_eq!(node_of_owner(there), None);
            assert_eq!(origin(session_of_node(node)), None);
            assert_eq!(node_of_owner(session_of_node(node)), Some(node));
        }
    }

    #[test]
    fn what_all_nodes_call_a_session_leads_back_to_it_on_each() {
        let [here, there] = [0, 1].map(|node| Numbering { node, nodes: 2, shards: 1 });
        let own = SessionId(5);
        let of_all = here.session_of_all(own);
        assert_eq!((here.session_here(of_all), there.session_here(of_all)), (own, of_all));
        assert_eq!(there.session_of_all(of_all), of_all);
    }
}
