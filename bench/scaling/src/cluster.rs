//! The daemons of many nodes, turned by hand, where everything takes time: each turn of a daemon's
//! loop its processor time, each frame that of the links on its way and of the network threads.
//!
//! Loops, protocol and placement are the product's; what an operation costs is [`crate::costs`].
//! Every node has 16 processes that ask one after the other, each thread of a daemon has a core of
//! its own, and nothing goes wrong.

mod process;

use std::{cmp::Reverse, collections::BinaryHeap};

use anyhow::{Result, ensure};
use mayfly_daemon::{Consistency, Directories, Numbering, Roles, serve::stepped::Step};
use mayfly_sim::{
    dice::Dice,
    fabric::{Fabric, Topology},
    network::{self, Network, Shared, Weather},
    node::{Chunks, Node, Placing, SimClock},
};
use mayfly_transport_tcp::limits::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use self::process::Act;
use self::process::Process;
use crate::costs::{self, Cost, Machine};

/// Processes of each host, as in the published runs.
pub const PROCESSES: u32 = 16;
/// A request that gets no answer in this time is an error of the study, virtual nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Nothing of a phase that is under way is farther ahead, virtual nanoseconds.
const QUIET_NS: u64 = 100_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Turn(u32, u32),
    Job(u32),
    Net(usize),
    Go(usize),
}

/// The thread of a shard.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    is_scheduled: bool,
    busy_until_ns: u64,
    busy_ns: u64,
}

struct Member {
    node: Node,
    /// The first one takes what the processes ask for.
    threads: Vec<Thread>,
    /// Requests that its processes have made since its last turn.
    asked: u64,
    jobs_due: usize,
    disk_free_ns: u64,
}

/// What a phase came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Operations a second of all processes, over the middle half of the operations.
    pub rate: f64,
    /// Requests between nodes for one operation.
    pub requests: f64,
    /// The part of the time for which the front thread of the busiest node was busy.
    pub busiest_front: f64,
    /// The same of the node in the middle.
    pub median_front: f64,
}

/// Each session is a few of them, and those of all nodes are more than a process may usually have.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Without it a smaller study runs; a large one says what it lacks.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// All nodes, and what they are connected by.
pub struct Cluster {
    machine: Machine,
    cost: Cost,
    now_ns: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Due)>>,
    net_dues: Vec<network::Due>,
    network: Shared,
    clock: SimClock,
    members: Vec<Member>,
    processes: Vec<Process>,
    /// When each operation of the phase was done.
    done_ns: Vec<u64>,
    wrong: Option<String>,
}

impl Cluster {
    /// Starts daemons on `hosts`, and 16 processes on each of these; `lanes` are what a process
    /// needs. Names are where `directories` says.
    ///
    /// # Errors
    /// A daemon cannot be opened.
    pub fn start(
        machine: &Machine,
        hosts: u32,
        (chunks, directories): (Chunks, Directories),
        lanes: u32,
    ) -> Result<Cluster> {
        allow_descriptors();
        let nodes = hosts * machine.daemon.of_host;
        let limits = Limits::default();
        let weather = Weather {
            delay_ns: machine.one_way_ns,
            jitter_ns: 0,
            credits: u64::from(limits.message_credits),
            outstanding_max: limits.outstanding_max as usize,
        };
        let mut network = Network::new(nodes, weather, Dice::new(1, 10), None);
        network.set_fabric(Fabric::new(machine.topology(nodes)));
        let (clock, shards) = (SimClock::default(), machine.daemon.shards);
        let consistency = Consistency::Strict;
        let placing = Placing { chunks, directories, roles: Roles::default(), consistency };
        let members = (0..nodes).map(|node| {
            let numbering = Numbering { node, nodes, shards };
            Member {
                node: Node::new(numbering, clock.another(), None, placing.clone()),
                threads: vec![Thread::default(); shards as usize],
                asked: 0,
                jobs_due: 0,
                disk_free_ns: 0,
            }
        });
        let mut cluster = Cluster {
            machine: machine.clone(),
            cost: Cost::default(),
            now_ns: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            net_dues: Vec::new(),
            network: Shared::new(network),
            clock: clock.another(),
            members: members.collect(),
            processes: Vec::new(),
            done_ns: Vec::new(),
            wrong: None,
        };
        cluster.clock = clock;
        for member in &mut cluster.members {
            let lives = member.node.start(&cluster.network).map_err(anyhow::Error::msg)?;
            ensure!(lives, "a daemon died though nothing goes wrong");
        }
        let each = cluster.processes_of_each();
        for node in 0..nodes {
            let of = &mut cluster.members[node as usize].node;
            cluster.processes.extend(process::attach(node, of, each, lanes)?);
            (0..shards).for_each(|shard| cluster.schedule(node, shard));
        }
        Ok(cluster)
    }

