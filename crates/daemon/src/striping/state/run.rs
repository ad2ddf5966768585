//! What a run has found out about a striped file, and what it has done to it.

use mayfly_object::ObjectId;
use mayfly_types::FileId;

use super::file_append::Held;
use crate::message::PartFacts;

/// What a run knows of a striped file.
#[derive(Debug, Default)]
pub(crate) struct StripedRun {
    /// A stripe object was read and ended too early; how often it had been cut by then.
    pub(crate) short: Option<u32>,
    /// The file that it cuts, or has cut.
    pub(crate) cut: Option<FileId>,
    /// The one that it cut before the daemon was restarted.
    pub(crate) cut_before: Option<FileId>,
    /// The file to which nobody else appends until it is over.
    pub(crate) appends_to: Option<FileId>,
    /// Stripe objects that must not become longer until it is over.
    pub(crate) holds: Option<Held>,
    /// What the stripe objects said while they were held.
    pub(crate) facts: Option<(ObjectId, Vec<PartFacts>)>,
    /// Its place among the writes that are in doubt, where it appends.
    pub(crate) in_doubt: Option<usize>,
}

impl StripedRun {
    /// It was about no striped file so far.
    pub(crate) fn is_empty(&self) -> bool {
        let asked = self.short.is_some() || self.facts.is_some();
        !(asked || self.has_written() || self.keeps_others_away())
    }

    /// Something of the file may have been changed.
    pub(crate) fn has_written(&self) -> bool {
        let cuts = self.cut.is_some() || self.cut_before.is_some();
        cuts || self.keeps_others_away() || self.in_doubt.is_some()
    }

    /// Others wait until it is over.
    pub(crate) fn keeps_others_away(&self) -> bool {
        self.appends_to.is_some() || self.holds.is_some()
    }
}
