//! What [`crate::striping::object_append`] keeps and works with.

use crate::api::Caller;

/// What a part has had of one append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    pub(crate) by: Caller,
    /// From where to where in the file. What is another part's may be in between.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where the node's memory has it, if there was room.
    pub(crate) place: Option<usize>,
}
