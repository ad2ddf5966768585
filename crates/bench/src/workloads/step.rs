//! What a worker is told to do and what it answers: the words on the pipes.
//!
//! One line of JSON each way. A [`Task`] is a step of a workload together with the worker's place
//! in it; the worker prepares (names, buffers, open directories), says [`Reply::Ready`], waits for
//! the word [`GO`], works, and says how it went. So nothing but the calls themselves happens
//! between the barrier and the end.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The line that lets all workers of a phase start.
pub(crate) const GO: &str = "go";

/// Where the files of a step lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Each process has a directory, or a file, of its own.
    Own,
    /// All processes use one.
    Shared,
}

impl Layout {
    /// As it stands in a phase's name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Layout::Own => "own",
            Layout::Shared => "shared",
        }
    }
}

/// What is done to each file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// Made, with its contents; a directory by mkdir.
    Create,
    /// Its attributes asked for.
    Stat,
    /// Opened, read whole, closed.
    Read,
    /// Unlinked, or removed as a directory.
    Remove,
}

impl Call {
    /// As it stands in a phase's name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Call::Create => "create",
            Call::Stat => "stat",
            Call::Read => "read",
            Call::Remove => "remove",
        }
    }

    /// Works on what another process made, where there is another one.
    pub(crate) fn looks(self) -> bool {
        matches!(self, Call::Stat | Call::Read)
    }
}

/// How a file is opened for one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manner {
    /// For what is done with it, and made with O_EXCL.
    Plain,
    /// As mdtest does: O_RDWR whatever comes, made without O_EXCL, and a seek to 0 before the
    /// transfer.
    Mdtest,
}

/// In which order the transfers of a block are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other.
    Sequential,
    /// Each once, shuffled.
    Random,
    /// One after the other, those of all processes interleaved in the file (IO500's ior-hard).
    Strided,
}

/// Into or out of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// pwrite.
    Write,
    /// pread, and every byte is compared.
    Read,
}

/// Transfers between memory and a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    /// A file for each process, or one for all.
    pub layout: Layout,
    /// The order of the transfers.
    pub order: Order,
    /// Into or out of the file.
    pub way: Way,
    /// Bytes of one call.
    pub transfer_bytes: u64,
    /// Calls of each process.
    pub count: u64,
    /// fsync before the file is closed, inside the clock.
    pub fsync: bool,
}

/// A tree of directories with files in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Directories in each directory but the deepest.
    pub branch: u32,
    /// Levels below the root.
    pub depth: u32,
    /// Files in each directory.
    pub items: u32,
}

impl Tree {
    /// Directories of the tree, its root included.
    #[must_use]
    pub fn directories(&self) -> u64 {
        (0..=self.depth)
            .map(|level| u64::from(self.branch).saturating_pow(level))
            .fold(0, u64::saturating_add)
    }

    /// Files of the tree.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.directories().saturating_mul(u64::from(self.items))
    }
}

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Calls that do nothing: what the loop itself costs.
    Calibrate {
        /// How many.
        count: u64,
    },
    /// Makes the directories of a group; not a phase.
    Begin,
    /// Removes what is left of a group; not a phase.
    End,
    /// A row of the table of patterns, on one file after the other.
    Calls {
        /// Which.
        row: usize,
        /// Files of each process.
        count: u64,
    },
    /// A line of the table of tools.
    Tool {
        /// Which.
        tool: usize,
        /// Files of the tree.
        files: u64,
    },
    /// Files, one call each (create is open, write, close).
    Files {
        /// What is done.
        call: Call,
        /// Where.
        layout: Layout,
        /// How they are opened.
        manner: Manner,
        /// Contents of each.
        bytes: u64,
        /// Files of each process.
        count: u64,
    },
    /// Directories.
    Directories {
        /// What is done.
        call: Call,
        /// Where.
        layout: Layout,
        /// Directories of each process.
        count: u64,
    },
    /// Trees of each process.
    Trees {
        /// What is done; never [`Call::Read`].
        call: Call,
        /// Their form.
        tree: Tree,
        /// So many of each process.
        count: u64,
    },
    /// Transfers of data.
    Data(Transfers),
    /// Makes what is to be found: directories of 100 files, dealt to the processes in turn.
    Hide {
        /// Directories of each process.
        directories: u64,
    },
    /// The first process asks for the attributes of its files; the others write as long.
    Beside {
        /// How long.
        milliseconds: u64,
        /// Bytes of a write of the others; 0: they do nothing.
        transfer_bytes: u64,
    },
    /// The first half of the processes makes files, the other half only burns processor time.
    Burn {
        /// How long.
        milliseconds: u64,
    },
    /// New processes, one after the other, each with one call: that is timed.
    First {
        /// How many.
        count: u64,
    },
    /// The one call of such a process.
    Look,
    /// The entries of the process's own directory and the attributes of each.
    List {
        /// How many there are.
        count: u64,
    },
    /// Nothing: what that costs.
    Rest {
        /// How long.
        milliseconds: u64,
    },
    /// Walks over those directories and counts what matches; a wrong count fails the run.
    Seek {
        /// Directories of each process.
        directories: u64,
    },
}

/// A step, and who does it where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The phase's name, for errors.
    pub(crate) phase: String,
    /// The group's directory.
    pub(crate) root: PathBuf,
    /// This worker, from 0.
    pub(crate) rank: u32,
    /// Workers of this phase.
    pub(crate) procs: u32,
    /// What to do.
    pub(crate) step: Step,
}

/// How one worker's share of a phase went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Start and end, nanoseconds of the machine's monotonic clock.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Time between them that belongs to the worker itself: making and comparing patterns.
    pub(crate) aside_ns: u64,
    /// Operations done.
    pub(crate) ops: u64,
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// Latencies: nanoseconds, and how many took this long.
    pub(crate) latencies: Vec<(u64, u64)>,
    /// Processor time in user and in kernel mode.
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
}

/// A worker's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// Prepared; waits for [`GO`].
    Ready,
    /// Over.
    Done(Box<Share>),
    /// A call failed, or a byte was wrong; says which, where and how.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_counted_with_its_root() {
        let tree = Tree { branch: 2, depth: 3, items: 5 };
        assert_eq!((tree.directories(), tree.files()), (15, 75));
        let flat = Tree { branch: 9, depth: 0, items: 1 };
        assert_eq!((flat.directories(), flat.files()), (1, 1));
    }
}
