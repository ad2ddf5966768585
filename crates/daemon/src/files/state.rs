//! The state of the part, and the types that its operations use. Nothing here knows the shard.

pub(crate) mod allocate;
pub(crate) mod append;
pub(crate) mod background;
pub(crate) mod data;
pub(crate) mod in_doubt;
pub(crate) mod preparation;
pub(crate) mod preparations;
pub(crate) mod readiness;
