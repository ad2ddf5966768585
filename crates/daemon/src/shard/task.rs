//! Work that waits for other shards.
//!
//! An operation is a plain function of what the shard has at hand. An operation that lacks
//! something from elsewhere fails with [`Fault::Ask`]. It has written nothing so far. So it is put
//! aside. When the answers are there, it is run again from its beginning, with the answers as
//! *facts*. So an operation reads the same whether everything is here or not, and where everything
//! is here, which with one shard it always is, nothing of this costs anything.
//!
//! An operation that belongs to another shard is sent there ([`Fault::Elsewhere`]). One that finds
//! a claim in its way waits for it ([`Fault::Busy`]). One that is to change several shards hands
//! its steps to `transactions/transaction.rs` ([`Fault::Operate`]).

use std::collections::VecDeque;

use mayfly_transport_tcp::{Body, Bytes};
use mayfly_types::{Errno, FileId, limits::REPLY_BYTES_MAX};
use mayfly_wire::{Inspect, Op, RemoveStray, Request, Sync, Target, TierAsk};

use crate::{
    api::{Caller, Completion, Progress},
    fault::{Fault, Outcome},
    log,
    message::{Answer, At, Forward, Message, Question, Resolved, TransactionId, request_in},
    shard::{
        Shard,
        state::{
            run::Run,
            task::{Asked, Purpose, RESTARTS_MAX, Suspended, Task},
        },
    },
    shards::{numbering::OWN_SESSION, slots::ShardId},
    transactions::state::prepare_locks::Wanted,
};

impl Shard {
    /// A fact about another shard. Nothing may have been written before.
    pub(crate) fn fact(&mut self, shard: ShardId, question: Question) -> Outcome<Answer> {
        let known = self.run.facts.iter().find(|fact| fact.0 == shard && fact.1 == question);
        match known {
            Some((_, _, answer)) => Ok(answer.clone()),
            None => Err(Fault::Ask(vec![(shard, question)])),
        }
    }

    /// A fact about another shard that is known, whatever else was asked.
    pub(crate) fn known_fact(
        &self,
        shard: ShardId,
        is_it: impl Fn(&Question) -> bool,
    ) -> Option<Answer> {
        let known = self.run.facts.iter().find(|fact| fact.0 == shard && is_it(&fact.1));
        known.map(|(_, _, answer)| answer.clone())
    }

    /// The same fact about several shards, in their order.
    pub(crate) fn facts(&mut self, shards: &[u32], question: &Question) -> Outcome<Vec<Answer>> {
        let mut answers = Vec::with_capacity(shards.len());
        let mut missing = Vec::new();
        for shard in shards {
            match self.fact(ShardId(*shard), question.clone()) {
                Ok(answer) => answers.push(answer),
                Err(Fault::Ask(questions)) => missing.extend(questions),
                Err(fault) => return Err(fault),
            }
        }
        if missing.is_empty() { Ok(answers) } else { Err(Fault::Ask(missing)) }
    }

    /// From here on what other shards said before does not count.
    pub(crate) fn forget_facts(&mut self) {
        self.run.facts.clear();
        self.run.striped.facts = None;
    }

    /// Waits when an operation over several shards has set one of these aside.
    pub(crate) fn unclaimed(&mut self, wanted: impl FnOnce() -> Vec<Wanted>) -> Outcome<()> {
        if self.transactions.prepare_locks.is_empty() {
            return Ok(());
        }
        match self.transactions.prepare_locks.in_the_way(&wanted(), self.run.transaction.number) {
            None => Ok(()),
            Some(_) => Err(Fault::Busy),
        }
    }

    /// The number of the operation that runs.
    pub(crate) fn operation_id(&mut self) -> TransactionId {
        let (age, shard) = (&mut self.transactions.next_age, self.place.shard.0);
        *self.run.transaction.number.get_or_insert_with(|| {
            *age += 1;
            TransactionId::new(*age, shard)
        })
    }

    pub(crate) fn ask(&mut self, to: ShardId, question: Question, purpose: Purpose) {
        self.tasks.next += 1;
        let id = self.tasks.next;
        self.tasks.recovering += usize::from(purpose == Purpose::Recovery);
        self.tasks.send(to, Message::Ask(id, question.clone()));
        self.tasks.asked.insert(id, Asked { to, question, purpose, void: false });
    }

