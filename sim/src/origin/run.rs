//! One run: what is due happens in order of virtual time.

mod end;

use std::{cmp::Reverse, collections::BinaryHeap, sync::atomic::Ordering::Relaxed};

use mayfly_daemon::{Directories, Numbering, Roles, plant, serve::stepped::Step};
use mayfly_types::Errno;

use super::{
    Bug, Options,
    client::Client,
    external::External,
    keeper::Keeper,
    plan::{Plan, Trouble},
};
use crate::{
    dice::Dice,
    network::{self, MS, Network, SECOND, Shared, US},
    node::{Chunks, Node, Placing, SimClock},
};

const STEPS_MAX: u64 = 3_000_000;
/// A job that takes longer has no end.
const JOB_NS: u64 = 400 * SECOND;
/// So often a daemon may not be opened in a run.
const REFUSED_MAX: u32 = 20;

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What is wrong.
    pub wrong: Vec<String>,
    /// Things that programs did.
    pub jobs: u64,
    /// Things that keepers did.
    pub items: u64,
    /// Copies of files that others had changed, too.
    pub conflicts: u64,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    Turn {
        node: usize,
        shard: u32,
        life: u64,
    },
    Job {
        node: usize,
        shard: u32,
        life: u64,
    },
    Net(usize),
    Start(usize),
    NewKeeper(usize),
    /// A keeper ends something outside.
    Item {
        node: usize,
        life: u64,
        thread: usize,
    },
    /// It says so.
    Told {
        node: usize,
        life: u64,
        thread: usize,
    },
    Client {
        client: usize,
        life: u64,
    },
    Other(usize),
    Trouble(usize),
    Over(usize),
    /// Nothing but the time.
    Wait,
}

/// Who is about to die, after so many steps.
#[derive(Debug, Clone, Copy)]
struct Doom {
    daemon: bool,
    keeper: bool,
    steps: u64,
    down_ns: u64,
}

struct Member {
    node: Node,
    scheduled: Vec<bool>,
    jobs: Vec<usize>,
    keeper: Option<Keeper>,
    keepers: u64,
    doom: Option<Doom>,
    refused: u32,
}

/// How the directory outside is at present.
#[derive(Debug, Default)]
struct Weak {
    failing: Vec<(usize, Option<u32>, Errno)>,
    slower: Vec<(usize, u64)>,
}

impl Weak {
    fn fails(&self, what: u32, dice: &mut Dice) -> Option<Errno> {
        let mut failing = self.failing.iter().filter(|of| of.1.is_none_or(|kind| kind == what));
        failing.next().filter(|_| dice.once_in(2)).map(|of| of.2)
    }

    fn slower(&self) -> u64 {
        self.slower.iter().map(|of| of.1).max().unwrap_or(1)
    }
}

