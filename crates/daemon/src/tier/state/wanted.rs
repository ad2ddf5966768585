//! What operations lack that only the origin has.

use mayfly_meta::record::journal::Entry;
use mayfly_types::{Attr, Errno, FileId};

pub(crate) use mayfly_meta::record::journal::{At, Change};

/// What an operation lacks that is outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The entries of a directory, unless they are as they are known.
    Look(FileId),
    /// The attributes of the file or directory.
    Check(FileId, At),
    /// What a name is that may not be known, or not be there.
    Name(At),
    /// The bytes of the file.
    Fetch(FileId, At),
    /// Some chunks of its bytes.
    Chunks(FileId, At, Run),
    /// The extended attributes of the file or directory.
    Xattrs(FileId, At),
    /// A change of names or attributes.
    Change(At, Change),
    /// The bytes of the file go back.
    Back(FileId, At),
    /// Something of the journal that is no item of the keeper's.
    Journal(Journaled),
}

/// What operations wait for in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Journaled {
    /// Room for one more entry.
    Room,
    /// The end of all that is to be done of the directory, and below it.
    Below(FileId),
}

/// Chunks in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    /// Not this one any more.
    pub(crate) end: u64,
    /// So many behind them will be wanted next.
    pub(crate) ahead: u64,
}

impl Wanted {
    /// The name that it is about, of which nothing else is done meanwhile.
    pub(crate) fn at(&self) -> Option<&At> {
        match self {
            Wanted::Look(_) | Wanted::Journal(_) => None,
            Wanted::Check(_, at)
            | Wanted::Name(at)
            | Wanted::Xattrs(_, at)
            | Wanted::Fetch(_, at)
            | Wanted::Chunks(_, at, _)
            | Wanted::Change(at, _)
            | Wanted::Back(_, at) => Some(at),
        }
    }

    /// The names of which nothing else is done meanwhile.
    pub(crate) fn names(&self) -> Vec<At> {
        match self {
            Wanted::Change(at, Change::Rename { to, .. }) => vec![at.clone(), to.clone()],
            // Of a file several runs are fetched at a time.
            Wanted::Chunks(..) => Vec::new(),
            wanted => wanted.at().cloned().into_iter().collect(),
        }
    }

    /// Whether who else wants the same may have the result.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Wanted::Change(..) | Wanted::Back(..))
    }
}

/// What a run knows of what was done outside for it.
#[derive(Debug, Default)]
pub(crate) struct AtOrigin {
    /// What was wanted, and came of it.
    pub(crate) done: Vec<(Wanted, Result<Seen, Errno>)>,
    /// It was begun anew, since a name was there outside that was not known.
    pub(crate) begun_anew: bool,
    /// What the journal gets when the operation is done.
    pub(crate) entry: Option<Box<Entry>>,
    /// The journal is not for this operation: it takes several shards.
    pub(crate) through: bool,
    /// Of the directory that it wants to be looked at it wants one name only.
    pub(crate) one_of: Option<FileId>,
    /// It has waited for that for long, and has the name looked at alone.
    pub(crate) alone_in: Option<FileId>,
    /// Number of the last item that was begun before it wanted something.
    pub(crate) behind: Option<u64>,
}

impl AtOrigin {
    /// Names or attributes were to be changed for it.
    pub(crate) fn has_changed(&self) -> bool {
        self.done.iter().any(|(wanted, _)| matches!(wanted, Wanted::Change(..)))
    }

    /// Bytes were fetched for it.
    pub(crate) fn has_fetched(&self) -> bool {
        let is_fetch = |wanted: &Wanted| matches!(wanted, Wanted::Fetch(..) | Wanted::Chunks(..));
        self.done.iter().any(|(wanted, _)| is_fetch(wanted))
    }

    /// Nothing was done.
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && !self.begun_anew && !self.through
    }
}

/// What the keeper has seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) attr: Attr,
    /// What was known before was so.
    pub(crate) same: bool,
    /// Not before this, milliseconds.
    pub(crate) at_ms: u64,
}
