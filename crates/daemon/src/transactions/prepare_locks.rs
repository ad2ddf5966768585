//! What transactions over several shards have set aside until they are finished.
//!
//! A transaction claims at every shard that takes part what it is going to change there, and
//! changes nothing before it has all its claims. Whoever finds a claim in the way waits: a
//! transaction of this shard alone, which claims nothing, until the claim is gone; another
//! transaction over several shards only if it is the older one. The younger one gives back what it
//! has, and begins again when the way is free (*wait-die*, Rosenkrantz, Stearns and Lewis 1978). So
//! nobody waits in a circle. A transaction keeps its age, so each one is the oldest some day.
//!
//! Reading needs no claim: until the transaction is acknowledged, what was before it is a right
//! answer. Only how many names a file has is told together with the names: a link is counted at one
//! shard and its name made at another, not at one moment, and who saw the one must not look for the
//! other in vain. So who wants to tell that number waits for the transaction that changes it
//! ([`Shard::links_at_rest`]). He holds no claim, and a transaction that has its claims waits for
//! nobody who looks, so this makes no circle either. Where there is one shard there are no claims:
//! both are changed by one run and committed with it, and who reads the records sees both or none.

use mayfly_meta::record::Step;
use mayfly_types::FileId;

use std::sync::atomic::Ordering::SeqCst;

use crate::{
    fault::{Fault, Outcome},
    message::TransactionId,
    shard::Shard,
    transactions::state::{prepare_locks::PrepareLock, transaction::wanted},
};

impl Shard {
    /// Locks what the steps of a transaction change.
    pub(crate) fn set_aside(&mut self, transaction: TransactionId, steps: &[Step]) {
        self.end_leaves_of(steps);
        self.transactions.prepare_locks.take(transaction, wanted(steps));
        self.show_prepare_locks();
    }

    /// Processes that read the records by themselves see whether these may show a part of a
    /// transaction.
    pub(crate) fn show_prepare_locks(&self) {
        if self.has_rings() {
            let held = !self.transactions.prepare_locks.is_empty();
            self.node.head.transactions.store(held.into(), SeqCst);
        }
    }

    /// Waits while a transaction over several shards changes how many names the file has. What is
    /// only being prepared by this shard has changed nothing anywhere; of another shard's
    /// transaction nobody here knows how far it is.
    pub(crate) fn links_at_rest(&self, file: FileId) -> Outcome<()> {
        if self.transactions.prepare_locks.is_empty() {
            return Ok(());
        }
        let holder =
            self.transactions.prepare_locks.in_the_way(&[(PrepareLock::Links(file), false)], None);
        match holder.map(|holder| self.transactions.running.get(&holder)) {
            None => Ok(()),
            Some(Some(transaction)) if !transaction.is_decided() => Ok(()),
            Some(_) => Err(Fault::Busy),
        }
    }
}
