//! What a seed says: what there is outside, what others do there, what programs do inside, and
//! what goes wrong.

mod wide;

use std::collections::BTreeSet;

use mayfly_types::Errno;
use mayfly_wire::tier::{
    TIER_CHECK, TIER_CHUNKS, TIER_CREATE, TIER_EVICT, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_NOW,
    TIER_LOOK, TIER_MAKE_DIRECTORY, TIER_REMOVE, TIER_RENAME, TIER_SET_ATTR,
};

use super::{MARKS_OF_PROGRAM, OF_OTHERS, client::Job};
use crate::{
    dice::Dice,
    network::{MS, SECOND, US, Weather},
    node::CachePolicy,
    shrink::Lists,
};

/// Programs inside.
const PROGRAMS: u64 = 4;
/// Marks of a file that is fetched by chunks.
const LARGE: u32 = 1100;
/// A daemon or a keeper that is to die does so within so many steps.
const STEPS_TO_DEATH_MAX: u64 = 40;
/// Directories that are outside in the beginning.
pub const DIRECTORIES: [&str; 6] = ["d", "e", "d/s", "e/s", "d/s/t", "f"];
/// Files that nobody changes inside.
const FILES_OF_OTHERS: [&str; 5] = ["o1", "d/o2", "big", "e/s/o3", "d/s/big"];

/// Something that others do outside.
#[derive(Debug, Clone)]
pub enum Act {
    /// A file gets another content.
    Write {
        /// Where it is.
        path: String,
        /// Its first mark.
        first: u32,
        /// How many follow each other.
        count: u32,
        /// It stays the same file.
        in_place: bool,
    },
    /// A file goes.
    Remove(String),
    /// A directory is made.
    MakeDirectory(String),
    /// A directory goes with all that is in it.
    RemoveTree(String),
    /// A file or directory gets another name, and replaces a file that had it.
    Rename(String, String),
    /// A file gets another mode.
    SetMode(String, u32),
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// The daemon of a node dies after so many steps, and is not there for so long, nanoseconds.
    Kill(usize, u64, u64),
    /// Its keeper dies after so many steps.
    KillKeeper(usize, u64),
    /// Both die.
    KillBoth(usize, u64, u64),
    /// A program dies, and another one goes on.
    KillProgram(usize),
    /// What keepers do fails for so long, nanoseconds; all of it, or one kind.
    Failing(u64, Option<u32>, Errno),
    /// The directory outside is so many times slower for so long, nanoseconds.
    Slow(u64, u64),
    /// The disk of a node is full for so long, nanoseconds.
    Full(usize, u64),
    /// The next commit of a node fails.
    FailCommit(usize),
    /// The connection of two nodes breaks.
    Break(u32, u32),
    /// A node is cut off for so long, nanoseconds.
    Isolate(u32, u64),
}

/// How long things may take, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Slow {
    /// What a daemon asks its disk for.
    pub disk_ns: u64,
    /// What a keeper does outside.
    pub item_ns: u64,
}

/// A program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its node.
    pub node: usize,
    /// What it does, each after a pause, nanoseconds.
    pub jobs: Vec<(u64, Job)>,
}

/// All that a seed says.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For what is not planned.
    pub seed: u64,
    /// Nodes.
    pub nodes: u32,
    /// Shards of each.
    pub shards: u32,
    /// How long what is seen outside is believed, milliseconds; nothing: for ever.
    pub valid_ms: Option<u64>,
    /// What goes back by itself, and how much space there is.
    pub policy: CachePolicy,
    /// How the network is.
    pub weather: Weather,
    /// How slow things are.
    pub slow: Slow,
    /// What is outside in the beginning.
    pub planted: Vec<Act>,
    /// What goes wrong, and when, nanoseconds.
    pub troubles: Vec<(u64, Trouble)>,
    /// What others do, and when, nanoseconds.
    pub others: Vec<(u64, Act)>,
    /// What is done inside.
    pub programs: Vec<Program>,
}

struct Draw {
    dice: Dice,
    others_mark: u32,
    own: Vec<Vec<String>>,
    /// The first shards of nodes.
    fronts: Vec<u32>,
}

