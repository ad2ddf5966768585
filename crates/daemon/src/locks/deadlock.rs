//! Waits for locks that can never end: a circle of processes that wait for each other's, at several
//! shards.
//!
//! A shard sees by itself only the waits for its own files (`locks.rs`). When a process begins to
//! wait, its shard follows along who waits for whom (Chandy, Misra and Haas, "Distributed deadlock
//! detection", 1983), but asks each shard on the way itself rather than having a probe passed on:
//! such questions are answered at once, by whoever is asked, and what is lost is asked again by the
//! one who waits. Where a process may wait is known to the first shard of its node, through which
//! all its requests go, and to each that sends one of them on.
//!
//! **Every circle is found** by the wait that closes it: a wait is in its table before it is
//! chased, and where it may be is noted before it gets there, so whoever comes last meets all the
//! others. A daemon that is restarted has forgotten what it noted; then the requests come again,
//! and are chased again (`Message::LookAgain`).
//!
//! **Nobody is told of a circle that never was.** What is heard of a wait may be over when the
//! circle closes: a signal ended it, or another thread of the blocker gave its lock up. So each
//! wait of the circle is asked for once more. One that lasts, held up without a break since it was
//! first told of, was there at the moment between the two rounds, and so were all the others.
//!
//! **One of a circle is told**, the one that began to wait last, as on one machine. A shard may
//! find a circle in which a wait at another shard is the last. It has that shard look
//! (`Question::Suspect`). Times are those of the nodes' clocks: when they differ it may be another
//! one, but it is the same for all who look.
//!
//! **What is not found**: a circle of more than `DEADLOCK_LOOKS_MAX` waits and places; one that
//! closes without a new wait, since a process one of whose threads waits takes a lock with another
//! thread.

use std::collections::{BTreeMap, hash_map::Entry};

use mayfly_types::{
    Errno, SessionId, Timestamp,
    limits::{DEADLOCK_ATTEMPTS_MAX, DEADLOCK_LOOKS_MAX, DEADLOCK_PAUSE_SECONDS},
};
use mayfly_wire::{LOCK_POSIX, Request};

use crate::{
    api::Caller,
    locks::{
        state::deadlock::{DeadlockSearch, Stage},
        table::{Seen, WaitFacts, WaitId},
    },
    maps::HashSet,
    message::{Answer, Delay, Process, Question},
    remote::state::requests::node_of_process,
    shard::{
        Shard,
        state::task::{Asked, Purpose},
    },
    shards::slots::ShardId,
};

/// Which of two waits began later.
fn age(at: ShardId, delay: &Delay) -> (Timestamp, ShardId, u64) {
    (delay.since, at, delay.wait)
}

impl Shard {
    /// Notes where a lock may be waited for.
    pub(crate) fn note_sent_on(&mut self, caller: Caller, request: &Request<'_>, to: ShardId) {
        if let Request::Lock(lock) = request
            && lock.wait
            && lock.range.owner == LOCK_POSIX
        {
            self.locks.deadlocks.sent_on.insert((caller.session, caller.lane), to);
        }
    }

    fn process(&self, process: u64) -> Process {
        let node = node_of_process(process).unwrap_or(self.place.numbering.node);
        Process { node, pid: process as u32 }
    }

    /// What it is called here.
    fn process_here(&self, process: Process) -> u64 {
        let Process { node, pid } = process;
        let upper = if node == self.place.numbering.node { 0 } else { u64::from(node) + 1 };
        upper << 32 | u64::from(pid)
    }

    /// A process has begun to wait: can that end?
    pub(super) fn search_deadlock(&mut self, process: u64, wait: WaitId) {
        if !self.place.alone {
            self.begin_search(self.process(process), wait, 0);
        }
    }

    /// The same of a wait that another shard believes to be the last one of a circle.
    pub(crate) fn suspect(&mut self, waiter: Process, wait: u64) {
        self.begin_search(waiter, WaitId(wait), 0);
    }

    /// A request came again. Its node's daemon was restarted, and knows by now where it waits.
    pub(crate) fn look_again_at(&mut self, session: SessionId, request_id: u64) {
        for (process, wait) in self.locks.table.waits_for(session, request_id) {
            self.search_deadlock(process, wait);
        }
    }

