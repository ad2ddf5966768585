//! What happens in a run, drawn from its seed: who does what, and what goes wrong when.
//!
//! A plan is data, so that a failing one can be made smaller.

use mayfly_daemon::Roles;

use crate::{
    bytes::BLOCKS,
    client::{locking::LockAct, scraps::Scrap},
    dice::Dice,
    fuse::Place,
    history::{BytesOp, NameOp},
    names::{Group, PLACES},
    network::{MS, SECOND, US, Weather},
};

/// Clients do nothing new after this time, nanoseconds.
pub const WORK_NS: u64 = 30 * SECOND;

/// Places of a kind that a daemon passes before it dies at one are fewer.
const PLACES_MAX: u64 = 8;

/// With [`Shape::entries`], things that a client does before it goes to the other directory.
const IN_ONE_DIRECTORY: usize = 24;
/// Numbers of the acts of one client.
const ACTS_OF_CLIENT: usize = 1000;

/// Something that a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// An operation on names of a group. A file that is made stays open, with so many bytes in it.
    Name(usize, NameOp, u32),
    /// On the content of a file, which is opened if need be.
    Bytes(usize, BytesOp),
    /// The file is closed.
    CloseFile(usize),
    /// A file that was made is closed.
    CloseMade,
    /// A name is made in a directory that is listed.
    Add(usize),
    /// One that this client made is removed.
    Remove(usize),
    /// The directory is listed.
    List(usize),
    /// A file is made, changed or removed of which nothing is judged but what it leaves.
    Scrap(Scrap),
    /// Something is done with locks.
    Lock(LockAct),
    /// A path of the run's table is made.
    Make(usize),
    /// It is removed, if it is there.
    Clear(usize),
}

/// What a client does, each after a pause, nanoseconds.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its node.
    pub node: u32,
    /// What.
    pub acts: Vec<(u64, Act)>,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A daemon is killed and started again after this time.
    Crash(u32, u64),
    /// The same in the middle of what it does, at the so-manieth such place from now on.
    Within(u32, Place, u64, u64),
    /// A node stands still for this time.
    Pause(u32, u64),
    /// Frames do not get from one node to another.
    OneWay(u32, u32, u64),
    /// A node is cut off.
    Isolate(u32, u64),
    /// The nodes of this set of bits are cut off from the others.
    Halves(u64, u64),
    /// The connection of two nodes breaks.
    Break(u32, u32),
    /// The way from one node to another takes longer, by the second time.
    Slow(u32, u32, u64, u64),
    /// A disk takes a hundred times as long.
    SlowDisk(u32, u64),
    /// A disk is full.
    FullDisk(u32, u64),
    /// A disk fails to write.
    FailingDisk(u32, u64),
    /// The next commit of a shard fails.
    FailCommit(u32, u32),
    /// The process of a client is killed; another one goes on.
    KillClient(usize),
    /// A node's clock is set, by so many nanoseconds.
    SetClock(u32, i64),
}

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Everything that is not in the plan follows from it too.
    pub seed: u64,
    /// Nodes.
    pub nodes: u32,
    /// Shards of each.
    pub shards: u32,
    /// Which nodes have what.
    pub roles: Roles,
    /// The network.
    pub weather: Weather,
    /// A job of a disk takes up to so long, nanoseconds.
    pub disk_ns: u64,
    /// Groups of names.
    pub groups: Vec<Group>,
    /// Files whose content is checked.
    pub files: usize,
    /// Directories that are listed.
    pub directories: usize,
    /// Clients.
    pub scripts: Vec<Script>,
    /// When what goes wrong.
    pub troubles: Vec<(u64, Trouble)>,
}