impl Plan {
    /// What the seed says, for so many nodes if they are given.
    #[must_use]
    pub fn draw(seed: u64, nodes: Option<u32>) -> Plan {
        let mut dice = Dice::new(seed, 40);
        let nodes = nodes.unwrap_or([1, 1, 2, 4][dice.index(4)]);
        let shards = [1, 1, 2][dice.index(3)];
        let valid_ms = [Some(0), Some(1000), Some(1000), None][dice.index(4)];
        let weather = Weather {
            delay_ns: 10 * US,
            jitter_ns: [0, 50 * US, 5 * MS][dice.index(3)],
            credits: 4,
            outstanding_max: 64,
        };
        let slow = Slow {
            disk_ns: [50 * US, 2 * MS][dice.index(2)],
            item_ns: [MS, 20 * MS, 300 * MS][dice.index(3)],
        };
        let fronts = (0..nodes).map(|node| node * shards).collect();
        let mut draw = Draw { dice, others_mark: OF_OTHERS, own: Vec::new(), fronts };
        for program in 0..PROGRAMS {
            let own = draw.files_of(program);
            draw.own.push(own);
        }
        let planted = draw.planted();
        let programs = (0..PROGRAMS).map(|program| Program {
            node: (program % u64::from(nodes)) as usize,
            jobs: draw.jobs(program),
        });
        let programs = programs.collect();
        let work_ns = draw.dice.between(SECOND, 20 * SECOND);
        let others = draw.others(work_ns);
        let troubles = draw.troubles(work_ns, nodes);
        let policy = CachePolicy::default();
        Plan {
            seed,
            nodes,
            shards,
            valid_ms,
            policy,
            weather,
            slow,
            planted,
            troubles,
            others,
            programs,
        }
    }
}

impl Draw {
    fn one_of(&mut self, words: &[&str]) -> String {
        words[self.dice.index(words.len())].to_owned()
    }

    fn files_of(&mut self, program: u64) -> Vec<String> {
        let mut places: Vec<&str> = ["", "d/", "d/s/", "e/", "e/s/", "d/s/t/", "f/"].into();
        let made = format!("m{program}/");
        places.push(&made);
        let mut files: Vec<String> = Vec::new();
        for name in ["c", "c", "e", "g"] {
            let path = format!("{}{name}{program}", self.one_of(&places));
            if !files.contains(&path) {
                files.push(path);
            }
        }
        files
    }

    fn own(&mut self, program: u64) -> String {
        let own = &self.own[program as usize];
        own[self.dice.index(own.len())].clone()
    }

    fn front(&mut self) -> u32 {
        self.fronts[self.dice.index(self.fronts.len())]
    }

    fn write(&mut self, path: &str) -> Act {
        let count = match path.ends_with("big") {
            true => LARGE,
            false => [1, 2, 3, 20][self.dice.index(4)],
        };
        let first = self.others_mark;
        self.others_mark += count;
        Act::Write { path: path.to_owned(), first, count, in_place: self.dice.once_in(2) }
    }

    fn planted(&mut self) -> Vec<Act> {
        let mut acts: Vec<Act> =
            DIRECTORIES.iter().map(|path| Act::MakeDirectory((*path).to_owned())).collect();
        acts.extend(FILES_OF_OTHERS.map(|path| self.write(path)));
        for own in self.own.clone() {
            for path in own {
                match self.dice.below(10) {
                    0..=3 => acts.push(self.write(&path)),
                    // One that programs fetch by chunks and then change.
                    4 => {
                        let first = self.others_mark;
                        self.others_mark += LARGE;
                        acts.push(Act::Write { path, first, count: LARGE, in_place: false });
                    }
                    _ => {}
                }
            }
        }
        acts
    }

    fn jobs(&mut self, program: u64) -> Vec<(u64, Job)> {
        let pause_ns = [5 * MS, 100 * MS, SECOND][self.dice.index(3)];
        let count = self.dice.between(5, 40) as u32;
        let marks = program as u32 * MARKS_OF_PROGRAM + 1;
        (0..count).map(|at| (self.dice.below(pause_ns), self.job(program, marks + at))).collect()
    }

    fn job(&mut self, program: u64, mark: u32) -> Job {
        let path = self.own(program);
        match self.dice.below(26) {
            0..=3 => Job::Write { path, mark },
            4..=6 => Job::Append { path, mark, makes: false },
            7 => Job::Append { path, mark, makes: true },
            8 => Job::Unlink { path },
            9 | 10 => match self.own(program) {
                to if to == path => Job::Append { path, mark, makes: true },
                to => Job::Move { from: path, to },
            },
            11 => Job::MakeDirectory { path: format!("m{program}") },
            12 => Job::RemoveDirectory { path: format!("m{program}") },
            13 | 14 => Job::List { path: self.one_of(&["", "d", "e", "d/s", "e/s", "d/s/t", "f"]) },
            15..=17 => Job::Read { path, owned: true },
            18 => Job::Ask { what: TIER_FLUSH_NOW, shard: self.front() },
            19 => Job::Ask { what: TIER_EVICT, shard: self.front() },
            20 => Job::SetMode { path, mode: [0o600, 0o644, 0o755][self.dice.index(3)] },
            21 | 22 => {
                let path = self.one_of(&["big", "d/s/big"]);
                let at = self.dice.below(u64::from(LARGE)) as u32;
                Job::ReadPart { path, at, count: [1, 60, 200][self.dice.index(3)] }
            }
            _ => Job::Read { path: self.one_of(&FILES_OF_OTHERS), owned: false },
        }
    }

