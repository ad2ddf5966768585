//! A long transfer by requests. Several requests are under way at a time. So they wait at the same
//! time for switches of threads and for other nodes.
//!
//! Requests begin at multiples of the longest transfer. The first one that fails or falls short
//! ends the transfer, and only the requests before it count. Later ones that were under way may
//! have been done all the same. Those of a write leave bytes behind the end that the call reports.

use mayfly_sys::{
    file::IoVec,
    user::{copy_out, readable},
};
use mayfly_transport::{Answer, Pending, Transport};
use mayfly_types::{Errno, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{Operation, Read, Write};

use crate::{Client, Descriptors, OpenFile};

/// Requests of one transfer at a time. A process has more lanes, but its other threads need these.
const WINDOW: usize = 4;

/// A request under way.
struct Piece {
    pending: Pending,
    at: usize,
    bytes: usize,
}

/// How far a transfer has come.
struct Progress {
    /// Bytes from the beginning that are done for certain.
    done: usize,
    /// Why it goes no further: an error, or the end of the file.
    over: Option<Result<(), Errno>>,
}

impl Progress {
    fn note(&mut self, bytes: usize, result: Result<usize, Errno>) {
        if self.over.is_some() {
            return;
        }
        match result {
            Ok(count) => {
                self.done += count;
                self.over = (count < bytes).then_some(Ok(()));
            }
            Err(errno) => self.over = Some(Err(errno)),
        }
    }
}

/// Length of the piece at `at` of a transfer of `bytes` bytes that begins at `offset`.
fn piece_bytes(offset: u64, at: usize, bytes: usize) -> usize {
    let into = ((offset + at as u64) % TRANSFER_BYTES_MAX as u64) as usize;
    (TRANSFER_BYTES_MAX - into).min(bytes.saturating_sub(at))
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Writes a run of the host's memory at `offset`. Returns the bytes that are written, and the
    /// error that kept it from writing more. `None` when requests cannot be under way side by side.
    ///
    /// # Safety
    /// The host wants its memory at `run` read.
    pub(super) unsafe fn write_ahead(
        &self,
        open: OpenFile,
        offset: u64,
        run: IoVec,
    ) -> (usize, Option<Errno>) {
        self.ahead::<Write<'_>>(
            offset,
            run.bytes,
            |at, bytes| {
                let from = run.base.wrapping_add(at);
                // SAFETY: passed on to the caller.
                if unsafe { readable(from as usize, bytes) } < bytes {
                    return None;
                }
                // SAFETY: these can be read, and the host leaves them so during its call.
                let bytes = unsafe { core::slice::from_raw_parts(from, bytes) };
                let offset = offset + at as u64;
                self.transport.begin(&Write { open: open.reference, offset, append: false, bytes })
            },
            |_, written| Ok(written.count as usize),
        )
    }

    /// Reads into a run of the host's memory.
    ///
    /// # Safety
    /// The host wants its memory at `run` written.
    pub(super) unsafe fn read_ahead(
        &self,
        open: OpenFile,
        offset: u64,
        run: IoVec,
    ) -> (usize, Option<Errno>) {
        self.ahead::<Read>(
            offset,
            run.bytes,
            |at, bytes| {
                let (offset, count) = (offset + at as u64, bytes as u32);
                self.transport.begin(&Read { open: open.reference, offset, count })
            },
            |(at, bytes), data| {
                let data = data.bytes.get(..bytes).unwrap_or(data.bytes);
                // SAFETY: passed on to the caller; the piece is inside the run.
                unsafe { copy_out(data, run.base.wrapping_add(at))? };
                Ok(data.len())
            },
        )
    }

    fn ahead<'a, O: Operation<'a>>(
        &self,
        offset: u64,
        bytes: usize,
        mut begin: impl FnMut(usize, usize) -> Option<Pending>,
        mut take: impl for<'r> FnMut((usize, usize), O::Reply<'r>) -> Result<usize, Errno>,
    ) -> (usize, Option<Errno>) {
        let mut flight: [Option<Piece>; WINDOW] = [const { None }; WINDOW];
        let mut progress = Progress { done: 0, over: None };
        let mut sent = 0;
        // The oldest request is always in the place that is filled next.
        for slot in (0..WINDOW).cycle() {
            let Some(slot) = flight.get_mut(slot) else { break };
            if let Some(Piece { pending, at, bytes }) = slot.take() {
                let wanted = progress.over.is_none();
                let result = self.transport.finish::<O, _>(pending, |answer| match answer {
                    Answer::Done(reply) if wanted => take((at, bytes), reply),
                    Answer::Done(_) => Ok(0),
                    Answer::Failed(errno) => Err(errno),
                    Answer::Escaped(_) => Err(Errno::EIO),
                });
                progress.note(bytes, result);
            }
            let count = piece_bytes(offset, sent, bytes);
            let goes_on = count > 0 && progress.over.is_none();
            if let Some(pending) = goes_on.then(|| begin(sent, count)).flatten() {
                *slot = Some(Piece { pending, at: sent, bytes: count });
                sent += count;
            }
            // The caller does one by one what could not begin here.
            if flight.iter().all(Option::is_none) {
                break;
            }
        }
        (progress.done, progress.over.and_then(Result::err))
    }
}

#[cfg(test)]
mod tests;
