//! How far a run is with its transaction.

use crate::message::TransactionId;

/// What a run has of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Its number, once it needs one; the same in each attempt.
    pub(crate) number: Option<TransactionId>,
    /// It has the right to move directories.
    pub(crate) elected: bool,
    /// What it had to change at other shards is done.
    pub(crate) is_done: bool,
}

impl Progress {
    /// It has needed no transaction so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.number.is_none() && !self.elected && !self.is_done
    }
}