    /// Takes in a message of another shard, or of this one. It executes one request at most: its
    /// answer appears in [`Shard::answers`], to be stored before anything else is handed in, since
    /// that may commit. A commit must follow, and then [`Shard::outbox`].
    pub fn deliver(&mut self, from: ShardId, message: Message) {
        self.look_at_clocks();
        self.namespace.found_file = None;
        match message {
            Message::Forward(forward) => self.take_forwarded(*forward, false),
            Message::Unheard(forward) => self.take_forwarded(*forward, true),
            Message::Cancel(session, request_id) => self.cancel_here(session, request_id),
            Message::GivenUp(caller) => self.give_up_request(caller),
            Message::LookAgain(session, request_id) => {
                self.remote.heard_again(session, request_id);
                self.look_again_at(session, request_id);
            }
            Message::Ask(id, question) => {
                self.run_task(Task::Question { from, id, question }, Run::default());
            }
            Message::Answer(id, answer) => self.take_answer(id, answer),
            Message::OwnDone(done) => self.own_answered(&done),
            Message::SendOn(to, forward) => self.send_on_behind(to, *forward),
            Message::Proceed => {
                if let Some((task, run)) = self.tasks.runnable.pop_front() {
                    self.run_task(task, run);
                }
            }
        }
    }

    /// A request of this node was sent on to this place, where others like it go.
    pub(crate) fn learn(&mut self, place: &Resolved) {
        self.learn_seat(place);
        if let At::Part(place) = &place.at {
            self.learn_layout(place);
        }
    }

    /// Another shard goes on with the request. Whoever answers it keeps the answer.
    pub(crate) fn pass_to(&mut self, shard: ShardId, forward: Forward) {
        let unheard = self.remote.sent_on(forward.caller);
        let message = if unheard { Message::Unheard } else { Message::Forward };
        self.tasks.send(shard, message(Box::new(forward)));
    }

    /// A request is this shard's; `unheard`: of a daemon that is gone.
    fn take_forwarded(&mut self, forward: Forward, unheard: bool) {
        if self.answer_again(&forward) {
            return;
        }
        let Forward { caller, op, body, place } = forward;
        if unheard {
            self.remote.unheard.insert(caller);
        }
        self.learn_seat(&place);
        self.begin_request(caller);
        let run = Run::at(place);
        self.run_task(Task::Request { caller, op, body }, run);
    }

    /// How far a directory is spread, as a request says that was sent here for one of its names.
    fn learn_seat(&mut self, place: &Resolved) {
        if let At::Path(directory, _, upto) = &place.at {
            self.namespace.seats.learn(*directory, *upto);
        }
    }

