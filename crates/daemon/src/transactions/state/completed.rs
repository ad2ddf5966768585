//! What [`crate::transactions::completed`] keeps and works with.

use mayfly_types::FileId;

use crate::message::TransactionId;

/// A transaction that an earlier daemon decided, and whose request may come again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completed {
    pub(crate) id: TransactionId,
    /// The file that it has cut. The rest of the request is still to be done.
    pub(crate) cut: Option<FileId>,
}
