//! The state of the part, and the types that its operations use. Nothing here knows the shard.

pub(crate) mod requests;
