//! What goes to other nodes' daemons and comes from them.
//!
//! `net.rs` sends requests and questions and knows what is on the way; `incoming.rs` is what the
//! serving thread does with what comes. `network.rs` is the seam to the connections themselves,
//! `nodes.rs` who the other nodes are.
//!
//! Invariants:
//! - What was sent is answered, or lost at its deadline. Nobody waits longer.
//! - A request that may have been executed is sent again only to be answered from what was kept.

pub(in crate::serve) mod door;
pub(in crate::serve) mod incoming;
pub(crate) mod net;
pub(in crate::serve) mod nodes;
pub(in crate::serve) mod others;
pub(in crate::serve) mod peer_network;
