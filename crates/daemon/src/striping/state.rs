//! The state of the part, and the types that its operations use. Nothing here knows the shard.

pub(crate) mod file;
pub(crate) mod file_append;
pub(crate) mod file_size;
pub(crate) mod object;
pub(crate) mod object_append;
pub(crate) mod object_change;
pub(crate) mod object_hold;
pub(crate) mod object_leave;
pub(crate) mod run;
