//! What [`crate::leases::name_table`] keeps and works with.

use mayfly_meta::record::Dentry;
use mayfly_transport_shm::submission_ring::name_table::{NameState, Print, Tally};
use mayfly_types::{FileId, FileKind};

use crate::shard::Place;

/// The table of the names of a directory that is delegated, or is going to be.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) directory: FileId,
    /// The rings that have it delegated, a bit each.
    pub(crate) holders: u64,
    pub(crate) tally: Tally,
    /// The ring whose process wanted it last: as long as it is nobody's it goes with that wish.
    pub(crate) wanted_by: usize,
    /// From which key on the names of the directory are still to be read; nothing when it has all.
    pub(crate) unread: Option<Vec<u8>>,
}

impl Table {
    /// Whether it has all names.
    pub(crate) fn is_whole(&self) -> bool {
        self.unread.is_none()
    }
}

/// How a name stands when the batch is committed; none: it is gone.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) table: usize,
    pub(crate) root: FileId,
    pub(crate) print: Print,
    pub(crate) name_state: Option<NameState>,
}

/// A directory that is covered, and to be asked for until the batch is committed.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) table: usize,
    pub(crate) root: FileId,
    pub(crate) print: Print,
}

/// The same for a name about which the record of a place was.
#[derive(Debug)]
pub(crate) struct Released {
    pub(crate) of: Settled,
    pub(crate) place: usize,
}

/// How a name stands that is there. The end of a file that is at home elsewhere is asked for.
pub(crate) fn state_of((id, kind): (FileId, FileKind), place: &Place) -> NameState {
    let is_here = place.alone || place.slots.home(id) == place.shard;
    match kind {
        FileKind::Directory => NameState::AskDaemon,
        _ if is_here => NameState::Plain,
        _ => NameState::AskDaemon,
    }
}

/// How the name of such a record stands, and which directory it is, if it is one.
pub(crate) fn found_in(record: &[u8], place: &Place) -> (NameState, Option<FileId>) {
    let Ok((id, kind)) = Dentry::peek(record) else { return (NameState::AskDaemon, None) };
    (state_of((id, kind), place), (kind == FileKind::Directory).then_some(id))
}
