//! What [`crate::namespace::seat`] keeps of directories.

use mayfly_meta::record::NamedFile;
use mayfly_types::FileId;

use crate::{api::Directories, maps::HashMap, shards::slots::ShardId};

/// Spread directories of other shards that are known, at most. Who does not know asks their seat.
const LEARNED_MAX: usize = 1 << 16;
/// Directories whose makers are compared, at most.
const COMPARED_MAX: usize = 1 << 12;
/// A directory is spread when a name was made by a process of another node than the one before it
/// so often.
const CHANGES: u8 = 8;
/// As far as a directory can be spread.
pub(crate) const ALL: u64 = u64::MAX;

/// How far directories are spread, as far as a shard knows: names with smaller cookies belong to
/// the owners of their hashes, the others to the seat. That only grows, so what was heard of it
/// once stays true.
#[derive(Debug)]
pub(crate) struct Seats {
    mode: Directories,
    /// Of directories whose seat this shard has; they are in the store too.
    own: HashMap<FileId, u64>,
    /// Of others.
    learned: HashMap<FileId, u64>,
    /// Of whole ones that have their seat here: the node whose process has made the last name, and
    /// how often that was another one than before.
    makers: HashMap<FileId, (u32, u8)>,
}

impl Seats {
    pub(crate) fn new(directories: Directories) -> Seats {
        Seats {
            mode: directories,
            own: HashMap::default(),
            learned: HashMap::default(),
            makers: HashMap::default(),
        }
    }

    /// Every directory is spread from its beginning.
    pub(crate) fn are_all_spread(&self) -> bool {
        self.mode == Directories::Spread
    }

    /// Seats are anywhere.
    pub(crate) fn are_restless(&self) -> bool {
        self.mode == Directories::Restless
    }

    /// How far a directory is spread, as far as is known here.
    pub(crate) fn spread(&self, directory: FileId) -> u64 {
        if self.are_all_spread() {
            return ALL;
        }
        if self.own.is_empty() && self.learned.is_empty() {
            return 0;
        }
        let known = self.own.get(&directory).or_else(|| self.learned.get(&directory));
        known.copied().unwrap_or(0)
    }

    /// A directory whose seat is here is spread so far.
    pub(crate) fn note(&mut self, directory: FileId, upto: u64) {
        self.own.insert(directory, upto);
        self.makers.remove(&directory);
    }

    /// Another shard has said so.
    pub(crate) fn learn(&mut self, directory: FileId, upto: u64) {
        if upto == 0 || self.are_all_spread() || self.own.contains_key(&directory) {
            return;
        }
        if self.learned.len() >= LEARNED_MAX && !self.learned.contains_key(&directory) {
            self.learned.clear();
        }
        let known = self.learned.entry(directory).or_default();
        *known = upto.max(*known);
    }

    /// The directory is gone.
    pub(crate) fn forget(&mut self, directory: FileId) {
        self.makers.remove(&directory);
        self.own.remove(&directory);
        self.learned.remove(&directory);
    }

    /// A process of this node makes a name in a directory that has its seat here: is it time to
    /// spread it, or to go on with that?
    pub(crate) fn is_shared(&mut self, directory: FileId, node: u32) -> bool {
        if let Some(upto) = self.own.get(&directory) {
            return *upto != ALL;
        }
        if self.are_restless() {
            return !directory.0.is_multiple_of(3);
        }
        if self.makers.len() >= COMPARED_MAX && !self.makers.contains_key(&directory) {
            self.makers.clear();
        }
        let (last, changes) = self.makers.entry(directory).or_insert((node, 0));
        if *last != node {
            (*last, *changes) = (node, changes.saturating_add(1));
        }
        *changes >= CHANGES
    }
}

/// Names that a directory's seat gives away next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// To whom; nobody where none of another shard's were met.
    pub(crate) to: Option<ShardId>,
    pub(crate) names: Vec<NamedFile>,
    /// As far as the directory is spread then.
    pub(crate) upto: u64,
}
