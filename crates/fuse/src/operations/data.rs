//! Opening, reading, writing, syncing, closing.
//!
//! A file handle is the reference to an open file description, whose own offset is not used: the
//! kernel keeps those of its descriptors and sends one with each transfer. Whether a write goes to
//! the end is said with each write too, since fcntl may change it.

use mayfly_client::OpenFile;
use mayfly_sys::file::{O_ACCMODE, O_APPEND, O_DSYNC};
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::Opened;

use crate::{
    kernel::abi::{
        Body, Fields, Header, OPEN_DIRECT, OPEN_PARALLEL_WRITES, READ_BYTES_MAX, READ_HAS_OWNER,
        WRITE_OF_PAGES,
    },
    memory::consistency::Consistency,
    reply::Reply,
    server::{Server, Work},
};

/// The other half of `O_SYNC`.
const O_SYNC_ALONE: u32 = 0o4_000_000;

/// Copied by one request at most, bytes.
const COPY_BYTES_MAX: u64 = 16 << 20;

/// The flags of open that the description keeps.
pub(crate) fn lasting(flags: u32) -> u32 {
    flags & (O_ACCMODE | O_DSYNC | O_SYNC_ALONE)
}

pub(crate) fn handle_of(open: OpenRef) -> u64 {
    u64::from(open.index) | u64::from(open.generation) << 32
}

pub(crate) fn reference_of(handle: u64) -> OpenRef {
    OpenRef { index: handle as u32, generation: (handle >> 32) as u32 }
}

impl Server {
    /// Answers with a file that was opened with `flags`.
    pub(crate) fn tell_opened(&self, opened: &Opened, flags: u32, body: &mut Body) {
        let handle = handle_of(opened.open);
        let how = match self.consistency {
            Consistency::Strict => {
                self.mapped.opened(opened.attr.id.0, handle);
                OPEN_DIRECT | OPEN_PARALLEL_WRITES
            }
            Consistency::Session => self.open_in_session(&opened.attr, handle, flags),
        };
        body.opened(handle, how);
    }

    pub(crate) fn handle(&self, handle: u64) -> Result<OpenFile, Errno> {
        self.client.open_file(reference_of(handle))
    }

    pub(super) fn open(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let flags = fields.u32()?;
        let opened = match self.consistency {
            Consistency::Strict => self.open_node(header.node, lasting(flags))?,
            Consistency::Session => self.open_looked_up(header, lasting(flags))?,
        };
        self.tell_opened(&opened, flags, body);
        Ok(())
    }

    pub(super) fn read(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        work: &mut Work,
    ) -> Result<Reply, Errno> {
        let (handle, offset, bytes) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let open = self.handle(handle)?;
        if fields.u32()? & READ_HAS_OWNER == 0 {
            self.pages_are_read(header.node, handle)?;
        }
        let bytes = (bytes as usize).min(READ_BYTES_MAX);
        if self.read_spliced(&mut work.pipe, header.unique, open, offset, bytes)? {
            return Ok(Reply::Later);
        }
        let to = work.data.get_mut(..bytes).ok_or(Errno::EINVAL)?;
        self.client.read_slice(open, offset, to).map(Reply::Data)
    }

    pub(super) fn write(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        work: &mut Work,
    ) -> Result<(), Errno> {
        let (handle, offset, bytes) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let of_pages = fields.u32()? & WRITE_OF_PAGES != 0;
        fields.skip(8)?;
        let flags = fields.u32()?;
        fields.skip(4)?;
        let from = fields.data(bytes)?;
        if let Some(promised) = self.promised(handle).filter(|_| flags & O_APPEND == 0)
            && let Some(done) = self.submit_bytes(promised, offset, from)
        {
            let count = done?;
            self.submitted.wrote(header.node, offset + count as u64);
            work.body.u32(count as u32).u32(0);
            return Ok(());
        }
        let open = self.handle(handle)?;
        let offset = (flags & O_APPEND == 0).then_some(offset);
        let count = self.client.write_slice(open, offset, from)?;
        work.body.u32(count as u32).u32(0);
        // Where the end was is not known here.
        let end = offset.map_or(u64::MAX, |start| start.saturating_add(count as u64));
        if offset.is_some() {
            self.submitted.wrote(header.node, end);
        }
        self.was_changed(open, (offset.unwrap_or(0), end), of_pages, work);
        Ok(())
    }

