//! Requests of other nodes' processes, and for other nodes.
//!
//! A request whose file is at home on another node is sent there, and the description that its
//! process has here is a *proxy* of the one there (`requests.rs`, `proxies.rs`). A request that
//! nobody waits for any more is ended wherever it is (`given_up.rs`). A node that comes back tells
//! and is told what each has of the other (`peer_recovery.rs`).
//!
//! Under session consistency small writes are sent on later (`behind.rs`), and who reads on is read
//! ahead for (`ahead.rs`), by requests of the daemon's own (`own_requests.rs`).
//!
//! Invariants:
//! - A request that comes again after either node's daemon died is executed once.
//! - A description ends at its home when its last proxy has ended, also when a node died.

mod ahead;
mod behind;
pub(crate) mod given_up;
pub(crate) mod own_requests;
pub(crate) mod peer_recovery;
pub(crate) mod proxies;
pub(crate) mod requests;
pub(crate) mod state;

pub(crate) use state::requests::Remote;
