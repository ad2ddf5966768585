//! What operations lack that only the origin has.

use mayfly_types::{Attr, Errno, FileId, Timestamp};

/// A place outside: a name in a directory that has an origin.
pub(crate) type At = (FileId, Vec<u8>);

/// What an operation lacks that is outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The entries of a directory, unless they are as they are known.
    Look(FileId),
    /// The attributes of the file or directory.
    Check(FileId, At),
    /// The bytes of the file.
    Fetch(FileId, At),
    /// Some chunks of its bytes.
    Chunks(FileId, At, Run),
    /// A change of names or attributes.
    Change(At, Change),
    /// The bytes of the file go back.
    Back(FileId, At),
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
            Wanted::Look(_) => None,
            Wanted::Check(_, at)
            | Wanted::Fetch(_, at)
            | Wanted::Chunks(_, at, _)
            | Wanted::Change(at, _)
            | Wanted::Back(_, at) => Some(at),
        }
    }

    /// Whether who else wants the same may have the result.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Wanted::Change(..) | Wanted::Back(..))
    }
}

/// A change that is made outside before it is made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Create { mode: u32 },
    MakeDirectory { mode: u32 },
    Symlink { target: Vec<u8> },
    Remove,
    RemoveDirectory,
    Rename { to: At, flags: u32 },
    SetAttr { which: u32, mode: u32, uid: u32, gid: u32, atime: Timestamp, mtime: Timestamp },
}

/// What a run knows of what was done outside for it.
#[derive(Debug, Default)]
pub(crate) struct AtOrigin {
    /// What was wanted, and came of it.
    pub(crate) done: Vec<(Wanted, Result<Seen, Errno>)>,
    /// It was begun anew, since a name was there outside that was not known.
    pub(crate) begun_anew: bool,
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
        self.done.is_empty() && !self.begun_anew
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
