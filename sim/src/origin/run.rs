//! One run: what is due happens in order of virtual time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use mayfly_daemon::{Directories, Numbering, Roles, serve::stepped::Step};
use mayfly_types::Errno;
use mayfly_wire::tier::TIER_FLUSH_NOW;

use super::{
    Content, OF_OTHERS, Options,
    client::{Client, Heard, Job},
    external::External,
    keeper::Keeper,
};
use crate::{
    dice::Dice,
    network::{self, MS, Network, SECOND, Shared, US, Weather},
    node::{Chunks, Node, Placing, SimClock},
};

const STEPS_MAX: u64 = 2_000_000;
/// Programs inside.
const PROGRAMS: u64 = 3;
/// A job that takes longer has no end.
const JOB_NS: u64 = 400 * SECOND;
/// What is flushed in the end is asked for so often.
const FLUSHES_MAX: u32 = 100;
/// Marks of a file that is fetched by chunks.
const LARGE: u32 = 1100;

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What is wrong.
    pub wrong: Vec<String>,
    /// Things that programs did.
    pub jobs: u64,
    /// Things that the keeper did.
    pub items: u64,
}

#[derive(Debug, Clone, Copy)]
enum Due {
    Turn(u64),
    Job(u64),
    Net(usize),
    Start,
    Kill,
    KillKeeper,
    NewKeeper,
    KillClient(usize),
    Item { life: u64, thread: usize },
    Client { client: usize, life: u64 },
    Others,
    Failing(bool),
    Full(bool),
    FailCommit,
}

/// How long things may take, nanoseconds.
struct Slow {
    disk_ns: u64,
    item_ns: u64,
}

/// The run.
struct World {
    dice: Dice,
    options: Options,
    now_ns: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    dues: Vec<Due>,
    net_dues: Vec<network::Due>,
    clock: SimClock,
    network: Shared,
    node: Node,
    external: External,
    keeper: Option<Keeper>,
    keepers: u64,
    clients: Vec<Client>,
    scheduled: bool,
    jobs_due: usize,
    slow: Slow,
    failing: bool,
    troubled: bool,
    others_mark: u32,
    outcome: Outcome,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut world = World::new(seed, options);
    world.live();
    let mut outcome = world.outcome;
    outcome.wrong.append(&mut world.external.judge.wrong);
    outcome
}

fn others_files() -> [&'static str; 3] {
    ["o1", "d/o2", "big"]
}

/// The files of a program.
fn files_of(program: u64) -> [String; 3] {
    [format!("c{program}"), format!("d/c{program}"), format!("d/e{program}")]
}

impl World {
    fn new(seed: u64, options: Options) -> World {
        let mut dice = Dice::new(seed, 40);
        let weather = Weather { delay_ns: 10 * US, jitter_ns: 0, credits: 4, outstanding_max: 64 };
        let clock = SimClock::default();
        let numbering = Numbering { node: 0, nodes: 1, shards: 1 };
        let placing = Placing {
            chunks: Chunks::AtHome,
            directories: Directories::Whole,
            roles: Roles::default(),
            consistency: mayfly_daemon::Consistency::Strict,
        };
        let mut node = Node::new(numbering, clock.another(), None, placing);
        let valid_ms = [Some(0), Some(1000), Some(1000), None][dice.index(4)];
        node.link_origin(valid_ms);
        let mut external = External::new();
        external.bug = options.bug;
        external.judge.valid_ns = valid_ms.map(|ms| ms * MS);
        World {
            network: Shared::new(Network::new(1, weather, Dice::new(seed, 41), None)),
            slow: Slow {
                disk_ns: [50 * US, 2 * MS][dice.index(2)],
                item_ns: [MS, 20 * MS, 300 * MS][dice.index(3)],
            },
            dice,
            options,
            now_ns: 0,
            queue: BinaryHeap::new(),
            dues: Vec::new(),
            net_dues: Vec::new(),
            clock,
            node,
            external,
            keeper: None,
            keepers: 0,
            clients: Vec::new(),
            scheduled: false,
            jobs_due: 0,
            failing: false,
            troubled: false,
            others_mark: OF_OTHERS,
            outcome: Outcome { wrong: Vec::new(), jobs: 0, items: 0 },
        }
    }

    fn say(&mut self, what: impl Into<String>) {
        self.outcome.wrong.push(what.into());
    }

    fn is_wrong(&self) -> bool {
        !self.outcome.wrong.is_empty() || !self.external.judge.wrong.is_empty()
    }

    fn after(&mut self, delay_ns: u64, due: Due) {
        self.dues.push(due);
        self.queue.push(Reverse((self.now_ns + delay_ns, self.dues.len() as u64 - 1)));
    }

