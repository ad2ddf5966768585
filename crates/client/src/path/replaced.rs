//! Content of files that are there, replaced without waiting: `O_TRUNC`, and what is written then.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use mayfly_records::{Bytes, Question, Reached, Regular, reach};
use mayfly_sys::{clock, file::O_TRUNC};
use mayfly_transport::Transport;
use mayfly_transport_shm::tally::{Kind, Way};
use mayfly_types::{Attr, FileId, Timestamp, inline_blocks};
use mayfly_wire::{Open, Walk};

use super::records::{is_complete, is_served_since, timed};
use crate::{Client, Descriptors, OpenFile};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Opens a file that is there, and certainly a small one which nobody else may write to, and
    /// takes its content away, without waiting for it. The description is promised:
    /// [`Client::open_file`] has it made when it is used. `None` when it is to be asked for.
    #[must_use]
    pub fn submit_replacement(&self, walk: Walk<'_>, flags: u32) -> Option<OpenFile> {
        if flags & O_TRUNC == 0 || self.is_watched() {
            return None;
        }
        let began = self.begin(0);
        let open = Open { walk, flags, mode: 0, uid: 0, gid: 0 };
        let may_replace = &mut |directory, path: &[u8]| {
            self.small_in_records(directory, path)
                .filter(|_| self.nobody_writes())
                .map(|regular| regular.attr.id)
        };
        let (reference, file) = self.transport.submit_replacement(&open, may_replace)?;
        self.end_at(began, (Kind::Open, Way::Unawaited), &walk, false);
        self.note_name(reference, &walk);
        let entry = self.node.opens.get(reference.index as usize)?;
        // It was promised as one of a new file.
        entry.id.store(file.0, Relaxed);
        Some(OpenFile { reference, entry })
    }

    /// Attributes of a file whose content was replaced so a moment ago, while that waits.
    pub(super) fn look_at_replaced(&self, promised: OpenFile, now: Timestamp) -> Option<Attr> {
        let (was, bytes) =
            self.transport.look_at_replaced(promised.reference, now, &mut |directory, path| {
                self.small_in_records(directory, path).map(|regular| regular.attr)
            })?;
        let size_bytes = bytes as u64;
        let blocks = inline_blocks(size_bytes);
        Some(timed(Attr { size_bytes, blocks, mtime: now, ctime: now, ..was }, self.node.head))
    }

    /// The regular file at the end of a path, if it has one name, no origin, is at home here, and
    /// has its bytes in the record of that name.
    fn small_in_records(&self, start: FileId, path: &[u8]) -> Option<Regular> {
        let head = self.node.head;
        let starts = head.daemon_starts.load(Acquire);
        let view = self.records.view(head)?;
        let reached = reach(&view, Question { start, path, follow: false }).ok()?;
        let Reached::Regular(found, directory, _) = reached else { return None };
        let is_small = matches!(found.bytes, Bytes::Runs(_)) && directory != FileId::NONE;
        let is_own = found.until == u64::MAX && found.opens_until == u64::MAX;
        let is_certain = is_served_since(head, starts) && is_complete(head);
        (is_small && is_own && found.attr.links == 1 && is_certain).then_some(found)
    }

    /// Whether no description may write, to whichever file that is at home here, and no kernel
    /// keeps pages of one.
    fn nobody_writes(&self) -> bool {
        let head = self.node.head;
        let starts = head.daemon_starts.load(Acquire);
        head.writers.load(SeqCst) == 0
            && head.mounts.mapped.load(SeqCst) == 0
            && is_served_since(head, starts)
    }

    /// The time that a look tells.
    pub(super) fn time_of_look() -> Timestamp {
        let (seconds, nanoseconds) = clock::real();
        Timestamp { seconds, nanoseconds }
    }
}
