//! Whatever a program does to names, and in whatever order the keeper does what it is given: what
//! is outside at any time is what programs would have made that had done only a part of it, in the
//! same order.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::collections::BTreeMap;

use mayfly_daemon::{Caller, Directories};
use mayfly_types::{Errno, FileKind};
use mayfly_wire::{
    MakeDirectory, Open, Operation, Reader, Rename, SET_MODE, SetAttr, Target, TierAsk, TierTold,
    Unlink, Wire,
    tier::{
        TIER_CHECK, TIER_CREATE, TIER_FLUSH_NOW, TIER_MAKE_DIRECTORY, TIER_REMOVE,
        TIER_REMOVE_DIRECTORY, TIER_RENAME, TIER_SET_ATTR, TIER_STATUS, TierSource, unpacked,
    },
};
use support::{
    Node, O_CREAT, SESSION, config,
    outside::{Bench, Given},
    several::Dice,
    walk,
};

const O_EXCL: u32 = 0o200;
const O_WRONLY: u32 = 1;
const RENAME_NOREPLACE: u32 = 1;
const STEPS: usize = 60;

/// What a program does. Paths are those outside.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Create(String),
    MakeDirectory(String),
    Remove(String),
    RemoveDirectory(String),
    Rename(String, String, u32),
    SetMode(String),
}

/// What becomes of a step outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    ToDo,
    Done,
    /// It is never done, since what it made is removed again.
    InVain,
}

/// What is at a path: whether it is a directory, and who made it.
type Tree = BTreeMap<String, (bool, usize)>;

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

fn check_parent(tree: &Tree, path: &str) -> Result<(), Errno> {
    match parent(path).map(|parent| tree.get(parent)) {
        None | Some(Some((true, _))) => Ok(()),
        Some(Some((false, _))) => Err(Errno::ENOTDIR),
        Some(None) => Err(Errno::ENOENT),
    }
}

fn has_below(tree: &Tree, path: &str) -> bool {
    let above = format!("{path}/");
    tree.keys().any(|name| name.starts_with(&above))
}

impl Step {
    /// What it is at the keeper.
    fn of(item: &Given) -> Option<Step> {
        let (path, other) = (item.path.clone(), item.other.clone());
        Some(match item.what {
            TIER_CREATE => Step::Create(path),
            TIER_MAKE_DIRECTORY => Step::MakeDirectory(path),
            TIER_REMOVE => Step::Remove(path),
            TIER_REMOVE_DIRECTORY => Step::RemoveDirectory(path),
            TIER_RENAME => Step::Rename(path, other, item.which),
            TIER_SET_ATTR => Step::SetMode(path),
            _ => return None,
        })
    }

    /// What a file system does; the number tells who made what.
    fn apply(&self, tree: &mut Tree, number: usize) -> Result<(), Errno> {
        match self {
            Step::Create(path) | Step::MakeDirectory(path) => {
                check_parent(tree, path)?;
                if tree.contains_key(path) {
                    return Err(Errno::EEXIST);
                }
                tree.insert(path.clone(), (matches!(self, Step::MakeDirectory(_)), number));
                Ok(())
            }
            Step::Remove(path) => match tree.get(path) {
                Some((false, _)) => tree.remove(path).map(drop).ok_or(Errno::EIO),
                Some((true, _)) => Err(Errno::EISDIR),
                None => Err(Errno::ENOENT),
            },
            Step::RemoveDirectory(path) => match tree.get(path) {
                Some((false, _)) => Err(Errno::ENOTDIR),
                Some((true, _)) if has_below(tree, path) => Err(Errno::ENOTEMPTY),
                Some((true, _)) => tree.remove(path).map(drop).ok_or(Errno::EIO),
                None => Err(Errno::ENOENT),
            },
            Step::SetMode(path) => tree.get(path).map(drop).ok_or(Errno::ENOENT),
            Step::Rename(from, to, flags) => {
                check_parent(tree, to)?;
                let (moved, _) = *tree.get(from).ok_or(Errno::ENOENT)?;
                if to.starts_with(&format!("{from}/")) || from.starts_with(&format!("{to}/")) {
                    return Err(Errno::EINVAL);
                }
                match tree.get(to) {
                    Some(_) if *flags == RENAME_NOREPLACE => return Err(Errno::EEXIST),
                    Some((target, _)) if *target != moved => return Err(Errno::EISDIR),
                    Some(_) if has_below(tree, to) => return Err(Errno::ENOTEMPTY),
                    _ => {}
                }
                let below = format!("{from}/");
                let is_moved = |name: &&String| *name == from || name.starts_with(&below);
                let moved: Vec<String> = tree.keys().filter(is_moved).cloned().collect();
                for name in moved {
                    let of = tree.remove(&name).unwrap();
                    tree.insert(name.replacen(from, to, 1), of);
                }
                Ok(())
            }
        }
    }
}

