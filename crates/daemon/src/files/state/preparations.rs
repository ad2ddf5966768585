//! What [`crate::files::preparation`] keeps and works with.

use crate::{
    files::state::preparation::Subject,
    maps::HashMap,
    shard::state::{run::Run, task::Task},
};

/// Who waits for the same preparation; the first one began it.
#[derive(Debug, Default)]
pub(crate) struct Preparations {
    pub(crate) waiting: HashMap<Subject, Vec<(Task, Run)>>,
}

impl Preparations {
    /// Whether the pool has not said so far what came of it.
    pub(crate) fn is_under_way(&self, subject: Subject) -> bool {
        self.waiting.contains_key(&subject)
    }

    /// Facts for the operations that wait.
    pub(crate) fn runs(&mut self) -> impl Iterator<Item = &mut Run> {
        self.tasks().map(|(_, run)| run)
    }

    /// The operations that wait, with that.
    pub(crate) fn tasks(&mut self) -> impl Iterator<Item = (&Task, &mut Run)> {
        self.waiting.values_mut().flatten().map(|(task, run)| (&*task, run))
    }
}