    fn begin_search(&mut self, process: Process, wait: WaitId, attempt: u32) {
        self.locks.deadlocks.under_way.remove(&wait);
        let Some(facts) = self.locks.table.look_at_one(self.process_here(process), wait) else {
            return;
        };
        self.locks.deadlocks.rounds += 1;
        let mut search = DeadlockSearch {
            process,
            wait,
            round: self.locks.deadlocks.rounds,
            attempt,
            began: self.now,
            delays: Vec::new(),
            visited: HashSet::default(),
            missing: 0,
            stage: Stage::Looking,
            lost: false,
            moved: false,
        };
        let mut open = Vec::new();
        let delays = self.delays(process, facts);
        self.learn_delays(&mut search, self.place.shard, (delays, Vec::new()), &mut open);
        self.follow(&mut search, open);
        self.settle_search(search);
    }

    fn delays(&self, waiter: Process, facts: WaitFacts) -> Vec<Delay> {
        let WaitFacts { wait, since, by } = facts;
        let delay = |seen: &Seen| Delay {
            waiter,
            wait: wait.0,
            since,
            blocker: self.process(seen.process),
            sighting: seen.sighting,
        };
        by.iter().map(delay).collect()
    }

    /// Takes in what a shard says, and finds out whom to look at next, and where.
    fn learn_delays(
        &self,
        search: &mut DeadlockSearch,
        from: ShardId,
        (delays, elsewhere): (Vec<Delay>, Vec<(Process, u32)>),
        open: &mut Vec<(ShardId, Process)>,
    ) {
        for delay in delays {
            if search.delays.len() >= DEADLOCK_LOOKS_MAX
                || delay.blocker.node >= self.place.numbering.nodes
            {
                continue;
            }
            search.delays.push((from, delay));
            if delay.blocker != search.process {
                open.push((self.place.numbering.front_of(delay.blocker.node), delay.blocker));
            }
        }
        for (process, shard) in elsewhere {
            if shard < self.place.numbering.all() && process != search.process {
                open.push((ShardId(shard), process));
            }
        }
    }

    /// Looks at processes, at these shards.
    fn follow(&mut self, search: &mut DeadlockSearch, mut open: Vec<(ShardId, Process)>) {
        let mut asked: BTreeMap<ShardId, Vec<Process>> = BTreeMap::new();
        while let Some((shard, process)) = open.pop() {
            if search.visited.len() >= DEADLOCK_LOOKS_MAX
                || !search.visited.insert((shard, process))
            {
                continue;
            }
            if shard == self.place.shard {
                let facts = self.waits_of(&[process]);
                self.learn_delays(search, shard, facts, &mut open);
            } else {
                asked.entry(shard).or_default().push(process);
            }
        }
        for (shard, processes) in asked {
            self.ask_for(search, shard, Question::Waits { processes });
        }
    }

    fn ask_for(&mut self, search: &mut DeadlockSearch, shard: ShardId, question: Question) {
        search.missing += 1;
        self.ask(shard, question, Purpose::DeadlockSearch(search.wait, search.round));
    }

    fn waits_of(&mut self, processes: &[Process]) -> (Vec<Delay>, Vec<(Process, u32)>) {
        let mut delays = Vec::new();
        for process in processes {
            for facts in self.locks.table.look_at(self.process_here(*process)) {
                delays.extend(self.delays(*process, facts));
            }
        }
        delays.truncate(DEADLOCK_LOOKS_MAX);
        let mut elsewhere = Vec::new();
        for ((session, _), shard) in &self.locks.deadlocks.sent_on {
            let process = self.sessions.get(session).map(|process| self.process(*process));
            let asked = process.filter(|process| processes.contains(process));
            elsewhere.extend(asked.map(|process| (process, shard.0)));
        }
        elsewhere.truncate(DEADLOCK_LOOKS_MAX);
        (delays, elsewhere)
    }

    pub(crate) fn answer_waits(&mut self, processes: &[Process]) -> Answer {
        let (delays, elsewhere) = self.waits_of(processes);
        Answer::Waits { delays, elsewhere }
    }

    pub(crate) fn answer_still_waiting(&self, delays: &[Delay]) -> Answer {
        if delays.iter().all(|delay| self.still_waits(delay)) {
            Answer::Done
        } else {
            Answer::Changed
        }
    }

