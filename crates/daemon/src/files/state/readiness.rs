//! What the preparations of a run came to ([`crate::files::preparation`]).

use mayfly_object::ObjectAttr;
use mayfly_types::Errno;

use super::preparation::{Moved, Subject};

/// What was made ready for a run.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// The object that was made for it.
    pub(crate) object: Option<(Moved, ObjectAttr)>,
    /// What could not be prepared.
    pub(crate) failures: Vec<(Subject, Errno)>,
    /// What open files take was looked at.
    pub(crate) is_surveyed: bool,
    /// What came of a change of a stripe object.
    pub(crate) change: Option<Result<u64, Errno>>,
}

impl Readiness {
    /// Nothing was prepared so far.
    pub(crate) fn is_empty(&self) -> bool {
        let Readiness { object, failures, is_surveyed, change } = self;
        object.is_none() && failures.is_empty() && !is_surveyed && change.is_none()
    }

    /// Why this could not be prepared.
    pub(crate) fn failure(&self, subject: Subject) -> Option<Errno> {
        self.failures.iter().find(|failure| failure.0 == subject).map(|failure| failure.1)
    }
}
