//! A run: one thread, one queue of what is due, and time that jumps from one to the next.

mod paths;
mod rest;
mod trouble;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use mayfly_daemon::{Directories, Numbering, Planted, plant, serve::stepped::Step};
use mayfly_types::limits::DEADLINE_MS_DEFAULT;

use self::paths::{audit, fixed_paths};
use crate::{
    client::{Client, Common, Opening, own::Heed},
    dice::Dice,
    disk::Disk,
    fits,
    judge::{Wrong, judge},
    network::{self, MS, Network, SECOND, Shared, US},
    node::{Chunks, Node, Placing, SimClock},
    plan::{Act, Plan, WORK_NS},
};

/// Steps of a run that goes on for ever.
const STEPS_MAX: u64 = 3_000_000;
/// After the last trouble everything has come to rest by then, nanoseconds.
const REST_NS: u64 = 60 * SECOND;
/// A disk that was told to fail may do so when a daemon is opened, so many times in a run.
const REFUSED_MAX: u32 = 20;
/// A disk that is slow is so many times slower.
const SLOW_DISK: u64 = 100;

/// What the dice of the first client are for, those of the others behind it.
const FIRST_OF_CLIENTS: u64 = 100;

/// A bug that is put in on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The network breaks its promise.
    Network(network::Planted),
    /// The stores break theirs.
    Forgetful,
    /// Processes do not look whether their leave has ended.
    Blind,
    /// They append by themselves to whatever they have leave to write.
    Appending,
    /// The disks break theirs.
    Disk(crate::disk::Planted),
    /// The daemons have one.
    Daemon(Planted),
}

/// How to run a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Print what happens.
    pub trace: bool,
    /// A bug that is put in.
    pub bug: Option<Bug>,
    /// Where the chunks of files are.
    pub chunks: Chunks,
    /// Where the names of directories are; otherwise as the seed says.
    pub directories: Option<Directories>,
    /// How long clients have files open.
    pub opening: Opening,
    /// They read and write by themselves what they have leave for.
    pub own: bool,
    /// They make and remove names without asking where they may.
    pub submits: bool,
}

