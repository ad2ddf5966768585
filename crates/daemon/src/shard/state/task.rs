//! What [`crate::shard::task`] keeps and works with.

use std::collections::VecDeque;

use mayfly_transport_tcp::Body;
use mayfly_types::FileId;
use mayfly_wire::Op;

use crate::{
    api::{Caller, Completion},
    locks::table::WaitId,
    maps::HashMap,
    message::{Message, Question, TransactionId},
    shard::state::run::Run,
    shards::slots::ShardId,
};

/// How often a walk is begun anew because the file that a name led to was gone.
pub(crate) const RESTARTS_MAX: u32 = 1000;

/// Something that is put aside.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    Request { caller: Caller, op: Op, body: Body },
    Question { from: ShardId, id: u64, question: Question },
}

impl Task {
    pub(crate) fn is_of(&self, by: Caller) -> bool {
        matches!(self, Task::Request { caller, .. } if *caller == by)
    }

    /// Of a question: that of a request which changes nothing.
    pub(crate) fn op(&self) -> Op {
        match self {
            Task::Request { op, .. } => *op,
            Task::Question { .. } => Op::Ping,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Suspended {
    pub(crate) task: Task,
    pub(crate) run: Run,
    pub(crate) missing: usize,
}

/// What an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A suspended task.
    Fact(u64),
    /// An operation over several shards.
    Transaction(TransactionId),
    /// Getting ready after a restart.
    Recovery,
    /// The claims of an operation whose coordinator was restarted.
    PrepareLocks(TransactionId),
    /// The size of a striped file is to be settled; the number of the attempt.
    Settle(FileId, u64),
    /// The parts of this generation are to go.
    DropParts(FileId, u32),
    /// Whether a wait for a lock can end; the number of the attempt.
    DeadlockSearch(WaitId, u64),
    /// For which of its descriptions here this node stands.
    Proxies(u32),
    /// What a look at a directory outside has found; the number of the item.
    Seats(u64),
    /// To be remembered, as asked at this second.
    Remembered(i64),
    /// Nothing: it is only to be done.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) to: ShardId,
    pub(crate) question: Question,
    pub(crate) purpose: Purpose,
    /// What happened meanwhile may make the answer wrong.
    pub(crate) void: bool,
}

/// All that waits, and all that is on its way.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) next: u64,
    pub(crate) suspended: HashMap<u64, Suspended>,
    pub(crate) asked: HashMap<u64, Asked>,
    /// Wait for claims of this shard.
    pub(crate) blocked: Vec<(Task, Run)>,
    pub(crate) runnable: VecDeque<(Task, Run)>,
    pub(crate) unsent: Vec<(ShardId, Message)>,
    pub(crate) sendable: Vec<(ShardId, Message)>,
    pub(crate) answers: Vec<Completion>,
    /// Room for the reply of a task.
    pub(crate) buffer: Vec<u8>,
    /// Room for a request that is put aside.
    pub(crate) encoded: Vec<u8>,
    /// Questions of [`Purpose::Recovery`] that are not answered.
    pub(crate) recovering: usize,
}

impl Tasks {
    pub(crate) fn send(&mut self, to: ShardId, message: Message) {
        self.unsent.push((to, message));
    }

    /// A task that waits for claims is taken out; what was known of it.
    pub(crate) fn take_blocked(&mut self, is_it: impl Fn(&Task, &Run) -> bool) -> Option<Run> {
        let at = self.blocked.iter().position(|(task, run)| is_it(task, run))?;
        Some(self.blocked.remove(at).1)
    }

    /// A task is taken out that waits for answers, if `may_be_lost` is true of all of these.
    pub(crate) fn take_suspended(
        &mut self,
        is_it: impl Fn(&Task, &Run) -> bool,
        may_be_lost: impl Fn(&Question) -> bool,
    ) -> Option<Run> {
        let found = self.suspended.iter().find(|(_, of)| is_it(&of.task, &of.run));
        let id = *found?.0;
        let mut asked = self.asked.values().filter(|asked| asked.purpose == Purpose::Fact(id));
        if !asked.all(|asked| may_be_lost(&asked.question)) {
            return None;
        }
        self.suspended.remove(&id).map(|of| of.run)
    }

    /// Everything that waits, with what is known of it.
    pub(crate) fn waiting(&mut self) -> impl Iterator<Item = (&Task, &mut Run)> {
        let suspended = self.suspended.values_mut().map(|of| (&of.task, &mut of.run));
        let others = self.blocked.iter_mut().chain(&mut self.runnable);
        suspended.chain(others.map(|(task, run)| (&*task, run)))
    }

    /// Nobody has the right to move directories that was given to him before.
    pub(crate) fn unelect(&mut self) {
        for (_, run) in self.waiting() {
            run.transaction.elected = false;
            run.facts.retain(|(_, question, _)| !matches!(question, Question::Prepare { .. }));
        }
    }

    pub(crate) fn answer(&mut self, done: Completion) {
        self.answers.push(done);
    }
}
