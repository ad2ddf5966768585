//! What [`crate::transactions::transaction`] keeps and works with.

use mayfly_meta::record::{Intent, Step};
use mayfly_types::FileId;
use mayfly_wire::Op;

use crate::{
    api::Caller,
    shard::state::{run::Run, task::Task},
    shards::slots::ShardId,
    transactions::state::prepare_locks::{Wanted, prepare_locks_of},
};

/// What each shard does.
pub(crate) type Steps = Vec<(ShardId, Vec<Step>)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Preparing,
    Forgetting,
    Applying(u8),
    /// It cannot be done now, or not at all.
    Releasing,
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Fine,
    /// An older transaction has claims at this shard.
    Busy(ShardId),
    /// What it was planned on has changed.
    Changed,
    Failed(i32),
}

#[derive(Debug)]
pub(crate) struct Transaction {
    /// Who asked; nobody, when it was taken up after a restart.
    pub(crate) task: Option<Task>,
    pub(crate) caller: Caller,
    pub(crate) run: Run,
    pub(crate) parts: Steps,
    pub(crate) phase: Phase,
    pub(crate) missing: usize,
    pub(crate) verdict: Verdict,
    pub(crate) prepared: Vec<ShardId>,
    /// The shards that remember a name that changes.
    pub(crate) names: Vec<(u32, FileId, Vec<u8>)>,
}

impl Transaction {
    /// It is planned anew.
    pub(crate) fn void(&mut self) {
        self.verdict = self.verdict.max(Verdict::Changed);
    }

    /// From here on it is being carried out.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.phase, Phase::Applying(_))
    }

    pub(crate) fn steps(&self, shard: ShardId) -> &[Step] {
        let part = self.parts.iter().find(|part| part.0 == shard);
        part.map_or(&[], |part| part.1.as_slice())
    }

    pub(crate) fn parts(&self) -> &Steps {
        &self.parts
    }

    pub(crate) fn others(&self, own: ShardId) -> impl Iterator<Item = (ShardId, &[Step])> {
        let others = self.parts.iter().filter(move |part| part.0 != own);
        others.map(|(shard, steps)| (*shard, steps.as_slice()))
    }

    /// Whether nothing is left to be done anywhere after this wave. Until then nobody gives claims
    /// back: who could change the new name of a rename while the old one stands would end a file
    /// that still has that.
    pub(crate) fn is_last(&self, wave: u8) -> bool {
        self.parts.iter().flat_map(|(_, steps)| steps).all(|step| step.wave() <= wave)
    }

    pub(crate) fn is_alone(&self, own: ShardId) -> bool {
        self.others(own).next().is_none()
    }

    /// What is kept of it once it is finished, in case the request comes again. One that was to be
    /// run again is run once more from its beginning, but it cuts nothing twice: others may have
    /// written there meanwhile.
    pub(crate) fn executed(&self) -> Intent {
        let Caller { session, lane, request_id } = self.caller;
        let cut = self.cut();
        let kept = cut.is_some() || self.created_file().is_some() || !self.goes_on();
        let request_id = if kept { request_id } else { 0 };
        Intent { session: session.0, lane, request_id, cut, parts: Vec::new() }
    }

    /// The file that it cuts.
    pub(crate) fn cut(&self) -> Option<FileId> {
        let steps = self.parts.iter().flat_map(|(_, steps)| steps);
        let mut cuts = steps.filter_map(|step| match step {
            Step::CutPart { id, .. } => Some(*id),
            _ => None,
        });
        cuts.next()
    }

    /// Nobody waits for it any more, and the request has done nothing. What is decided is done all
    /// the same.
    pub(crate) fn is_given_up(&self) -> bool {
        let task = self.task.as_ref();
        task.is_some_and(|task| self.run.is_over(task.op()))
    }

    /// It only makes way for its request, which begins anew then.
    pub(crate) fn spreads(&self) -> bool {
        let mut steps = self.parts.iter().flat_map(|(_, steps)| steps);
        self.task.is_some() && steps.any(|step| matches!(step, Step::GiveNames { .. }))
    }

    /// The request is run again when other shards are ready, instead of being answered.
    pub(crate) fn goes_on(&self) -> bool {
        let goes_on = matches!(&self.task, Some(Task::Request { op: Op::SetAttr | Op::Open, .. }));
        goes_on || self.spreads()
    }
}

pub(crate) fn wanted(steps: &[Step]) -> Vec<Wanted> {
    steps.iter().flat_map(prepare_locks_of).collect()
}

/// Adds a step to what a shard does.
pub(crate) fn add_step(parts: &mut Steps, shard: ShardId, step: Step) {
    match parts.iter_mut().find(|part| part.0 == shard) {
        Some(part) => part.1.push(step),
        None => parts.push((shard, vec![step])),
    }
}
