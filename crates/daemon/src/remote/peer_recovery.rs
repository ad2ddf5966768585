//! Nodes that were restarted, as the others see it.
//!
//! What a shard has promised to others it keeps in memory: claims, and who remembers its names. On
//! one node all shards die together. A shard of a node that comes back asks the others which of
//! their operations it still has a part in, before it serves anybody; by this they learn of it.
//! What they had decided they tell, and it takes its claims again. They plan anew the steps that
//! they had not done, and forget its names that they remember. Of its own operations they ask which
//! ones it has decided; the claims of all others they give back.
//!
//! Proxies of descriptions at another node are asked for whenever that node can be reached again
//! (`proxies.rs`).
//!
//! A node that cannot be reached until the deadline of a question is not waited for: what it
//! remembers has run out by then (`LEASE_SECONDS`). An operation that it had decided and not
//! finished may then meet what was changed meanwhile, which is logged.

use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed};

use mayfly_meta::{Scan, StoreError, key, record::Step};
use mayfly_types::SessionId;

use crate::{
    fault::store_failed,
    message::{Answer, Executed, Question, TransactionId},
    shard::{Shard, state::task::Purpose},
    shards::{numbering::origin, slots::ShardId},
    transactions::state::transaction::Phase,
};

impl Shard {
    /// Asks all shards of other nodes, if an earlier daemon may have agreed anything with them. One
    /// that has committed nothing may have: it asks for claims before it writes.
    pub(crate) fn say_returned(&mut self) {
        let numbering = self.place.numbering;
        let restarted = self.node.head.daemon_starts.load(Relaxed) > 1;
        if !restarted && self.store.committed_transaction() == 0 {
            return;
        }
        let all = (0..numbering.all()).map(ShardId);
        for shard in all.filter(|shard| !numbering.is_here(*shard)) {
            self.ask(shard, Question::Returned, Purpose::Recovery);
        }
    }

    /// A shard of another node is back. Its front hears of the requests of its processes.
    pub(crate) fn welcome_back(&mut self, shard: ShardId) -> Answer {
        let node = self.place.numbering.node_of(shard);
        let is_front = shard == self.place.numbering.front_of(node);
        let executed = if is_front { self.executed_for(node) } else { Vec::new() };
        Answer::Involved { operations: self.shard_returned(shard), executed }
    }

    /// Requests of a node's processes that are being executed here, or whose answers are kept. The
    /// node passes them on to here when they come again: following their paths anew may lead
    /// elsewhere by now, or nowhere, since what they changed has been changed by others.
    fn executed_for(&mut self, node: u32) -> Vec<Executed> {
        let number = |session| origin(session).filter(|(of, _)| *of == node).map(|(_, own)| own);
        let finished = self.transactions.completed.keys();
        let mut executed: Vec<Executed> = self
            .remote
            .noted()
            .map(|of| (of.session, Some(of.lane), of.request_id))
            .chain(finished.map(|(session, request_id)| (*session, None, *request_id)))
            .filter_map(|(session, lane, request_id)| {
                Some(Executed { session: number(session)?, lane, request_id })
            })
            .collect();
        let kept = self.store.scan(&[key::ANSWER], &[key::ANSWER], &mut |key, record| {
            if let Some((session, lane)) = key::split_answer(key)
                && let Some(session) = number(SessionId(session))
                && let Some(request_id) = record.first_chunk()
            {
                let request_id = u64::from_le_bytes(*request_id);
                executed.push(Executed { session, lane: Some(lane), request_id });
            }
            Scan::More
        });
        if let Err(error) = kept {
            store_failed(&error);
        }
        executed
    }

    pub(crate) fn recovery_answered(
        &mut self,
        from: ShardId,
        question: &Question,
        answer: &Answer,
    ) {
        if let (Question::IsOver(id), Answer::Over(true)) = (question, answer)
            && let Err(error) = self.clear_marks(*id)
        {
            store_failed(&error);
        }
        if let Answer::Involved { operations, executed } = answer {
            self.take_part_again(operations);
            let living = executed.iter().filter(|of| self.sessions.contains_key(&of.session));
            let executed = living.map(|of| ((of.session, of.request_id), (from, of.lane)));
            self.transactions.completed_elsewhere.extend(executed);
        }
    }

    /// A shard that was started anew may not know any more what it told, and to whom.
    pub(crate) fn forget_what_others_said(&mut self) {
        self.namespace.cache.forget_leases();
        self.hide_names();
        self.recall_paths_elsewhere();
        self.void(|question| matches!(question, Question::Lookup { .. } | Question::File { .. }));
    }

    /// What was agreed with it and not decided is void.
    fn shard_returned(&mut self, shard: ShardId) -> Vec<(TransactionId, Vec<Step>)> {
        self.forget_what_others_said();
        self.forget_prepares(|transaction| transaction.shard() == shard.0);
        self.let_ends_of(shard);
        // What it held it does not hold any more.
        self.void(|question| matches!(question, Question::HoldEnd { .. }));
        for transaction in self.unfinished_of(|of| of == shard) {
            self.ask(shard, Question::IsOver(transaction), Purpose::PrepareLocks(transaction));
        }
        let elector = self.elector();
        if shard == elector {
            self.tasks.unelect();
        }
        let mut involved = Vec::new();
        for (id, transaction) in &mut self.transactions.running {
            let elected = shard == elector && transaction.run.transaction.elected;
            let mut steps = transaction.steps(shard).to_vec();
            if elected {
                steps.push(Step::Elect);
            }
            if steps.is_empty() {
                continue;
            }
            if let Phase::Applying(_) = transaction.phase {
                involved.push((*id, steps));
            } else {
                transaction.run.transaction.elected &= !elected;
                transaction.void();
            }
        }
        involved
    }

    /// Operations of which this shard has done a wave and has not heard since that they are over.
    pub(crate) fn applied_here(&mut self) -> Result<Vec<TransactionId>, StoreError> {
        let mut marks: Vec<TransactionId> = Vec::new();
        self.store.scan(&[key::APPLIED], &[key::APPLIED], &mut |key, _| {
            marks.extend(key::split_applied(key).map(TransactionId));
            Scan::More
        })?;
        marks.dedup();
        Ok(marks)
    }

    /// Operations of other shards of which there is something here: claims, or what says that a
    /// wave was done. After the last wave there is only that, and its coordinator may have died
    /// before it said that all is over.
    pub(super) fn unfinished_of(
        &mut self,
        is_it: impl Fn(ShardId) -> bool,
    ) -> BTreeSet<TransactionId> {
        let applied = self.applied_here().unwrap_or_else(|error| {
            // They are asked about at the next start.
            store_failed(&error);
            Vec::new()
        });
        let all = self.transactions.prepare_locks.holders().chain(applied);
        all.filter(|transaction| is_it(ShardId(transaction.shard()))).collect()
    }

    /// Takes the claims of decided operations again.
    pub(super) fn take_part_again(&mut self, operations: &[(TransactionId, Vec<Step>)]) {
        for (id, steps) in operations {
            self.transactions.next_age = self.transactions.next_age.max(id.age());
            if !self.remote.over.contains(id) {
                self.set_aside(*id, steps);
            }
        }
    }
}