    /// Requests that were pending and were executed since the last call. To be stored where they
    /// survive before the batch is committed, and to be sent after it.
    pub fn answers(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.tasks.answers)
    }

    /// Messages, to other shards and to this one, that may be sent now. To be asked for after each
    /// commit.
    pub fn outbox(&mut self) -> Vec<(ShardId, Message)> {
        if self.store.pending_transaction() == 0 {
            self.release_messages();
            // What was answered without a change of the store.
            self.close_started();
        }
        std::mem::take(&mut self.tasks.sendable)
    }

    /// The batch is committed that the messages rest on.
    pub(super) fn release_messages(&mut self) {
        if !self.tasks.unsent.is_empty() {
            self.tasks.sendable.append(&mut self.tasks.unsent);
        }
    }

    /// Operations over several shards that an earlier daemon left are being finished. While any
    /// shard of the daemon is at it, messages are delivered but no requests handled.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.tasks.recovering > 0 || self.operations_recovering()
    }

    /// Messages of an earlier batch wait to be sent.
    pub(crate) fn has_messages(&self) -> bool {
        !self.tasks.unsent.is_empty() || !self.tasks.sendable.is_empty()
    }

    pub(crate) fn push_answer(&mut self, caller: Caller, status: u32, body: Vec<u8>) {
        let done = self.completion(caller, status, body.into());
        self.note_answer(&done);
        self.tasks.answers.push(done);
    }

    pub(super) fn reply_question(&mut self, to: ShardId, id: u64, answer: Answer) {
        self.tasks.send(to, Message::Answer(id, answer));
    }

    /// Claims are gone: what waited for them tries again, soon.
    pub(crate) fn wake_blocked(&mut self) {
        for (task, run) in std::mem::take(&mut self.tasks.blocked) {
            self.run_later(task, run);
        }
    }

    /// What waited for the end of the recovery goes on.
    pub(crate) fn wake_when_recovered(&mut self) {
        if !self.is_recovering() {
            self.wake_blocked();
        }
    }

    /// Runs a task as soon as a message of its own says so: the answer of what runs now is stored
    /// by then.
    pub(crate) fn run_later(&mut self, task: Task, run: Run) {
        self.tasks.runnable.push_back((task, run));
        self.tasks.send(self.place.shard, Message::Proceed);
    }

    pub(super) fn run_task(&mut self, task: Task, run: Run) {
        self.run = run;
        self.namespace.found_file = None;
        match task {
            Task::Request { caller, op, .. } if self.run.is_over(op) => self.end_given_up(caller),
            Task::Request { caller, op, body } => self.run_request(caller, op, &body),
            Task::Question { from, id, question } => self.run_question(from, id, question),
        }
    }

    fn run_request(&mut self, caller: Caller, op: Op, body: &Body) {
        if !self.sessions.contains_key(&caller.session) && caller.session != OWN_SESSION {
            // Nobody waits for it, and nothing may be opened that no end of the session would
            // close.
            self.end_run();
            return;
        }
        let mut reply = std::mem::take(&mut self.tasks.buffer);
        reply.resize(REPLY_BYTES_MAX, 0);
        self.batch.body = body.shared().clone();
        let progress = match request_in(op, body) {
            Ok(request) => self.serve(caller, request, &mut reply),
            Err(_) => Progress::Replied(Errno::EPROTO.raw() as u32, 0),
        };
        self.batch.body = Bytes::default();
        if let Progress::Replied(status, bytes) = progress {
            self.push_answer(caller, status, reply[..bytes].to_vec());
        }
        self.tasks.buffer = reply;
    }

    fn run_question(&mut self, from: ShardId, id: u64, question: Question) {
        // What was submitted before it was asked has happened.
        self.execute_submitted();
        self.files.in_doubt.runs(None);
        self.acts(None);
        let result = self.answer_question(from, &question);
        let task = || Task::Question { from, id, question };
        let answer = match result {
            Ok(answer) => answer,
            Err(Fault::Errno(errno)) => Answer::Failed(errno),
            Err(Fault::Ask(questions)) => return self.suspend(task(), questions),
            Err(Fault::Busy) => return self.block(task()),
            Err(Fault::Prepare(preparation)) => match self.prepare_for(task(), preparation) {
                Ok(()) => return,
                Err(errno) => Answer::Failed(errno),
            },
            Err(Fault::Again) => Answer::Retry,
            Err(Fault::Outside(wanted)) => match self.wait_for_origin(task(), *wanted) {
                Ok(()) => return,
                Err(errno) => Answer::Failed(errno),
            },
            // Questions are between shards.
            Err(Fault::Escaped(_) | Fault::Elsewhere(..) | Fault::Operate(_)) => {
                Answer::Failed(Errno::EIO)
            }
        };
        self.end_run();
        self.reply_question(from, id, answer);
    }

    /// The rest of the work for a request that did not end here and now.
    pub(super) fn put_aside(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        fault: Fault,
    ) -> Result<(), Errno> {
        let early = self.departs_too_early(caller, request, &fault);
        let fault = if early { Fault::Busy } else { fault };
        let request = self.as_there(request, &fault);
        let (op, body) = (request.op(), self.body_of(&request)?);
        match fault {
            Fault::Ask(questions) => self.suspend(Task::Request { caller, op, body }, questions),
            Fault::Busy => self.block(Task::Request { caller, op, body }),
            Fault::Prepare(preparation) => {
                return self.prepare_for(Task::Request { caller, op, body }, preparation);
            }
            Fault::Outside(wanted) => {
                return self.wait_for_origin(Task::Request { caller, op, body }, *wanted);
            }
            // Not all of it is in one transaction with the journal.
            Fault::Operate(_) if self.run.outside.entry.take().is_some() => {
                self.run.outside.through = true;
                let run = std::mem::take(&mut self.run);
                self.run_later(Task::Request { caller, op, body }, run);
            }
            Fault::Operate(parts) => {
                return self.start_operation(Task::Request { caller, op, body }, parts);
            }
            Fault::Elsewhere(shard, place) => {
                self.end_run();
                self.note_change_elsewhere(&request, &place);
                self.end_whole_in_doubt_of(caller);
                self.note_sent_on(caller, &request, shard);
                self.pass_to(shard, Forward { caller, op, body, place: *place });
            }
            Fault::Again => {
                let restarts = self.run.place.restarts + 1;
                if restarts > RESTARTS_MAX {
                    return Err(Errno::EIO);
                }
                self.end_run();
                // By way of the queue of messages, so that what makes the name true can arrive.
                let gone = match self.run.place.at {
                    At::File { id, by_name: true, .. } => Some(id),
                    _ => self.run.place.gone,
                };
                let place = Resolved { restarts, gone, ..Resolved::default() };
                let forward = Forward { caller, op, body, place };
                self.tasks.send(self.place.shard, Message::Forward(Box::new(forward)));
            }
            Fault::Errno(errno) => return Err(errno),
            Fault::Escaped(_) => return Err(Errno::EIO),
        }
        Ok(())
    }

    pub(crate) fn suspend(&mut self, task: Task, questions: Vec<(ShardId, Question)>) {
        self.tasks.next += 1;
        let id = self.tasks.next;
        let mut run = std::mem::take(&mut self.run);
        run.asked_at.get_or_insert(self.leases.now);
        self.tasks.suspended.insert(id, Suspended { task, run, missing: questions.len() });
        for (shard, question) in questions {
            self.ask(shard, question, Purpose::Fact(id));
        }
    }

    pub(crate) fn block(&mut self, task: Task) {
        let run = std::mem::take(&mut self.run);
        self.tasks.blocked.push((task, run));
    }

    /// The run is over, whatever became of it.
    pub(crate) fn end_run(&mut self) {
        if !self.run.holds_something() {
            return;
        }
        self.drop_moved();
        self.end_append();
        if self.run.transaction.elected
            && let Some(transaction) = self.run.transaction.number
        {
            self.run.transaction.elected = false;
            self.ask(self.elector(), Question::Release(transaction), Purpose::Nothing);
        }
    }

    fn take_answer(&mut self, id: u64, answer: Answer) {
        let Some(asked) = self.tasks.asked.remove(&id) else { return };
        if let Question::Keep(kept) = &asked.question {
            self.was_kept(asked.to, kept, &answer);
        }
        match asked.purpose {
            Purpose::Nothing => {}
            Purpose::Remembered(_) if asked.void => {}
            Purpose::Remembered(at) => self.remember(&asked.question, &answer, Some(at)),
            Purpose::Recovery => {
                self.tasks.recovering -= 1;
                self.recovery_answered(asked.to, &asked.question, &answer);
                self.wake_when_recovered();
            }
            Purpose::Transaction(transaction) => {
                self.operation_answered(transaction, asked.to, &asked.question, answer);
            }
            Purpose::PrepareLocks(transaction) => {
                if answer == Answer::Over(true)
                    && let Err(Fault::Errno(errno)) = self.release_operation(transaction)
                {
                    log::error("operation", format_args!("giving claims back: {errno}"));
                }
            }
            Purpose::Seats(item) => self.seats_answered(item, &asked.question, answer),
            Purpose::Proxies(node) => self.proxies_answered(node, &asked.question, &answer),
            Purpose::Settle(file, attempt) => self.part_settled(file, attempt, &answer),
            Purpose::DropParts(file, generation) => self.part_dropped(file, generation, &answer),
            Purpose::DeadlockSearch(wait, round) => {
                self.deadlock_search_answered(wait, round, &asked, answer)
            }
            Purpose::Fact(task) => self.take_fact(task, asked, answer),
        }
    }

    fn take_fact(&mut self, task: u64, asked: Asked, answer: Answer) {
        if let (Question::AppendPart { place, .. }, Answer::Retry) = (&asked.question, &answer) {
            self.ask_to_hold_again(place.file);
        }
        if let Answer::Spread(directory, upto) = &answer {
            self.namespace.seats.learn(*directory, *upto);
        }
        let Some(suspended) = self.tasks.suspended.get_mut(&task) else { return };
        suspended.missing -= 1;
        let complete = suspended.missing == 0;
        // A void answer is asked for again when the run misses it.
        let is_known = !matches!(answer, Answer::Retry | Answer::Spread(..));
        if !asked.void && is_known {
            if matches!(asked.question, Question::Prepare { .. }) {
                suspended.run.transaction.elected |= matches!(answer, Answer::Prepared(_));
            }
            let asked_at = suspended.run.asked_at;
            self.remember(&asked.question, &answer, asked_at);
            let Some(suspended) = self.tasks.suspended.get_mut(&task) else { return };
            suspended.run.facts.push((asked.to, asked.question, answer));
        }
        if complete && let Some(Suspended { task, run, .. }) = self.tasks.suspended.remove(&task) {
            self.run_task(task, run);
        }
    }

    /// Nobody waits for the claims of these operations any more.
    pub(crate) fn forget_prepares(&mut self, is_it: impl Fn(TransactionId) -> bool) {
        let over = |task: &Task| match task {
            Task::Question { question: Question::Prepare { transaction, .. }, .. } => {
                is_it(*transaction)
            }
            _ => false,
        };
        self.tasks.suspended.retain(|_, of| !over(&of.task));
        self.tasks.blocked.retain(|(task, _)| !over(task));
        // Each of these has a message that says so; one too many is one for nobody.
        self.tasks.runnable.retain(|(task, _)| !over(task));
    }

    /// Questions of a shard that it does not wait for any more are not answered, but said to be
    /// lost.
    pub(crate) fn give_up_questions(&mut self, by: ShardId, is_it: impl Fn(&Question) -> bool) {
        let over = |task: &Task| match task {
            Task::Question { from, question, .. } => *from == by && is_it(question),
            Task::Request { .. } => false,
        };
        let mut given_up = self.give_up_waiting(over);
        let blocked = self.tasks.blocked.extract_if(.., |(task, _)| over(task));
        given_up.extend(blocked.map(|(task, _)| task));
        // Each of these has a message that says so; one too many is one for nobody.
        let (over, others) =
            std::mem::take(&mut self.tasks.runnable).into_iter().partition(|(task, _)| over(task));
        self.tasks.runnable = others;
        let over: VecDeque<(Task, Run)> = over;
        given_up.extend(over.into_iter().map(|(task, _)| task));
        for task in given_up {
            if let Task::Question { from, id, .. } = task {
                self.reply_question(from, id, Answer::Failed(Errno::EIO));
            }
        }
    }

    /// Facts that `is_it` is true of are not to be relied on any more.
    pub(crate) fn void(&mut self, is_it: impl Fn(&Question) -> bool) {
        for asked in self.tasks.asked.values_mut().filter(|asked| is_it(&asked.question)) {
            asked.void = true;
        }
        let runs = self.tasks.suspended.values_mut().map(|suspended| &mut suspended.run);
        let waiting = self.tasks.blocked.iter_mut().chain(&mut self.tasks.runnable);
        let runs = runs.chain(waiting.map(|(_, run)| run)).chain(self.files.preparations.runs());
        for run in runs {
            run.facts.retain(|(_, question, _)| !is_it(question));
        }
    }

    /// The shard that a request belongs to by what it names without a path.
    pub(super) fn check_owner(&self, request: &Request<'_>) -> Outcome<()> {
        let open =
            |index: u32| Some(self.place.numbering.shard(index % self.place.numbering.shards));
        let home = |id: FileId| Some(self.place.slots.home(id));
        let owner = match (request.open(), request.target(), request) {
            (Some(found), ..) => open(found.index),
            (None, Some(Target::Directory(id)), _) => home(id),
            (None, _, Request::PathOf(path)) => home(path.file),
            // What a node has of origins is at its first shard.
            (None, _, Request::Sync(Sync { all: true, .. })) if !self.tier.sources.is_empty() => {
                let node = self.place.numbering.node_of(self.place.shard);
                Some(self.place.numbering.front_of(node))
            }
            (None, _, Request::Inspect(Inspect { shard, .. }))
            | (None, _, Request::TierAsk(TierAsk { shard, .. }))
            | (None, _, Request::RemoveStray(RemoveStray { shard, .. })) => {
                // One that is not there is refused here.
                Some(ShardId(*shard)).filter(|shard| shard.0 < self.place.numbering.all())
            }
            _ => None,
        };
        match owner.filter(|owner| *owner != self.place.shard) {
            Some(shard) => Err(Fault::Elsewhere(shard, Box::default())),
            None => Ok(()),
        }
    }

    /// A file whose home is another shard.
    pub(crate) fn elsewhere(&self, id: FileId, slash: bool, by_name: bool) -> Fault {
        let at = At::File { id, slash, by_name };
        let Resolved { restarts, gone, .. } = self.run.place;
        let place = Resolved { at, follows: 0, restarts, gone };
        Fault::Elsewhere(self.place.slots.home(id), Box::new(place))
    }

    pub(crate) fn is_home(&self, id: FileId) -> bool {
        self.place.alone || self.place.slots.home(id) == self.place.shard
    }
}
