//! The state of the part, and the types that its operations use. Nothing here knows the shard.

pub(crate) mod attributes;
pub(crate) mod covered_directories;
pub(crate) mod cycles;
pub(crate) mod delegation;
pub(crate) mod file_leases;
pub(crate) mod mount_names;
pub(crate) mod mounts;
pub(crate) mod name_table;
pub(crate) mod submissions;