    /// The program of a node ends, and what was delegated to it with it, and another one begins;
    /// each of its processes has `lanes`.
    ///
    /// # Errors
    /// Nothing more can attach.
    pub fn begin_program(&mut self, node: u32, lanes: u32) -> Result<()> {
        let each = self.processes_of_each();
        let first = (node * each) as usize;
        let of = &mut self.members[node as usize].node;
        let processes = process::attach(node, of, each, lanes)?;
        for (old, new) in self.processes[first..].iter_mut().zip(processes) {
            of.detach(std::mem::replace(old, new).number);
        }
        self.wake(node);
        Ok(())
    }

    /// Processes of each daemon.
    fn processes_of_each(&self) -> u32 {
        PROCESSES / self.machine.daemon.of_host
    }

    /// Daemons of each host.
    #[must_use]
    pub fn daemons_of_host(&self) -> u32 {
        self.machine.daemon.of_host
    }

    /// All processes.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.processes.len() as u32
    }

    /// Nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.members.len() as u32
    }

    /// How the nodes are connected.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.machine.topology(self.nodes())
    }

    /// Every process does its acts, `depth` at a time; each act costs the daemons `cost`.
    ///
    /// # Errors
    /// An act failed, or was not answered.
    pub fn phase(
        &mut self,
        cost: Cost,
        depth: usize,
        acts: impl Fn(u32) -> Vec<Act>,
    ) -> Result<Measured> {
        (self.cost, self.done_ns) = (cost, Vec::new());
        for thread in self.members.iter_mut().flat_map(|member| &mut member.threads) {
            thread.busy_ns = 0;
        }
        let (start_ns, requests) = (self.now_ns, self.network.lock().requests);
        for at in 0..self.processes.len() {
            self.processes[at].begin(acts(at as u32), depth);
            self.after(self.now_ns, Due::Go(at));
        }
        while self.processes.iter().any(|process| !process.is_done()) {
            // Many steps before everybody is looked at again.
            for _ in 0..1000 {
                // Nothing but deadlines of requests that were answered long ago.
                let next_ns = self.queue.peek().map_or(u64::MAX, |next| next.0.0);
                let is_quiet = next_ns > self.now_ns + QUIET_NS;
                if is_quiet && self.processes.iter().all(Process::is_done) {
                    break;
                }
                if !self.step() || self.wrong.is_some() {
                    break;
                }
            }
            let wrong = self.wrong.take();
            ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            ensure!(self.now_ns < start_ns + PATIENCE_NS, "processes got no answer");
        }
        let requests = self.network.lock().requests - requests;
        Ok(self.measured(start_ns, requests))
    }

    fn measured(&mut self, start_ns: u64, requests: u64) -> Measured {
        self.done_ns.sort_unstable();
        let count = self.done_ns.len();
        let (first, last) = (count / 4, (count * 3 / 4).max(count / 4 + 1).min(count - 1));
        let (from_ns, to_ns) = match count {
            0..8 => (start_ns, self.done_ns[count - 1]),
            _ => (self.done_ns[first], self.done_ns[last]),
        };
        // A turn answers many at one moment: who is counted has to fit the time between two.
        let later = |of_ns| count - self.done_ns.partition_point(|done_ns| *done_ns <= of_ns);
        let within = later(from_ns) - later(to_ns);
        let seconds = (to_ns - from_ns).max(1) as f64 / 1e9;
        let whole_ns = (self.done_ns[count - 1] - start_ns).max(1) as f64;
        let mut busy: Vec<u64> =
            self.members.iter().map(|member| member.threads[0].busy_ns).collect();
        busy.sort_unstable();
        Measured {
            rate: within as f64 / seconds,
            requests: requests as f64 / count as f64,
            busiest_front: busy[busy.len() - 1] as f64 / whole_ns,
            median_front: busy[busy.len() / 2] as f64 / whole_ns,
        }
    }

    fn after(&mut self, at_ns: u64, due: Due) {
        self.sequence += 1;
        self.queue.push(Reverse((at_ns, self.sequence, due)));
    }

    /// Nothing happens for so long.
    pub(crate) fn rest(&mut self, rest_ns: u64) {
        self.now_ns += rest_ns;
        self.clock.set(self.now_ns);
        self.network.lock().set_now(self.now_ns);
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((at_ns, _, due))) = self.queue.pop() else { return false };
        self.now_ns = self.now_ns.max(at_ns);
        self.clock.set(self.now_ns);
        self.network.lock().set_now(self.now_ns);
        match due {
            Due::Turn(node, shard) => self.turn(node, shard),
            Due::Job(node) => self.job(node),
            Due::Go(process) => self.go(process),
            Due::Net(at) => {
                let due = self.net_dues[at];
                self.network.lock().happen(due);
                match due {
                    network::Due::Arrive { to, .. } => self.wake(to),
                    network::Due::Connect(a, b) => {
                        self.wake(a);
                        self.wake(b);
                    }
                    network::Due::Alarm(node, ..) => self.wake(node),
                    _ => {}
                }
            }
        }
        let agenda = std::mem::take(&mut self.network.lock().agenda);
        for (at_ns, due) in agenda {
            self.net_dues.push(due);
            let due = Due::Net(self.net_dues.len() - 1);
            self.after(at_ns, due);
        }
        true
    }

    fn wake(&mut self, node: u32) {
        for shard in 0..self.machine.daemon.shards {
            let member = &mut self.members[node as usize];
            if !member.threads[shard as usize].is_scheduled && member.node.has_work(shard) {
                self.schedule(node, shard);
            }
        }
    }

    fn schedule(&mut self, node: u32, shard: u32) {
        let thread = &mut self.members[node as usize].threads[shard as usize];
        thread.is_scheduled = true;
        let at_ns = self.now_ns.max(thread.busy_until_ns);
        self.after(at_ns, Due::Turn(node, shard));
    }

    fn turn(&mut self, node: u32, shard: u32) {
        self.network.lock().hold();
        let member = &mut self.members[node as usize];
        let step = member.node.turn(shard);
        let work = self.network.lock().take_work(node);
        let takes_ns = match shard {
            0 => self.cost.of_turn(std::mem::take(&mut member.asked), &work),
            _ => self.cost.of_shards_turn(&work),
        };
        let thread = &mut member.threads[shard as usize];
        thread.busy_ns += takes_ns;
        thread.busy_until_ns = self.now_ns + takes_ns;
        self.network.lock().release(self.now_ns + takes_ns);
        match step {
            Some(Step::Done) => self.schedule(node, shard),
            Some(Step::Idle) => thread.is_scheduled = false,
            Some(Step::Over(_)) | None => {
                self.wrong = Some(format!("the daemon of node {node} has ended"));
            }
        }
        self.wake(node);
        self.schedule_jobs(node);
        self.hear(node);
    }

    fn schedule_jobs(&mut self, node: u32) {
        let member = &mut self.members[node as usize];
        let Some(daemon) = member.node.daemon.as_mut() else { return };
        let waiting = daemon.service(0).background_jobs();
        let mut dues = Vec::new();
        while member.jobs_due < waiting {
            member.jobs_due += 1;
            member.disk_free_ns = member.disk_free_ns.max(self.now_ns) + self.cost.disk_ns;
            dues.push(member.disk_free_ns + self.cost.pool_ns);
        }
        for at_ns in dues {
            self.after(at_ns, Due::Job(node));
        }
    }

    fn job(&mut self, node: u32) {
        let member = &mut self.members[node as usize];
        let Some(daemon) = member.node.daemon.as_mut() else { return };
        member.jobs_due = member.jobs_due.saturating_sub(1);
        daemon.service(0).run_job(0);
        self.wake(node);
    }

    fn go(&mut self, process: usize) {
        let of = &mut self.processes[process];
        // It may have been called for what it has heard before.
        if of.is_looking(self.now_ns) {
            return;
        }
        let member = &mut self.members[of.node as usize];
        if let Some(act) = of.looks_at()
            && let Some(daemon) = member.node.daemon.as_mut()
        {
            let shard = daemon.service(0);
            let (knows, takes_ns) = match act {
                Act::Stat(path) => (shard.has_attributes_of(path.as_bytes()), costs::OWN_STAT_NS),
                Act::Look(path) => (shard.has_bytes_of(path.as_bytes()), costs::OWN_LOOK_NS),
                _ => (false, 0),
            };
            if knows {
                let done_ns = self.now_ns + takes_ns;
                of.looks_until(done_ns);
                self.done_ns.push(done_ns);
                return self.after(done_ns, Due::Go(process));
            }
        }
        let asked = of.go_on(member.node.region());
        member.asked += asked;
        let node = of.node;
        self.wake(node);
    }

    /// Takes what the turn has answered; processes hear it when the turn is over.
    fn hear(&mut self, node: u32) {
        let heard_ns = self.members[node as usize].threads[0].busy_until_ns.max(self.now_ns);
        let each = self.processes_of_each();
        let first = (node * each) as usize;
        for at in first..first + each as usize {
            match self.processes[at].hear() {
                Ok(heard) if heard.answers > 0 => {
                    self.done_ns.extend((0..heard.done).map(|_| heard_ns));
                    self.after(heard_ns + self.machine.client_ns, Due::Go(at));
                }
                Ok(_) => {}
                Err(why) => self.wrong = Some(format!("process {at}: {why}")),
            }
        }
    }
}