/// What of a run is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// So many nodes; otherwise as the seed says.
    pub nodes: Option<u32>,
    /// So many shards of each.
    pub shards: Option<u32>,
    /// Some nodes own no names, and some of these no bytes either.
    pub roles: bool,
    /// All clients work on the content of one file, and daemons die often.
    pub bytes: bool,
    /// All clients make, cut and remove a few files, and daemons and clients die often.
    pub scraps: bool,
    /// All clients lock two files.
    pub locks: bool,
    /// All clients make and remove names in two directories, most of them at the first node.
    pub entries: bool,
    /// Daemons die in the middle of what they do.
    pub within: bool,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64, shape: Shape) -> Plan {
        let dice = &mut Dice::new(seed, 1);
        let nodes = dice.between(2, 6) as u32;
        let nodes = shape.nodes.unwrap_or(nodes).max(1);
        let shards = [1, 1, 2, 3][dice.index(4)];
        let shards = shape.shards.unwrap_or(shards).max(1);
        let weather = Weather {
            delay_ns: dice.between(5 * US, 200 * US),
            jitter_ns: [0, 20 * US, 2 * MS, 30 * MS][dice.index(4)],
            credits: [1, 4, 64][dice.index(3)],
            outstanding_max: [3, 64, 16_384][dice.index(3)],
        };
        let groups = 0..1 + dice.index(3);
        let groups = groups.map(|_| if dice.once_in(2) { Group::Tree } else { Group::Flat });
        let groups: Vec<Group> = groups.collect();
        let (files, directories) = (1 + dice.index(3), dice.index(2));
        let mut plan = Plan {
            seed,
            nodes,
            shards,
            roles: if shape.roles { draw_roles(seed, nodes) } else { Roles::default() },
            weather,
            disk_ns: [100 * US, 5 * MS][dice.index(2)],
            groups,
            files,
            directories,
            scripts: Vec::new(),
            troubles: Vec::new(),
        };
        if shape.scraps {
            plan.draw_work_on_scraps(&mut Dice::new(seed, 7));
            plan.draw_deaths(&mut Dice::new(seed, 8));
        } else if shape.locks {
            plan.draw_work(&mut Dice::new(seed, 9), |dice, _| Act::Lock(LockAct::draw(dice)));
            match Dice::new(seed, 10).below(4) {
                0 => plan.draw_troubles(&mut Dice::new(seed, 3)),
                1 => {}
                _ => plan.draw_deaths(&mut Dice::new(seed, 8)),
            }
        } else if shape.entries {
            plan.draw_work_on_entries(&mut Dice::new(seed, 12));
            match Dice::new(seed, 13).below(3) {
                0 => plan.draw_deaths(&mut Dice::new(seed, 8)),
                1 => plan.draw_troubles(&mut Dice::new(seed, 3)),
                _ => {}
            }
        } else if shape.bytes {
            plan.draw_work_on_bytes(&mut Dice::new(seed, 5));
            plan.draw_deaths(&mut Dice::new(seed, 6));
        } else {
            plan.draw_scripts(&mut Dice::new(seed, 2));
            plan.draw_troubles(&mut Dice::new(seed, 3));
        }
        if shape.within {
            plan.die_within(&mut Dice::new(seed, 20));
        }
        plan
    }

    /// Most of the daemons that die do so in the middle of something.
    fn die_within(&mut self, dice: &mut Dice) {
        for (_, trouble) in &mut self.troubles {
            if let Trouble::Crash(node, down_ns) = *trouble
                && !dice.once_in(4)
            {
                let places = [Place::BeforeCommit, Place::BehindCommit, Place::BeforeMessage];
                let (place, count) = (places[dice.index(3)], dice.between(1, PLACES_MAX));
                *trouble = Trouble::Within(node, place, count, down_ns);
            }
        }
    }

    fn draw_scripts(&mut self, dice: &mut Dice) {
        let clients = dice.between(2, 9);
        let pause_ns = [2 * MS, 50 * MS, 400 * MS][dice.index(3)];
        for client in 0..clients {
            let node = dice.below(u64::from(self.nodes)) as u32;
            let count = dice.between(10, 60);
            let mut acts = Vec::new();
            for number in 0..count {
                let mark = (client * ACTS_OF_CLIENT as u64 + number + 1) as u32;
                let act = self.draw_act(dice, mark);
                acts.push((dice.below(pause_ns), act));
            }
            self.scripts.push(Script { node, acts });
        }
    }

    fn draw_work_on_bytes(&mut self, dice: &mut Dice) {
        self.draw_work(dice, |dice, mark| match dice.below(30) {
            0 => Act::CloseFile(0),
            _ => Act::Bytes(0, draw_bytes(dice, mark)),
        });
    }

    fn draw_work_on_scraps(&mut self, dice: &mut Dice) {
        self.draw_work(dice, |dice, _| Act::Scrap(Scrap::draw(dice)));
    }

    /// Some clients make names in a directory for a while and then in the other one, so that these
    /// are delegated and spread. The others work on a tree, in which directories are made at other
    /// nodes than their names, while it is delegated.
    fn draw_work_on_entries(&mut self, dice: &mut Dice) {
        self.directories = 2;
        self.groups[0] = Group::Tree;
        self.draw_work(dice, |dice, mark| {
            let directory = mark as usize / IN_ONE_DIRECTORY % 2;
            let on_tree = mark as usize / ACTS_OF_CLIENT % 3 == 2;
            match dice.below(20) {
                0..=16 if on_tree => Act::Name(0, draw_name(dice, Group::Tree), 0),
                0..=11 => Act::Add(directory),
                12..=15 => Act::Remove(directory),
                16 => Act::List(directory),
                17 => Act::CloseMade,
                _ => Act::Name(0, draw_name(dice, Group::Tree), 0),
            }
        });
        for script in &mut self.scripts {
            if dice.once_in(2) {
                script.node = 0;
            }
        }
    }

    /// Every client does such things, each of which has a number of its own.
    fn draw_work(&mut self, dice: &mut Dice, draw: impl Fn(&mut Dice, u32) -> Act) {
        let pause_ns = [100 * US, 2 * MS, 20 * MS][dice.index(3)];
        for client in 0..dice.between(2, 9) {
            let node = dice.below(u64::from(self.nodes)) as u32;
            let mut acts = Vec::new();
            for number in 0..dice.between(10, 60) {
                let act = draw(dice, (client * ACTS_OF_CLIENT as u64 + number + 1) as u32);
                acts.push((dice.below(pause_ns), act));
            }
            self.scripts.push(Script { node, acts });
        }
    }

    /// Most are back soon; now and then a disk is full, a connection breaks or a process ends.
    fn draw_deaths(&mut self, dice: &mut Dice) {
        let busy_ns = self.busy_ns();
        for _ in 0..dice.between(2, 12) {
            let node = dice.below(u64::from(self.nodes)) as u32;
            let other = (node + 1 + dice.below(u64::from(self.nodes - 1)) as u32) % self.nodes;
            let trouble = match dice.below(10) {
                0 => Trouble::FullDisk(node, dice.below(2 * SECOND)),
                1 => Trouble::KillClient(dice.index(self.scripts.len())),
                2 => Trouble::Break(node, other),
                _ => Trouble::Crash(node, [dice.below(MS), dice.below(SECOND)][dice.index(2)]),
            };
            self.troubles.push((dice.below(busy_ns), trouble));
        }
        self.troubles.sort_by_key(|of| of.0);
    }

    /// How long the busiest client is at it, nanoseconds.
    fn busy_ns(&self) -> u64 {
        let busy_ns = self.scripts.iter().map(|of| of.acts.iter().map(|act| act.0).sum::<u64>());
        busy_ns.max().unwrap_or(SECOND).clamp(20 * MS, WORK_NS)
    }

    fn draw_act(&self, dice: &mut Dice, mark: u32) -> Act {
        match dice.below(20) {
            0..=8 => {
                let group = dice.index(self.groups.len());
                let bytes = [0, 0, 100, 5000][dice.index(4)];
                Act::Name(group, draw_name(dice, self.groups[group]), bytes)
            }
            9..=14 => Act::Bytes(dice.index(self.files), draw_bytes(dice, mark)),
            15 => Act::CloseFile(dice.index(self.files)),
            16 => Act::CloseMade,
            _ if self.directories == 0 => Act::CloseMade,
            17 => Act::Add(dice.index(self.directories)),
            18 => Act::Remove(dice.index(self.directories)),
            _ => Act::List(dice.index(self.directories)),
        }
    }

    fn draw_troubles(&mut self, dice: &mut Dice) {
        let count = [0, 1, 3, 8, 20][dice.index(5)];
        // Some runs have one kind of trouble only.
        let only = if dice.once_in(2) { Some(dice.below(13)) } else { None };
        let busy_ns = self.busy_ns();
        for _ in 0..count {
            let kind = only.unwrap_or_else(|| dice.below(13));
            let trouble = self.draw_trouble(dice, kind);
            self.troubles.push((dice.below(busy_ns), trouble));
        }
        self.troubles.sort_by_key(|of| of.0);
    }

    fn draw_trouble(&self, dice: &mut Dice, kind: u64) -> Trouble {
        let node = dice.below(u64::from(self.nodes)) as u32;
        let other = (node + 1 + dice.below(u64::from(self.nodes - 1)) as u32) % self.nodes;
        let time = [dice.below(20 * MS), dice.below(2 * SECOND), dice.below(14 * SECOND)];
        let time = time[dice.index(3)];
        match kind {
            0..=2 => Trouble::Crash(node, time),
            3 => Trouble::Pause(node, time),
            4 => Trouble::OneWay(node, other, time),
            5 => Trouble::Isolate(node, time),
            6 => Trouble::Halves(dice.below(1 << self.nodes), time),
            7 => Trouble::Break(node, other),
            8 => Trouble::Slow(node, other, dice.below(200 * MS), time),
            9 if dice.once_in(2) => Trouble::SlowDisk(node, time),
            9 if dice.once_in(2) => Trouble::FullDisk(node, time),
            9 => Trouble::FailingDisk(node, time),
            10 => Trouble::FailCommit(node, dice.below(u64::from(self.shards)) as u32),
            11 => Trouble::KillClient(dice.index(self.scripts.len())),
            _ => {
                let by = dice.below(20 * SECOND) as i64 - 10 * SECOND as i64;
                Trouble::SetClock(node, by)
            }
        }
    }
}

