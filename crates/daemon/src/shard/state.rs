//! What the part keeps, and the words that its operations use. Nothing here knows the shard.

pub(crate) mod run;
pub(crate) mod task;
