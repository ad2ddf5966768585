//! The other nodes of an instance.

use std::net::SocketAddr;

/// Which node this is, and where the others are. All daemons of an instance have the same list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// This node: an index of `addresses`.
    pub me: u32,
    /// Where each node's daemon listens; its length is the number of nodes.
    pub addresses: Vec<SocketAddr>,
    /// Which instance.
    pub instance: [u8; 16],
    /// Whether what daemons say to each other is sealed.
    pub encrypt: bool,
    /// Threads that talk to other nodes; `None`: by the processors.
    pub threads: Option<usize>,
    /// How long a request of a client or of a shard waits for another node, milliseconds.
    pub deadline_ms: u64,
}