    fn live(&mut self) {
        self.plant();
        self.start();
        self.new_keeper();
        for program in 0..PROGRAMS {
            let jobs = self.draw_jobs(program);
            self.clients.push(Client::new(jobs));
            self.pause(program as usize);
        }
        self.draw_troubles();
        self.go_on_until(|world| world.clients.iter().all(Client::is_done));
        if self.is_wrong() {
            return;
        }
        self.heal();
        self.flush_all();
        self.compare();
        self.clear();
    }

    /// What is outside before the instance begins.
    fn plant(&mut self) {
        self.external.make_directory("d");
        for path in others_files() {
            self.write_external(path);
        }
        for program in 0..PROGRAMS {
            if self.dice.once_in(2) {
                self.write_external(&files_of(program)[0]);
            }
        }
    }

    fn write_external(&mut self, path: &str) {
        let count = match path {
            "big" => LARGE,
            _ => [1, 2, 3, 20][self.dice.index(4)],
        };
        let first = self.others_mark;
        self.others_mark += count;
        let content: Content = (first..first + count).collect();
        let in_place = self.dice.once_in(2);
        self.external.write(path, &content, in_place);
    }

    fn draw_jobs(&mut self, program: u64) -> VecDeque<(u64, Job)> {
        let marks = program as u32 * 10_000 + 1..;
        let pause_ns = [5 * MS, 100 * MS, SECOND][self.dice.index(3)];
        let own = files_of(program);
        let count = self.dice.between(5, 40);
        let mut jobs = VecDeque::new();
        for (_, mark) in (0..count).zip(marks) {
            let path = own[self.dice.index(own.len())].clone();
            let job = match self.dice.below(16) {
                0..=2 => Job::Write { path, mark },
                3..=5 => Job::Append { path, mark },
                6 => Job::Unlink { path },
                7 => {
                    let to = own[self.dice.index(own.len())].clone();
                    if to == path {
                        Job::Append { path, mark }
                    } else {
                        Job::Move { from: path, to }
                    }
                }
                8 => Job::MakeDirectory { path: format!("m{program}") },
                9 => Job::List { path: ["", "d"][self.dice.index(2)].to_owned() },
                10..=12 => Job::Read { path, owned: true },
                13 => Job::Ask { what: TIER_FLUSH_NOW },
                _ => {
                    let path = others_files()[self.dice.index(3)].to_owned();
                    Job::Read { path, owned: false }
                }
            };
            jobs.push_back((self.dice.below(pause_ns), job));
        }
        jobs
    }

    fn draw_troubles(&mut self) {
        let work_ns = self.dice.between(SECOND, 20 * SECOND);
        for _ in 0..self.dice.below(30) {
            let at_ns = self.dice.below(work_ns);
            self.after(at_ns, Due::Others);
        }
        for _ in 0..[0, 0, 2, 8][self.dice.index(4)] {
            self.troubled = true;
            let at_ns = self.dice.below(work_ns);
            let (due, end) = match self.dice.below(8) {
                0..=2 => (Due::Kill, None),
                3 => (Due::KillKeeper, None),
                4 => (Due::KillClient(self.dice.index(PROGRAMS as usize)), None),
                5 => (Due::Failing(true), Some(Due::Failing(false))),
                6 => (Due::Full(true), Some(Due::Full(false))),
                _ => (Due::FailCommit, None),
            };
            self.after(at_ns, due);
            if let Some(end) = end {
                let after_ns = at_ns + self.dice.below(3 * SECOND);
                self.after(after_ns, end);
            }
        }
    }

