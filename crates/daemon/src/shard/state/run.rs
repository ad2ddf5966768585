//! What a run of an operation has found out so far (`task.rs`).

use crate::{
    files::state::readiness::Readiness,
    message::{Answer, At, Question, Resolved},
    shards::slots::ShardId,
    striping::state::run::StripedRun,
    tier::state::wanted::AtOrigin,
    transactions::state::progress::Progress,
};

/// What a run of an operation knows besides what the shard has. What it has found out in a part is
/// that part's own.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) place: Resolved,
    pub(crate) facts: Vec<(ShardId, Question, Answer)>,
    /// When it first asked, seconds.
    pub(crate) asked_at: Option<i64>,
    /// What it had to change at other shards.
    pub(crate) transaction: Progress,
    /// What was made ready for it.
    pub(crate) ready: Readiness,
    /// What it has done to a striped file.
    pub(crate) striped: StripedRun,
    /// What was done outside for it.
    pub(crate) outside: AtOrigin,
    /// The other nodes that had the file open of which a mount keeps pages.
    pub(crate) mapped_with: Option<Vec<u32>>,
    /// It waits until so many writes are at their homes (`remote/behind.rs`).
    pub(crate) behind: Option<u64>,
    /// It has waited for what is read ahead (`remote/ahead.rs`).
    pub(crate) ahead: bool,
    /// Nobody waits for it any more (`remote/given_up.rs`).
    pub(crate) given_up: bool,
}

impl Run {
    pub(crate) fn at(place: Resolved) -> Run {
        Run { place, ..Run::default() }
    }

    /// Nothing was noted in it: so are those of nearly all requests.
    pub(crate) fn is_fresh(&self) -> bool {
        let Run { place: Resolved { at, follows, restarts, gone }, facts, asked_at, .. } = self;
        let Run { transaction, ready, striped, outside, mapped_with, .. } = self;
        let Run { behind, ahead, given_up, .. } = self;
        let asked = asked_at.is_some() || !facts.is_empty() || mapped_with.is_some();
        let walked = *at != At::Start || *follows != 0 || *restarts != 0 || gone.is_some();
        let is_empty = transaction.is_empty() && ready.is_empty() && striped.is_empty();
        let is_empty = is_empty && outside.is_empty();
        is_empty && !(asked || walked || behind.is_some() || *ahead || *given_up)
    }

    /// Nothing of the request is done yet, here or anywhere else.
    pub(crate) fn has_written_nothing(&self) -> bool {
        !(self.transaction.is_done || self.striped.has_written() || self.ready.change.is_some())
    }

    /// Something ends with it.
    pub(crate) fn holds_something(&self) -> bool {
        let holds_object = self.ready.object.is_some();
        holds_object || self.striped.keeps_others_away() || self.transaction.elected
    }
}
