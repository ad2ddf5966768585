//! The state of the part, and the types that its transactions use. Nothing here knows the shard.

pub(crate) mod completed;
pub(crate) mod prepare_locks;
pub(crate) mod progress;
pub(crate) mod transaction;