    fn go_on_until(&mut self, done: impl Fn(&World) -> bool) {
        let mut steps = 0;
        let mut since_ns = self.now_ns;
        let mut jobs = self.outcome.jobs;
        while !done(self) && !self.is_wrong() {
            let Some(Reverse((at_ns, due))) = self.queue.pop() else {
                return self.say("nothing is due, and not all is done");
            };
            steps += 1;
            if self.outcome.jobs != jobs {
                (jobs, since_ns) = (self.outcome.jobs, self.now_ns);
            }
            if steps > STEPS_MAX || self.now_ns.saturating_sub(since_ns) > JOB_NS {
                let at = format!("{:?}", self.clients);
                return self.say(format!("nobody gets further: {}", &at[..at.len().min(2000)]));
            }
            self.now_ns = self.now_ns.max(at_ns);
            self.clock.set(self.now_ns);
            self.external.judge.now_ns = self.now_ns;
            self.network.lock().set_now(self.now_ns);
            let due = self.dues[due as usize];
            if self.options.trace {
                println!("{:.9} {due:?}", self.now_ns as f64 / 1e9);
            }
            self.happen(due);
            self.gather();
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Turn(life) => self.turn(life),
            Due::Job(life) => self.job(life),
            Due::Net(at) => self.network.lock().happen(self.net_dues[at]),
            Due::Start => self.start(),
            Due::Kill => self.kill(),
            Due::KillKeeper => self.kill_keeper(),
            Due::NewKeeper => self.new_keeper(),
            Due::KillClient(client) => {
                self.clients[client].end(&mut self.node);
                self.pause(client);
            }
            Due::Item { life, thread } => self.item(life, thread),
            Due::Client { client, life } => {
                let of = &mut self.clients[client];
                if of.life == life {
                    if self.options.trace {
                        println!("    client {client}: {:?}", of.jobs.front());
                    }
                    of.begin(&mut self.node, &mut self.external);
                    if !of.is_busy() && !of.is_done() {
                        // There was no session for it.
                        self.after(MS, Due::Client { client, life });
                    }
                }
            }
            Due::Others => self.others(),
            Due::Failing(failing) => self.failing = failing,
            Due::Full(full) => {
                self.node.disk.full.store(full, std::sync::atomic::Ordering::Relaxed);
            }
            Due::FailCommit => self.node.fail_commit(0),
        }
    }

    /// Somebody else does something outside.
    fn others(&mut self) {
        let path = match self.dice.below(4) {
            0 => files_of(self.dice.below(PROGRAMS))[self.dice.index(3)].clone(),
            _ => others_files()[self.dice.index(3)].to_owned(),
        };
        match self.dice.once_in(5) {
            true => self.external.remove(&path),
            false => self.write_external(&path),
        }
        if self.options.trace {
            println!("    others changed {path}");
        }
    }

    fn start(&mut self) {
        if self.node.daemon.is_some() {
            return;
        }
        (self.scheduled, self.jobs_due) = (false, 0);
        match self.node.start(&self.network) {
            // A daemon looks at what its predecessor left without being woken.
            Ok(true) => self.schedule(),
            Ok(false) => self.after(MS, Due::Start),
            Err(why) if self.troubled => {
                // The commit that was to fail did so while it was opened.
                if self.options.trace {
                    println!("    not opened: {why}");
                }
                self.after(50 * MS, Due::Start);
            }
            Err(why) => self.say(format!("the daemon cannot be opened: {why}")),
        }
    }

    fn kill(&mut self) {
        if self.node.daemon.is_none() {
            return;
        }
        self.node.kill(&self.network, &mut self.dice);
        let down_ns = MS + self.dice.below(300 * MS);
        self.after(down_ns, Due::Start);
    }

    fn new_keeper(&mut self) {
        self.keepers += 1;
        self.keeper = Keeper::attach(&mut self.node, self.keepers);
        if self.keeper.is_none() {
            self.after(10 * MS, Due::NewKeeper);
        }
    }

    fn kill_keeper(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        let dice = &mut self.dice;
        keeper.kill(&mut self.node, &mut self.external, || dice.once_in(2));
        self.after(20 * MS, Due::NewKeeper);
    }

    fn item(&mut self, life: u64, thread: usize) {
        let Some(keeper) = self.keeper.as_mut().filter(|keeper| keeper.life == life) else {
            return;
        };
        self.outcome.items += 1;
        let fails = self.failing && self.dice.once_in(2);
        keeper.done(&self.node, &mut self.external, thread, fails);
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
        if !self.scheduled && self.node.has_work(0) {
            self.schedule();
        }
        if let Some(keeper) = &mut self.keeper {
            let life = keeper.life;
            for thread in keeper.go_on(&self.node, &mut self.external) {
                let slow = if self.dice.once_in(20) { 10 } else { 1 };
                let delay_ns = 10 * US + self.dice.below(self.slow.item_ns * slow);
                self.after(delay_ns, Due::Item { life, thread });
            }
        }
        if !self.scheduled && self.node.has_work(0) {
            self.schedule();
        }
    }

    fn schedule(&mut self) {
        self.scheduled = true;
        let most = if self.dice.once_in(50) { 5 * MS } else { 20 * US };
        let delay_ns = US + self.dice.below(most);
        let life = self.node.lives;
        self.after(delay_ns, Due::Turn(life));
    }

