//! Reading and writing.
//!
//! A transfer goes to the object when the file has one, else through the daemon in pieces of at
//! most one transfer. A write that cannot fit the inode record asks for an object first. After a
//! transfer on an object the grant is looked at again: when it was revoked meanwhile (a truncation,
//! a move), the transfer may have met the old object and is repeated.
//!
//! An object that a process has leave to use is laid out as the file is: same offsets, same length.
//! A file may be on several nodes. The own node's part is used directly; the rest is read and
//! written by requests, each of which ends at the border of a chunk ([`parts`]).
//!
//! The calls stand here. Below are their parts: a transfer in [`pieces`] of the host's memory,
//! several requests under way at a time ([`ahead`]), striped files ([`parts`]), the end of a file
//! as the place of a write ([`append`]), files that are not made yet ([`promised`]), [`seeking`],
//! and [`slices`] of the caller's own memory for skins that serve others by messages.
//!
//! No bytes are kept from one call to the next; [`crate::leases`] has those that may be kept.

mod ahead;
mod append;
mod parts;
pub(crate) mod pieces;
pub(crate) mod promised;
pub(crate) mod seeking;
mod slices;

use core::sync::atomic::Ordering;

use mayfly_sys::{
    file::{self, IoVec, O_DSYNC},
    process,
    scratch::Scratch,
    user::readable,
};
use mayfly_transport::Transport;
use mayfly_transport_shm::tally::{Kind, Way};
use mayfly_types::{
    Errno, FileKind,
    limits::{CHUNK_BYTES_MIN, FILE_BYTES_MAX, INLINE_BYTES_MAX, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{Allocate, Read, Stat, Target, Write};

use crate::{
    Client, Descriptors, OpenFile,
    counted::Transfer,
    objects::{InUse, Need},
    open::offset,
};
use pieces::Pieces;

/// Repetitions after revoked grants before the daemon does the transfer.
pub(crate) const TRIES: usize = 8;

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Reads at the file offset and moves it.
    ///
    /// # Errors
    /// As readv.
    ///
    /// # Safety
    /// The host wants its memory at `to` written.
    pub unsafe fn read(&self, open: OpenFile, to: &[IoVec]) -> Result<usize, Errno> {
        check_readable(open)?;
        let position = offset::hold(open)?;
        // SAFETY: passed on to the caller.
        let count = unsafe { self.read_from(open, position.get(), Pieces::new(to)?) }?;
        position.set(position.get() + count as u64);
        Ok(count)
    }

    /// Reads at `offset`.
    ///
    /// # Errors
    /// As preadv.
    ///
    /// # Safety
    /// The host wants its memory at `to` written.
    pub unsafe fn read_at(
        &self,
        open: OpenFile,
        offset: i64,
        to: &[IoVec],
    ) -> Result<usize, Errno> {
        check_readable(open)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        // SAFETY: passed on to the caller.
        unsafe { self.read_from(open, offset, Pieces::new(to)?) }
    }

    /// Writes at the file offset, or at the end, and moves the offset.
    ///
    /// # Errors
    /// As writev.
    ///
    /// # Safety
    /// The host wants its memory at `from` read.
    pub unsafe fn write(&self, open: OpenFile, from: &[IoVec]) -> Result<usize, Errno> {
        check_writable(open)?;
        let pieces = Pieces::new(from)?;
        if pieces.left() == 0 {
            return Ok(0);
        }
        let position = offset::hold(open)?;
        let (count, end) = if open.appends() {
            // SAFETY: passed on to the caller.
            unsafe { self.append(open, pieces) }?
        } else {
            let at = position.get();
            // SAFETY: passed on to the caller.
            let count = unsafe { self.write_to(open, at, pieces) }?;
            (count, at + count as u64)
        };
        position.set(end);
        self.changed(open, end.saturating_sub(count as u64), end);
        self.sync_when_asked(open)?;
        Ok(count)
    }

    /// Writes at `offset`; as on Linux, at the end when the description appends.
    ///
    /// # Errors
    /// As pwritev.
    ///
    /// # Safety
    /// The host wants its memory at `from` read.
    pub unsafe fn write_at(
        &self,
        open: OpenFile,
        offset: i64,
        from: &[IoVec],
    ) -> Result<usize, Errno> {
        check_writable(open)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let pieces = Pieces::new(from)?;
        if pieces.left() == 0 {
            return Ok(0);
        }
        let (count, end) = if open.appends() {
            // SAFETY: passed on to the caller.
            unsafe { self.append(open, pieces) }?
        } else {
            // SAFETY: passed on to the caller.
            let count = unsafe { self.write_to(open, offset, pieces) }?;
            (count, offset + count as u64)
        };
        self.changed(open, end.saturating_sub(count as u64), end);
        self.sync_when_asked(open)?;
        Ok(count)
    }

    /// Writes at the end whatever the description's flags (pwritev2 with RWF_APPEND).
    ///
    /// # Errors
    /// As pwritev2.
    ///
    /// # Safety
    /// The host wants its memory at `from` read.
    pub unsafe fn write_at_end(&self, open: OpenFile, from: &[IoVec]) -> Result<usize, Errno> {
        check_writable(open)?;
        let pieces = Pieces::new(from)?;
        if pieces.left() == 0 {
            return Ok(0);
        }
        // SAFETY: passed on to the caller.
        let (count, end) = unsafe { self.append(open, pieces) }?;
        self.changed(open, end.saturating_sub(count as u64), end);
        self.sync_when_asked(open)?;
        Ok(count)
    }

    /// The file offset.
    #[must_use]
    pub fn position(&self, open: OpenFile) -> u64 {
        offset::hold_whatever(open).get()
    }

    /// Runs `step` with the file offset held; it gets the offset and returns a result and the new
    /// one, which is written when it is another: the entry may be that of the next file by now.
    ///
    /// # Errors
    /// Those of `step`.
    pub fn with_position<R>(
        &self,
        open: OpenFile,
        step: impl FnOnce(u64) -> Result<(R, u64), Errno>,
    ) -> Result<R, Errno> {
        let position = offset::hold(open)?;
        let from = position.get();
        let (result, to) = step(from)?;
        if to != from {
            position.set(to);
        }
        Ok(result)
    }

    /// Gives the offset to a file of the kernel's mount that `step` opens there and has kept for
    /// the others ([`mayfly_transport_shm::keeper`]). `None` when somebody did so before.
    ///
    /// # Errors
    /// Those of `step`; nothing has changed then.
    pub fn move_away<R>(
        &self,
        open: OpenFile,
        step: impl FnOnce(u64) -> Result<R, Errno>,
    ) -> Result<Option<R>, Errno> {
        let position = offset::hold_whatever(open);
        if open.is_moved() {
            return Ok(None);
        }
        let done = step(position.get())?;
        open.set_moved();
        Ok(Some(done))
    }

    /// Takes or gives back the space of `bytes` bytes at `offset`, as `mode` says
    /// (`mayfly_wire::ALLOCATE_*`).
    ///
    /// # Errors
    /// As fallocate.
    pub fn allocate(
        &self,
        open: OpenFile,
        mode: u32,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        let request = Allocate { open: open.reference, mode, offset, bytes };
        self.asked_open(Kind::Change, open.reference, || self.ask(&request, Ok))?;
        self.changed(open, offset, offset.saturating_add(bytes));
        self.sync_when_asked(open)
    }

    /// Length of the file.
    ///
    /// # Errors
    /// EIO.
    pub fn size(&self, open: OpenFile) -> Result<u64, Errno> {
        if let Some(object) = self.object(open, Need::Look)? {
            let length = file::length(object.descriptor)?;
            if !self.revoked(open, &object) {
                return Ok(length);
            }
        }
        self.ask(&Stat { target: Target::Open(open.reference) }, |attr| Ok(attr.size_bytes))
    }

    fn sync_when_asked(&self, open: OpenFile) -> Result<(), Errno> {
        let through = self.node.head.tier.at_write.load(Ordering::Relaxed) != 0;
        if through || open.flags() & O_DSYNC != 0 { self.sync(open.reference) } else { Ok(()) }
    }

    /// # Safety
    /// As [`Client::read`].
    unsafe fn read_from(
        &self,
        open: OpenFile,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Result<usize, Errno> {
        if offset.checked_add(pieces.left() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::EINVAL);
        }
        if pieces.left() == 0 {
            return Ok(0);
        }
        let began = self.begin(pieces.left());
        let (kind, reference) = (Kind::Read, open.reference);
        let transfer = |way| Transfer { kind, way, reference, offset, began };
        for _ in 0..TRIES {
            let Some(object) = self.object(open, Need::Look)? else { break };
            // SAFETY: passed on to the caller.
            let count = unsafe { read_object(&object, offset, pieces) };
            if !self.revoked(open, &object) {
                self.transferred(transfer(Way::Itself), &count);
                return count;
            }
        }
        let (_, file) = self.file_entry(open)?;
        // SAFETY: passed on to the caller.
        if let Some(read) = unsafe { self.contents.read(open.reference, file, offset, pieces) } {
            self.transferred(transfer(Way::Itself), &read);
            return read;
        }
        let done = if self.is_striped(open) {
            // SAFETY: passed on to the caller.
            unsafe { self.read_parts(open, offset, pieces) }
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.read_through(open, offset, pieces) }
        };
        self.transferred(transfer(Way::Asked), &done);
        done
    }

    /// # Safety
    /// As [`Client::read`].
    pub(crate) unsafe fn read_through(
        &self,
        open: OpenFile,
        offset: u64,
        mut pieces: Pieces<'_>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        if let Some(run) = pieces.long_run() {
            // SAFETY: passed on to the caller.
            let (count, failed) = unsafe { self.read_ahead(open, offset, run) };
            match failed {
                Some(errno) if count == 0 => return Err(errno),
                Some(_) => return Ok(count),
                None => pieces.advance(count),
            }
            done = count;
        }
        while pieces.left() > 0 {
            let asked = pieces.left().min(TRANSFER_BYTES_MAX);
            let request =
                Read { open: open.reference, offset: offset + done as u64, count: asked as u32 };
            let got = self.ask(&request, |data| {
                let bytes = data.bytes.get(..asked).unwrap_or(data.bytes);
                // SAFETY: passed on to the caller.
                unsafe { pieces.scatter(bytes) }
            });
            match got {
                Ok(count) => done += count,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            // The bytes of another chunk are asked for in a request of their own.
            let at_border = (offset + done as u64).is_multiple_of(CHUNK_BYTES_MIN);
            if got != Ok(asked) && (got == Ok(0) || !at_border) {
                break;
            }
        }
        Ok(done)
    }

    /// # Safety
    /// As [`Client::write`].
    unsafe fn write_to(
        &self,
        open: OpenFile,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Result<usize, Errno> {
        let end = offset.checked_add(pieces.left() as u64).ok_or(Errno::EFBIG)?;
        if end > FILE_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let need =
            if end > INLINE_BYTES_MAX as u64 { Need::Spill { end } } else { Need::Write { end } };
        let began = self.begin(pieces.left());
        let (kind, reference) = (Kind::Write, open.reference);
        let transfer = |way| Transfer { kind, way, reference, offset, began };
        for _ in 0..TRIES {
            let Some(object) = self.object(open, need)? else { break };
            // SAFETY: passed on to the caller.
            let count = unsafe { write_object(&object, offset, pieces) };
            if !self.revoked(open, &object) {
                self.transferred(transfer(Way::Itself), &count);
                return count;
            }
        }
        let pieces = within_limit(offset, pieces)?;
        let done = if self.is_striped(open) {
            // SAFETY: passed on to the caller.
            unsafe { self.write_parts(open, offset, pieces) }
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.write_through(open, offset, pieces) }.map(|(count, _)| count)
        };
        self.transferred(transfer(Way::Asked), &done);
        done
    }

    /// Writes through the daemon; at the end when `offset` is `u64::MAX`.
    ///
    /// # Safety
    /// As [`Client::write`].
    pub(crate) unsafe fn write_through(
        &self,
        open: OpenFile,
        offset: u64,
        mut pieces: Pieces<'_>,
    ) -> Result<(usize, u64), Errno> {
        let append = offset == u64::MAX;
        let mut end = if append { 0 } else { offset };
        let mut done = 0;
        // On the own node several at a time gain nothing, and where little is free take more.
        if let Some(run) = pieces.long_run().filter(|_| !append && self.is_by_request(open)) {
            // SAFETY: passed on to the caller.
            let (count, failed) = unsafe { self.write_ahead(open, offset, run) };
            (done, end) = (count, end + count as u64);
            match failed {
                Some(errno) if count == 0 => return Err(errno),
                Some(_) => return Ok((done, end)),
                None => pieces.advance(count),
            }
        }
        while pieces.left() > 0 {
            // SAFETY: passed on to the caller.
            let sent = unsafe { self.send(open, end, append, &pieces) };
            match sent {
                Ok((count, at)) => {
                    done += count;
                    end = at;
                    pieces.advance(count);
                    if count == 0 {
                        break;
                    }
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok((done, end))
    }

    /// One transfer: straight from the host's memory when that is one run, else gathered first, so
    /// that the pieces of one writev stay together.
    ///
    /// # Safety
    /// As [`Client::write`].
    unsafe fn send(
        &self,
        open: OpenFile,
        offset: u64,
        append: bool,
        pieces: &Pieces<'_>,
    ) -> Result<(usize, u64), Errno> {
        let request = |bytes: &[u8]| {
            let request = Write { open: open.reference, offset, append, bytes };
            self.ask(&request, |written| Ok((written.count as usize, written.end)))
        };
        if pieces.is_one_run()
            && let Some(run) = pieces.run()
        {
            let count = run.bytes.min(TRANSFER_BYTES_MAX);
            // SAFETY: passed on to the caller.
            let count = match unsafe { readable(run.base as usize, count) } {
                0 if count > 0 => return Err(Errno::EFAULT),
                readable => readable,
            };
            // SAFETY: these can be read, and the host leaves them so during its call.
            return request(unsafe { core::slice::from_raw_parts(run.base, count) });
        }
        let mut scratch = Scratch::take(TRANSFER_BYTES_MAX)?;
        // SAFETY: passed on to the caller.
        let count = unsafe { pieces.gather(scratch.as_mut_slice()) }?;
        request(scratch.as_slice().get(..count).unwrap_or(&[]))
    }
}

pub(crate) fn check_readable(open: OpenFile) -> Result<(), Errno> {
    if !open.readable() {
        return Err(Errno::EBADF);
    }
    if open.kind() == FileKind::Directory { Err(Errno::EISDIR) } else { Ok(()) }
}

fn check_writable(open: OpenFile) -> Result<(), Errno> {
    if open.writable() { Ok(()) } else { Err(Errno::EBADF) }
}

/// Writes on objects meet the kernel's own check of RLIMIT_FSIZE; those through the daemon meet
/// this: what fits is written, and only a write that starts at the limit fails.
pub(crate) fn within_limit(offset: u64, pieces: Pieces<'_>) -> Result<Pieces<'_>, Errno> {
    let limit = process::limit(process::RLIMIT_FSIZE).soft;
    if offset >= limit {
        process::raise(process::SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    Ok(pieces.cut_to(limit - offset))
}

/// # Safety
/// As [`Client::read`].
pub(crate) unsafe fn read_object(
    object: &InUse<'_>,
    offset: u64,
    pieces: Pieces<'_>,
) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    unsafe { read_pieces(object.descriptor, offset, pieces) }
}

/// The same by the object's descriptor.
///
/// # Safety
/// As [`Client::read`].
pub(crate) unsafe fn read_pieces(
    descriptor: i32,
    offset: u64,
    pieces: Pieces<'_>,
) -> Result<usize, Errno> {
    match pieces.untouched() {
        // SAFETY: passed on to the caller; the kernel checks the memory.
        Some([one]) => unsafe { file::read_at(descriptor, one.base, one.bytes, offset) },
        // SAFETY: as above.
        Some(list) => unsafe { file::read_pieces(descriptor, list, offset) },
        None => run_by_run(offset, pieces, |run, at| {
            // SAFETY: as above.
            unsafe { file::read_at(descriptor, run.base, run.bytes, at) }
        }),
    }
}

/// Transfers the rest of `pieces`, run of memory by run of memory, until one moves nothing or
/// fails. A failure counts only when nothing was moved before it.
fn run_by_run(
    offset: u64,
    mut pieces: Pieces<'_>,
    mut transfer: impl FnMut(IoVec, u64) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    while let Some(run) = pieces.run() {
        match transfer(run, offset + done as u64) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                pieces.advance(count);
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// # Safety
/// As [`Client::write`].
pub(crate) unsafe fn write_object(
    object: &InUse<'_>,
    offset: u64,
    pieces: Pieces<'_>,
) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    unsafe { write_pieces_to(object.descriptor, offset, pieces) }
}

/// The same by the object's descriptor.
///
/// # Safety
/// As [`Client::write`].
unsafe fn write_pieces_to(
    descriptor: i32,
    offset: u64,
    pieces: Pieces<'_>,
) -> Result<usize, Errno> {
    match pieces.untouched() {
        // SAFETY: passed on to the caller; the kernel checks the memory.
        Some([one]) => unsafe { file::write_at(descriptor, one.base, one.bytes, offset) },
        // SAFETY: as above.
        Some(list) => unsafe { file::write_pieces(descriptor, list, offset, 0) },
        None => run_by_run(offset, pieces, |run, at| {
            // SAFETY: as above.
            unsafe { file::write_at(descriptor, run.base, run.bytes, at) }
        }),
    }
}

#[cfg(test)]
mod tests;
