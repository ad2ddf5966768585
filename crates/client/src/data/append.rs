//! Writing at the end of a file, wherever that is.

use mayfly_sys::file;
use mayfly_transport::Transport;
use mayfly_transport_shm::tally::{Kind, Way};
use mayfly_types::{Errno, limits::INLINE_BYTES_MAX};

use super::{TRIES, pieces::Pieces, seeking::SEEK_CUR, within_limit};
use crate::{
    Client, Descriptors, OpenFile,
    counted::Transfer,
    objects::{InUse, Need},
};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Bytes appended and the offset after them.
    ///
    /// # Safety
    /// As [`Client::write`].
    pub(super) unsafe fn append(
        &self,
        open: OpenFile,
        pieces: Pieces<'_>,
    ) -> Result<(usize, u64), Errno> {
        let by_request = self.appends_by_request(open)?;
        let began = self.begin(pieces.left());
        let (kind, reference) = (Kind::Write, open.reference);
        let count = |way, done: &Result<(usize, u64), Errno>| {
            let offset = done.map_or(0, |(count, end)| end.saturating_sub(count as u64));
            let transfer = Transfer { kind, way, reference, offset, began };
            self.transferred(transfer, &done.map(|(count, _)| count));
        };
        for _ in 0..if by_request { 0 } else { TRIES } {
            // The size may grow meanwhile by others' hands: the allowance is a bound on capacity,
            // not on where the bytes go.
            let want = pieces.left() as u64;
            let need = match self.object(open, Need::Look)? {
                Some(object) => Need::Write { end: file::length(object.descriptor)? + want },
                None if want > INLINE_BYTES_MAX as u64 => Need::Spill { end: want },
                None => break,
            };
            let Some(object) = self.object(open, need)? else { break };
            // SAFETY: passed on to the caller.
            let appended = unsafe { self.append_object(&object, pieces) };
            if !self.revoked(open, &object) {
                count(Way::Itself, &appended);
                return appended;
            }
        }
        let pieces = within_limit(self.size(open)?, pieces)?;
        // SAFETY: passed on to the caller.
        let appended = unsafe { self.write_through(open, u64::MAX, pieces) };
        count(Way::Asked, &appended);
        appended
    }

    /// The kernel appends atomically; the descriptor's own offset tells where it ended. That offset
    /// is shared by the threads of this process, hence the lock.
    ///
    /// # Safety
    /// As [`Client::write`].
    unsafe fn append_object(
        &self,
        object: &InUse<'_>,
        pieces: Pieces<'_>,
    ) -> Result<(usize, u64), Errno> {
        let run;
        let list = match pieces.untouched() {
            Some(list) => list,
            None => {
                run = [pieces.run().ok_or(Errno::EINVAL)?];
                &run
            }
        };
        let _held = self.append.hold();
        // SAFETY: passed on to the caller; the kernel checks the memory.
        let count =
            unsafe { file::write_pieces(object.descriptor, list, u64::MAX, file::RWF_APPEND) }?;
        Ok((count, file::seek(object.descriptor, 0, SEEK_CUR)?))
    }
}
