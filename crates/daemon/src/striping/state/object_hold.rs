//! What [`crate::striping::object_hold`] keeps and works with.

use crate::{message::Append, shards::slots::ShardId};

/// Nobody makes a part longer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    /// The file's home, and the append.
    pub(crate) by: (ShardId, Append),
    /// Up to where in the file the part reaches, bytes; `None` while writes are under way.
    pub(crate) end: Option<u64>,
}