/// A program, the keeper, and what is to be outside.
struct Play {
    bench: Bench,
    dice: Dice,
    /// What was acknowledged, in order.
    steps: Vec<(Step, State)>,
    /// Which step has made what each is about; 0: it was there before.
    about: Vec<usize>,
    /// Done, and the daemon has died before it was told.
    untold: Vec<Step>,
    /// What is asked for and not acknowledged, if that was not done outside yet.
    current: Option<Step>,
    /// So many steps were never done outside.
    in_vain: usize,
    inside: Tree,
    before: Tree,
    /// Who wants one name never waits until all are listed.
    hurried: bool,
    /// So many names were looked at of which nothing is known.
    alone: u32,
}

fn ask<'a, O: Operation<'a>>(bench: &mut Bench, again: Option<Caller>, request: &O) -> Caller {
    match again {
        None => bench.begin(SESSION, request),
        Some(caller) => {
            bench.hand_in(caller, request);
            caller
        }
    }
}

fn tree_outside(bench: &Bench) -> BTreeMap<String, bool> {
    let names = bench.outside.keys().filter(|name| *name != "/");
    names.map(|name| (name.trim_end_matches('/').to_owned(), name.ends_with('/'))).collect()
}

fn kinds(tree: &Tree) -> BTreeMap<String, bool> {
    tree.iter().map(|(name, (directory, _))| (name.clone(), *directory)).collect()
}

impl Play {
    fn new(seed: u64, valid_ms: Option<u64>) -> Play {
        let config = mayfly_daemon::Config { directories: Directories::Whole, ..config() };
        Play::with(Bench::with_journal(Node::memory(config), valid_ms), seed)
    }

    fn several(seed: u64, valid_ms: Option<u64>) -> Play {
        let config = mayfly_daemon::Config { directories: Directories::Restless, ..config() };
        let node = Node::several(config, 3, seed, false);
        Play::with(Bench::with_journal(node, valid_ms), seed)
    }

    fn with(mut bench: Bench, seed: u64) -> Play {
        for name in ["a/", "a/x", "b/", "b/a/", "b/a/x"] {
            bench.outside.insert(name.to_owned(), (1, Vec::new()));
        }
        let before: Tree = tree_outside(&bench).into_iter().map(|of| (of.0, (of.1, 0))).collect();
        let (dice, steps, about, untold) = (Dice::new(seed), Vec::new(), Vec::new(), Vec::new());
        Play {
            bench,
            dice,
            steps,
            about,
            untold,
            in_vain: 0,
            current: None,
            inside: before.clone(),
            before,
            hurried: false,
            alone: 0,
        }
    }

    fn path(&mut self) -> String {
        if self.dice.below(2) == 0 && !self.inside.is_empty() {
            let at = self.dice.below(self.inside.len());
            return self.inside.keys().nth(at).unwrap().clone();
        }
        let names = ["a", "b", "c", "x", "y"];
        let depth = 1 + self.dice.below(3);
        let path: Vec<&str> = (0..depth).map(|_| names[self.dice.below(names.len())]).collect();
        path.join("/")
    }

    fn step(&mut self) -> Step {
        let (path, to) = (self.path(), self.path());
        match self.dice.below(10) {
            0 | 1 => Step::Create(path),
            2 | 3 => Step::MakeDirectory(path),
            4 | 5 => Step::Remove(path),
            6 => Step::RemoveDirectory(path),
            7 => Step::SetMode(path),
            _ if path == to => Step::Remove(path),
            number => Step::Rename(path, to, (number == 8).into()),
        }
    }

