//! Requests that were executed and may come again, since the daemon was restarted before they were
//! answered.
//!
//! A transaction over several shards usually answers its request, and then its intent goes. One
//! that was taken up after a restart has nobody to answer. It leaves its intent behind, without
//! steps, until the request comes again or its session ends. Such a request is answered, and not
//! executed once more. One that has cut a file goes on behind the cut.

use mayfly_meta::{StoreError, key, record::Intent};
use mayfly_types::SessionId;
use mayfly_wire::Request;

use crate::{
    api::Caller,
    fault::{Fault, Outcome, store_failed},
    maps::HashSet,
    message::{Question, TransactionId},
    shard::{Shard, state::task::Purpose},
    shards::slots::ShardId,
    transactions::state::{completed::Completed, transaction::Transaction},
};

impl Shard {
    /// The intent goes, or is kept for a request that will come again.
    pub(super) fn end_intent(
        &mut self,
        id: TransactionId,
        transaction: &Transaction,
    ) -> Result<(), StoreError> {
        let recovered = transaction.task.is_none();
        if let Some(file) = transaction.created_file() {
            if recovered || self.sessions.contains_key(&transaction.caller.session) {
                self.note_created(transaction.caller, file);
            }
            return self.store.delete(&key::intent(id.0)).map(drop);
        }
        let executed = transaction.executed();
        let goes_on = executed.cut.is_some() && transaction.goes_on();
        let kept = recovered || goes_on && self.sessions.contains_key(&transaction.caller.session);
        if kept && executed.request_id != 0 && self.is_known(transaction.caller.session) {
            self.store.put(&key::intent(id.0), &executed.encode())?;
            self.keep_finished(id, &executed, recovered)?;
        } else if !transaction.is_alone(self.place.shard) {
            self.store.delete(&key::intent(id.0))?;
        }
        Ok(())
    }

    /// What a request has done. What was noted of it before goes.
    pub(crate) fn note_finished(
        &mut self,
        request: (SessionId, u64),
        finished: Completed,
    ) -> Result<(), StoreError> {
        if let Some(before) = self.transactions.completed.insert(request, finished)
            && before.id != finished.id
        {
            self.store.delete(&key::intent(before.id.0))?;
        }
        Ok(())
    }

    fn keep_finished(
        &mut self,
        id: TransactionId,
        of: &Intent,
        recovered: bool,
    ) -> Result<(), StoreError> {
        let request = (SessionId(of.session), of.request_id);
        self.note_finished(request, Completed { id, cut: of.cut })?;
        if recovered && !self.place.alone {
            let question = Question::Executed(request.0, request.1);
            self.ask(self.place.numbering.front(), question, Purpose::Recovery);
        }
        Ok(())
    }

    pub(super) fn take_up_finished(
        &mut self,
        id: TransactionId,
        intent: &Intent,
    ) -> Result<(), StoreError> {
        if self.is_known(SessionId(intent.session)) {
            self.keep_finished(id, intent, true)?;
        } else {
            self.store.delete(&key::intent(id.0))?;
        }
        Ok(())
    }

    /// Nobody repeats a request of this session any more.
    pub(crate) fn forget_finished(&mut self, session: SessionId) {
        self.transactions.completed_elsewhere.retain(|request, _| request.0 != session);
        let theirs: Vec<_> = self
            .transactions
            .completed
            .keys()
            .copied()
            .filter(|request| request.0 == session)
            .collect();
        for request in theirs {
            if let Some(Completed { id, .. }) = self.transactions.completed.remove(&request)
                && let Err(error) = self.store.delete(&key::intent(id.0))
            {
                store_failed(&error);
            }
        }
    }

    /// Another shard has the answer to this request, whose lane is not known.
    pub(crate) fn note_executed(&mut self, request: (SessionId, u64), by: ShardId) {
        self.transactions.completed_elsewhere.insert(request, (by, None));
    }

    /// A process of this node goes on behind a request of which another shard has the answer. What
    /// that request has opened for the daemon before nobody will stand for.
    pub(crate) fn go_on_behind(&mut self, caller: Caller) {
        let is_over = |(session, request_id): &(SessionId, u64), lane: Option<u32>| {
            *session == caller.session
                && lane == Some(caller.lane)
                && *request_id < caller.request_id
        };
        let elsewhere = &mut self.transactions.completed_elsewhere;
        let over = elsewhere.extract_if(|request, (_, lane)| is_over(request, *lane));
        let numbering = self.place.numbering;
        let nodes = over.map(|(_, (shard, _))| numbering.node_of(shard));
        for node in nodes.filter(|node| *node != numbering.node).collect::<HashSet<u32>>() {
            // It may have sent the request on to another one of its shards.
            let first = numbering.front_of(node).0;
            for shard in first..first + numbering.shards {
                let Caller { session, lane, request_id } = caller;
                let question = Question::WentOn { session, lane, request_id };
                self.ask(ShardId(shard), question, Purpose::Nothing);
            }
        }
    }

    /// Whether an earlier daemon executed this request; its transaction is forgotten then, unless
    /// it was a cut, behind which the request goes on. What another node has executed is sent
    /// there, to be answered again.
    pub(crate) fn was_executed(&mut self, caller: Caller, request: &Request<'_>) -> Outcome<bool> {
        let by = (caller.session, caller.request_id);
        if let Some((shard, _)) = self.transactions.completed_elsewhere.remove(&by)
            && shard != self.place.shard
            // What names a description goes where that is anyway, under another name.
            && (request.open().is_none() || self.place.numbering.is_here(shard))
        {
            return Err(Fault::Elsewhere(shard, Box::default()));
        }
        let Some(Completed { id, cut }) = self.transactions.completed.get(&by).copied() else {
            return Ok(false);
        };
        if cut.is_some() {
            self.run.striped.cut_before = cut;
            return Ok(false);
        }
        self.transactions.completed.remove(&by);
        self.store.delete(&key::intent(id.0))?;
        Ok(true)
    }

    /// The request is answered: it is not to be told that it has cut a file any more.
    /// True when it was.
    pub(crate) fn forget_cut(&mut self, caller: Caller) -> bool {
        let by = (caller.session, caller.request_id);
        let kept = if self.transactions.completed.is_empty() {
            None
        } else {
            self.transactions.completed.get(&by).copied()
        };
        let Some(Completed { id, .. }) = kept.filter(|kept| kept.cut.is_some()) else {
            return false;
        };
        self.transactions.completed.remove(&by);
        if let Err(error) = self.store.delete(&key::intent(id.0)) {
            store_failed(&error);
        }
        true
    }
}
