//! Open files.
//!
//! A file keeps its offset by itself. Its description belongs to the session of the process that
//! opened it: small files are read by what the daemon leases, new ones are submitted, and either is
//! made a description of the daemon's when something else is done with it (`client`'s affair).
//!
//! The child of a fork that uses a file which its parent has opened gets a description of its own:
//! of the very file as long as the parent has it open, and otherwise of what its path names, if
//! that is the same file (ESTALE if not). From then on the two have an offset each.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use mayfly_client::{Attributes, OpenFile, Stop};
use mayfly_sys::{
    Errno,
    file::{O_ACCMODE, O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_TRUNC, O_WRONLY},
    lock::Lock,
    text::PathText,
};
use mayfly_types::{Attr, FileId, OpenRef};
use mayfly_wire::{SET_SIZE, Target, WALK_EMPTY, Walk};
use pyo3::{Bound, PyAny, PyResult, Python, exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::{
    buffers::{Memory, Span, unset_bytes},
    errors::os_error,
    fork,
    paths::{Last, Path},
    session::{Attached, Place},
    stat::Stat,
};

/// No description: the file is closed.
const CLOSED: u64 = u64::MAX;
/// Nobody has asked yet which file it is.
const UNKNOWN: u64 = 0;

/// How to open a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) flags: u32,
    pub(crate) mode: u32,
}

/// An open file description of this process, or of the one that it was forked from.
pub(crate) struct Description {
    place: &'static Place,
    flags: u32,
    path: Vec<u8>,
    reference: AtomicU64,
    /// To whom the description belongs (`fork::notice`).
    epoch: AtomicU32,
    /// Which file it is, once that is known.
    id: AtomicU64,
    reopening: Lock,
}

fn packed(reference: OpenRef) -> u64 {
    u64::from(reference.index) << 32 | u64::from(reference.generation)
}

fn unpacked(word: u64) -> OpenRef {
    OpenRef { index: (word >> 32) as u32, generation: word as u32 }
}

impl Description {
    /// Opens a file.
    pub(crate) fn open(
        place: &'static Place,
        path: &Path,
        how: Opening,
        escape: &mut PathText,
    ) -> Result<Description, Stop> {
        let (session, epoch) = place.session()?;
        let makes = how.flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        let walk = path.walk(if makes { Last::Itself } else { Last::Followed });
        let (open, id) = open_somehow(session, walk, how, escape)?;
        Ok(Description {
            place,
            flags: how.flags,
            path: path.bytes().to_vec(),
            reference: AtomicU64::new(packed(open)),
            epoch: AtomicU32::new(epoch),
            id: AtomicU64::new(id),
            reopening: Lock::new(),
        })
    }

    /// The session, and the description there.
    fn here(&self) -> Result<(&'static Attached, OpenRef), Errno> {
        let (session, epoch) = self.place.session()?;
        if self.epoch.load(Acquire) != epoch {
            self.open_again(session, epoch)?;
        }
        match self.reference.load(Acquire) {
            CLOSED => Err(Errno::EBADF),
            word => Ok((session, unpacked(word))),
        }
    }

    /// The same, with a description that the daemon has made.
    fn made(&self) -> Result<(&'static Attached, OpenFile), Errno> {
        let (session, reference) = self.here()?;
        let open = session.client.open_file(reference)?;
        self.id.store(open.id().0, Relaxed);
        Ok((session, open))
    }

    #[cold]
    fn open_again(&self, session: &Attached, epoch: u32) -> Result<(), Errno> {
        // The parent may have been at it when it forked; nobody else is in the child at first.
        let _held = self.reopening.hold();
        if self.epoch.load(Acquire) == epoch {
            return Ok(());
        }
        if self.reference.load(Acquire) != CLOSED {
            let open = self.same_file(session)?;
            self.reference.store(packed(open), Release);
        }
        self.epoch.store(epoch, Release);
        Ok(())
    }

    fn same_file(&self, session: &Attached) -> Result<OpenRef, Errno> {
        let flags = self.flags & !(O_CREAT | O_EXCL | O_TRUNC);
        let new = session.owner(0);
        let id = self.id.load(Relaxed);
        let mut escape = PathText::new();
        let mut opened = |walk| session.client.open(walk, flags, new, &mut escape);
        if id != UNKNOWN
            && let Ok(opened) = opened(Walk { start: FileId(id), flags: WALK_EMPTY, path: b"" })
        {
            return Ok(opened.open);
        }
        let path = Path::of_bytes(self.path.clone());
        let opened = opened(path.walk(Last::Followed)).map_err(|stop| match stop {
            Stop::Failed(errno) => errno,
            Stop::Escaped => Errno::ESTALE,
        })?;
        if id != UNKNOWN && opened.attr.id != FileId(id) {
            if let Ok(open) = session.client.open_file(opened.open) {
                // Nobody has used it.
                let _ = session.client.close(open);
            }
            return Err(Errno::ESTALE);
        }
        self.id.store(opened.attr.id.0, Relaxed);
        Ok(opened.open)
    }

    fn appends(&self) -> bool {
        self.flags & O_APPEND != 0
    }