/// Every way has its turn.
fn directories_of(seed: u64) -> Directories {
    match seed % 3 {
        0 => Directories::Restless,
        1 => Directories::Spread,
        _ => Directories::Whole,
    }
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub wrong: Vec<Wrong>,
    /// Histories that could not be decided.
    pub undecided: usize,
    /// Histories that are right.
    pub good: usize,
    /// Operations that clients began.
    pub operations: usize,
    /// Answers that they got.
    pub answers: u64,
    /// What they submitted without asking.
    pub submitted: u64,
    /// Requests between nodes.
    pub requests: u64,
    /// Virtual time, nanoseconds.
    pub time_ns: u64,
    /// Of everything that happened, in order.
    pub hash: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Due {
    Turn { node: usize, shard: u32, life: u64 },
    Job { node: usize, shard: u32, life: u64 },
    Net(usize),
    Client { client: usize, life: u64 },
    Deadline { client: usize, life: u64, request: u64 },
    Trouble(usize),
    Over(usize),
    Start(usize),
}

struct Member {
    node: Node,
    /// Whether a turn of each shard is due.
    scheduled: Vec<bool>,
    /// Jobs of each shard that are due.
    jobs: Vec<usize>,
    paused_until_ns: u64,
    slow_disk: u32,
    /// For so long it is dead when it has died in the middle of something.
    down_ns: u64,
    /// How often its daemon could not be opened.
    refused: u32,
}

/// A run that is under way.
pub struct World<'a> {
    plan: &'a Plan,
    options: Options,
    now_ns: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    dues: Vec<Due>,
    net_dues: Vec<network::Due>,
    dice: Dice,
    network: Shared,
    clock: SimClock,
    members: Vec<Member>,
    clients: Vec<Client>,
    common: Common,
    wrong: Vec<Wrong>,
    steps: u64,
    hash: DefaultHasher,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan, options: Options) -> Report {
    plant(match options.bug {
        Some(Bug::Daemon(planted)) => Some(planted),
        _ => None,
    });
    let mut world = World::new(plan, options);
    world.live();
    let mut judgement = judge(&world.common.history, &plan.groups);
    let mut wrong = std::mem::take(&mut judgement.wrong);
    wrong.append(&mut world.wrong);
    wrong.extend(std::mem::take(&mut world.common.wrong).into_iter().map(Wrong));
    let requests = world.network.lock().requests;
    Report {
        wrong,
        undecided: judgement.undecided,
        good: judgement.good,
        operations: world.common.history.len(),
        answers: world.common.answers,
        submitted: world.common.submitted,
        requests,
        time_ns: world.now_ns,
        hash: world.hash.finish(),
    }
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: Options) -> World<'a> {
        let planted = match options.bug {
            Some(Bug::Network(planted)) => Some(planted),
            _ => None,
        };
        let dice = Dice::new(plan.seed, 10);
        let network = Network::new(plan.nodes, plan.weather.clone(), dice, planted);
        let clock = SimClock::default();
        let forgetful = (options.bug == Some(Bug::Forgetful)).then_some(plan.seed);
        let members = (0..plan.nodes).map(|node| {
            let numbering = Numbering { node, nodes: plan.nodes, shards: plan.shards };
            let shards = plan.shards as usize;
            let directories = options.directories.unwrap_or_else(|| directories_of(plan.seed));
            let roles = plan.roles.clone();
            let consistency = options.opening.consistency();
            let placing = Placing { chunks: options.chunks, directories, roles, consistency };
            let mut node = Node::new(numbering, clock.another(), forgetful, placing);
            if let Some(Bug::Disk(planted)) = options.bug {
                node.disk = Arc::new(Disk::planted(planted));
            }
            Member {
                node,
                scheduled: vec![false; shards],
                jobs: vec![0; shards],
                paused_until_ns: 0,
                slow_disk: 0,
                down_ns: 0,
                refused: 0,
            }
        });
        let members = members.collect();
        World {
            plan,
            options,
            now_ns: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            dues: Vec::new(),
            net_dues: Vec::new(),
            dice: Dice::new(plan.seed, 11),
            network: Shared::new(network),
            clock,
            members,
            clients: Vec::new(),
            common: Common {
                history: Vec::new(),
                groups: plan.groups.clone(),
                paths: fixed_paths(plan),
                now_ns: 0,
                answers: 0,
                submitted: 0,
                wrong: Vec::new(),
            },
            wrong: Vec::new(),
            steps: 0,
            hash: DefaultHasher::new(),
        }
    }

    fn live(&mut self) {
        for node in 0..self.members.len() {
            self.start(node);
        }
        let made = (0..self.common.paths.len()).map(Act::Make);
        let added = (0..self.plan.directories).flat_map(|of| [Act::Add(of); 12]);
        self.stage(0, made.chain(added).collect());
        let scripts = self.plan.scripts.clone();
        let first = self.clients.len();
        for script in scripts {
            self.client(script.node, script.acts);
        }
        for (at, (after_ns, _)) in self.plan.troubles.iter().enumerate() {
            self.after(*after_ns, Due::Trouble(at));
        }
        let end_ns = self.now_ns + WORK_NS;
        while self.clients[first..].iter().any(|client| !client.is_done()) && self.wrong.is_empty()
        {
            if self.now_ns > end_ns {
                self.clients.iter_mut().for_each(Client::give_up);
            }
            if !self.step() {
                break;
            }
        }
        self.heal();
        self.rest();
        self.check(fits::check);
        self.check(rest::check_locks);
        let last = self.plan.nodes - 1;
        self.stage(last, audit(self.plan));
        let cleared = self.clear();
        self.stage(0, cleared);
        self.rest();
        self.check(fits::check);
        self.check(rest::check);
    }

    /// A look at what all nodes keep, while nothing goes on.
    fn check(&mut self, look: fn(&mut dyn Iterator<Item = &mut Node>, u32) -> Vec<Wrong>) {
        if self.wrong.is_empty() {
            let mut nodes = self.members.iter_mut().map(|member| &mut member.node);
            self.wrong = look(&mut nodes, self.plan.shards);
        }
    }

    /// One client does these things, and everything else goes on until it has.
    fn stage(&mut self, node: u32, acts: Vec<Act>) {
        if !self.wrong.is_empty() {
            return;
        }
        let client = self.client(node, acts.into_iter().map(|act| (0, act)).collect());
        while !self.clients[client].is_done() && self.wrong.is_empty() && self.step() {}
    }

    fn client(&mut self, node: u32, acts: Vec<(u64, Act)>) -> usize {
        let number = self.clients.len();
        let client = Client::new(number, node, acts, self.options.opening);
        let dice = Dice::new(self.plan.seed, FIRST_OF_CLIENTS + number as u64);
        let heed = match self.options.bug {
            Some(Bug::Blind) => Heed::NoEnd,
            Some(Bug::Appending) => Heed::NoAppend,
            _ => Heed::All,
        };
        let own = self.options.own;
        let client = if self.options.submits { client.submitting() } else { client };
        self.clients.push(if own { client.by_itself(dice, heed) } else { client });
        self.after(0, Due::Client { client: number, life: 0 });
        number
    }

    fn after(&mut self, delay_ns: u64, due: Due) {
        self.dues.push(due);
        self.sequence += 1;
        let at_ns = self.now_ns + delay_ns;
        self.queue.push(Reverse((at_ns, self.sequence, self.dues.len() - 1)));
    }

    /// The next thing that is due happens; false when there is none.
    fn step(&mut self) -> bool {
        let Some(Reverse((at_ns, _, due))) = self.queue.pop() else { return false };
        self.steps += 1;
        if self.steps > STEPS_MAX {
            self.wrong.push(Wrong(format!("after {STEPS_MAX} steps it still goes on")));
            return false;
        }
        self.now_ns = self.now_ns.max(at_ns);
        self.clock.set(self.now_ns);
        self.common.now_ns = self.now_ns;
        self.network.lock().set_now(self.now_ns);
        let due = self.dues[due];
        (self.now_ns, due).hash(&mut self.hash);
        if self.options.trace {
            self.trace(due);
        }
        self.happen(due);
        self.gather();
        true
    }

    fn trace(&self, due: Due) {
        let what = match due {
            Due::Net(at) => format!("{:?}", self.net_dues[at]),
            Due::Trouble(at) => format!("trouble {:?}", self.plan.troubles[at].1),
            due => format!("{due:?}"),
        };
        println!("{:.9} {what}", self.now_ns as f64 / 1e9);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Turn { node, shard, life } => self.turn(node, shard, life),
            Due::Job { node, shard, life } => self.job(node, shard, life),
            Due::Net(at) => self.network.lock().happen(self.net_dues[at]),
            Due::Client { client, life } if self.clients[client].life == life => {
                self.go_on(client);
            }
            Due::Client { .. } => {}
            Due::Deadline { client, life, request } => {
                let of = &self.clients[client];
                if of.life == life && of.request() == Some(request) {
                    self.give_up(client);
                }
            }
            Due::Trouble(at) => self.trouble(at),
            Due::Over(at) => self.over(at),
            Due::Start(node) => self.start(node),
        }
    }

    /// A client waits no more. Where nothing goes wrong that must not happen.
    fn give_up(&mut self, client: usize) {
        if self.plan.troubles.is_empty() {
            let why = format!("client {client} got no answer though nothing went wrong");
            self.wrong.push(Wrong(why));
        }
        let of = &mut self.clients[client];
        of.abandon(&self.members[of.node as usize].node);
        self.go_on(client);
    }

    /// Takes up what follows from what happened.
    fn gather(&mut self) {
        let agenda = std::mem::take(&mut self.network.lock().agenda);
        for (at_ns, due) in agenda {
            self.net_dues.push(due);
            let due = Due::Net(self.net_dues.len() - 1);
            self.after(at_ns.saturating_sub(self.now_ns), due);
        }
        for node in 0..self.members.len() {
            for shard in 0..self.plan.shards {
                let member = &mut self.members[node];
                if !member.scheduled[shard as usize] && member.node.has_work(shard) {
                    self.schedule(node, shard);
                }
            }
        }
    }

    fn schedule(&mut self, node: usize, shard: u32) {
        // Now and then somebody else has the processor.
        let most = if self.dice.once_in(50) { 5 * MS } else { 20 * US };
        let delay_ns = US + self.dice.below(most);
        let member = &mut self.members[node];
        member.scheduled[shard as usize] = true;
        let delay_ns = delay_ns.max(member.paused_until_ns.saturating_sub(self.now_ns));
        let life = member.node.lives;
        self.after(delay_ns, Due::Turn { node, shard, life });
    }

    fn turn(&mut self, node: usize, shard: u32, life: u64) {
        let member = &mut self.members[node];
        if member.node.lives != life || member.node.daemon.is_none() {
            return;
        }
        member.scheduled[shard as usize] = false;
        let step = member.node.turn(shard);
        let died_for_ns = member.down_ns;
        match step {
            Some(Step::Idle) => {}
            Some(Step::Done) => self.schedule(node, shard),
            Some(Step::Over(_)) => return self.kill(node, MS),
            None => return self.kill(node, died_for_ns),
        }
        self.schedule_jobs(node, shard, life);
        for client in 0..self.clients.len() {
            if self.clients[client].node as usize == node {
                self.listen(client);
            }
        }
    }

    fn schedule_jobs(&mut self, node: usize, shard: u32, life: u64) {
        let member = &mut self.members[node];
        let Some(daemon) = member.node.daemon.as_mut() else { return };
        let waiting = daemon.service(shard).background_jobs();
        let due = &mut member.jobs[shard as usize];
        let more = waiting.saturating_sub(*due);
        *due += more;
        let slow = if member.slow_disk > 0 { SLOW_DISK } else { 1 };
        for _ in 0..more {
            let delay_ns = US + self.dice.below(self.plan.disk_ns * slow);
            self.after(delay_ns, Due::Job { node, shard, life });
        }
    }

    fn job(&mut self, node: usize, shard: u32, life: u64) {
        let which = self.dice.index(3);
        let member = &mut self.members[node];
        if member.node.lives != life {
            return;
        }
        let Some(daemon) = member.node.daemon.as_mut() else { return };
        let due = &mut member.jobs[shard as usize];
        *due = due.saturating_sub(1);
        let core = daemon.service(shard);
        let _ran = core.run_job(which) || core.run_job(0);
    }

    fn listen(&mut self, client: usize) {
        let of = &mut self.clients[client];
        if of.hear(&mut self.members[of.node as usize].node, &mut self.common) {
            match of.request() {
                Some(_) => self.wait(client),
                None => self.pause(client),
            }
            self.check_holders(client);
        }
    }

    /// Nobody knows that he holds what this client knows that it does.
    fn check_holders(&mut self, client: usize) {
        for mine in self.clients[client].holds() {
            let others = self.clients.iter().enumerate().filter(|(number, _)| *number != client);
            for (number, other) in others {
                if let Some(its) = other.holds().iter().find(|its| its.excludes(mine)) {
                    let why = format!("client {client} has {mine:?}, and {number} {its:?}");
                    self.wrong.push(Wrong(why));
                }
            }
        }
    }

    fn pause(&mut self, client: usize) {
        let of = &self.clients[client];
        let (delay_ns, life) = (of.pause_ns(), of.life);
        self.after(delay_ns, Due::Client { client, life });
    }

    fn wait(&mut self, client: usize) {
        let of = &self.clients[client];
        if let Some(request) = of.request() {
            let due = Due::Deadline { client, life: of.life, request };
            self.after(DEADLINE_MS_DEFAULT * MS, due);
        }
    }

    fn go_on(&mut self, client: usize) {
        let of = &mut self.clients[client];
        let node = &mut self.members[of.node as usize].node;
        if of.begin(node, &mut self.common) {
            self.wait(client);
        } else if !self.clients[client].is_done() {
            self.pause(client);
        }
    }

    fn start(&mut self, node: usize) {
        let member = &mut self.members[node];
        if member.node.daemon.is_some() {
            return;
        }
        member.scheduled.fill(false);
        member.jobs.fill(0);
        match member.node.start(&self.network) {
            Ok(true) => {}
            Ok(false) => {
                self.network.lock().end(node as u32);
                let down_ns = member.down_ns;
                return self.after(down_ns, Due::Start(node));
            }
            Err(why) => {
                self.network.lock().end(node as u32);
                member.refused += 1;
                if member.refused > REFUSED_MAX {
                    self.wrong.push(Wrong(format!("node {node} cannot be started: {why}")));
                }
                return self.after(100 * MS, Due::Start(node));
            }
        }
        for shard in 0..self.plan.shards {
            self.schedule(node, shard);
        }
    }

    /// A daemon dies; its supervisor starts another one.
    fn kill(&mut self, node: usize, after_ns: u64) {
        let member = &mut self.members[node];
        if member.node.daemon.is_none() {
            return;
        }
        member.node.kill(&self.network, &mut self.dice);
        self.after(after_ns, Due::Start(node));
    }

    /// Waits until every trouble is over.
    fn heal(&mut self) {
        self.members.iter().for_each(|member| member.node.fuse.put_out());
        let last_ns = self.plan.troubles.iter().map(|of| of.0).max().unwrap_or(0);
        let until_ns = self.now_ns.max(last_ns) + 15 * SECOND;
        self.until(until_ns);
    }

    /// Waits until nothing goes on any more.
    fn rest(&mut self) {
        self.until(self.now_ns + REST_NS);
    }

    fn until(&mut self, until_ns: u64) {
        while self.wrong.is_empty() && self.queue.peek().is_some_and(|next| next.0.0 <= until_ns) {
            if !self.step() {
                return;
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
    }
}
