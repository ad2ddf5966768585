//! Telling of changes of files of which mounts may keep pages.
//!
//! The mark of such a file stands in its entry of the node's table. It is looked at after each
//! change: a mark that comes later belongs to pages that are read later, with the change in them.
//! That is one look at memory where nobody has mapped the file.

use core::sync::atomic::{Ordering, fence};

use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::layout::FILE_MAPPED;
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{Lease, Leased, Map, Notices, Tell, Watch};

use crate::{Client, Descriptors, OpenFile};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Leaves it to the caller to tell of what this client changes.
    pub fn leave_telling(&mut self) {
        self.notifies = false;
    }

    /// May mounts keep pages of the file?
    #[must_use]
    pub fn is_mapped(&self, open: OpenFile) -> bool {
        // The change comes before the look: the change may be one of memory, by this processor.
        fence(Ordering::SeqCst);
        self.file_entry(open)
            .is_ok_and(|(_, entry)| entry.flags.load(Ordering::Acquire) & FILE_MAPPED != 0)
    }

    /// Bytes from `start` up to `end`, or the length, were changed by this client.
    pub(crate) fn changed(&self, open: OpenFile, start: u64, end: u64) {
        self.tell_written(open.id());
        if self.notifies && self.is_mapped(open) {
            self.tell(open.reference, start, end);
        }
    }

    /// Waits until the mounts but the caller's own have given up pages from `start` up to `end`,
    /// for a moment at most: the change was made, whether they hear of it or not.
    pub fn tell(&self, open: OpenRef, start: u64, end: u64) {
        self.transport.exchange(&Tell { open, start, end }, Patience::Brief, |_| ());
    }

    /// The kernel of the caller's mount begins to keep pages of the file.
    ///
    /// # Errors
    /// EIO, EBADF: others may not tell of their changes.
    pub fn map(&self, open: OpenRef) -> Result<(), Errno> {
        self.ask(&Map { open }, Ok)
    }

    /// Asks for leases of names that the kernel of the caller's mount wants to believe.
    ///
    /// # Errors
    /// EIO; those of `take`.
    pub fn lease<R>(&self, names: &[u8], take: impl FnOnce(&Leased<'_>) -> R) -> Result<R, Errno> {
        self.ask(&Lease { names }, |leased| Ok(take(&leased)))
    }

    /// From now on changes of files that the caller's mount has mapped are kept for
    /// [`Client::watch`].
    ///
    /// # Errors
    /// EIO.
    pub fn begin_watching(&self) -> Result<(), Errno> {
        self.ask(&Watch {}, |_| Ok(()))
    }

    /// Waits for changes of files that the caller's mount has mapped, for ever. The call says that
    /// the caller has dealt with the changes that the last one handed to `take`.
    ///
    /// # Errors
    /// EIO when the daemon is lost; those of `take`.
    pub fn watch<R>(
        &self,
        take: impl FnOnce(&Notices<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.transport.exchange(&Watch {}, Patience::Endless, |answer| match answer {
            Answer::Done(notices) => take(&notices),
            Answer::Failed(errno) => Err(errno),
            Answer::Escaped(_) => Err(Errno::EIO),
        })
    }
}
