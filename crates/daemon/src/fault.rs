//! How an operation ends: with a result, or with what keeps it from having one.

use mayfly_meta::StoreError;
use mayfly_types::Errno;
use mayfly_wire::Full;

use crate::{
    files::state::preparation::Preparation,
    log,
    message::{Question, Resolved},
    shards::slots::ShardId,
    tier::state::wanted::Wanted,
    transactions::state::transaction::Steps,
};

/// Why an operation has no reply with status 0.
#[derive(Debug)]
pub(crate) enum Fault {
    Errno(Errno),
    /// The walk left the instance at this path of the host.
    Escaped(Vec<u8>),
    /// These facts are missing.
    Ask(Vec<(ShardId, Question)>),
    /// The request is another shard's.
    Elsewhere(ShardId, Box<Resolved>),
    /// This has to be done to an object first.
    Prepare(Preparation),
    /// This has to be done outside the instance first.
    Outside(Box<Wanted>),
    /// A claim of an operation over several shards is in the way.
    Busy,
    /// The file that a name led to is gone: what does the name stand for now?
    Again,
    /// These steps of several shards are what is to be done.
    Operate(Steps),
}

impl Fault {
    /// For work that is all of this shard's.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Fault::Errno(errno) => *errno,
            Fault::Escaped(_)
            | Fault::Ask(_)
            | Fault::Prepare(_)
            | Fault::Outside(_)
            | Fault::Elsewhere(..)
            | Fault::Busy
            | Fault::Again
            | Fault::Operate(_) => Errno::EIO,
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Fault::Errno(errno)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        // The store has closed itself when it must; the asker learns that nobody knows.
        Fault::Errno(store_failed(&error))
    }
}

/// A store's error is handled here: it is said once, and whoever asked gets EIO.
pub(crate) fn store_failed(error: &StoreError) -> Errno {
    // A closed store was said to be broken when it was closed.
    if !matches!(error, StoreError::Poisoned) {
        log::error("metadata", error);
    }
    Errno::EIO
}

impl From<Full> for Fault {
    fn from(Full: Full) -> Self {
        Fault::Errno(Errno::EOVERFLOW)
    }
}

/// Result of a step of an operation.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// How an operation ended that did not fail.
pub(crate) enum Served {
    Replied,
    Pending,
}
