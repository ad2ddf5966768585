//! The state of the part, and the types that its operations use. Nothing here knows the shard.

pub(crate) mod attr;
pub(crate) mod dentry;
pub(crate) mod inode;
pub(crate) mod member;
pub(crate) mod open;
pub(crate) mod remembered;
pub(crate) mod removed;
pub(crate) mod seats;
pub(crate) mod walk;