/// The run.
struct World<'a> {
    plan: &'a Plan,
    options: Options,
    dice: Dice,
    now_ns: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    dues: Vec<Due>,
    net_dues: Vec<network::Due>,
    clock: SimClock,
    network: Shared,
    members: Vec<Member>,
    external: External,
    weak: Weak,
    clients: Vec<Client>,
    outcome: Outcome,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan, options: Options) -> Outcome {
    plant(match options.bug {
        Some(Bug::Daemon(planted)) => Some(planted),
        _ => None,
    });
    let mut world = World::new(plan, options);
    world.live();
    let mut outcome = world.outcome;
    outcome.wrong.append(&mut world.external.judge.wrong);
    outcome.conflicts = world.external.judge.copies;
    outcome
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: Options) -> World<'a> {
        let clock = SimClock::default();
        let members = (0..plan.nodes).map(|node| {
            let numbering = Numbering { node, nodes: plan.nodes, shards: plan.shards };
            let placing = Placing {
                chunks: Chunks::AtHome,
                directories: Directories::Whole,
                roles: Roles::default(),
                consistency: mayfly_daemon::Consistency::Strict,
            };
            let mut node = Node::new(numbering, clock.another(), None, placing);
            node.link_origin(plan.valid_ms);
            node.keep_policy(plan.policy);
            let shards = plan.shards as usize;
            Member {
                node,
                scheduled: vec![false; shards],
                jobs: vec![0; shards],
                keeper: None,
                keepers: 0,
                doom: None,
                refused: 0,
            }
        });
        let members = members.collect();
        let mut external = External::new(options.bug);
        external.judge.valid_ns = plan.valid_ms.map(|ms| ms * MS);
        external.judge.untroubled = plan.troubles.is_empty();
        external.judge.is_short = plan.policy.space_bytes.is_some();
        external.judge.flushed_at_close = plan.policy.write_back.at_close;
        external.judge.own = plan.own_names();
        for act in &plan.planted {
            external.act(act);
        }
        external.forget_touched();
        let (weather, dice) = (plan.weather.clone(), Dice::new(plan.seed, 41));
        World {
            network: Shared::new(Network::new(plan.nodes, weather, dice, None)),
            plan,
            options,
            dice: Dice::new(plan.seed, 42),
            now_ns: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            dues: Vec::new(),
            net_dues: Vec::new(),
            clock,
            members,
            external,
            weak: Weak::default(),
            clients: Vec::new(),
            outcome: Outcome { wrong: Vec::new(), jobs: 0, items: 0, conflicts: 0 },
        }
    }

    fn say(&mut self, what: impl Into<String>) {
        self.outcome.wrong.push(format!("{:.6}: {}", self.now_ns as f64 / 1e9, what.into()));
    }

    fn is_wrong(&self) -> bool {
        !self.outcome.wrong.is_empty() || !self.external.judge.wrong.is_empty()
    }

    fn after(&mut self, delay_ns: u64, due: Due) {
        self.dues.push(due);
        self.sequence += 1;
        let at_ns = self.now_ns + delay_ns;
        self.queue.push(Reverse((at_ns, self.sequence, self.dues.len() - 1)));
    }

    fn live(&mut self) {
        for node in 0..self.members.len() {
            self.start(node);
            self.new_keeper(node);
        }
        for (number, program) in self.plan.programs.iter().enumerate() {
            self.clients.push(Client::new(program.node, program.jobs.iter().cloned().collect()));
            self.pause(number);
        }
        for (at, (after_ns, _)) in self.plan.others.iter().enumerate() {
            self.after(*after_ns, Due::Other(at));
        }
        for (at, (after_ns, _)) in self.plan.troubles.iter().enumerate() {
            self.after(*after_ns, Due::Trouble(at));
        }
        self.go_on_until(|world| world.clients.iter().all(Client::is_done));
        self.end();
    }

    fn go_on_until(&mut self, done: impl Fn(&World<'_>) -> bool) {
        let (mut steps, mut since_ns, mut jobs) = (0, self.now_ns, self.outcome.jobs);
        while !done(self) && !self.is_wrong() {
            let Some(Reverse((at_ns, _, due))) = self.queue.pop() else {
                return self.say("nothing is due, and not all is done");
            };
            steps += 1;
            if self.outcome.jobs != jobs {
                (jobs, since_ns) = (self.outcome.jobs, self.now_ns);
            }
            if steps > STEPS_MAX || self.now_ns.saturating_sub(since_ns) > JOB_NS {
                let doing: Vec<String> = self.clients.iter().filter_map(Client::tell).collect();
                return self.say(format!("nobody gets further: {doing:?}"));
            }
            self.now_ns = self.now_ns.max(at_ns);
            self.clock.set(self.now_ns);
            self.external.judge.now_ns = self.now_ns;
            self.network.lock().set_now(self.now_ns);
            let due = self.dues[due];
            if self.options.trace {
                self.trace(due);
            }
            self.happen(due);
            self.gather();
        }
    }

    fn trace(&self, due: Due) {
        let at = self.now_ns as f64 / 1e9;
        match due {
            Due::Turn { .. } | Due::Job { .. } | Due::Net(_) | Due::Wait => {}
            Due::Item { node, life, thread } | Due::Told { node, life, thread } => {
                let keeper = self.members[node].keeper.as_ref().filter(|of| of.life == life);
                if let Some(keeper) = keeper {
                    println!("{at:.6} keeper {node} {due:?}: {}", keeper.tell_of(thread));
                }
            }
            Due::Other(of) => println!("{at:.6} others: {:?}", self.plan.others[of].1),
            Due::Trouble(of) => println!("{at:.6} trouble: {:?}", self.plan.troubles[of].1),
            due => println!("{at:.6} {due:?}"),
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Turn { node, shard, life } => self.turn(node, shard, life),
            Due::Job { node, shard, life } => self.job(node, shard, life),
            Due::Net(at) => self.network.lock().happen(self.net_dues[at]),
            Due::Start(node) => self.start(node),
            Due::NewKeeper(node) => self.new_keeper(node),
            Due::Item { node, life, thread } => self.item(node, life, thread),
            Due::Told { node, life, thread } => {
                let Member { node: of, keeper, .. } = &mut self.members[node];
                if let Some(keeper) = keeper.as_mut().filter(|keeper| keeper.life == life) {
                    keeper.tell(of, thread);
                    self.come_closer(node);
                }
            }
            Due::Client { client, life } => self.begin(client, life),
            Due::Other(at) => {
                let did = self.external.act(&self.plan.others[at].1);
                if self.options.trace && !did {
                    println!("    which was not possible");
                }
            }
            Due::Trouble(at) => self.trouble(at),
            Due::Over(at) => self.over(at),
            Due::Wait => {}
        }
    }

    fn begin(&mut self, client: usize, life: u64) {
        let of = &mut self.clients[client];
        if of.life != life {
            return;
        }
        of.begin(&mut self.members[of.node].node, &mut self.external);
        if self.options.trace {
            println!("    client {client}: {:?}", of.tell());
        }
        if !of.is_busy() && !of.is_done() {
            // There was no session for it.
            self.after(MS, Due::Client { client, life });
        }
    }

    fn start(&mut self, node: usize) {
        let member = &mut self.members[node];
        if member.node.daemon.is_some() {
            return;
        }
        member.scheduled.fill(false);
        member.jobs.fill(0);
        let started = member.node.start(&self.network);
        match started {
            Ok(true) => {
                // A daemon looks at what its predecessor left without being woken.
                for shard in 0..self.plan.shards {
                    self.schedule(node, shard);
                }
            }
            Ok(false) => {
                self.network.lock().end(node as u32);
                self.after(MS, Due::Start(node));
            }
            Err(why) => {
                self.network.lock().end(node as u32);
                // The commit that was to fail did so while it was opened.
                member.refused += 1;
                if member.refused > REFUSED_MAX || self.plan.troubles.is_empty() {
                    self.say(format!("the daemon of {node} cannot be opened: {why}"));
                }
                self.after(50 * MS, Due::Start(node));
            }
        }
    }

    fn kill(&mut self, node: usize, down_ns: u64) {
        let member = &mut self.members[node];
        if member.node.daemon.is_none() {
            return;
        }
        if self.options.trace {
            println!("    the daemon of {node} dies");
        }
        member.node.kill(&self.network, &mut self.dice);
        self.after(down_ns, Due::Start(node));
    }

    fn new_keeper(&mut self, node: usize) {
        let member = &mut self.members[node];
        member.keepers += 1;
        member.keeper = Keeper::attach((node, &mut member.node), member.keepers);
        if member.keeper.is_none() {
            self.after(10 * MS, Due::NewKeeper(node));
        }
    }

    fn kill_keeper(&mut self, node: usize) {
        let member = &mut self.members[node];
        let Some(keeper) = member.keeper.take() else { return };
        if self.options.trace {
            println!("    the keeper of {node} dies");
        }
        let dice = &mut self.dice;
        keeper.kill(&mut member.node, &mut self.external, || dice.once_in(2));
        self.after(20 * MS, Due::NewKeeper(node));
    }

    fn item(&mut self, node: usize, life: u64, thread: usize) {
        let Member { node: of, keeper, .. } = &mut self.members[node];
        let Some(keeper) = keeper.as_mut().filter(|keeper| keeper.life == life) else { return };
        if keeper.perform(of, &mut self.external, thread) {
            self.outcome.items += 1;
            let delay_ns = self.item_delay_ns();
            self.after(delay_ns, Due::Told { node, life, thread });
            self.come_closer(node);
        }
    }

    fn item_delay_ns(&mut self) -> u64 {
        let slow = if self.dice.once_in(20) { 10 } else { 1 };
        10 * US + self.dice.below(self.plan.slow.item_ns / 2 * slow * self.weak.slower())
    }

    fn pause(&mut self, client: usize) {
        let of = &self.clients[client];
        let (delay_ns, life) = (of.jobs.front().map_or(0, |job| job.0), of.life);
        self.after(delay_ns, Due::Client { client, life });
    }

    fn gather(&mut self) {
        let agenda = std::mem::take(&mut self.network.lock().agenda);
        for (at_ns, due) in agenda {
            self.net_dues.push(due);
            let due = Due::Net(self.net_dues.len() - 1);
            self.after(at_ns.saturating_sub(self.now_ns), due);
        }
        for node in 0..self.members.len() {
            let Member { node: of, keeper, .. } = &mut self.members[node];
            if let Some(keeper) = keeper {
                let (weak, dice) = (&self.weak, &mut self.dice);
                let fails = |what| weak.fails(what, dice);
                let (life, begun) = (keeper.life, keeper.go_on(of, &mut self.external, fails));
                for thread in begun {
                    let delay_ns = self.item_delay_ns();
                    self.after(delay_ns, Due::Item { node, life, thread });
                }
            }
            for shard in 0..self.plan.shards {
                let member = &mut self.members[node];
                if !member.scheduled[shard as usize] && member.node.has_work(shard) {
                    self.schedule(node, shard);
                }
            }
        }
    }

    fn schedule(&mut self, node: usize, shard: u32) {
        let most = if self.dice.once_in(50) { 5 * MS } else { 20 * US };
        let delay_ns = US + self.dice.below(most);
        let member = &mut self.members[node];
        member.scheduled[shard as usize] = true;
        let life = member.node.lives;
        self.after(delay_ns, Due::Turn { node, shard, life });
    }

    fn turn(&mut self, node: usize, shard: u32, life: u64) {
        let member = &mut self.members[node];
        if member.node.lives != life || member.node.daemon.is_none() {
            return;
        }
        member.scheduled[shard as usize] = false;
        match member.node.turn(shard) {
            Some(Step::Idle) => {}
            Some(Step::Done) => self.schedule(node, shard),
            Some(Step::Over(_)) | None => return self.kill(node, MS),
        }
        self.schedule_jobs(node, shard, life);
        for client in 0..self.clients.len() {
            let of = &mut self.clients[client];
            if of.node == node && of.hear(&self.members[node].node, &mut self.external) {
                if self.options.trace {
                    println!(
                        "    {:.6} client {client} heard {:?}",
                        self.now_ns as f64 / 1e9,
                        of.heard
                    );
                }
                self.outcome.jobs += 1;
                self.pause(client);
            }
        }
        self.come_closer(node);
    }

    fn schedule_jobs(&mut self, node: usize, shard: u32, life: u64) {
        let member = &mut self.members[node];
        let Some(daemon) = member.node.daemon.as_mut() else { return };
        let waiting = daemon.service(shard).background_jobs();
        let due = &mut member.jobs[shard as usize];
        let more = waiting.saturating_sub(*due);
        *due += more;
        for _ in 0..more {
            let delay_ns = US + self.dice.below(self.plan.slow.disk_ns);
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

    /// A step closer to the death of a node's daemon or keeper.
    fn come_closer(&mut self, node: usize) {
        let Some(doom) = &mut self.members[node].doom else { return };
        if let Some(fewer) = doom.steps.checked_sub(1) {
            doom.steps = fewer;
            return;
        }
        let Some(doom) = self.members[node].doom.take() else { return };
        if doom.keeper {
            self.kill_keeper(node);
        }
        if doom.daemon {
            self.kill(node, doom.down_ns);
        }
    }

    fn trouble(&mut self, at: usize) {
        let doom = Doom { daemon: true, keeper: false, steps: 0, down_ns: 0 };
        let time_ns = match self.plan.troubles[at].1 {
            Trouble::Kill(node, steps, down_ns) => {
                self.members[node].doom = Some(Doom { steps, down_ns, ..doom });
                return;
            }
            Trouble::KillKeeper(node, steps) => {
                self.members[node].doom = Some(Doom { daemon: false, keeper: true, steps, ..doom });
                return;
            }
            Trouble::KillBoth(node, steps, down_ns) => {
                self.members[node].doom = Some(Doom { keeper: true, steps, down_ns, ..doom });
                return;
            }
            Trouble::KillProgram(client) => {
                let of = &mut self.clients[client];
                of.end(&mut self.members[of.node].node, &mut self.external);
                return self.pause(client);
            }
            Trouble::FailCommit(node) => return self.members[node].node.fail_commit(0),
            Trouble::Break(a, b) if a != b => return self.network.lock().disconnect(a, b),
            Trouble::Break(..) => return,
            Trouble::Failing(time_ns, what, errno) => {
                self.weak.failing.push((at, what, errno));
                time_ns
            }
            Trouble::Slow(time_ns, times) => {
                self.weak.slower.push((at, times));
                time_ns
            }
            Trouble::Full(node, time_ns) => {
                self.members[node].node.disk.full.store(true, Relaxed);
                time_ns
            }
            Trouble::Isolate(node, time_ns) => {
                self.cut(node, true);
                time_ns
            }
        };
        self.after(time_ns, Due::Over(at));
    }

    fn over(&mut self, at: usize) {
        self.weak.failing.retain(|of| of.0 != at);
        self.weak.slower.retain(|of| of.0 != at);
        match self.plan.troubles[at].1 {
            Trouble::Full(node, _) => self.members[node].node.disk.full.store(false, Relaxed),
            Trouble::Isolate(node, _) => self.cut(node, false),
            _ => {}
        }
    }

    fn cut(&self, node: u32, cut: bool) {
        let mut network = self.network.lock();
        for other in (0..self.plan.nodes).filter(|other| *other != node) {
            network.cut(node, other, cut);
            network.cut(other, node, cut);
        }
    }
}
