//! Transactions over several shards, as their coordinator drives them.
//!
//! The shard that owns the first name of a request coordinates it. It *prepares*: every shard that
//! takes part checks its steps and claims what they change. When all can, the shards that remember
//! one of the names are made to forget it. Then the transaction is decided, by one record in the
//! coordinator's store, the *intent*. From there on it will be finished, whatever dies.
//!
//! The steps are applied in waves. The first makes files, the second makes names, the third removes
//! names, the last ends files. So neither a name nor its file is ever missing. Each shard marks a
//! wave as done in the transaction that does it. It does a wave once, however often it is told. The
//! intent goes with the batch in which the request is answered.
//!
//! After a restart a shard takes up its intents from the first wave, and asks about marks that it
//! finds. No request is served before all that is over. A transaction that was finished but perhaps
//! not answered is kept (`completed.rs`).

use mayfly_meta::{
    StoreError, key,
    record::{Intent, Step},
};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, FileId, SessionId};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, store_failed},
    log,
    message::{Answer, Question, Resolved, TransactionId},
    shard::{
        Shard,
        state::{
            run::Run,
            task::{Purpose, RESTARTS_MAX, Task},
        },
    },
    shards::{
        planted::{Planted, is_planted},
        slots::ShardId,
    },
    transactions::state::transaction::{Phase, Steps, Transaction, Verdict, wanted},
};

/// See [`Step::wave`].
const WAVES: u8 = 4;

fn of_wave(steps: &[Step], wave: u8) -> Vec<Step> {
    steps.iter().filter(|step| step.wave() == wave).cloned().collect()
}

impl Shard {
    /// Does the steps now when they are all of this shard and concern nobody else; otherwise they
    /// become a transaction. Everything was checked, as far as it could be from here.
    pub(crate) fn operate(&mut self, parts: Steps) -> Outcome<()> {
        let [(shard, steps)] = parts.as_slice() else { return Err(Fault::Operate(parts)) };
        if *shard != self.place.shard || !self.remembering(steps).is_empty() {
            return Err(Fault::Operate(parts));
        }
        self.unclaimed(|| wanted(steps))?;
        self.apply_whole(steps)
    }

    /// Does all steps of a transaction that no other shard has a part in.
    fn apply_whole(&mut self, steps: &[Step]) -> Outcome<()> {
        // A file that is removed leaves its dentry before the dentry is removed or gets another
        // file.
        let ends =
            |step: &&Step| matches!(step, Step::DropLink { .. } | Step::RemoveDirectory { .. });
        for step in steps.iter().filter(ends).chain(steps.iter().filter(|step| !ends(step))) {
            self.apply_step(step)?;
        }
        Ok(())
    }

