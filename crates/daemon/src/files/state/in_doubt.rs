//! What [`crate::files::in_doubt`] keeps and works with.

use mayfly_object::{ObjectId, ObjectStore};
use mayfly_types::{Errno, FileId};

use crate::api::Caller;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The object of a file that is all in it.
    Whole,
    /// The part here; or an append at the file's home, which has a note
    /// ([`Shard::is_noted_append`]).
    Part,
    /// Bytes of an append for the part here, whose request is at the file's home.
    Piece,
}

/// A write of an earlier daemon, perhaps made, whose request has not come again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InDoubtWrite {
    pub(crate) place: usize,
    pub(crate) caller: Caller,
    pub(crate) file: FileId,
    pub(crate) kind: Kind,
    /// It is being written again; the place becomes free when that is done.
    pub(crate) again: bool,
}

impl InDoubtWrite {
    /// It is about what this request, if it comes again, writes here.
    pub(crate) fn is_of(&self, caller: Caller) -> bool {
        self.kind != Kind::Piece && self.caller == caller
    }
}

/// The shard's row of writes that were begun.
#[derive(Debug, Default)]
pub(crate) struct StartedWrites {
    /// Places of the row that are free.
    pub(crate) free: Vec<usize>,
    /// Places that become free with the commit of the batch.
    pub(crate) closing: Vec<usize>,
    pub(crate) writes: Vec<InDoubtWrite>,
    /// Since when there are doubts, seconds.
    pub(crate) since: i64,
    /// Whose request runs; kept while there are doubts.
    pub(crate) runs: Option<Caller>,
}

impl StartedWrites {
    /// The request of this caller is executed from now on, or something that is none.
    pub(crate) fn runs(&mut self, caller: Option<Caller>) {
        if !self.writes.is_empty() {
            self.runs = caller;
        }
    }
}

/// Writes what may have been written before.
pub(crate) fn write_again(
    objects: &dyn ObjectStore,
    object: ObjectId,
    offset: u64,
    bytes: &[u8],
) -> Result<(), Errno> {
    let mut there = vec![0; bytes.len()];
    match objects.read(object, offset, &mut there) {
        Ok(count) if there[..count] == *bytes => Ok(()),
        _ => objects.write(object, offset, bytes),
    }
}
