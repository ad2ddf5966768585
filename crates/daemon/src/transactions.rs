//! Changes at several shards that happen wholly or not at all.
//!
//! The shard that has the request *coordinates*: it has every step prepared where it is to be made
//! (`prepare_locks.rs` keeps others away meanwhile), writes down that the transaction happens
//! (`transaction.rs`), and has the steps made (`shard/step.rs`, since a step is some part's own
//! work). `completed.rs` keeps what was answered, for requests that come again.
//!
//! Invariants:
//! - From the moment the coordinator's intent is committed, the transaction happens, whoever dies.
//!   Before, it does not.
//! - The older transaction goes first: there is no wait in a circle.
//! - A request that comes again after a daemon's death finds its answer, and is not executed twice.

pub(crate) mod completed;
pub(crate) mod prepare_locks;
pub(crate) mod state;
pub(crate) mod transaction;

use mayfly_types::SessionId;

use crate::{
    maps::HashMap,
    message::TransactionId,
    shards::slots::ShardId,
    transactions::state::{
        completed::Completed, prepare_locks::PrepareLocks, transaction::Transaction,
    },
};

/// What a shard keeps in mind of changes at several shards.
pub(crate) struct Transactions {
    /// What is claimed here by transactions under way.
    pub(crate) prepare_locks: PrepareLocks,
    /// Those that this shard coordinates.
    pub(crate) running: HashMap<TransactionId, Transaction>,
    /// Age of the last one, of any shard, as far as known.
    pub(crate) next_age: u64,
    /// Requests that an earlier daemon executed and perhaps did not answer.
    pub(crate) completed: HashMap<(SessionId, u64), Completed>,
    /// The same at other shards.
    pub(crate) completed_elsewhere: HashMap<(SessionId, u64), (ShardId, Option<u32>)>,
}

impl Transactions {
    /// They are numbered from here on: no earlier daemon's have these numbers.
    pub(crate) fn numbered_from(first: u64) -> Transactions {
        Transactions {
            prepare_locks: PrepareLocks::default(),
            running: HashMap::default(),
            next_age: first,
            completed: HashMap::default(),
            completed_elsewhere: HashMap::default(),
        }
    }
}
