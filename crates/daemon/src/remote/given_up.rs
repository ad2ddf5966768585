//! Requests that their processes have given up.
//!
//! A request may be executed long after its process has seen its deadline pass, and the process has
//! its lane back then. One that only waits, for what an operation has set aside or for what another
//! shard can tell of a name, has written nothing: it ends with EIO, which is what its process was
//! told. So requests that meet a name which a lost node's operation holds do not gather here. One
//! that has written nothing and waits for something else ends when that has come, and an operation
//! that is not decided is not decided any more. Any other one goes on, since a part of it is done;
//! and what ends something (a close, an unlock) is done whoever waits for it.
//!
//! Nobody has what such a request opens, so that is closed (`proxies.rs`), and a wait for a lock
//! ends as if it was interrupted. The answer to another node's request is kept as always, unless
//! its lane has gone on: what is kept there tells of a later request.

use mayfly_types::Errno;
use mayfly_wire::Op;

use crate::{
    api::Caller,
    message::Question,
    shard::{
        Shard,
        state::{run::Run, task::Task},
    },
};

/// Whether a request can end while it waits, as far as its kind goes.
fn may_end(op: Op) -> bool {
    !matches!(op, Op::Close | Op::Lock | Op::MoveLock | Op::Cancel | Op::Tell)
}

/// Whether this changes nothing where it is asked.
fn only_looks(question: &Question) -> bool {
    matches!(
        question,
        Question::Lookup { .. }
            | Question::LinkTarget { .. }
            | Question::Directory(_)
            | Question::Member(_)
            | Question::Entries { .. }
            | Question::Await(_)
    )
}

impl Run {
    /// It was given up and has written nothing: there is no more to do for a request of this kind.
    pub(crate) fn is_over(&self, op: Op) -> bool {
        self.given_up && may_end(op) && self.has_written_nothing()
    }
}

impl Shard {
    /// Nobody waits for this request any more.
    pub(crate) fn give_up_request(&mut self, caller: Caller) {
        self.mark_given_up(caller);
        self.end_waiting(caller);
        if self.drop_held(caller) {
            self.push_answer(caller, Errno::EIO.raw() as u32, Vec::new());
        }
        self.cancel_here(caller.session, caller.request_id);
        self.give_up_open(caller);
    }

    /// Ends it if it is blocked, or suspended until others have answered who only look.
    fn end_waiting(&mut self, caller: Caller) {
        let is_over = |task: &Task, run: &Run| task.is_of(caller) && run.is_over(task.op());
        let blocked = self.tasks.take_blocked(is_over);
        let waiting = blocked.or_else(|| self.tasks.take_suspended(is_over, only_looks));
        if let Some(run) = waiting.or_else(|| self.tier.take_waiting(is_over)) {
            self.run = run;
            self.end_given_up(caller);
        }
    }

    /// Ends the present run, of a request that has written nothing.
    pub(crate) fn end_given_up(&mut self, caller: Caller) {
        self.end_run();
        self.forget_change(caller);
        self.end_in_doubt_of(caller);
        self.push_answer(caller, Errno::EIO.raw() as u32, Vec::new());
        self.run = Run::default();
    }

    /// Wherever it is at, it is known that nobody waits.
    fn mark_given_up(&mut self, caller: Caller) {
        let tasks = self.tasks.waiting().chain(self.files.preparations.tasks());
        let tasks = tasks.chain(self.tier.tasks());
        for (_, run) in tasks.filter(|(task, _)| task.is_of(caller)) {
            run.given_up = true;
        }
        let mut operations = self.transactions.running.values_mut();
        if let Some(transaction) = operations.find(|transaction| transaction.caller == caller) {
            transaction.run.given_up = true;
        }
        if self.remote.is_noted(caller) {
            self.remote.given_up.insert(caller);
        }
    }

    /// Whether the request was given up, or its daemon is gone so that nobody could say so, and its
    /// lane has gone on: a later answer is kept there.
    pub(super) fn is_outlived(&mut self, caller: Caller) -> bool {
        let given_up = !self.remote.given_up.is_empty() && self.remote.given_up.remove(&caller);
        let unheard = !self.remote.unheard.is_empty() && self.remote.unheard.contains(&caller);
        (given_up || unheard) && self.has_later_answer(caller)
    }
}