    /// Nothing is delegated here while a transaction of these steps has prepare locks.
    fn recall_before<'a>(&mut self, steps: impl IntoIterator<Item = &'a Step>) {
        let moves_names = |step: &Step| matches!(step, Step::GiveNames { .. });
        let is_forgotten = is_planted(Planted::DelegatedBesidePrepareLocks)
            || is_planted(Planted::NotRecalledBeforeSpread) && steps.into_iter().any(moves_names);
        if !is_forgotten {
            self.recall_all();
        }
    }

    /// Begins a transaction that the present run has planned.
    pub(crate) fn start_operation(&mut self, task: Task, parts: Steps) -> Result<(), Errno> {
        // From here on nobody here changes a name without asking.
        self.recall_before(parts.iter().flat_map(|part| &part.1));
        let id = self.operation_id();
        let own = parts.iter().find(|part| part.0 == self.place.shard);
        let own = own.map_or_else(Vec::new, |part| part.1.clone());
        let wanted = wanted(&own);
        if self.transactions.prepare_locks.in_the_way(&wanted, Some(id)).is_some() {
            self.block(task);
            return Ok(());
        }
        for step in &own {
            match self.check_step(step) {
                Ok(true) => {}
                Ok(false) => return self.plan_again(task, step),
                Err(Fault::Errno(errno)) => return Err(errno),
                // Asks only whether there is room.
                Err(Fault::Ask(questions)) => {
                    self.suspend(task, questions);
                    return Ok(());
                }
                Err(Fault::Prepare(preparation)) => return self.prepare_for(task, preparation),
                Err(_) => return Err(Errno::EIO),
            }
        }
        self.set_aside(id, &own);
        let names = self.remembering(&own);
        let Task::Request { caller, .. } = task else { return Err(Errno::EIO) };
        let transaction = Transaction {
            task: Some(task),
            caller,
            run: std::mem::take(&mut self.run),
            parts,
            phase: Phase::Preparing,
            missing: 0,
            verdict: Verdict::Fine,
            prepared: Vec::new(),
            names,
        };
        let mut asked: Vec<(ShardId, &[Step])> = transaction.others(self.place.shard).collect();
        if self.check_cut_at_rest(&own).is_err() {
            // It has its claims, and waits as another shard does.
            asked.push((self.place.shard, &own));
        }
        let questions = asked.into_iter().map(|(shard, steps)| {
            (shard, Question::Prepare { transaction: id, steps: steps.to_vec() })
        });
        let questions: Vec<(ShardId, Question)> = questions.collect();
        self.transactions.running.insert(id, transaction);
        self.ask_all(id, Phase::Preparing, questions);
        Ok(())
    }

    /// The steps here rest on what other shards said, and that has changed. For example, the file
    /// that a name of theirs stood for has lost its last name meanwhile.
    fn plan_again(&mut self, task: Task, step: &Step) -> Result<(), Errno> {
        self.run.place.restarts += 1;
        if self.place.alone || self.run.place.restarts > RESTARTS_MAX {
            log::error("operation", format_args!("planned on what is not so: {step:?}"));
            return Err(Errno::EIO);
        }
        self.forget_facts();
        let run = std::mem::take(&mut self.run);
        self.run_later(task, run);
        Ok(())
    }

    /// Asks, and goes on when all have answered.
    fn ask_all(&mut self, id: TransactionId, phase: Phase, questions: Vec<(ShardId, Question)>) {
        let Some(transaction) = self.transactions.running.get_mut(&id) else { return };
        transaction.phase = phase;
        transaction.missing = questions.len();
        if questions.is_empty() {
            self.go_on(id);
        }
        for (shard, question) in questions {
            self.ask(shard, question, Purpose::Transaction(id));
        }
    }

    pub(crate) fn operation_answered(
        &mut self,
        id: TransactionId,
        from: ShardId,
        question: &Question,
        answer: Answer,
    ) {
        let Some(transaction) = self.transactions.running.get_mut(&id) else { return };
        transaction.missing -= 1;
        let verdict = match answer {
            Answer::Prepared(names) => {
                transaction.prepared.push(from);
                transaction.names.extend(names);
                Verdict::Fine
            }
            Answer::Busy => Verdict::Busy(from),
            Answer::Changed | Answer::Retry => Verdict::Changed,
            // A process of this node that cannot go on reading keeps nobody from changing anything.
            Answer::Failed(_) if matches!(question, Question::Keep(_)) => Verdict::Fine,
            Answer::Failed(errno) => {
                // It may have been prepared and the answer lost.
                transaction.prepared.push(from);
                if !matches!(transaction.phase, Phase::Preparing) {
                    log::error("operation", format_args!("{question:?} failed: {errno}"));
                }
                Verdict::Failed(errno.raw())
            }
            _ => Verdict::Fine,
        };
        if transaction.phase == Phase::Preparing {
            transaction.verdict = transaction.verdict.max(verdict);
        }
        if transaction.missing == 0 {
            self.go_on(id);
        }
    }

    fn go_on(&mut self, id: TransactionId) {
        let Some(transaction) = self.transactions.running.get_mut(&id) else { return };
        if transaction.is_given_up() {
            transaction.verdict = transaction.verdict.max(Verdict::Failed(Errno::EIO.raw()));
        }
        match transaction.phase {
            Phase::Preparing if transaction.verdict == Verdict::Fine => self.make_forget(id),
            Phase::Preparing => self.give_back(id),
            Phase::Forgetting if transaction.verdict == Verdict::Fine => self.decide(id),
            Phase::Forgetting => self.give_back(id),
            Phase::Applying(wave) => self.run_waves(id, wave + 1),
            Phase::Releasing => self.give_up(id),
        }
    }

    fn make_forget(&mut self, id: TransactionId) {
        let Some(transaction) = self.transactions.running.get_mut(&id) else { return };
        let names = std::mem::take(&mut transaction.names);
        let by = transaction.caller.session;
        let mut questions = Vec::new();
        for (shard, directory, name) in names {
            if shard == self.place.shard.0 {
                self.forget_name(directory, &name);
                questions.extend(self.questions_to_keep(|_, kept| kept.birth.is(directory, &name)));
                if self.ask_mounts(directory, &name, Some(by)).is_err() {
                    questions.push((self.place.shard, Question::Forget { directory, name }));
                }
            } else {
                questions.push((ShardId(shard), Question::Forget { directory, name }));
            }
        }
        self.ask_all(id, Phase::Forgetting, questions);
    }

    fn decide(&mut self, id: TransactionId) {
        let Some(transaction) = self.transactions.running.get(&id) else { return };
        if !transaction.is_alone(self.place.shard) {
            let parts = transaction.parts.iter().map(|(shard, steps)| (shard.0, steps.clone()));
            let intent = Intent { parts: parts.collect(), ..transaction.executed() };
            if let Err(error) = self.store.put(&key::intent(id.0), &intent.encode()) {
                store_failed(&error);
                return;
            }
        }
        self.run_waves(id, 0);
    }

    fn run_waves(&mut self, id: TransactionId, first: u8) {
        let alone = self
            .transactions
            .running
            .get(&id)
            .filter(|transaction| transaction.is_alone(self.place.shard));
        if let Some(transaction) = alone {
            let own = transaction.steps(self.place.shard).to_vec();
            if let Err(fault) = self.apply_whole(&own) {
                log::error("operation", format_args!("steps failed: {fault:?} of {own:?}"));
            }
            return self.finish(id);
        }
        for wave in first..WAVES {
            let Some(transaction) = self.transactions.running.get(&id) else { return };
            let own = of_wave(transaction.steps(self.place.shard), wave);
            let last = transaction.is_last(wave);
            let questions: Vec<(ShardId, Question)> = transaction
                .others(self.place.shard)
                .filter(|(_, steps)| steps.iter().any(|step| step.wave() == wave))
                .map(|(shard, steps)| {
                    let steps = of_wave(steps, wave);
                    (shard, Question::Apply { transaction: id, wave, steps, last })
                })
                .collect();
            if let Err(fault) = self.apply_wave(id, wave, &own) {
                log::error("operation", format_args!("a step failed: {fault:?} of {own:?}"));
            }
            if !questions.is_empty() {
                self.ask_all(id, Phase::Applying(wave), questions);
                return;
            }
        }
        self.finish(id);
    }

    fn finish(&mut self, id: TransactionId) {
        let Some(transaction) = self.transactions.running.remove(&id) else { return };
        for (shard, _) in transaction.others(self.place.shard) {
            self.ask(shard, Question::Release(id), Purpose::Nothing);
        }
        let finished = self.clear_marks(id).and_then(|()| self.end_intent(id, &transaction));
        if let Err(error) = finished {
            store_failed(&error);
        }
        if let Some(file) = transaction.cut() {
            let lives = self.sessions.contains_key(&transaction.caller.session);
            self.cut_is_over(file, lives && transaction.task.is_some());
        }
        self.release_prepare_locks(id);
        let (goes_on, made) = (transaction.goes_on(), transaction.created_file());
        let begins_anew = transaction.spreads();
        let Transaction { task, caller, run, .. } = transaction;
        let Some(task) = task else { return self.wake_when_recovered() };
        self.run = run;
        if begins_anew {
            // Its name may be another shard's now.
            let restarts = self.run.place.restarts + 1;
            let place = Resolved { restarts, ..Resolved::default() };
            self.end_run();
            self.run_later(task, Run::at(place));
        } else if let Some(file) = made {
            self.open_created(task, file);
        } else if goes_on {
            self.forget_facts();
            self.run.transaction.is_done = true;
            let run = std::mem::take(&mut self.run);
            self.run_later(task, run);
        } else {
            self.end_changes_at_origin(caller);
            self.end_run();
            self.push_answer(caller, 0, Vec::new());
        }
    }

    /// Gives back the claims of a transaction that cannot be done.
    fn give_back(&mut self, id: TransactionId) {
        let elector = self.elector();
        let Some(transaction) = self.transactions.running.get_mut(&id) else { return };
        let mut holders = std::mem::take(&mut transaction.prepared);
        if matches!(transaction.verdict, Verdict::Busy(_)) && transaction.run.transaction.elected {
            transaction.run.transaction.elected = false;
            holders.push(elector);
        }
        let questions = holders.into_iter().map(|shard| (shard, Question::Release(id))).collect();
        self.release_prepare_locks(id);
        // Awaited, because the same transaction may be prepared again.
        self.ask_all(id, Phase::Releasing, questions);
    }

    fn give_up(&mut self, id: TransactionId) {
        let Some(transaction) = self.transactions.running.remove(&id) else { return };
        transaction.cut().into_iter().for_each(|file| self.drop_after_cut(file));
        let Transaction { task, caller, run, verdict, .. } = transaction;
        self.run = run;
        let Some(task) = task else { return };
        match verdict {
            Verdict::Failed(errno) => {
                self.end_changes_at_origin(caller);
                self.end_run();
                self.push_answer(caller, errno as u32, Vec::new());
            }
            Verdict::Fine | Verdict::Changed => {
                self.forget_facts();
                let run = std::mem::take(&mut self.run);
                self.run_later(task, run);
            }
            Verdict::Busy(_) if self.run.is_over(task.op()) => self.end_given_up(caller),
            Verdict::Busy(shard) => {
                self.forget_facts();
                self.suspend(task, vec![(shard, Question::Await(id))]);
            }
        }
    }

    /// The part of a shard that is asked to take part.
    pub(crate) fn prepare(&mut self, id: TransactionId, steps: &[Step]) -> Outcome<Answer> {
        if self.has_old_names() {
            return Err(Fault::Busy);
        }
        self.recall_before(steps);
        self.transactions.next_age = self.transactions.next_age.max(id.age());
        let wanted = wanted(steps);
        if let Some(holder) = self.transactions.prepare_locks.in_the_way(&wanted, Some(id)) {
            // While it waits for the right to move directories, nobody waits for claims of its own.
            let may_wait = id < holder || matches!(steps, [Step::Elect]);
            return if may_wait { Err(Fault::Busy) } else { Ok(Answer::Busy) };
        }
        for step in steps {
            if !self.check_step(step)? {
                return Ok(Answer::Changed);
            }
        }
        self.set_aside(id, steps);
        self.check_cut_at_rest(steps)?;
        Ok(Answer::Prepared(self.remembering(steps)))
    }

    /// Waits until nothing is under way at parts that are to be cut. Once they are claimed, nothing
    /// more begins there. Otherwise a daemon could begin a write, which others see, and die before
    /// it has answered. The write would then be made once more, after the cut.
    fn check_cut_at_rest(&self, steps: &[Step]) -> Outcome<()> {
        for step in steps {
            let Step::CutPart { id: file, part, .. } = step else { continue };
            self.check_no_append(ObjectId { file: *file, generation: part.generation })?;
            if self.striping.objects.active.get(file).is_some_and(|active| active.jobs > 0) {
                return Err(Fault::Busy);
            }
        }
        Ok(())
    }

    /// The shards that remember a name that the steps change.
    fn remembering(&self, steps: &[Step]) -> Vec<(u32, FileId, Vec<u8>)> {
        if self.namespace.remembered.is_empty() && self.leases.mount_names.is_empty() {
            return Vec::new();
        }
        // Who knows the attributes of a file has its name.
        let changed = |step: &Step| match step {
            Step::AddLink { id, .. } | Step::DropLink { id, .. } | Step::Moved { id, .. } => {
                Some(*id)
            }
            _ => None,
        };
        let changed = || steps.iter().filter_map(changed);
        let told = changed().filter_map(|id| self.leases.attributes.name(id));
        let shown = changed().filter_map(|id| self.leases.mount_names.name_of(id));
        let names = steps.iter().flat_map(|step| {
            let (directory, one, several) = match step {
                Step::SetName { directory, name, .. }
                | Step::RemoveName { directory, name, .. } => (*directory, Some(name), &[][..]),
                Step::GiveNames { directory, names, .. } => (*directory, None, names.as_slice()),
                _ => (FileId::NONE, None, &[][..]),
            };
            let moved = several.iter().map(|moved| &moved.name);
            one.into_iter().chain(moved).map(move |name| (directory, name.as_slice()))
        });
        names
            .chain(told)
            .chain(shown)
            .flat_map(|(directory, name)| {
                let who = self.namespace.remembered.of(directory, name, self.leases.now);
                // This one, for its mounts.
                let own = self.is_believed(directory, name).then_some(self.place.shard.0);
                let who = who.iter().copied().chain(own);
                who.map(move |shard| (shard, directory, name.to_vec()))
            })
            .collect()
    }

    /// Does the steps of a wave, unless they were done.
    pub(crate) fn apply_wave(
        &mut self,
        id: TransactionId,
        wave: u8,
        steps: &[Step],
    ) -> Outcome<()> {
        let mark = key::applied(id.0, wave);
        if steps.is_empty() || self.store.get(&mark)?.is_some() {
            return Ok(());
        }
        for step in steps {
            self.apply_step(step)?;
        }
        Ok(self.store.put(&mark, &[1])?)
    }

    pub(crate) fn clear_marks(&mut self, id: TransactionId) -> Result<(), StoreError> {
        for wave in 0..WAVES {
            let mark = key::applied(id.0, wave);
            if self.store.get(&mark)?.is_some() {
                self.store.delete(&mark)?;
            }
        }
        Ok(())
    }

    pub(crate) fn release_prepare_locks(&mut self, id: TransactionId) {
        if self.transactions.prepare_locks.release(id) {
            self.show_prepare_locks();
            self.drop_spared_orphans();
            self.wake_blocked();
        }
    }

    pub(crate) fn release_operation(&mut self, id: TransactionId) -> Outcome<()> {
        self.forget_prepares(|other| other == id);
        if self.is_recovering() {
            self.remote.over.insert(id);
        }
        self.release_prepare_locks(id);
        Ok(self.clear_marks(id)?)
    }

    /// Waits until some claim of this shard is given back.
    pub(crate) fn await_release(&mut self) -> Outcome<()> {
        if self.transactions.prepare_locks.is_empty()
            || std::mem::replace(&mut self.run.transaction.is_done, true)
        {
            return Ok(());
        }
        Err(Fault::Busy)
    }

    pub(crate) fn operations_recovering(&self) -> bool {
        self.transactions.running.values().any(|transaction| transaction.task.is_none())
    }

    /// Takes up what an earlier daemon had decided.
    pub(crate) fn take_up_operations(&mut self) -> Result<(), StoreError> {
        let mut decided = Vec::new();
        for (id, record) in self.marks(key::INTENT)? {
            let (id, intent) = (TransactionId(id.0), Intent::decode(&record)?);
            self.transactions.next_age = self.transactions.next_age.max(id.age());
            if intent.parts.is_empty() {
                self.take_up_finished(id, &intent)?;
                continue;
            }
            let transaction = taken_up(intent);
            // So nobody sees a half of it before it is finished.
            self.set_aside(id, transaction.steps(self.place.shard));
            self.transactions.running.insert(id, transaction);
            decided.push(id);
        }
        let marks = self.applied_here()?;
        for id in marks.into_iter().filter(|id| !decided.contains(id)) {
            self.transactions.next_age = self.transactions.next_age.max(id.age());
            if id.shard() == self.place.shard.0 {
                self.clear_marks(id)?;
            } else {
                self.ask(ShardId(id.shard()), Question::IsOver(id), Purpose::Recovery);
            }
        }
        self.say_returned();
        for id in decided {
            self.run_waves(id, 0);
        }
        Ok(())
    }
}

fn taken_up(intent: Intent) -> Transaction {
    let Intent { session, lane, request_id, parts, .. } = intent;
    Transaction {
        task: None,
        caller: Caller { session: SessionId(session), lane, request_id },
        run: Run::default(),
        parts: parts.into_iter().map(|(shard, steps)| (ShardId(shard), steps)).collect(),
        phase: Phase::Applying(0),
        missing: 0,
        verdict: Verdict::Fine,
        prepared: Vec::new(),
        names: Vec::new(),
    }
}
