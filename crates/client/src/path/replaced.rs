//! Content of files that are there, changed without waiting: open for writing, and what is written
//! then; truncate.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use mayfly_records::{Bytes, Question, Reached, Regular, is_still, reach};
use mayfly_sys::{
    clock,
    file::{O_ACCMODE, O_PATH, O_RDWR, O_WRONLY},
    process,
};
use mayfly_transport::Transport;
use mayfly_transport_shm::tally::{Kind, Way};
use mayfly_types::{Attr, FileId, OpenRef, Timestamp, inline_blocks, limits::INLINE_BYTES_MAX};
use mayfly_wire::{Open, Target, Walk};

use super::records::{View, is_complete, is_served_since, timed};
use crate::{Client, Descriptors, OpenFile};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Opens a file that is there, and certainly a small one, for writing, without waiting for it.
    /// The description is promised: [`Client::open_file`] has it made when it is used. `None` when
    /// it is to be asked for.
    #[must_use]
    pub fn submit_replacement(&self, walk: Walk<'_>, flags: u32) -> Option<OpenFile> {
        let writes = matches!(flags & (O_ACCMODE | O_PATH), O_WRONLY | O_RDWR);
        if !writes || self.is_watched() {
            return None;
        }
        let began = self.begin(0);
        let open = Open { walk, flags, mode: 0, uid: 0, gid: 0 };
        let (reference, file) = self
            .transport
            .submit_replacement(&open, &mut |at, path, to| self.copy_small((at, path), to))?;
        self.end_at(began, (Kind::Open, Way::Unawaited), &walk, false);
        self.note_name(reference, &walk);
        let entry = self.node.opens.get(reference.index as usize)?;
        // It was promised as one of a new file.
        entry.id.store(file.0, Relaxed);
        Some(OpenFile { reference, entry })
    }

    /// Sets the length of a small file without waiting for it. False when it is to be asked for.
    pub(super) fn submit_length(&self, target: Target<'_>, size_bytes: u64) -> bool {
        let Ok(bytes) = usize::try_from(size_bytes) else { return false };
        if bytes > INLINE_BYTES_MAX || self.is_watched() {
            return false;
        }
        let began = self.begin(0);
        let submitted = match target {
            Target::Path(walk) => {
                self.transport.submit_length(&walk, bytes, &mut |at, path, to| {
                    self.copy_small((at, path), to)
                })
            }
            Target::Open(open) => {
                self.is_promised_to_write(open) && { self.transport.cut_submitted(open, bytes) }
            }
            Target::Directory(_) => false,
        };
        if submitted {
            self.end_about(began, (Kind::Change, Way::Unawaited), &target, false);
        }
        submitted
    }

    /// Attributes of a file that was opened so a moment ago, while that waits.
    pub(super) fn look_at_replaced(&self, promised: OpenFile, now: Timestamp) -> Option<Attr> {
        let (was, told) =
            self.transport.look_at_replaced(promised.reference, now, &mut |directory, path| {
                self.small_in_records(directory, path).map(|(_, regular)| regular.attr)
            })?;
        let Some((bytes, now)) = told else { return Some(timed(was, self.node.head)) };
        let size_bytes = bytes as u64;
        let blocks = inline_blocks(size_bytes);
        Some(timed(Attr { size_bytes, blocks, mtime: now, ctime: now, ..was }, self.node.head))
    }

    /// The regular file at the end of a path, if it has one name, no origin, is at home here, and
    /// has its bytes in the record of that name.
    fn small_in_records(&self, start: FileId, path: &[u8]) -> Option<(View<'_>, Regular)> {
        let head = self.node.head;
        let starts = head.daemon_starts.load(Acquire);
        let view = self.records.view(head)?;
        let reached = reach(&view, Question { start, path, follow: false }).ok()?;
        let Reached::Regular(found, directory, _) = reached else { return None };
        let is_small = matches!(found.bytes, Bytes::Runs(_)) && directory != FileId::NONE;
        let is_own = found.until == u64::MAX && found.opens_until == u64::MAX;
        let is_certain = is_served_since(head, starts) && is_complete(head);
        (is_small && is_own && found.attr.links == 1 && is_certain).then_some((view, found))
    }

    /// Which file that is, if no kernel keeps pages of any that is at home here. Copies its bytes,
    /// unless there is no room for any.
    fn copy_small(&self, (start, path): (FileId, &[u8]), to: &mut [u8]) -> Option<(FileId, usize)> {
        let head = self.node.head;
        let starts = head.daemon_starts.load(Acquire);
        let (view, regular) = self.small_in_records(start, path)?;
        let (is_copied, mut count) = (!to.is_empty(), 0);
        if let Bytes::Runs(runs) = &regular.bytes
            && is_copied
        {
            for (at, bytes) in runs.from(0).filter(|(_, bytes)| *bytes > 0) {
                let from = view.range(at, bytes)?;
                let room = to.get_mut(count..count + bytes)?;
                // SAFETY: so many bytes are there, says the view; what the daemon writes there
                // meanwhile is found out below.
                unsafe { core::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), bytes) };
                count += bytes;
            }
        }
        let is_whole = !is_copied || count as u64 == regular.attr.size_bytes;
        let is_certain = is_still(&view, regular.version)
            && head.mounts.mapped.load(SeqCst) == 0
            && is_served_since(head, starts)
            && is_complete(head);
        (is_whole && is_certain).then_some((regular.attr.id, count))
    }

    /// Whether a description is promised that may write, and the process may write as much as the
    /// record of a file can have.
    fn is_promised_to_write(&self, reference: OpenRef) -> bool {
        self.promised(reference).is_some()
            && process::limit(process::RLIMIT_FSIZE).soft >= INLINE_BYTES_MAX as u64
    }

    /// The time that a look tells.
    pub(super) fn time_of_look() -> Timestamp {
        let (seconds, nanoseconds) = clock::real();
        Timestamp { seconds, nanoseconds }
    }
}
