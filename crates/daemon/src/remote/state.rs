//! The state of the part, and the types that its operations use. Nothing here knows the shard.

pub(crate) mod ahead;
pub(crate) mod behind;
pub(crate) mod own_requests;
pub(crate) mod requests;
