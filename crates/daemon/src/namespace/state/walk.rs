//! What [`crate::namespace::walk`] keeps and works with.

use mayfly_meta::record::BirthKey;
use mayfly_types::{Errno, FileId, FileKind, limits::NAME_BYTES_MAX};

use crate::transactions::state::prepare_locks::{PrepareLock, Wanted as Claimed};

/// What the last component of a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// A name in `Place::directory`.
    Name,
    /// `.`, or an empty path.
    Dot,
    /// `..`.
    DotDot,
    /// Nothing but slashes.
    Root,
}

/// Whether a symbolic link in the last component is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Never: the operation is about the name.
    Name,
    /// When wished, and when a slash follows.
    Target,
    /// When wished; a trailing slash is EISDIR: open with `O_CREAT`.
    Create,
}

/// Where a walk ended.
#[derive(Debug)]
pub(crate) struct Place {
    /// Directory that has, or would have, the name; the directory itself when the last component is
    /// none.
    pub(crate) directory: FileId,
    pub(crate) name: Vec<u8>,
    /// The name's [`key::cookie`], worked out once; means nothing where there is no name.
    pub(crate) cookie: u64,
    pub(crate) last: Last,
    /// A slash follows the last component: it must be a directory.
    pub(crate) slash: bool,
    pub(crate) found: Option<(FileId, FileKind)>,
}

impl Place {
    /// Whether a directory has the name.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.found, Some((_, FileKind::Directory)))
    }

    /// The birth key of a file that is fused into this dentry.
    pub(crate) fn birth(&self) -> BirthKey {
        BirthKey { directory: self.directory, name: self.name.clone() }
    }

    /// The locks for an operation that makes or removes the name.
    pub(crate) fn prepare_locks(&self) -> Vec<Claimed> {
        vec![
            (PrepareLock::Name(self.directory, self.name.clone()), true),
            (PrepareLock::Place(self.directory), false),
        ]
    }

    /// The file that has the name. Which of several errors a rename gives depends on when its names
    /// are looked up, so a name that is too long is an error here and not in the walk
    /// ([`Rule::Name`]).
    pub(crate) fn lookup(&self) -> Result<Option<(FileId, FileKind)>, Errno> {
        if self.name.len() > NAME_BYTES_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(self.found) }
    }
}
