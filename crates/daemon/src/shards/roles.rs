//! Which nodes have what of an instance.
//!
//! Names and inodes are at the nodes that own slots, bytes at those that are servers. Files begin
//! where their names are, so who owns slots is a server too. A node that is neither uses what the
//! others have: its daemon passes on what its processes ask for, and nobody asks it for anything.

use crate::{Numbering, ShardId};

/// The nodes by their numbers, in ascending order; an empty list means all of them. The same on
/// every node of the instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// Those that own slots.
    pub metadata: Vec<u32>,
    /// Those that have bytes of files. All of `metadata` are among them.
    pub servers: Vec<u32>,
}

impl Roles {
    /// The shards that slots are dealt out to.
    #[must_use]
    pub fn owners(&self, numbering: Numbering) -> Vec<ShardId> {
        let all = (0..numbering.nodes).collect();
        let nodes = if self.metadata.is_empty() { &all } else { &self.metadata };
        let shards = |node: &u32| {
            let first = numbering.front_of(*node).0;
            (first..first + numbering.shards).map(ShardId)
        };
        nodes.iter().flat_map(shards).collect()
    }

    /// How many nodes have bytes, at least one.
    pub(crate) fn server_count(&self, numbering: Numbering) -> u32 {
        if self.servers.is_empty() { numbering.nodes.max(1) } else { self.servers.len() as u32 }
    }

    /// Whether a node has bytes.
    pub(crate) fn is_server(&self, node: u32) -> bool {
        self.servers.is_empty() || self.servers.binary_search(&node).is_ok()
    }

    /// The server that comes `steps` after `first` in their circle.
    pub(crate) fn server_after(&self, numbering: Numbering, first: u32, steps: u32) -> u32 {
        let count = self.server_count(numbering);
        if self.servers.is_empty() {
            return (first + steps) % count;
        }
        // A first one that is no server stands before the next that is.
        let first = self.servers.partition_point(|server| *server < first) as u32;
        self.servers[((first + steps) % count) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERING: Numbering = Numbering { node: 0, nodes: 5, shards: 2 };

    #[test]
    fn slots_belong_to_the_shards_of_the_chosen_nodes() {
        let roles = Roles { metadata: vec![1, 3], servers: vec![1, 2, 3] };
        assert_eq!(roles.owners(NUMBERING), [2, 3, 6, 7].map(ShardId));
        assert_eq!(Roles::default().owners(NUMBERING), (0..10).map(ShardId).collect::<Vec<_>>());
    }

    #[test]
    fn parts_go_round_the_servers_and_no_other_node() {
        let roles = Roles { metadata: vec![1], servers: vec![1, 2, 4] };
        let round: Vec<u32> = (0..5).map(|steps| roles.server_after(NUMBERING, 2, steps)).collect();
        assert_eq!(round, [2, 4, 1, 2, 4]);
        let all: Vec<u32> =
            (0..6).map(|steps| Roles::default().server_after(NUMBERING, 3, steps)).collect();
        assert_eq!(all, [3, 4, 0, 1, 2, 3]);
        assert!(roles.is_server(4) && !roles.is_server(3) && Roles::default().is_server(3));
    }
}
