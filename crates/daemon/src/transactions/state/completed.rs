//! What [`crate::transactions::completed`] keeps and works with.

use mayfly_types::FileId;

use crate::message::OperationId;

/// An operation that an earlier daemon decided, and whose request may come again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    pub(crate) id: OperationId,
    /// The file that it has cut. The rest of the request is still to be done.
    pub(crate) cut: Option<FileId>,
}