    pub(crate) fn size(&self) -> Result<u64, Errno> {
        let (session, reference) = self.here()?;
        if let Some(attr) = session.client.stat_leased(reference) {
            return Ok(attr.size_bytes);
        }
        let (session, open) = self.made()?;
        session.client.size(open)
    }

    fn attributes(&self) -> Result<Attr, Errno> {
        let (session, reference) = self.here()?;
        if let Some(attr) = session.client.stat_leased(reference) {
            return Ok(attr);
        }
        let (session, open) = self.made()?;
        let target = Target::Open(open.reference);
        session.client.stat(target, &mut PathText::new()).map_err(failed)
    }

    /// Reads once; fewer bytes than there is room for at the end of the file, or of what one call
    /// transfers.
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        let (session, reference) = self.here()?;
        let piece = [to.piece()];
        // SAFETY: the span is memory that a Python object holds in place for this call, and was
        // given to be written.
        if let Some(read) = unsafe { session.client.read_leased(reference, Some(offset), &piece) } {
            return read;
        }
        let (session, open) = self.made()?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        // SAFETY: as above.
        unsafe { session.client.read_at(open, offset, &piece) }
    }

    /// Reads until there is no room, or no more.
    pub(crate) fn read_whole(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        let mut done = 0;
        while done < to.bytes() {
            match self.read(offset + done as u64, to.after(done))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    /// Writes once, at `offset` or, when the description appends, at the end; the bytes written and
    /// the offset behind them.
    fn write(&self, offset: u64, from: Span) -> Result<(usize, u64), Errno> {
        let (session, reference) = self.here()?;
        let client = &session.client;
        let piece = [from.piece()];
        if let Some(promised) = client.promised(reference)
            && (self.appends() || client.position(promised) == offset)
        {
            // SAFETY: the span is memory that a Python object holds in place for this call.
            match unsafe { client.submit_content(promised, &piece) } {
                Some(submitted) => return Ok((submitted?, client.position(promised))),
                None => client.settle_to_write(promised, from.bytes()),
            }
        }
        let (_, open) = self.made()?;
        if self.appends() {
            // SAFETY: as above.
            let count = unsafe { client.write(open, &piece) }?;
            return Ok((count, client.position(open)));
        }
        let at = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
        // SAFETY: as above.
        let count = unsafe { client.write_at(open, at, &piece) }?;
        Ok((count, offset + count as u64))
    }

    /// Writes everything from the beginning on, or at the end.
    pub(crate) fn write_whole(&self, from: Span) -> Result<(), Errno> {
        let mut done = 0;
        while done < from.bytes() {
            match self.write(done as u64, from.after(done))?.0 {
                0 => return Err(Errno::EIO),
                count => done += count,
            }
        }
        Ok(())
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), Errno> {
        let (session, open) = self.made()?;
        let to = Attributes { which: SET_SIZE, size_bytes, ..Attributes::default() };
        let target = Target::Open(open.reference);
        session.client.set_attributes(target, &to, &mut PathText::new()).map(drop).map_err(failed)
    }

    fn sync(&self) -> Result<(), Errno> {
        let (session, open) = self.made()?;
        session.client.sync(open.reference)
    }

    /// Closes it. What the parent of a fork has opened stays open there. Fails with what a write
    /// failed with that was acknowledged; it is closed all the same.
    pub(crate) fn end(&self) -> Result<(), Errno> {
        let word = self.reference.swap(CLOSED, AcqRel);
        if word == CLOSED || self.epoch.load(Acquire) != fork::notice() {
            return Ok(());
        }
        let Ok((session, _)) = self.place.session() else { return Ok(()) };
        let (client, reference) = (&session.client, unpacked(word));
        if !client.close_leased(reference)
            && !client.withdraw(reference)
            && let Ok(open) = client.open_file(reference)
        {
            client.close(open)?;
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.reference.load(Acquire) == CLOSED
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        if !self.is_closed() {
            // Nobody is there to be told.
            let _ = self.end();
        }
    }
}

fn failed(stop: Stop) -> Errno {
    match stop {
        Stop::Failed(errno) => errno,
        Stop::Escaped => Errno::EIO,
    }
}

/// Opens by what is leased, or by submitting, or by asking; and which file it is, if that is known.
fn open_somehow(
    session: &Attached,
    walk: Walk<'_>,
    Opening { flags, mode }: Opening,
    escape: &mut PathText,
) -> Result<(OpenRef, u64), Stop> {
    let client = &session.client;
    if let Some(opened) = client.open_leased(&walk, flags) {
        let open = opened?;
        return Ok((open.reference, open.id().0));
    }
    let new = session.owner(mode);
    if flags & O_CREAT != 0
        && let Some(open) = client.submit_create(walk, flags, new)
    {
        return Ok((open.reference, UNKNOWN));
    }
    let opened = client.open(walk, flags, new, escape)?;
    Ok((opened.open, opened.attr.id.0))
}

/// An open file of an instance, without buffers. Offsets and sizes are bytes. Several threads may
/// use `pread` and `pwrite` of one file at a time; those that use its offset take turns by
/// themselves. Methods raise OSError as the system calls do, and ValueError when it is closed.
#[pyclass(frozen, module = "mayfly._native")]
pub(crate) struct File {
    description: Description,
    path: Path,
    position: AtomicU64,
}

impl File {
    pub(crate) fn new(description: Description, path: Path) -> File {
        File { description, path, position: AtomicU64::new(0) }
    }

    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Description) -> Result<R, Errno> + Send,
    ) -> PyResult<R> {
        if self.description.is_closed() {
            return Err(PyValueError::new_err("I/O operation on closed file"));
        }
        let done = py.detach(|| work(&self.description));
        done.map_err(|errno| os_error(errno, Some(self.path.shown(py))))
    }

    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
        work: impl FnOnce(&Description, Span) -> Result<usize, Errno> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // What is not there needs no memory.
        let size = self.with(py, Description::size)?;
        let there = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(there);
        let (bytes, span) = unset_bytes(py, length)?;
        let count = self.with(py, |description| work(description, span))?;
        Ok(if count == length { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..count]) })
    }
}

