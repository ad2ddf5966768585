//! Several shards in one thread: messages travel in any order, batches end at any moment, and the
//! daemon may die between any two messages.
//!
//! What the real daemon's lanes keep over a restart is kept here too: a reply that was stored, with
//! the transaction that it rests on. A request whose reply is not true after a restart is handed in
//! again, as a client's lane is looked at again.

use mayfly_daemon::{Caller, Completion, Message, Progress, Shard, ShardId};
use mayfly_types::SessionId;
use mayfly_wire::{Operation, Request, Writer};

use super::Node;

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) % count.max(1) as u64) as usize
    }
}

/// What travels between the shards and what a lane keeps.
pub struct Several {
    pub dice: Dice,
    /// The daemon dies once in so many steps of a request; 0: never.
    pub deaths: usize,
    flying: Vec<(ShardId, ShardId, Message)>,
    /// Questions that were sent.
    pub asked: usize,
    /// Last transaction of each shard when the daemon was started.
    pub committed: Vec<u64>,
    /// Replies that are stored: who asked, the transaction, the reply.
    pub stored: Vec<(Caller, u64, Completion)>,
    /// Replies that may be sent.
    pub published: Vec<Completion>,
}

impl Several {
    pub fn new(seed: u64) -> Several {
        Several {
            dice: Dice::new(seed),
            deaths: 0,
            flying: Vec::new(),
            asked: 0,
            committed: Vec::new(),
            stored: Vec::new(),
            published: Vec::new(),
        }
    }

    /// Whether a transaction was committed before the daemon was started.
    pub fn was_committed(&self, transaction: u64) -> bool {
        let shard = (transaction >> 48) as usize;
        transaction != 0 && transaction <= self.committed[shard]
    }

    pub fn forget_messages(&mut self) {
        self.flying.clear();
    }
}

impl Node {
    fn shard(&mut self, shard: usize) -> &mut Shard {
        &mut self.cores[shard]
    }

    /// Stores the answers of a shard as its thread does before it commits.
    fn store_answers(&mut self, shard: usize) {
        for done in self.shard(shard).answers() {
            let transaction = self.shard(shard).batch_transaction();
            self.several.stored.retain(|(caller, ..)| *caller != done.caller);
            self.several.stored.push((done.caller, transaction, done));
        }
    }

    /// Ends the batch of a shard and sends what waited for that.
    pub fn end_batch(&mut self, shard: usize) {
        self.store_answers(shard);
        self.shard(shard).commit().unwrap();
        self.send(shard);
        let mut completions: Vec<Completion> = self.shard(shard).completions().collect();
        if self.shard(shard).idle_work() {
            self.store_answers(shard);
            self.shard(shard).commit().unwrap();
            completions.extend(self.shard(shard).completions());
        }
        self.send(shard);
        self.several.published.append(&mut completions);
        let own = (shard as u64) << 48;
        let stored = std::mem::take(&mut self.several.stored);
        for (caller, transaction, done) in stored {
            if transaction == 0 || transaction & (0xffff << 48) == own {
                self.several.published.push(done);
            } else {
                self.several.stored.push((caller, transaction, done));
            }
        }
    }

    fn send(&mut self, shard: usize) {
        let from = ShardId(shard as u32);
        let sent = self.shard(shard).outbox();
        let is_question = |(_, message): &&(ShardId, Message)| matches!(message, Message::Ask(..));
        self.several.asked += sent.iter().filter(is_question).count();
        self.several.flying.extend(sent.into_iter().map(|(to, message)| (from, to, message)));
    }

    /// Delivers one message, whichever; false when none is under way.
    pub fn deliver_one(&mut self) -> bool {
        if self.several.flying.is_empty() {
            return false;
        }
        let count = self.several.flying.len();
        let which = self.several.dice.below(count);
        let (from, to, message) = self.several.flying.swap_remove(which);
        let to = to.0 as usize;
        self.shard(to).deliver(from, message);
        self.store_answers(to);
        if self.several.dice.below(3) > 0 {
            self.end_batch(to);
        }
        true
    }

