//! What a run of an operation has found out so far (`task.rs`).

use mayfly_object::{ObjectAttr, ObjectId};
use mayfly_types::{Errno, FileId};

use crate::{
    files::state::preparation::{Moved, Subject},
    message::{Answer, At, PartFacts, Question, Resolved, TransactionId},
    shards::slots::ShardId,
    striping::state::file_append::Held,
};

/// What a run of an operation knows besides what the shard has.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) place: Resolved,
    pub(crate) facts: Vec<(ShardId, Question, Answer)>,
    /// When it first asked, seconds.
    pub(crate) asked_at: Option<i64>,
    /// Its number, once it needs one; the same in each attempt.
    pub(crate) operation: Option<TransactionId>,
    /// It has the right to move directories.
    pub(crate) elected: bool,
    /// What it had to change at other shards is done.
    pub(crate) operated: bool,
    /// The object that was made for it.
    pub(crate) moved: Option<(Moved, ObjectAttr)>,
    /// What could not be prepared.
    pub(crate) failures: Vec<(Subject, Errno)>,
    /// What open files take was looked at.
    pub(crate) surveyed: bool,
    /// A part was read and ended too early; how often it had been cut by then.
    pub(crate) short: Option<u32>,
    /// The striped file that it cuts, or has cut.
    pub(crate) cut: Option<FileId>,
    /// The one that it cut before the daemon was restarted.
    pub(crate) cut_before: Option<FileId>,
    /// The striped file to which nobody else appends until it is over.
    pub(crate) appends_to: Option<FileId>,
    /// Parts that must not become longer until it is over.
    pub(crate) holds: Option<Held>,
    /// What the parts of a striped file said while they were held.
    pub(crate) looked: Option<(ObjectId, Vec<PartFacts>)>,
    /// Its place among the writes that were begun, where it appends to a striped file.
    pub(crate) begun: Option<usize>,
    /// The other nodes that had the file open of which a mount keeps pages.
    pub(crate) mapped_with: Option<Vec<u32>>,
    /// What came of a change of a part.
    pub(crate) changed: Option<Result<u64, Errno>>,
    /// Nobody waits for it any more (`remote/given_up.rs`).
    pub(crate) given_up: bool,
}

impl Run {
    pub(crate) fn at(place: Resolved) -> Run {
        Run { place, ..Run::default() }
    }

    /// Nothing was noted in it: so are those of nearly all requests.
    pub(crate) fn is_fresh(&self) -> bool {
        let Run { place: Resolved { at, follows, restarts }, facts, asked_at, operation, .. } =
            self;
        let Run { elected, operated, moved, failures, surveyed, short, given_up, .. } = self;
        let Run { cut, cut_before, appends_to, holds, begun, mapped_with, changed, looked, .. } =
            self;
        let asked = asked_at.is_some() || operation.is_some() || !facts.is_empty();
        let walked = *at != At::Start || *follows != 0 || *restarts != 0;
        let said = *elected || *operated || *surveyed || *given_up || !failures.is_empty();
        let changes = moved.is_some() || short.is_some() || cut.is_some() || cut_before.is_some();
        let held = appends_to.is_some() || holds.is_some() || begun.is_some();
        let told = mapped_with.is_some() || changed.is_some() || looked.is_some();
        !(asked || walked || said || changes || held || told)
    }

    /// Nothing of the request is done yet, here or anywhere else.
    pub(crate) fn has_written_nothing(&self) -> bool {
        let cuts = self.cut.is_some() || self.cut_before.is_some();
        let appends = self.appends_to.is_some() || self.holds.is_some() || self.begun.is_some();
        !(self.operated || cuts || appends || self.changed.is_some())
    }

    /// Something ends with it.
    pub(crate) fn holds_something(&self) -> bool {
        self.moved.is_some() || self.holds.is_some() || self.appends_to.is_some() || self.elected
    }

    pub(crate) fn failure(&self, subject: Subject) -> Option<Errno> {
        self.failures.iter().find(|failure| failure.0 == subject).map(|failure| failure.1)
    }
}