    /// Asks for it, or asks the next daemon as the last one was asked.
    fn ask(&mut self, step: &Step, again: Option<Caller>) -> Caller {
        let inside = |path: &str| format!("in/{path}");
        let (bench, uid, gid) = (&mut self.bench, 0, 0);
        match step {
            Step::Create(path) => {
                let path = inside(path);
                let (walk, flags) = (walk(&path, 0), O_CREAT | O_EXCL | O_WRONLY);
                ask(bench, again, &Open { walk, flags, mode: 0o644, uid, gid })
            }
            Step::MakeDirectory(path) => {
                let path = inside(path);
                let walk = walk(&path, 0);
                ask(bench, again, &MakeDirectory { walk, mode: 0o755, uid, gid })
            }
            Step::Remove(path) | Step::RemoveDirectory(path) => {
                let path = inside(path);
                let directory = matches!(step, Step::RemoveDirectory(_));
                ask(bench, again, &Unlink { walk: walk(&path, 0), directory })
            }
            Step::Rename(from, to, flags) => {
                let (from, to) = (inside(from), inside(to));
                let (from, to, flags) = (walk(&from, 0), walk(&to, 0), *flags);
                ask(bench, again, &Rename { from, to, flags })
            }
            Step::SetMode(path) => {
                let path = inside(path);
                let target = Target::Path(walk(&path, 0));
                let time = mayfly_types::Timestamp { seconds: 0, nanoseconds: 0 };
                let (atime, mtime, size_bytes) = (time, time, 0);
                let mode = 0o700;
                let which = SET_MODE;
                let set = SetAttr { target, which, mode, uid, gid, size_bytes, atime, mtime };
                ask(bench, again, &set)
            }
        }
    }

    /// The keeper does something that it was given, and perhaps the daemon dies; whether it does.
    fn keeper(&mut self) -> bool {
        let at = self.dice.below(self.bench.given.len());
        let item = self.bench.given.remove(at);
        self.alone += u32::from(item.what == TIER_CHECK && item.known.kind == FileKind::Fifo);
        let dies = self.dice.below(12) == 0;
        if dies && self.dice.below(3) == 0 {
            // It dies before the keeper has begun.
        } else if dies {
            self.count(&item);
            if let (Some(step), Ok(_)) = (Step::of(&item), self.bench.act(&item)) {
                self.untold.push(step);
            }
        } else {
            self.count(&item);
            self.bench.perform(&item);
        }
        self.check();
        if dies {
            self.bench.restart();
        }
        dies
    }

    /// Notes that a step is done outside.
    fn count(&mut self, item: &Given) {
        let Some(step) = Step::of(item) else { return };
        if let Some(at) = self.untold.iter().position(|untold| item.again && *untold == step) {
            self.untold.remove(at);
            return;
        }
        let is_current = self.current.as_ref() == Some(&step);
        let to_do = self.steps.iter_mut().find(|of| **of == (step.clone(), State::ToDo));
        match to_do {
            Some(to_do) => to_do.1 = State::Done,
            // It is done there first, since it takes several shards.
            None if is_current => {
                self.current = None;
                self.acknowledged(step, State::Done);
            }
            None => panic!("nobody has asked for {step:?}"),
        }
    }

    /// What is outside is what a part of the steps would have made.
    fn check(&self) {
        let mut tree = self.before.clone();
        for (number, (step, state)) in self.steps.iter().enumerate() {
            if *state == State::Done {
                let result = step.apply(&mut tree, number + 1);
                assert_eq!(result, Ok(()), "{step:?} was done too early: {:#?}", self.steps);
            }
        }
        assert_eq!(tree_outside(&self.bench), kinds(&tree), "{:#?}", self.steps);
    }

    /// Entries of the journals, whatever the keeper is at.
    fn waiting(&mut self) -> u64 {
        let mut waiting = 0;
        for shard in 0..self.bench.shards() {
            let ask = TierAsk { what: TIER_STATUS, shard: shard as u32, path: b"" };
            let told = self.bench.begin_at(shard, SESSION, &ask);
            self.bench.settle();
            let body = self.bench.answer(told).unwrap().1;
            let told = TierTold::decode(&mut Reader::new(&body)).unwrap();
            waiting += unpacked::<TierSource>(told.sources).unwrap().next().unwrap().names_waiting;
        }
        waiting
    }