    /// One step towards an answer; false when nothing moves any more by itself.
    pub fn move_on(&mut self) -> bool {
        let disk_first = self.slow && self.several.dice.below(3) == 0;
        if disk_first && self.run_any_job() || self.deliver_one() {
            return true;
        }
        for shard in 0..self.cores.len() {
            self.end_batch(shard);
        }
        if !self.several.flying.is_empty() || self.slow && self.run_any_job() {
            return true;
        }
        let jobs = self.cores.iter().any(|core| core.background_jobs() > 0);
        if jobs {
            std::thread::yield_now();
        }
        jobs
    }

    /// Lets a disk finish one of the things that it was asked for, whichever.
    fn run_any_job(&mut self) -> bool {
        let shards = self.cores.len();
        let first = self.several.dice.below(shards);
        let which = self.several.dice.below(3);
        (0..shards).map(|shard| (first + shard) % shards).any(|shard| {
            let ran = self.run_job(shard, which) || self.run_job(shard, 0);
            if ran && self.several.dice.below(2) == 0 {
                self.end_batch(shard);
            }
            ran
        })
    }

    /// Hands in a request and drives the shards until it is answered. `None` when it waits for
    /// something else than messages.
    pub fn drive(
        &mut self,
        caller: Caller,
        request: Request<'_>,
        body: &mut [u8],
    ) -> Option<(u32, usize)> {
        self.hand_in(caller, request, body);
        loop {
            if let Some(done) = self.published(caller) {
                body[..done.body.len()].copy_from_slice(&done.body.to_vec());
                return Some((done.status, done.body.len()));
            }
            let deaths = self.several.deaths;
            if deaths > 0 && self.several.dice.below(deaths) == 0 {
                self.die(caller, request, body);
            } else if !self.move_on() && !self.is_published(caller) {
                return None;
            }
        }
    }

    pub fn hand_in(&mut self, caller: Caller, request: Request<'_>, body: &mut [u8]) {
        self.hand_in_at(0, caller, request, body);
    }

    /// The same at another shard, as another node's processes do.
    pub fn hand_in_at(
        &mut self,
        shard: usize,
        caller: Caller,
        request: Request<'_>,
        body: &mut [u8],
    ) {
        let progress = self.shard(shard).handle(caller, request, body);
        if let Progress::Replied(status, bytes) = progress {
            let transaction = self.shard(shard).batch_transaction();
            let done = Completion::new(caller, status, body[..bytes].to_vec().into());
            self.several.stored.push((caller, transaction, done));
        }
        self.store_answers(shard);
        if self.several.dice.below(2) == 0 {
            self.end_batch(shard);
        }
    }

    fn is_published(&self, caller: Caller) -> bool {
        self.several.published.iter().any(|done| done.caller == caller)
    }

    fn published(&mut self, caller: Caller) -> Option<Completion> {
        let at = self.several.published.iter().position(|done| done.caller == caller)?;
        Some(self.several.published.swap_remove(at))
    }

    /// The daemon dies while a request waits; its successor finds the request in its lane.
    fn die(&mut self, caller: Caller, request: Request<'_>, body: &mut [u8]) {
        let stored = std::mem::take(&mut self.several.stored);
        self.restart();
        let found = stored.into_iter().find(|(of, ..)| *of == caller);
        match found {
            Some((_, transaction, done)) if self.several.was_committed(transaction) => {
                self.several.published.push(done);
            }
            _ => self.hand_in(caller, request, body),
        }
    }

    /// Until no operation of a predecessor is left.
    pub fn recover(&mut self) {
        for shard in 0..self.cores.len() {
            self.end_batch(shard);
        }
        while self.cores.iter().any(Shard::is_recovering) {
            assert!(self.move_on(), "recovery goes on");
        }
        while self.move_on() {}
    }
}

/// What a request that may wait was answered with, once it was.
pub fn played(node: &mut Node, caller: Caller) -> Option<Completion> {
    while node.move_on() {}
    let at = node.several.published.iter().position(|done| done.caller == caller)?;
    Some(node.several.published.swap_remove(at))
}

/// Hands in a request that may wait.
pub fn begin<'a, O: Operation<'a>>(node: &mut Node, session: SessionId, request: &O) -> Caller {
    let mut sent = vec![0; 4096];
    let mut to = Writer::new(&mut sent);
    request.encode(&mut to).unwrap();
    let used = to.used();
    let caller = node.next_caller(session);
    let request = Request::decode(O::OP, &sent[..used]).unwrap();
    node.hand_in(caller, request, &mut vec![0; 300_000]);
    caller
}
