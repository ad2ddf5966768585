//! What a wide plan has besides: directories that move, links that are refused, files that are
//! pinned and fetched before anybody reads them, what is dirty going back by itself, and space that
//! is short.
//!
//! It is drawn behind the rest, so that what a seed says without it stays what it is.

use mayfly_daemon::WriteBack;
use mayfly_wire::tier::{
    TIER_EVICT, TIER_FLUSH_DUE, TIER_FLUSH_NOW, TIER_PIN, TIER_PREFETCH, TIER_UNPIN,
};

use super::{Plan, Program};
use crate::{dice::Dice, network::MS, node::CachePolicy, origin::client::Job};

/// Jobs that a program has besides.
const MORE_MAX: u64 = 25;
/// Marks of a program are below so many.
const MARKS: u32 = 10_000;

impl Plan {
    /// The same with more in it.
    #[must_use]
    pub fn widened(mut self) -> Plan {
        let mut dice = Dice::new(self.seed, 42);
        let space_bytes = [None, Some(3 << 20), Some(8 << 20)][dice.index(3)];
        let after_ms = [None, Some(0), Some(300)][dice.index(3)];
        let write_back = WriteBack { after_ms, at_close: dice.once_in(3), at_sync: false };
        self.policy = CachePolicy { write_back, space_bytes, ..self.policy };
        for (number, program) in self.programs.iter_mut().enumerate() {
            widen(&mut dice, number, program);
        }
        self
    }

    /// The same, but nobody who wants one name waits until all are listed.
    #[must_use]
    pub fn hurried(mut self) -> Plan {
        let patience_ms = [0, 0, 20][Dice::new(self.seed, 43).index(3)];
        self.policy.patience_ms = Some(patience_ms);
        self
    }
}

fn widen(dice: &mut Dice, number: usize, program: &mut Program) {
    let trees = [format!("m{number}"), format!("k{number}")];
    let changed = program.jobs.iter().flat_map(|(_, job)| job.changes());
    let mut files: Vec<String> =
        changed.filter(|path| !trees.iter().any(|tree| tree == path)).map(str::to_owned).collect();
    files.extend(trees.iter().map(|tree| format!("{tree}/x{number}")));
    for _ in 0..dice.below(MORE_MAX) {
        let path = files[dice.index(files.len())].clone();
        let inside = format!("{}/x{number}", trees[dice.index(2)]);
        let (one, other) = match dice.once_in(2) {
            true => (trees[0].clone(), trees[1].clone()),
            false => (trees[1].clone(), trees[0].clone()),
        };
        let job = match dice.below(16) {
            0..=2 => Job::Move { from: one, to: other },
            3 => Job::MakeDirectory { path: one },
            4 | 5 => Job::Write { path: inside, mark: 0 },
            6 => Job::Append { path: inside, mark: 0, makes: true },
            7 => Job::Read { path: inside, owned: true },
            8 => Job::Link { from: path, to: format!("l{number}") },
            9 | 10 => Job::AskOf { what: TIER_PIN, path },
            11 => Job::AskOf { what: TIER_UNPIN, path },
            12 => Job::AskOf { what: TIER_PREFETCH, path },
            13 | 14 => Job::AskOf { what: TIER_FLUSH_DUE, path: String::new() },
            _ if dice.once_in(2) => Job::AskOf { what: TIER_EVICT, path: String::new() },
            _ => Job::AskOf { what: TIER_FLUSH_NOW, path },
        };
        let at = dice.index(program.jobs.len() + 1);
        program.jobs.insert(at, (dice.below(200 * MS), job));
    }
    // A later mark is a higher one.
    for (at, (_, job)) in (1..).zip(&mut program.jobs) {
        if let Job::Write { mark, .. } | Job::Append { mark, .. } = job {
            *mark = number as u32 * MARKS + at;
        }
    }
}
