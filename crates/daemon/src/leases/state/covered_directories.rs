//! What [`crate::leases::covered_directories`] keeps and works with.

use mayfly_transport_shm::submission_ring::name_table::Print;
use mayfly_types::FileId;

/// So many names are read after a commit, of directories that are going to be covered: it takes as
/// long as two requests.
pub(crate) const NAMES_AT_ONCE: u64 = 64;

/// Where the names of a directory are noted, or would be.
#[derive(Debug)]
pub(crate) struct Within {
    pub(crate) table: usize,
    /// The directory that is delegated.
    pub(crate) root: FileId,
    /// The path from there, without a slash at its end.
    pub(crate) path: Vec<u8>,
}

impl Within {
    /// What stands for a name in the directory.
    pub(crate) fn print_of(&self, name: &[u8]) -> Print {
        if self.path.is_empty() { Print::of(name) } else { Print::of(&joined(&self.path, name)) }
    }

    /// Whether a path with these bytes before its last name leads to the directory, when `prefix`
    /// leads to the one that is delegated.
    pub(crate) fn is_spelled(&self, before: &[u8], prefix: &[u8]) -> bool {
        let inside = before.strip_prefix(prefix);
        let inside = inside.and_then(|inside| match inside {
            [] => Some(inside),
            [path @ .., b'/'] => Some(path),
            _ => None,
        });
        inside == Some(&self.path)
    }
}

pub(crate) fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}
