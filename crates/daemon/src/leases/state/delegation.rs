//! What [`crate::leases::delegation`] keeps and works with.

use mayfly_transport_shm::layout::NodeHead;
use mayfly_transport_shm::submission_ring::{RINGS, name_table::Spare};
use mayfly_types::{FileId, SessionId, Timestamp};

use crate::{
    leases::state::{
        cycles::Cycles,
        name_table::{Left, Released, Settled, Table},
        submissions::Ring,
    },
    maps::HashMap,
};

/// Files that a process has made or removed in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Streak {
    pub(crate) session: SessionId,
    pub(crate) directory: FileId,
    pub(crate) files: u32,
    /// The last one is a directory.
    pub(crate) is_directory: bool,
    /// In the directory before they were many.
    pub(crate) again: bool,
    /// The session had made the directory itself, the last one that it made by asking.
    pub(crate) new: bool,
    /// The last one that it has made by asking.
    pub(crate) last_made: FileId,
}

/// Who may make names without asking, by ring.
#[derive(Debug)]
pub(crate) struct Delegations {
    pub(crate) rings: Vec<Option<Ring>>,
    pub(crate) streaks: Vec<Streak>,
    /// The tables of the directories that are delegated.
    pub(crate) by_directory: HashMap<FileId, usize>,
    pub(crate) tables: Vec<Option<Table>>,
    /// What tables grow by.
    pub(crate) spare: Spare,
    /// How names stand that were asked for since the last commit.
    pub(crate) settled: Vec<Settled>,
    /// How names stand about which something was executed that was submitted, since the last
    /// commit.
    pub(crate) released: Vec<Released>,
    /// The rings by which something is delegated from the next commit on, a bit each. A daemon that
    /// dies before has its successor find them as they were, with what was executed in them since.
    pub(crate) fresh: u64,
    /// Rings that are nobody's from the next commit on, a bit each.
    pub(crate) ended: u64,
    /// The asynchronous operation that is being executed.
    pub(crate) executing: Option<Executing>,
    /// Rings of which something was executed since the last commit, a bit each.
    pub(crate) touched: u64,
    /// Where the last of it was submitted, and how much was, since somebody asked.
    pub(crate) submitted_on: Option<(u32, u32)>,
    /// So much space is offered for objects that processes make, bytes.
    pub(crate) offered_bytes: u64,
    pub(crate) clock: Cycles,
    /// What a file that was submitted has: kept for its memory.
    pub(crate) content: Vec<u8>,
    /// A table may have names of directories inside.
    pub(crate) covers: bool,
    /// Directories that may be covered after the commit.
    pub(crate) candidates: Vec<Candidate>,
    /// Those that are not covered any more since the last one.
    pub(crate) left: Vec<Left>,
    /// Those that have no names any more since the last one.
    pub(crate) emptied: Vec<FileId>,
}

/// A directory in which something is being executed that was submitted. Its record is written once
/// for all names that come and go in a row.
#[derive(Debug)]
pub(crate) struct Executing {
    pub(crate) directory: FileId,
    /// The one that is delegated, and the path from there.
    pub(crate) root: FileId,
    pub(crate) path: Vec<u8>,
    /// The table of the names; none when it is not delegated any more.
    pub(crate) table: Option<usize>,
    /// So many more than the record says.
    pub(crate) entries: i64,
    /// The same of directories among them.
    pub(crate) links: i32,
    /// When the last one came or went; nothing as long as none did.
    pub(crate) last: Option<Timestamp>,
}

impl Delegations {
    /// What was submitted in a directory, at the end of a path from one that is delegated, is going
    /// to be executed, which has nothing else executed that was submitted.
    pub(crate) fn begin_executing(&mut self, root: FileId, path: &[u8], directory: FileId) {
        debug_assert!(self.executing.is_none());
        let (table, path) = (self.by_directory.get(&root).copied(), path.to_vec());
        self.executing =
            Some(Executing { directory, root, path, table, entries: 0, links: 0, last: None });
    }

    pub(crate) fn is_executing(&self, directory: FileId) -> bool {
        self.executing.as_ref().is_some_and(|executing| executing.directory == directory)
    }

    /// Whether a change of a directory's entries was added to what its record does not tell yet.
    pub(crate) fn gather(
        &mut self,
        directory: FileId,
        (entries, links): (i64, i32),
        now: Timestamp,
    ) -> bool {
        let of = |executing: &&mut Executing| executing.directory == directory;
        let Some(executing) = self.executing.as_mut().filter(of) else { return false };
        executing.entries += entries;
        executing.links += links;
        executing.last = Some(now);
        true
    }

    pub(crate) fn new(head: &NodeHead) -> Delegations {
        Delegations {
            rings: (0..RINGS).map(|_| None).collect(),
            streaks: vec![Streak::default(); RINGS],
            by_directory: HashMap::default(),
            tables: (0..RINGS).map(|_| None).collect(),
            spare: Spare::default(),
            settled: Vec::new(),
            released: Vec::new(),
            fresh: 0,
            ended: 0,
            executing: None,
            touched: 0,
            submitted_on: None,
            offered_bytes: 0,
            clock: Cycles::of(head),
            content: Vec::new(),
            covers: false,
            candidates: Vec::new(),
            emptied: Vec::new(),
            left: Vec::new(),
        }
    }
}

/// A directory that is going to be covered.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) root: FileId,
    pub(crate) directory: FileId,
}