#[pymethods]
impl File {
    /// The path with which it was opened.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.path.shown(py)
    }

    /// Is it closed?
    #[getter]
    fn closed(&self) -> bool {
        self.description.is_closed()
    }

    fn readable(&self) -> bool {
        self.description.flags & O_ACCMODE != O_WRONLY
    }

    fn writable(&self) -> bool {
        self.description.flags & O_ACCMODE != O_RDONLY
    }

    /// Up to `length` bytes at `offset`, fewer only at the end of the file.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.read_bytes(py, length, offset, |description, span| {
            description.read_whole(offset, span)
        })
    }

    /// Reads into a writable buffer at `offset`; the number of bytes, fewer than it has room for
    /// only at the end of the file.
    fn preadinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let memory = Memory::to_write(buffer)?;
        let span = memory.span();
        self.with(py, |description| description.read_whole(offset, span))
    }

    /// Writes at `offset`, or at the end of a file that was opened to append; the number of bytes.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let memory = Memory::to_read(data)?;
        let span = memory.span();
        self.with(py, |description| description.write(offset, span)).map(|(count, _)| count)
    }

    /// Reads into a writable buffer at the file's offset; the number of bytes, 0 at the end.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let memory = Memory::to_write(buffer)?;
        let span = memory.span();
        let offset = self.position.load(Relaxed);
        let count = self.with(py, |description| description.read(offset, span))?;
        self.position.store(offset + count as u64, Relaxed);
        Ok(count)
    }

    /// Up to `size` bytes at the file's offset; to the end when it is negative.
    #[pyo3(signature = (size=-1))]
    fn read<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let offset = self.position.load(Relaxed);
        let bytes = self.pread(py, length, offset)?;
        self.position.store(offset + bytes.as_bytes().len() as u64, Relaxed);
        Ok(bytes)
    }

    /// Writes at the file's offset, or at the end; the number of bytes, which may be fewer than
    /// were given.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let memory = Memory::to_read(data)?;
        let span = memory.span();
        let offset = self.position.load(Relaxed);
        let (count, end) = self.with(py, |description| description.write(offset, span))?;
        self.position.store(end, Relaxed);
        Ok(count)
    }

    /// Moves the file's offset: from the beginning (0), from where it is (1), from the end (2).
    #[pyo3(signature = (offset, whence=0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: u32) -> PyResult<u64> {
        let from = match whence {
            0 => 0,
            1 => self.position.load(Relaxed),
            2 => self.with(py, Description::size)?,
            _ => return Err(PyValueError::new_err("whence is 0, 1 or 2")),
        };
        let to = i64::try_from(from).ok().and_then(|from| from.checked_add(offset));
        let Some(to) = to.and_then(|to| u64::try_from(to).ok()) else {
            return Err(os_error(Errno::EINVAL, Some(self.path.shown(py))));
        };
        self.position.store(to, Relaxed);
        Ok(to)
    }

    /// The file's offset.
    fn tell(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// Sets the length, bytes; to the offset when none is said. Returns it.
    #[pyo3(signature = (size=None))]
    fn truncate(&self, py: Python<'_>, size: Option<u64>) -> PyResult<u64> {
        let size = size.unwrap_or_else(|| self.position.load(Relaxed));
        self.with(py, |description| description.set_size(size))?;
        Ok(size)
    }

    /// Makes the content durable, as far as the instance promises durability.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Description::sync)
    }

    /// Attributes of the file.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.with(py, Description::attributes).map(Stat)
    }

    /// A descriptor of the kernel's, to map the file's bytes with; the caller closes it. OSError
    /// with ENODEV when they are not all on this node.
    fn map_descriptor(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |description| {
            let (session, open) = description.made()?;
            let mut path = PathText::new();
            let object = session.client.own_object(open, O_RDONLY, &mut path)?;
            Ok(std::mem::ManuallyDrop::new(object).descriptor)
        })
    }

    /// Closes it; nothing happens when it is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.description.is_closed() {
            return Ok(());
        }
        py.detach(|| self.description.end()).map_err(|errno| os_error(errno, None))
    }
}
