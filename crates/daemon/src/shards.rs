//! Which shards there are, on which nodes, and who owns what.
//!
//! `numbering.rs` numbers shards over all nodes, `roles.rs` says what a node is for, `slots.rs`
//! deals the namespace out to shards, and `totals.rs` has the counters that the shards of a node
//! read from each other. Nothing here changes while an instance runs.

pub(crate) mod numbering;
pub(crate) mod planted;
pub(crate) mod roles;
pub(crate) mod slots;
pub(crate) mod totals;
