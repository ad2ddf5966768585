//! Directories that are opened without asking the daemon.
//!
//! What opens a directory mostly wants its entries, or names in it, and both are in the records. So
//! a description that is leased does for that, too. Nothing is kept of the directory but which one
//! it is. When it is removed while it is open, the daemon makes a description of its own first, as
//! of a file.

use core::sync::atomic::Ordering::Relaxed;

use mayfly_records::{Changed, Found, Question, directory, look};
use mayfly_sys::file::{
    O_CLOEXEC, O_DIRECTORY, O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH,
};
use mayfly_transport::Transport;
use mayfly_transport_shm::{
    file_leases::SessionLeases,
    tally::{Kind, Way},
};
use mayfly_types::{Attr, FileId, FileKind, OpenRef};
use mayfly_wire::{WALK_FOLLOW, Walk};

use super::{Leased, Look, is_used};
use crate::{
    Client, Descriptors, OpenFile,
    path::records::{is_submitted, timed},
};

/// Who opens a directory says so with one of them.
pub(super) const ABOUT_DIRECTORIES: u32 = O_DIRECTORY | O_PATH;
/// Flags of an open that can be done here.
const PLAIN: u32 =
    ABOUT_DIRECTORIES | O_CLOEXEC | O_LARGEFILE | O_NOATIME | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
/// What is left of them with O_PATH.
const WITH_PATH: u32 = O_PATH | O_DIRECTORY | O_NOFOLLOW;

impl Leased {
    pub(super) fn is_directory(&self) -> bool {
        self.entry.kind.load(Relaxed) == FileKind::Directory as u32
    }
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    pub(super) fn open_directory_leased(
        &self,
        leases: &'static SessionLeases,
        walk: &Walk<'_>,
        flags: u32,
    ) -> Option<OpenFile> {
        if flags & !PLAIN != 0 || walk.flags & !WALK_FOLLOW != 0 {
            return None;
        }
        let began = self.begin(0);
        let (moment, id) = self.reach_directory(walk)?;
        let leased = self.claim_leased(leases)?;
        let flags = if flags & O_PATH != 0 { flags & WITH_PATH } else { flags };
        leased.take_into_use((id, FileKind::Directory), flags, (FileId::NONE, b""));
        let generation = leased.entry.generation.load(Relaxed);
        let reference = OpenRef { index: leased.index, generation };
        if !moment.lasts() {
            self.close_leased_or_made(reference);
            return None;
        }
        self.end_at(began, (Kind::Open, Way::Itself), walk, false);
        Some(OpenFile { reference, entry: leased.entry })
    }

    /// The directory that a path leads to, at a moment.
    fn reach_directory(&self, walk: &Walk<'_>) -> Option<(Look<'_>, FileId)> {
        let moment = self.look_at_bytes()?;
        let follow = walk.flags & WALK_FOLLOW != 0;
        let question = Question { start: walk.start, path: walk.path, follow };
        let Found::File(attr) = look(&moment.view, question).ok()? else { return None };
        if attr.kind != FileKind::Directory {
            return None;
        }
        // What waits may remove it.
        let waits = is_submitted(self.node.head) && !self.is_left_alone(question, &moment);
        (!waits).then_some((moment, attr.id))
    }

    /// Attributes of a directory that is open by what is leased.
    pub(super) fn stat_directory_leased(
        &self,
        leased: &Leased,
        reference: OpenRef,
    ) -> Option<Attr> {
        let moment = self.look_at_bytes()?;
        let id = FileId(leased.entry.id.load(Relaxed));
        let attr = directory(&moment.view, id).ok()?;
        // What waits in it changes its times.
        if is_submitted(self.node.head) && !self.is_apart(Changed::Directory(id), &moment) {
            return None;
        }
        let is_certain = moment.lasts() && is_used(leased.entry, reference);
        is_certain.then(|| timed(attr, self.node.head))
    }

    /// A directory that is open by what is leased, other than by O_PATH.
    #[must_use]
    pub fn directory_leased(&self, reference: OpenRef) -> Option<OpenFile> {
        let leased = self.leased(reference).filter(Leased::is_directory)?;
        let by_path = leased.entry.flags.load(Relaxed) & O_PATH != 0;
        (!by_path).then_some(OpenFile { reference, entry: leased.entry })
    }

    /// Which directory is open by what is leased, however it was opened.
    #[must_use]
    pub fn directory_id_leased(&self, reference: OpenRef) -> Option<FileId> {
        let leased = self.leased(reference).filter(Leased::is_directory)?;
        let id = FileId(leased.entry.id.load(Relaxed));
        // Still in use: the entry told which one it is.
        is_used(leased.entry, reference).then_some(id)
    }
}
