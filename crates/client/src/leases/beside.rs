//! What the records tell of a file that is read by a description that is leased, while something
//! waits.

use core::sync::atomic::Ordering::Relaxed;

use mayfly_records::{Changed, Question, Reached, Regular, apart, reach};
use mayfly_transport::Transport;

use super::{Leased, Look};
use crate::{Client, Descriptors};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// The file as the records have it, although something waits: if that is not about its only
    /// name, under which it was found.
    pub(super) fn regular_beside(&self, leased: &Leased, look: &Look<'_>) -> Option<Regular> {
        let birth = leased.leases.births.get(leased.place)?;
        let mut name = Default::default();
        let (start, path) = birth.read(&mut name);
        let question = Question { start, path, follow: false };
        let Reached::Regular(regular, ..) = reach(&look.view, question).ok()? else { return None };
        let is_it = regular.attr.id.0 == leased.entry.id.load(Relaxed)
            && regular.attr.links == 1
            && regular.version == look.seen.version;
        (is_it && self.is_left_alone(question, look)).then_some(regular)
    }

    /// Whether nothing that waits is about the name at the end of a path.
    pub(super) fn is_left_alone(&self, question: Question<'_>, look: &Look<'_>) -> bool {
        self.is_apart(Changed::Name(question), look)
    }

    /// Whether nothing that waits changes it.
    pub(super) fn is_apart(&self, subject: Changed<'_>, look: &Look<'_>) -> bool {
        let subject = (subject, look.seen.version);
        self.transport.is_quicker_beside()
            && apart(&look.view, subject, &mut |directory, path| {
                self.transport.waits(directory, path)
            })
            .is_ok()
    }
}
