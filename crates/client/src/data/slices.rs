//! Reading and writing memory of the caller's own. This is for skins that serve calls of other
//! processes by messages: they never see a pointer of the host's.

use core::sync::atomic::Ordering::Relaxed;

use mayfly_sys::file::IoVec;
use mayfly_transport::Transport;
use mayfly_types::Errno;

use super::check_readable;
use crate::{Client, Descriptors, OpenFile, objects::Need};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Reads at `offset`; fewer bytes than there is room for only at the end of the file.
    ///
    /// # Errors
    /// As pread.
    pub fn read_slice(&self, open: OpenFile, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let piece = [IoVec { base: to.as_mut_ptr(), bytes: to.len() }];
        // SAFETY: the piece is the slice, which nobody else sees meanwhile.
        unsafe { self.read_at(open, offset, &piece) }
    }

    /// Has `step` read the file's object by itself. Offsets and length are those of the file.
    /// `None` when this process may use no object, or may not any more when `step` is done.
    ///
    /// # Errors
    /// As pread, and those of `step`.
    pub fn with_object<R>(
        &self,
        open: OpenFile,
        step: impl FnOnce(i32) -> Result<R, Errno>,
    ) -> Result<Option<R>, Errno> {
        check_readable(open)?;
        let Some(object) = self.object(open, Need::Look)? else { return Ok(None) };
        let done = step(object.descriptor);
        if self.revoked(open, &object) { Ok(None) } else { done.map(Some) }
    }

    /// As [`Client::submit_content`], by who knows at which offset. `None` also when that is not
    /// where the file ends: then the description has to be made.
    #[must_use]
    pub fn submit_slice(
        &self,
        open: OpenFile,
        offset: u64,
        from: &[u8],
    ) -> Option<Result<usize, Errno>> {
        if open.entry.offset.load(Relaxed) != offset {
            return None;
        }
        // The bytes to write are only read.
        let piece = [IoVec { base: from.as_ptr().cast_mut(), bytes: from.len() }];
        // SAFETY: the piece is the slice, which nobody changes meanwhile.
        unsafe { self.submit_content(open, &piece) }
    }

    /// Writes at `offset`, or with `None` at the end of the file.
    ///
    /// # Errors
    /// As pwrite.
    pub fn write_slice(
        &self,
        open: OpenFile,
        offset: Option<u64>,
        from: &[u8],
    ) -> Result<usize, Errno> {
        // The bytes to write are only read.
        let piece = [IoVec { base: from.as_ptr().cast_mut(), bytes: from.len() }];
        match offset {
            Some(offset) => {
                let offset = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
                // SAFETY: the piece is the slice, which nobody changes meanwhile.
                unsafe { self.write_at(open, offset, &piece) }
            }
            // SAFETY: as above.
            None => unsafe { self.write_at_end(open, &piece) },
        }
    }
}
