//! Bytes that go back: those of an object, and of a file that is not all here the rest from the
//! master copy.

use std::{
    fs::File,
    io::{Error, ErrorKind, Read, Result},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use mayfly_types::{Errno, OBJECT_MAPPED, Timestamp};
use mayfly_wire::{
    TierItem,
    tier::{TIER_INCOMPLETE, TIER_PARTLY, TIER_UNSETTLED, TierParts},
};

use crate::place::io_errno;

/// The object whose bytes go back.
pub(crate) struct Object {
    pub(crate) file: File,
    /// So many of its bytes go.
    pub(crate) limit: u64,
    /// How long it is.
    pub(crate) bytes: u64,
    /// The file's time.
    pub(crate) mtime: Timestamp,
    /// It may be mapped.
    pub(crate) mapped: bool,
}

impl Object {
    pub(crate) fn open(item: &TierItem<'_>, path: &Path) -> std::result::Result<Object, Errno> {
        let file = File::open(path).map_err(|error| io_errno(&error))?;
        let metadata = file.metadata().map_err(|error| io_errno(&error))?;
        let is_settled = item.which & TIER_UNSETTLED == 0;
        let limit = if is_settled { item.attr.size_bytes } else { u64::MAX };
        // Where something is missing, fetches change the object's time.
        let mtime = match is_settled || item.which & (TIER_PARTLY | TIER_INCOMPLETE) != 0 {
            true => item.attr.mtime,
            false => {
                let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
                Timestamp { seconds: metadata.mtime(), nanoseconds }
            }
        };
        let mapped = metadata.mode() & OBJECT_MAPPED != 0;
        Ok(Object { file, limit, bytes: metadata.len(), mtime, mapped })
    }
}

/// Reads the file from its beginning. `master` reads at an offset, into the buffer that it is
/// given; it is told where what is wanted of it ends.
pub(crate) struct Merged<'a, M> {
    object: File,
    bytes: u64,
    at: u64,
    parts: TierParts<'a>,
    master: M,
}

impl<'a, M: FnMut(u64, u64, &mut [u8]) -> Result<usize>> Merged<'a, M> {
    pub(crate) fn new(object: Object, parts: TierParts<'a>, master: M) -> Merged<'a, M> {
        let Object { file, limit, bytes, .. } = object;
        Merged { object: file, bytes: bytes.min(limit), at: 0, parts, master }
    }
}

impl<M: FnMut(u64, u64, &mut [u8]) -> Result<usize>> Read for Merged<'_, M> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        if self.at >= self.bytes || to.is_empty() {
            return Ok(0);
        }
        let (is_here, end) = self.parts.run_at(self.at);
        let end = end.min(self.bytes);
        let most = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(to.len());
        let to = &mut to[..most];
        let count = match is_here {
            true => self.object.read_at(to, self.at)?,
            false => (self.master)(self.at, end, to)?,
        };
        match (count, is_here) {
            (0, true) => return Err(ErrorKind::UnexpectedEof.into()),
            // It has become shorter, and is another one.
            (0, false) => return Err(Error::from_raw_os_error(Errno::ESTALE.raw())),
            _ => self.at += count as u64,
        }
        Ok(count)
    }
}