    /// A step is done here.
    fn acknowledged(&mut self, step: Step, state: State) {
        let about = match &step {
            Step::Create(_) | Step::MakeDirectory(_) => self.steps.len() + 1,
            Step::Rename(path, ..)
            | Step::Remove(path)
            | Step::RemoveDirectory(path)
            | Step::SetMode(path) => self.inside.get(path).map_or(0, |of| of.1),
        };
        assert_eq!(step.apply(&mut self.inside, self.steps.len() + 1), Ok(()), "{step:?}");
        let removes = matches!(step, Step::Remove(_) | Step::RemoveDirectory(_));
        self.steps.push((step, state));
        self.about.push(about);
        if removes && state == State::ToDo {
            self.drop_in_vain(about);
        }
    }

    /// What was made and removed again may have been forgotten by the journal.
    fn drop_in_vain(&mut self, about: usize) {
        let waiting = self.waiting();
        let to_do = self.steps.iter().filter(|(_, state)| *state == State::ToDo).count();
        if waiting as usize == to_do + self.untold.len() {
            return;
        }
        let before = self.in_vain;
        for ((step, state), of) in self.steps.iter_mut().zip(&self.about) {
            if *of == about && *state == State::ToDo {
                assert!(!matches!(step, Step::Rename(..)), "{step:?}");
                *state = State::InVain;
                self.in_vain += 1;
            }
        }
        assert!(about > 0 && self.in_vain > before + 1, "{:#?}", self.steps);
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            let step = self.step();
            let caller = self.ask(&step, None);
            self.current = Some(step.clone());
            let status = loop {
                if self.hurried {
                    self.bench.node.cores.iter_mut().for_each(|core| core.look_alone_after(0));
                }
                if let Some((status, _)) = self.bench.answer(caller) {
                    break status;
                }
                assert!(!self.bench.given.is_empty(), "{step:?} waits for nothing");
                if self.keeper() {
                    self.ask(&step, Some(caller));
                }
            };
            let Some(step) = self.current.take() else {
                assert_eq!(status, 0, "it was done outside");
                continue;
            };
            // Directories of several shards stay where they are.
            if status == Errno::EXDEV.raw() as u32 {
                assert!(self.bench.shards() > 1);
                continue;
            }
            let wanted = step.apply(&mut self.inside.clone(), 1);
            assert_eq!(status == 0, wanted.is_ok(), "{step:?}: {status}, {wanted:?}");
            if status == 0 {
                self.acknowledged(step, State::ToDo);
            }
            while self.dice.below(3) == 0 && !self.bench.given.is_empty() {
                self.keeper();
            }
        }
        while !self.bench.given.is_empty() {
            self.keeper();
        }
        for shard in 0..self.bench.shards() {
            self.bench.tier_ask_at(shard, TIER_FLUSH_NOW);
        }
        let left = self.steps.iter().filter(|(_, state)| *state == State::ToDo).count();
        assert_eq!(left, 0, "{:#?}", self.steps);
        assert_eq!(tree_outside(&self.bench), kinds(&self.inside));
        assert_eq!(self.waiting(), 0);
        self.bench.expect_nothing_wrong();
    }
}

#[test]
fn what_is_outside_is_what_a_part_of_the_steps_would_have_made() {
    let mut in_vain = 0;
    for seed in 0..100 {
        let mut play = Play::new(seed, None);
        play.play();
        in_vain += play.in_vain;
    }
    assert!(in_vain > 0, "nothing was made and removed before it was done outside");
}

#[test]
fn that_is_so_when_each_call_looks_outside() {
    for seed in 0..100 {
        Play::new(seed, Some(0)).play();
    }
}

#[test]
fn that_is_so_when_each_name_is_looked_at_alone() {
    let mut alone = 0;
    for seed in 0..60 {
        let play = if seed % 2 == 0 { Play::new } else { Play::several };
        let mut play = play(seed, Some(0));
        play.hurried = true;
        play.play();
        alone += play.alone;
    }
    assert!(alone > 0, "no name was looked at alone");
}

#[test]
fn that_is_so_when_directories_have_their_seats_at_several_shards() {
    for seed in 0..60 {
        Play::several(seed, None).play();
        Play::several(seed, Some(0)).play();
    }
}