    fn others(&mut self, work_ns: u64) -> Vec<(u64, Act)> {
        let count = [0, 3, 10, 40][self.dice.index(4)];
        (0..count).map(|_| (self.dice.below(work_ns), self.act())).collect()
    }

    fn path_of_any(&mut self) -> String {
        let program = self.dice.below(PROGRAMS);
        match self.dice.below(3) {
            0 => self.own(program),
            _ => self.one_of(&FILES_OF_OTHERS),
        }
    }

    fn act(&mut self) -> Act {
        let path = self.path_of_any();
        match self.dice.below(16) {
            0..=6 => self.write(&path),
            7 | 8 => Act::Remove(path),
            9 => Act::MakeDirectory(self.one_of(&DIRECTORIES)),
            10 => Act::RemoveTree(self.one_of(&DIRECTORIES)),
            11 => Act::Rename(path, self.path_of_any()),
            12 => {
                let from = self.one_of(&["d", "d/s", "e", "f", "g", "d/g"]);
                Act::Rename(from, self.one_of(&["d", "d/s", "e", "f", "g", "d/g"]))
            }
            // Where a program has a file.
            13 => Act::MakeDirectory(path),
            14 => Act::RemoveTree(path),
            _ => Act::SetMode(path, [0o640, 0o755][self.dice.index(2)]),
        }
    }

    fn troubles(&mut self, work_ns: u64, nodes: u32) -> Vec<(u64, Trouble)> {
        let count = [0, 0, 2, 8][self.dice.index(4)];
        (0..count).map(|_| (self.dice.below(work_ns), self.trouble(nodes))).collect()
    }

    fn trouble(&mut self, nodes: u32) -> Trouble {
        let node = self.dice.index(nodes as usize);
        let down_ns = MS + self.dice.below(300 * MS);
        let steps = self.dice.below(STEPS_TO_DEATH_MAX);
        let time_ns = self.dice.below(3 * SECOND);
        match self.dice.below(16) {
            0..=3 => Trouble::Kill(node, steps, down_ns),
            4 | 5 => Trouble::KillKeeper(node, steps / 4),
            6 | 7 => Trouble::KillBoth(node, steps, down_ns),
            8 => Trouble::KillProgram(self.dice.index(PROGRAMS as usize)),
            9 | 10 => {
                let errno = [Errno::EIO, Errno::ENOSPC, Errno::EACCES][self.dice.index(3)];
                let kinds = [
                    TIER_LOOK,
                    TIER_CHECK,
                    TIER_FETCH,
                    TIER_CHUNKS,
                    TIER_FLUSH,
                    TIER_CREATE,
                    TIER_MAKE_DIRECTORY,
                    TIER_REMOVE,
                    TIER_RENAME,
                    TIER_SET_ATTR,
                ];
                let kind = kinds[self.dice.index(kinds.len())];
                Trouble::Failing(time_ns, (!self.dice.once_in(3)).then_some(kind), errno)
            }
            11 => Trouble::Slow(time_ns, self.dice.between(2, 50)),
            12 => Trouble::Full(node, time_ns),
            13 => Trouble::FailCommit(node),
            14 => Trouble::Break(node as u32, self.dice.below(u64::from(nodes)) as u32),
            _ => Trouble::Isolate(node as u32, time_ns),
        }
    }
}

/// Where a path is in a directory.
pub fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    path.strip_prefix(directory).filter(|rest| rest.starts_with('/'))
}

impl Plan {
    /// Names that only one program changes inside.
    pub fn own_names(&self) -> BTreeSet<String> {
        let of_jobs = || self.programs.iter().flat_map(|program| &program.jobs);
        let changed = of_jobs().flat_map(|(_, job)| job.changes()).map(str::to_owned);
        let mut names: BTreeSet<String> = changed.collect();
        // What is in a directory that moves is there, too.
        for (_, job) in of_jobs() {
            let Job::Move { from, to } = job else { continue };
            let moved = names.iter().filter_map(|name| Some(format!("{to}{}", below(name, from)?)));
            let moved: Vec<String> = moved.collect();
            names.extend(moved);
        }
        names
    }
}

impl Lists for Plan {
    fn lengths(&self) -> Vec<usize> {
        let lists = [self.troubles.len(), self.others.len()];
        lists.into_iter().chain(self.programs.iter().map(|of| of.jobs.len())).collect()
    }

    fn keep(&mut self, lists: &[Vec<usize>]) {
        fn kept<T: Clone>(all: &[T], list: Option<&Vec<usize>>) -> Vec<T> {
            let list = list.map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(|at| all.get(*at).cloned()).collect()
        }
        self.troubles = kept(&self.troubles, lists.first());
        self.others = kept(&self.others, lists.get(1));
        for (number, program) in self.programs.iter_mut().enumerate() {
            program.jobs = kept(&program.jobs, lists.get(number + 2));
        }
    }
}
