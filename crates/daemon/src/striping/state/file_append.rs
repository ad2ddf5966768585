//! What [`crate::striping::file_append`] keeps and works with.

use mayfly_types::FileId;

use crate::message::Append;

/// Parts of a file that do not become longer.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) file: FileId,
    pub(crate) append: Append,
    pub(crate) shards: Vec<u32>,
    /// The turn was taken for this alone.
    pub(crate) turn: bool,
}
