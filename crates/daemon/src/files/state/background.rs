//! What [`crate::files::background`] keeps and works with.

use mayfly_meta::record::BirthKey;
use mayfly_object::{Listed, ObjectId, ObjectStore};
use mayfly_types::{Errno, FileId, OpenRef};
use mayfly_wire::{Wire, Writer, Written};

use crate::{
    api::Caller,
    files::state::preparation::{Prepared, Subject},
    maps::{HashMap, HashSet},
    striping::state::object::{ReadDone, WriteDone},
};

/// How long a job takes that is not waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    /// So many bytes are copied.
    Bytes(usize),
    /// Nobody knows.
    Any,
}

pub(crate) type Job = Box<dyn FnOnce() -> Done + Send>;

/// What a job of the I/O pool has to report.
#[derive(Debug)]
pub(crate) enum Done {
    /// The answer to a request.
    Answer(Caller, Result<(), Errno>),
    /// Bytes that a request asked for.
    Read(Caller, Result<Vec<u8>, Errno>),
    /// An object was changed: with what came of it, an offset for writes, and whether the object
    /// can be looked at.
    Changed(Change, Result<u64, Errno>, Result<(), Errno>),
    /// A part of a striped file was read.
    PartRead(ReadDone),
    /// Objects of this node that somebody has asked for.
    Listed(Caller, Result<Vec<Listed>, Errno>),
    /// Bytes were written to a part.
    PartWritten(WriteDone),
    /// What an operation was put aside for.
    Prepared(Subject, Prepared),
    /// Objects are gone, or are not.
    Removed(Vec<(ObjectId, Result<(), Errno>)>),
    /// The kernel's file of a pipe or a socket is gone, as far as it was here.
    Abandoned,
}

/// A change of an object, and what is to be done after it.
#[derive(Debug)]
pub(crate) struct Change {
    /// Who waits for it, if anybody does.
    pub(crate) caller: Option<Caller>,
    pub(crate) object: ObjectId,
    /// Where the inode is found if nobody has the file open any more.
    pub(crate) birth: BirthKey,
    /// The answer when it went well.
    pub(crate) reply: Reply,
}

impl Change {
    /// Made, with this result. The object is opened if it is not, since it is looked at next.
    pub(crate) fn done(self, objects: &dyn ObjectStore, result: Result<u64, Errno>) -> Done {
        let attr_read = objects.attr(self.object).map(drop);
        Done::Changed(self, result, attr_read)
    }
}

/// What is answered after a change.
#[derive(Debug)]
pub(crate) enum Reply {
    /// How much of [`Work::growing_bytes`] is for it, and its place among those that were begun.
    Written(Written, u64, Option<usize>),
    /// The attributes as they are then.
    Attr,
    /// The same, and the description that was made for it; an error ends that.
    Opened(OpenRef),
    Nothing,
    /// Nothing; so much space was promised for it, bytes.
    Allocated(u64),
}

/// Background work of the shard.
#[derive(Default)]
pub(crate) struct Work {
    /// Changes of objects that wait for the commit of what says so.
    pub(crate) deferred: Vec<(Length, Job)>,
    /// Objects to remove once the transaction that unlinked them is committed.
    pub(crate) doomed: Vec<ObjectId>,
    /// Objects that are removed and whose mark can go.
    pub(crate) removed: Vec<ObjectId>,
    /// The kernel's files of pipes and sockets that were removed.
    pub(crate) abandoned: Vec<Vec<u8>>,
    /// Changes under way, for each file.
    pub(crate) in_flight: HashMap<FileId, u32>,
    /// Space that writes among them may take, and that is not counted yet.
    pub(crate) growing_bytes: u64,
    /// Files of which such changes are waited for by who has to be alone; others wait behind that.
    pub(crate) awaited: HashSet<FileId>,
    /// To which length at least a change that is under way cuts the file, bytes.
    pub(crate) cuts: HashMap<FileId, u64>,
}

impl Work {
    /// A pipe or a socket is gone; so is the kernel's own, once that is committed. One that stays
    /// when the daemon dies in between goes with the instance.
    pub(crate) fn abandon(&mut self, place: &[u8]) {
        if !place.is_empty() {
            self.abandoned.push(place.to_vec());
        }
    }

    pub(crate) fn is_in_flight(&self, file: FileId) -> bool {
        self.in_flight.contains_key(&file)
    }

    /// A change cuts the file to this length.
    pub(crate) fn cut(&mut self, file: FileId, size_bytes: u64) {
        let least = self.cuts.entry(file).or_insert(size_bytes);
        *least = size_bytes.min(*least);
    }

    /// Whether a change that is under way cuts the file.
    pub(crate) fn is_being_cut(&self, file: FileId) -> bool {
        !self.cuts.is_empty() && self.cuts.contains_key(&file)
    }

    /// Where a file that is so long now may end when what is under way is done, at the least.
    pub(crate) fn least_end(&self, file: FileId, size_bytes: u64) -> u64 {
        self.cuts.get(&file).map_or(size_bytes, |cut| size_bytes.min(*cut))
    }
}

/// Room for a reply beside its bytes, bytes.
pub(crate) const REPLY_ROOM: usize = 256;

pub(crate) fn encoded<'a>(bytes: usize, reply: &impl Wire<'a>) -> Result<Vec<u8>, Errno> {
    let mut body = vec![0; bytes + REPLY_ROOM];
    let mut to = Writer::new(&mut body);
    reply.encode(&mut to).map_err(|_| Errno::EOVERFLOW)?;
    let used = to.used();
    body.truncate(used);
    Ok(body)
}