    fn turn(&mut self, life: u64) {
        if self.node.lives != life || self.node.daemon.is_none() {
            return;
        }
        self.scheduled = false;
        match self.node.turn(0) {
            Some(Step::Idle) => {}
            Some(Step::Done) => self.schedule(),
            Some(Step::Over(_)) | None => return self.kill(),
        }
        let waiting = self.node.daemon.as_mut().map_or(0, |of| of.service(0).background_jobs());
        for _ in self.jobs_due..waiting {
            self.jobs_due += 1;
            let delay_ns = US + self.dice.below(self.slow.disk_ns);
            self.after(delay_ns, Due::Job(life));
        }
        for client in 0..self.clients.len() {
            if self.clients[client].hear(&self.node, &mut self.external) {
                self.outcome.jobs += 1;
                self.heard(client);
                self.pause(client);
            }
        }
    }

    fn heard(&mut self, client: usize) {
        let heard = self.clients[client].heard.clone();
        if self.options.trace {
            println!("    client {client} heard {heard:?}");
        }
        if let Some(Heard::Failed(Errno::EIO)) = heard
            && !self.troubled
        {
            self.say("EIO though nothing went wrong");
        }
    }

    fn job(&mut self, life: u64) {
        if self.node.lives != life {
            return;
        }
        let which = self.dice.index(3);
        let Some(daemon) = self.node.daemon.as_mut() else { return };
        self.jobs_due = self.jobs_due.saturating_sub(1);
        let core = daemon.service(0);
        let _ran = core.run_job(which) || core.run_job(0);
    }

    /// No trouble begins any more.
    fn heal(&mut self) {
        self.queue.clear();
        self.failing = false;
        self.node.disk.full.store(false, std::sync::atomic::Ordering::Relaxed);
        self.scheduled = false;
        for client in 0..self.clients.len() {
            self.clients[client].end(&mut self.node);
        }
        // What was due of the keeper and of the disk was forgotten.
        if let Some(keeper) = self.keeper.take() {
            keeper.kill(&mut self.node, &mut self.external, || true);
        }
        self.kill();
        self.queue.clear();
        self.start();
        self.troubled = true;
        self.after(MS, Due::Start);
        self.new_keeper();
        self.gather();
    }

    /// One job of a process of its own; what it heard.
    fn ask(&mut self, job: Job) -> Option<Heard> {
        let number = self.clients.len();
        self.clients.push(Client::new([(0, job)].into()));
        self.pause(number);
        self.go_on_until(|world| world.clients[number].is_done());
        self.clients[number].end(&mut self.node);
        self.clients[number].heard.take()
    }

    fn wait(&mut self, time_ns: u64) {
        let until_ns = self.now_ns + time_ns;
        self.after(time_ns, Due::Failing(false));
        self.go_on_until(|world| world.now_ns >= until_ns);
    }

    fn flush_all(&mut self) {
        for _ in 0..FLUSHES_MAX {
            match self.ask(Job::Ask { what: TIER_FLUSH_NOW }) {
                Some(Heard::Told { failed: 0, left: 0 }) => {
                    return self.external.judge.expect_all_flushed();
                }
                _ if self.is_wrong() => return,
                _ => self.wait(100 * MS),
            }
        }
        self.say("what is dirty is never flushed");
    }

    /// Inside is what is outside.
    fn compare(&mut self) {
        if self.is_wrong() || self.external.judge.valid_ns.is_none() {
            return;
        }
        self.wait(2 * SECOND);
        for directory in ["", "d"] {
            let mut names = self.external.names(directory);
            names.sort_unstable();
            match self.ask(Job::List { path: directory.to_owned() }) {
                Some(Heard::Names(seen)) if seen == names => {}
                other => {
                    self.say(format!("{directory:?} has {names:?} external, inside {other:?}"))
                }
            }
        }
        for (path, content) in self.external.files() {
            match self.ask(Job::Read { path: path.clone(), owned: false }) {
                Some(Heard::Content(seen)) if seen == content => {}
                other if self.is_wrong() => return drop(other),
                other => self.say(format!("{path} is {content:?} external, inside {other:?}")),
            }
        }
    }

    /// All files go outside: nothing is left here of them.
    fn clear(&mut self) {
        if self.is_wrong() || self.external.judge.valid_ns.is_none() {
            return;
        }
        for path in self.external.files().into_keys() {
            self.external.remove(&path);
        }
        self.wait(2 * SECOND);
        for directory in ["", "d"] {
            self.ask(Job::List { path: directory.to_owned() });
        }
        self.wait(20 * SECOND);
        let objects = self.node.disk.count();
        if objects > 0 {
            self.say(format!("{objects} objects are left of no file"));
        }
        let open = self.node.daemon.as_mut().map_or(0, |of| of.service(0).counters().open_files);
        if open > 0 {
            self.say(format!("{open} open files are left"));
        }
    }
}