    fn still_waits(&self, delay: &Delay) -> bool {
        let process = self.process_here(delay.blocker);
        let seen = Seen { process, sighting: delay.sighting };
        self.locks.table.still(self.process_here(delay.waiter), WaitId(delay.wait), seen)
    }

    pub(crate) fn deadlock_search_answered(
        &mut self,
        wait: WaitId,
        round: u64,
        asked: &Asked,
        answer: Answer,
    ) {
        let Entry::Occupied(entry) = self.locks.deadlocks.under_way.entry(wait) else { return };
        if entry.get().round != round {
            return;
        }
        let mut search = entry.remove();
        search.missing -= 1;
        match answer {
            Answer::Waits { delays, elsewhere } => {
                let mut open = Vec::new();
                self.learn_delays(&mut search, asked.to, (delays, elsewhere), &mut open);
                self.follow(&mut search, open);
            }
            Answer::Done => {}
            Answer::Changed => search.moved = true,
            _ => search.lost = true,
        }
        self.settle_search(search);
    }

    /// Does what follows from the answers that are there.
    fn settle_search(&mut self, mut search: DeadlockSearch) {
        if search.stage == Stage::Looking {
            self.judge(&mut search);
        }
        if search.missing > 0 {
            self.locks.deadlocks.under_way.insert(search.wait, search);
        } else if search.stage == Stage::Confirming && !search.lost && !search.moved {
            self.refuse(&search);
        } else {
            self.end_search(&search);
        }
    }

    /// Looks for circles in what is known so far.
    fn judge(&mut self, search: &mut DeadlockSearch) {
        let own = search.delays.iter().find(|(_, delay)| search.is_own(delay));
        let Some(own) = own.map(|(at, delay)| age(*at, delay)) else { return };
        if let Some(circle) = search.circle(|at, delay| age(at, delay) <= own) {
            // Whatever else was asked for is of no interest any more.
            self.locks.deadlocks.rounds += 1;
            (search.round, search.missing, search.lost) = (self.locks.deadlocks.rounds, 0, false);
            search.stage = Stage::Confirming;
            self.confirm(search, &circle);
        } else if search.missing == 0 {
            search.stage = Stage::Telling;
            self.tell_others(search);
        }
    }

    /// In circles that others closed these are to look themselves.
    fn tell_others(&mut self, search: &mut DeadlockSearch) {
        let mut notified = Vec::new();
        while let Some(circle) = search.circle(|at, delay| !notified.contains(&(at, delay.wait))) {
            let last = circle.iter().max_by_key(|(at, delay)| age(*at, delay));
            let Some((at, delay)) = last.copied() else { break };
            notified.push((at, delay.wait));
            if at == self.place.shard {
                self.suspect(delay.waiter, delay.wait);
            } else {
                let suspect = Question::Suspect { waiter: delay.waiter, wait: delay.wait };
                self.ask_for(search, at, suspect);
            }
        }
    }

    /// Asks whether all of a circle lasts.
    fn confirm(&mut self, search: &mut DeadlockSearch, circle: &[(ShardId, Delay)]) {
        let mut asked: BTreeMap<ShardId, Vec<Delay>> = BTreeMap::new();
        for (at, delay) in circle {
            asked.entry(*at).or_default().push(*delay);
        }
        for (shard, delays) in asked {
            if shard == self.place.shard {
                search.moved |= !delays.iter().all(|delay| self.still_waits(delay));
            } else {
                self.ask_for(search, shard, Question::StillWaiting { delays });
            }
        }
    }

    fn refuse(&mut self, search: &DeadlockSearch) {
        let process = self.process_here(search.process);
        if let Some(caller) = self.locks.table.refuse(process, search.wait) {
            self.answer_after_commit(caller, Errno::EDEADLK.raw() as u32, Vec::new());
        }
    }

    /// It has come to nothing, for now.
    fn end_search(&mut self, search: &DeadlockSearch) {
        let took_seconds = self.now.seconds.abs_diff(search.began.seconds);
        if search.lost && took_seconds >= DEADLOCK_PAUSE_SECONDS {
            self.begin_search(search.process, search.wait, search.attempt);
        } else if search.moved && search.attempt < DEADLOCK_ATTEMPTS_MAX {
            self.begin_search(search.process, search.wait, search.attempt + 1);
        }
    }
}
