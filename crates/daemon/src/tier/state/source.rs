//! An origin of the instance, and what is counted of it.

use mayfly_wire::tier::TierCounts;

/// When what is dirty goes back by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteBack {
    /// When it was not written for so long, milliseconds.
    pub after_ms: Option<u64>,
    /// Before a close of who could write is answered.
    pub at_close: bool,
    /// Before an fsync is answered.
    pub at_sync: bool,
}

/// What an instance is told of an origin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Path of the directory that shows it, from the root of the instance; empty: the root.
    pub path: Vec<u8>,
    /// Nothing there may be changed.
    pub read_only: bool,
    /// Names are changed there after the calls have returned, in order.
    pub names_async: bool,
}

/// An origin.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) read_only: bool,
    /// As in [`Link::names_async`].
    pub(crate) names_async: bool,
    /// As in [`Link::path`].
    pub(crate) inside: Vec<u8>,
    /// Files, directories and links that are known.
    pub(crate) files: u64,
    /// Bytes of files that are here.
    pub(crate) cached_bytes: u64,
    pub(crate) conflicts: u64,
    pub(crate) errors: u64,
    /// Nothing shows it any more.
    pub(crate) is_gone: bool,
    pub(crate) counts: TierCounts,
}

/// A conflict, or an error, for people.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) source: u32,
    /// 0: it is a conflict.
    pub(crate) errno: u32,
    pub(crate) path: Vec<u8>,
    /// The name of the copy beside it.
    pub(crate) copy: Vec<u8>,
}
