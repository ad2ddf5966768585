//! Writing to files that were submitted a moment ago and are not made yet.
//!
//! What fits into the record of such a file goes there. What is longer goes to an object that this
//! process makes for the file, under the name that follows from the identity that it was promised.
//! Nothing is asked for in either case; what cannot be done so has the description made and is
//! written to that.

use mayfly_sys::{
    file::{self, IoVec, O_ACCMODE, O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_RDWR},
    process,
    text::PathText,
};
use mayfly_transport::Transport;
use mayfly_transport_shm::tally::{Kind, Way};
use mayfly_types::{Errno, FIRST_OBJECT, FileId, ObjectPath, limits::INLINE_BYTES_MAX};

use super::{pieces::Pieces, write_pieces_to};
use crate::{Client, Descriptors, OpenFile, counted::Transfer, objects::ObjectFile, open::offset};

/// Owner only, as the daemon makes them.
const OBJECT_MODE: u32 = 0o700;

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Writes to a file that was submitted a moment ago, and moves the offset, without waiting for
    /// anybody. `None` when the description has to be made and written to.
    ///
    /// # Safety
    /// As [`Client::write`].
    pub unsafe fn submit_content(
        &self,
        open: OpenFile,
        from: &[IoVec],
    ) -> Option<Result<usize, Errno>> {
        let position = offset::hold(open).ok()?;
        // SAFETY: passed on to the caller.
        let (end, count) = match unsafe { self.submit_content_at(open, position.get(), from) }? {
            Ok(done) => done,
            Err(errno) => return Some(Err(errno)),
        };
        position.set(end);
        Some(Ok(count))
    }

    /// The same at `offset`, or at the end if the description appends: where the bytes end, and how
    /// many they are.
    ///
    /// # Safety
    /// As [`Client::write`].
    pub unsafe fn submit_content_at(
        &self,
        open: OpenFile,
        offset: u64,
        from: &[IoVec],
    ) -> Option<Result<(u64, usize), Errno>> {
        let pieces = Pieces::new(from).ok()?;
        let bytes = pieces.left();
        if bytes == 0 || bytes > INLINE_BYTES_MAX {
            return None;
        }
        if process::limit(process::RLIMIT_FSIZE).soft < INLINE_BYTES_MAX as u64 {
            return None;
        }
        let began = self.begin(bytes);
        let mut fill = |to: &mut [u8]| {
            // SAFETY: passed on to the caller.
            let count = unsafe { pieces.gather(to) }?;
            if count == bytes { Ok(count) } else { Err(Errno::EFAULT) }
        };
        let added = self.transport.submit_content(open.reference, offset, bytes, &mut fill)?;
        let (kind, way, reference) = (Kind::Write, Way::Unawaited, open.reference);
        if added == Err(Errno::EFAULT) {
            // The bytes that can be read are written in another way.
            return None;
        }
        let offset = added.map_or(offset, |end| end.saturating_sub(bytes as u64));
        self.transferred(Transfer { kind, way, reference, offset, began }, &added.map(|_| bytes));
        Some(added.map(|end| (end, bytes)))
    }

    /// Reads from a file that was submitted a moment ago, without waiting for anybody: at `offset`,
    /// or at the file offset, which moves. `None` when the description has to be made and read.
    ///
    /// # Safety
    /// As [`Client::read`].
    pub unsafe fn read_submitted(
        &self,
        open: OpenFile,
        offset: Option<u64>,
        to: &[IoVec],
    ) -> Option<Result<usize, Errno>> {
        let position = match offset {
            Some(_) => None,
            None => Some(offset::hold(open).ok()?),
        };
        let from = offset.or(position.as_ref().map(|position| position.get()))?;
        let mut pieces = Pieces::new(to).ok()?;
        let (reference, began) = (open.reference, self.begin(pieces.left()));
        let mut done = None;
        let is_read = self.transport.read_submitted(reference, &mut |flags, content| {
            let may_read = matches!(flags & O_ACCMODE, O_RDONLY | O_RDWR);
            let start = usize::try_from(from).unwrap_or(usize::MAX).min(content.len());
            let left = content.get(start..).unwrap_or_default();
            // SAFETY: passed on to the caller.
            done = may_read.then(|| unsafe { pieces.scatter(left) });
        });
        let done = done.filter(|_| is_read)?;
        if let (Some(position), Ok(count)) = (position, done) {
            position.set(from + count as u64);
        }
        let (kind, way) = (Kind::Read, Way::Itself);
        self.transferred(Transfer { kind, way, reference, offset: from, began }, &done);
        Some(done)
    }

    /// The flags with which a file was opened that was submitted a moment ago.
    #[must_use]
    pub fn promised_flags(&self, open: OpenFile) -> Option<u32> {
        let mut opened = 0;
        let take = &mut |flags, _: &[u8]| opened = flags;
        self.transport.read_submitted(open.reference, take).then_some(opened)
    }

    /// The length of a file that was submitted a moment ago.
    pub(crate) fn submitted_size(&self, open: OpenFile) -> Option<u64> {
        let mut size = 0;
        let take = &mut |_, content: &[u8]| size = content.len() as u64;
        self.transport.read_submitted(open.reference, take).then_some(size)
    }

    /// The same by an object that this process makes for the file, or has made. Its umask must not
    /// keep the owner from anything.
    ///
    /// # Safety
    /// As [`Client::write`].
    pub unsafe fn submit_object(
        &self,
        open: OpenFile,
        from: &[IoVec],
    ) -> Option<Result<usize, Errno>> {
        let pieces = Pieces::new(from).ok()?;
        let (bytes, id) = (pieces.left(), open.id());
        let position = offset::hold(open).ok()?;
        let offset = position.get();
        let end = offset.checked_add(bytes as u64)?;
        // The signal for a write beyond that is sent once.
        if bytes == 0 || id == FileId::NONE || process::limit(process::RLIMIT_FSIZE).soft < end {
            return None;
        }
        let (reference, began) = (open.reference, self.begin(bytes));
        // SAFETY: passed on to the caller.
        let count = unsafe {
            match self.transport.submitted_object_end(reference) {
                Some(limit) if end <= limit => self.write_promised(open, offset, pieces),
                Some(_) => None,
                None => self.make_promised(open, (offset, end), pieces),
            }
        }?;
        position.set(offset + count as u64);
        let (kind, way) = (Kind::Write, Way::Itself);
        self.transferred(Transfer { kind, way, reference, offset, began }, &Ok(count));
        Some(Ok(count))
    }

    /// # Safety
    /// As [`Client::write`].
    unsafe fn write_promised(
        &self,
        open: OpenFile,
        offset: u64,
        pieces: Pieces<'_>,
    ) -> Option<usize> {
        let object = self.objects.promised(open.id())?;
        // SAFETY: passed on to the caller.
        let count = unsafe { write_pieces_to(object.descriptor, offset, pieces) }.ok()?;
        // Otherwise somebody may have changed the file since, and it is written once more.
        self.transport.submitted_object_end(open.reference)?;
        Some(count)
    }

    /// Makes the object, with the content that the file has and these bytes behind it.
    ///
    /// # Safety
    /// As [`Client::write`].
    unsafe fn make_promised(
        &self,
        open: OpenFile,
        (offset, end): (u64, u64),
        pieces: Pieces<'_>,
    ) -> Option<usize> {
        let id = open.id();
        let path = PathText::from_bytes(ObjectPath::of(id, FIRST_OBJECT).as_bytes()).ok()?;
        let (mut is_there, mut written) = (false, None);
        let made = self.transport.submit_object(open.reference, (offset, end), &mut |content| {
            let Ok(object) = self.create_object(id, &path) else { return false };
            is_there = true;
            // SAFETY: passed on to the caller; the content is in memory of ours.
            written = unsafe { fill(&object, content, pieces) };
            written.is_some() && self.objects.keep_promised(id, object).is_ok()
        });
        if !made && is_there {
            // It cannot have become the file's. If it stays its mark has it removed.
            let _ = file::remove(self.objects.directory.0, &path);
        }
        written.filter(|_| made)
    }

    /// An object that was not there.
    fn create_object(&self, id: FileId, path: &PathText) -> Result<ObjectFile, Errno> {
        let directory = self.objects.directory.0;
        let flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
        let create = || file::open_at(directory, path, flags, OBJECT_MODE);
        let created = match create() {
            Err(Errno::ENOENT) => {
                let parent = PathText::from_bytes(ObjectPath::of(id, FIRST_OBJECT).directory())?;
                match file::make_directory(directory, &parent, OBJECT_MODE) {
                    Ok(()) | Err(Errno::EEXIST) => create(),
                    Err(errno) => Err(errno),
                }
            }
            created => created,
        };
        created.map(|descriptor| ObjectFile { descriptor })
    }
}

/// Writes content, and pieces behind it; how much of these, unless it is none.
///
/// # Safety
/// As [`Client::write`].
unsafe fn fill(object: &ObjectFile, content: &[u8], pieces: Pieces<'_>) -> Option<usize> {
    if !content.is_empty() {
        // SAFETY: the kernel reads what is borrowed here.
        let written =
            unsafe { file::write_at(object.descriptor, content.as_ptr(), content.len(), 0) };
        if written != Ok(content.len()) {
            return None;
        }
    }
    // SAFETY: passed on to the caller.
    let written = unsafe { write_pieces_to(object.descriptor, content.len() as u64, pieces) };
    written.ok().filter(|count| *count > 0)
}
