//! What [`crate::striping::object_leave`] keeps and works with.

use mayfly_object::ObjectId;

/// What the processes of the node were given leave for.
#[derive(Debug)]
pub(crate) struct Leave {
    /// Index of the file's entry in the node's table.
    pub(crate) entry: u32,
    pub(crate) object: ObjectId,
    /// They may write up to here, bytes of the object; `None` when they may only read.
    pub(crate) allowance_end: Option<u64>,
    /// Nothing is set aside beyond what the object had when that was last looked at.
    pub(crate) trimmed: bool,
}
