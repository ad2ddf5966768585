//! lseek.

use mayfly_sys::file;
use mayfly_transport::Transport;
use mayfly_types::{Errno, FileKind};
use mayfly_wire::Seek;

use crate::{Client, Descriptors, OpenFile, objects::Need, open::offset};

pub(crate) const SEEK_SET: usize = 0;
pub(crate) const SEEK_CUR: usize = 1;
pub(crate) const SEEK_END: usize = 2;
const SEEK_DATA: usize = 3;
const SEEK_HOLE: usize = 4;

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Moves the file offset of a description that was promised, as far as it need not be made for
    /// that.
    #[must_use]
    pub fn seek_promised(
        &self,
        open: OpenFile,
        distance: i64,
        whence: usize,
    ) -> Option<Result<u64, Errno>> {
        let position = offset::hold(open).ok()?;
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => position.get(),
            SEEK_END => self.submitted_size(open)?,
            _ => return None,
        };
        Some(offset::sum(from, distance).inspect(|to| position.set(*to)))
    }

    /// Moves the file offset. For a directory it is the cookie of the next entry.
    ///
    /// # Errors
    /// EINVAL, ENXIO, EBADF as lseek.
    pub fn seek(&self, open: OpenFile, distance: i64, whence: usize) -> Result<u64, Errno> {
        if open.is_path() {
            return Err(Errno::EBADF);
        }
        let position = offset::hold(open)?;
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => position.get(),
            SEEK_END | SEEK_DATA | SEEK_HOLE if open.kind() == FileKind::Directory => {
                return Err(Errno::EINVAL);
            }
            SEEK_END => self.size(open)?,
            SEEK_DATA | SEEK_HOLE => {
                let found = self.seek_content(open, distance, whence)?;
                position.set(found);
                return Ok(found);
            }
            _ => return Err(Errno::EINVAL),
        };
        offset::sum(from, distance).inspect(|to| position.set(*to))
    }

    fn seek_content(&self, open: OpenFile, from: i64, whence: usize) -> Result<u64, Errno> {
        let from = u64::try_from(from).map_err(|_| Errno::ENXIO)?;
        if let Some(object) = self.object(open, Need::Look)? {
            let found = file::seek(object.descriptor, from as i64, whence);
            if !self.revoked(open, &object) {
                return found;
            }
        }
        let seek = Seek { open: open.reference, offset: from, hole: whence == SEEK_HOLE };
        self.ask(&seek, |sought| Ok(sought.offset))
    }
}