/// One node at least owns names, and one does not if there are two.
fn draw_roles(seed: u64, nodes: u32) -> Roles {
    let dice = &mut Dice::new(seed, 4);
    let mut order: Vec<u32> = (0..nodes).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, dice.index(last + 1));
    }
    let owners = 1 + dice.index(order.len().saturating_sub(1).max(1));
    let servers = owners + dice.index(order.len() + 1 - owners);
    let chosen = |count: usize| {
        let mut chosen = order[..count].to_vec();
        chosen.sort_unstable();
        chosen
    };
    Roles { metadata: chosen(owners), servers: chosen(servers) }
}

fn draw_name(dice: &mut Dice, group: Group) -> NameOp {
    let any = |dice: &mut Dice| dice.index(PLACES) as u8;
    // In a tree only files are renamed and linked, below the directories.
    let moved = |dice: &mut Dice| match group {
        Group::Flat => dice.index(PLACES) as u8,
        Group::Tree => 2 + dice.index(PLACES - 2) as u8,
    };
    let made = |dice: &mut Dice| match group {
        Group::Flat => dice.index(PLACES) as u8,
        Group::Tree => dice.index(2) as u8,
    };
    match dice.below(12) {
        0..=2 if group == Group::Tree && dice.below(8) > 0 => NameOp::Create(moved(dice)),
        0..=2 => NameOp::Create(any(dice)),
        3..=4 => NameOp::MakeDirectory(made(dice)),
        5 | 6 => NameOp::Unlink(any(dice)),
        7 => NameOp::RemoveDirectory(made(dice)),
        8 | 9 => {
            let (from, to) = (moved(dice), moved(dice));
            if from == to { NameOp::Stat(from) } else { NameOp::Rename(from, to) }
        }
        10 => {
            let (from, to) = (moved(dice), moved(dice));
            if from == to { NameOp::Stat(from) } else { NameOp::Link(from, to) }
        }
        _ => NameOp::Stat(any(dice)),
    }
}

fn draw_bytes(dice: &mut Dice, mark: u32) -> BytesOp {
    match dice.below(12) {
        0..=3 => BytesOp::Write(dice.below(BLOCKS) as u8, mark),
        4..=7 => BytesOp::Read(dice.below(BLOCKS) as u8),
        8 => BytesOp::Append(mark),
        9 => BytesOp::Truncate(dice.below(BLOCKS) as u8),
        _ => BytesOp::Length,
    }
}
