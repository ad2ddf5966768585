//! Striped files: their bytes are on several nodes, some of them on this one.
//!
//! A transfer falls into runs of chunks that are in the own node's part and runs of others'. Chunks
//! of the own part are read and written in its object, under a grant that is looked at again
//! afterwards as that of a whole object is ([`crate::objects`]); the allowance counts bytes of the
//! part's object. Everything else is read and written by requests: other nodes' chunks, what there
//! is no leave for, and what lies behind the end of the part's object, of which only the daemon
//! knows whether it is a hole or the end of the file.
//!
//! Which chunks are the own node's comes with the answer that gives leave or refuses it, and is
//! kept beside the descriptor, as long as the generation of the grant.

use core::{num::NonZeroU16, sync::atomic::Ordering};

use mayfly_sys::{Errno, text::PathText};
use mayfly_transport::Transport;
use mayfly_transport_shm::layout::FILE_STRIPED;
use mayfly_types::{Chunks, Tail, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::{GRANT_PART, GRANT_READ, GRANT_WRITE, Grant, OwnPart};

use super::{TRIES, pieces::Pieces, read_object, write_object};
use crate::{
    Client, Descriptors, OpenFile,
    objects::{InUse, Layout},
};

/// Longer chunks than of 2^40 bytes there are not.
const CHUNK_LOG2_MAX: u8 = 40;

/// The part of a file that the own node has.
#[derive(Clone, Copy)]
struct Own {
    chunks: Chunks,
    index: u16,
}

impl Own {
    /// `None` when the file is not striped, as far as the daemon knows.
    fn of(own: OwnPart) -> Option<Own> {
        let OwnPart { width, index, chunk_log2, hashed } = own;
        let width = NonZeroU16::new(width).filter(|_| chunk_log2 <= CHUNK_LOG2_MAX)?;
        Some(Own { chunks: Chunks { width, chunk_log2, hashed, tail: Tail::default() }, index })
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Read,
    Write,
}

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Are the chunks of the file on several nodes?
    pub(super) fn is_striped(&self, open: OpenFile) -> bool {
        self.file_entry(open)
            .is_ok_and(|(_, entry)| entry.flags.load(Ordering::Acquire) & FILE_STRIPED != 0)
    }

    /// # Safety
    /// As [`Client::read`].
    pub(super) unsafe fn read_parts(
        &self,
        open: OpenFile,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Result<usize, Errno> {
        self.run_by_run(open, To::Read, offset, pieces, |at, own, run| {
            let direct = match own {
                // SAFETY: passed on to the caller.
                Some(own) => unsafe { self.move_own(open, To::Read, own, at, run) }?,
                None => None,
            };
            let mut rest = run;
            let done = match direct {
                Some(count) if count == run.left() => return Ok(count),
                // The bytes of one request are read at one moment.
                Some(count) if run.left() > TRANSFER_BYTES_MAX => count,
                _ => 0,
            };
            rest.advance(done);
            // SAFETY: passed on to the caller.
            match unsafe { self.read_through(open, at + done as u64, rest) } {
                Ok(more) => Ok(done + more),
                Err(errno) if done == 0 => Err(errno),
                Err(_) => Ok(done),
            }
        })
    }

    /// # Safety
    /// As [`Client::write`].
    pub(super) unsafe fn write_parts(
        &self,
        open: OpenFile,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Result<usize, Errno> {
        self.run_by_run(open, To::Write, offset, pieces, |at, own, run| {
            let direct = match own {
                // SAFETY: passed on to the caller.
                Some(own) => unsafe { self.move_own(open, To::Write, own, at, run) }?,
                None => None,
            };
            match direct {
                Some(count) => Ok(count),
                // SAFETY: passed on to the caller.
                None => unsafe { self.write_through(open, at, run) }.map(|(count, _)| count),
            }
        })
    }

    /// One transfer for each chunk of the own part and for each run of others, until one moves less
    /// than it should or fails. A failure counts only when nothing was moved before it.
    fn run_by_run<'p>(
        &self,
        open: OpenFile,
        to: To,
        offset: u64,
        mut pieces: Pieces<'p>,
        mut transfer: impl FnMut(u64, Option<Own>, Pieces<'p>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while pieces.left() > 0 {
            let at = offset + done as u64;
            let left = pieces.left() as u64;
            let own = match self.own_part(open, to, at + left) {
                Ok(own) => own,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            };
            let (bytes, own) = match own {
                Some(own) => match own.chunks.run(open.id(), own.index, at, left) {
                    (run, true) => (own.chunks.left_in_chunk(at).min(run), Some(own)),
                    (run, false) => (run, None),
                },
                None => (left, None),
            };
            let run = pieces.cut_to(bytes);
            match transfer(at, own, run) {
                Ok(count) => {
                    done += count;
                    pieces.advance(count);
                    if count < run.left() {
                        break;
                    }
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Bytes of one chunk of the own part; `None` when they are to be moved by requests.
    ///
    /// # Safety
    /// As [`Client::read`] and [`Client::write`].
    unsafe fn move_own(
        &self,
        open: OpenFile,
        to: To,
        own: Own,
        at: u64,
        run: Pieces<'_>,
    ) -> Result<Option<usize>, Errno> {
        for _ in 0..TRIES {
            let Some(object) = self.part_object(open, to, own, at, &run)? else { break };
            let offset = own.chunks.in_part(at);
            let count = match to {
                // SAFETY: passed on to the caller.
                To::Read => unsafe { read_object(&object, offset, run) },
                // SAFETY: passed on to the caller.
                To::Write => unsafe { write_object(&object, offset, run) },
            };
            if !self.revoked(open, &object) {
                return count.map(Some);
            }
        }
        Ok(None)
    }

    /// The part of the file that the own node has, as far as this can be known. When it is not
    /// known, leave is asked for up to `end`.
    fn own_part(&self, open: OpenFile, to: To, end: u64) -> Result<Option<Own>, Errno> {
        let (index, entry) = self.file_entry(open)?;
        let generation = entry.grant_generation.load(Ordering::Acquire);
        match self.objects.layout(index, open.id().0, generation) {
            Some(layout) => Ok(Own::of(layout.own)),
            None => self.ask_for_part(open, to, end),
        }
    }

    /// The object of the own part, for a transfer inside of one chunk.
    fn part_object(
        &self,
        open: OpenFile,
        to: To,
        own: Own,
        at: u64,
        run: &Pieces<'_>,
    ) -> Result<Option<InUse<'_>>, Errno> {
        let write = to == To::Write;
        // The kernel takes one call for one run of memory, or the whole list.
        let one = run.is_one_run() || run.untouched().is_some();
        if !one || write && own.chunks.hashed {
            return Ok(None);
        }
        let (index, entry) = self.file_entry(open)?;
        let id = open.id().0;
        let end = at + run.left() as u64;
        let end_in_part = own.chunks.in_part(end - 1) + 1;
        let generation = entry.grant_generation.load(Ordering::Acquire);
        let covered = !write || end_in_part <= entry.allowance_end.load(Ordering::Acquire);
        if covered && let Some(object) = self.objects.find(index, id, generation, write) {
            return Ok(Some(object));
        }
        // Leave to read that was refused under this generation is refused again.
        let known = self.objects.layout(index, id, generation);
        if !write && known.is_some_and(|layout| layout.unreadable) {
            return Ok(None);
        }
        if self.ask_for_part(open, to, end)?.is_none() {
            return Ok(None);
        }
        let generation = entry.grant_generation.load(Ordering::Acquire);
        let covered = !write || end_in_part <= entry.allowance_end.load(Ordering::Acquire);
        Ok(self.objects.find(index, id, generation, write).filter(|_| covered))
    }

    /// Asks for leave to use the own part, for writes below `end`, and keeps what is answered.
    fn ask_for_part(&self, open: OpenFile, to: To, end: u64) -> Result<Option<Own>, Errno> {
        let (index, entry) = self.file_entry(open)?;
        let id = open.id().0;
        let before = entry.grant_generation.load(Ordering::Acquire);
        let leave = if to == To::Write { GRANT_WRITE } else { GRANT_READ };
        let mut path = PathText::new();
        let grant = Grant { open: open.reference, want: GRANT_PART | leave, end };
        let (generation, own) = self.ask(&grant, |granted| {
            path.push(granted.object_path)?;
            Ok((granted.generation, granted.own))
        })?;
        let Some(found) = Own::of(own) else { return Ok(None) };
        if !path.as_bytes().is_empty() {
            match self.open_and_conceal(&path, to == To::Write) {
                Ok((descriptor, writable)) => {
                    let layout = Layout { own, unreadable: false };
                    self.objects.keep(index, (id, generation), descriptor, writable, layout);
                    return Ok(Some(found));
                }
                // The application has used up its descriptors; the daemon has its own.
                Err(Errno::EMFILE | Errno::ENFILE) => {}
                Err(errno) => return Err(errno),
            }
        }
        let layout = Layout { own, unreadable: to == To::Read };
        if self.objects.find(index, id, before, false).is_none() {
            self.objects.keep(index, (id, before), -1, false, layout);
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests;