    /// fallocate; the kernel's modes are the daemon's.
    pub(super) fn allocate(&self, mut fields: Fields<'_>, work: &mut Work) -> Result<(), Errno> {
        let (handle, offset, bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let mode = fields.u32()?;
        let open = self.handle(handle)?;
        self.client.allocate(open, mode, offset, bytes)?;
        self.was_changed(open, (offset, offset.saturating_add(bytes)), false, work);
        Ok(())
    }

    /// copy_file_range between two files of the mount. Less than asked for may be copied, so that
    /// one request does not keep a thread for long.
    pub(super) fn copy_range(&self, mut fields: Fields<'_>, work: &mut Work) -> Result<(), Errno> {
        let (from, from_offset) = (fields.u64()?, fields.u64()?);
        fields.skip(8)?;
        let (to, to_offset, bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (from, to) = (self.handle(from)?, self.handle(to)?);
        let bytes = bytes.min(COPY_BYTES_MAX);
        let mut done = 0;
        while done < bytes {
            let room = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(work.data.len());
            let step = work.data.get_mut(..room).ok_or(Errno::EINVAL).and_then(|buffer| {
                let got = self.client.read_slice(from, from_offset.saturating_add(done), buffer)?;
                let got = buffer.get(..got).unwrap_or(&[]);
                let at = to_offset.saturating_add(done);
                if got.is_empty() { Ok(0) } else { self.client.write_slice(to, Some(at), got) }
            });
            match step {
                Ok(0) => break,
                Ok(count) => done += count as u64,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        work.body.u32(done as u32).u32(0);
        self.was_changed(to, (to_offset, to_offset.saturating_add(done)), false, work);
        Ok(())
    }

    /// SEEK_DATA and SEEK_HOLE; the kernel does the others.
    pub(super) fn seek(&self, mut fields: Fields<'_>, body: &mut Body) -> Result<(), Errno> {
        let (handle, offset, whence) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let distance = i64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        body.u64(self.client.seek(self.handle(handle)?, distance, whence as usize)?);
        Ok(())
    }

    /// A descriptor was closed: what was written through the handle goes to the file's home, and
    /// fcntl's locks are freed.
    pub(super) fn flush(&self, header: &Header, mut fields: Fields<'_>) -> Result<(), Errno> {
        let handle = fields.u64()?;
        self.locks.closed(handle);
        self.seen.closed(header.node, handle);
        fields.skip(8)?;
        let owner = fields.u64()?;
        // What is not made is nowhere else.
        let written = match self.promised(handle) {
            Some(_) => Ok(()),
            None => self.handle(handle).and_then(|open| self.client.flush(open)),
        };
        self.release_owner(header.node, owner);
        written
    }

    /// The last descriptor was closed.
    pub(super) fn release(&self, header: &Header, mut fields: Fields<'_>) -> Result<(), Errno> {
        let handle = fields.u64()?;
        self.mapped.closed(header.node, handle);
        self.submitted.closed(header.node, handle);
        if self.promised(handle).is_some() && self.client.withdraw(reference_of(handle)) {
            return Ok(());
        }
        // The handle is still needed to tell of pages that were written back through it.
        if self.telling.close_later(handle) {
            return Ok(());
        }
        self.close_handle(handle)
    }

    pub(crate) fn close_handle(&self, handle: u64) -> Result<(), Errno> {
        let closed = self.handle(handle).and_then(|open| self.client.close(open));
        // The locks that went with it are free now.
        self.release_handle(handle);
        closed
    }

    pub(super) fn sync(&self, mut fields: Fields<'_>) -> Result<(), Errno> {
        self.client.sync(self.handle(fields.u64()?)?.reference)
    }
}
