//! What the entry of a description that is leased tells by itself.

use core::sync::atomic::Ordering::Relaxed;

use mayfly_transport::Transport;
use mayfly_types::{Errno, FileId, OpenRef};

use crate::{
    Client, Descriptors, OpenFile,
    data::seeking::{SEEK_CUR, SEEK_END, SEEK_SET},
    open::offset,
};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Where the file of a description that is leased was found: the directory, and how many bytes
    /// the name has that is written to `name`.
    pub(crate) fn leased_name(&self, reference: OpenRef, name: &mut [u8]) -> Option<(u64, usize)> {
        let leased = self.leased(reference)?;
        let birth = leased.leases.births.get(leased.place)?;
        let mut found = Default::default();
        let (directory, found) = birth.read(&mut found);
        name.get_mut(..found.len())?.copy_from_slice(found);
        Some((directory.0, found.len()))
    }

    /// Moves the offset of a description that is leased.
    #[must_use]
    pub fn seek_leased(
        &self,
        reference: OpenRef,
        distance: i64,
        whence: usize,
    ) -> Option<Result<u64, Errno>> {
        let leased = self.leased(reference)?;
        let position = offset::hold(OpenFile { reference, entry: leased.entry }).ok()?;
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => position.get(),
            SEEK_END => self.stat_leased(reference)?.size_bytes,
            _ => return None,
        };
        Some(offset::sum(from, distance).inspect(|to| position.set(*to)))
    }

    /// The file of a description that is leased.
    #[must_use]
    pub fn leased_file(&self, reference: OpenRef) -> Option<FileId> {
        self.leased(reference).map(|leased| FileId(leased.entry.id.load(Relaxed)))
    }

    /// Status flags of a description that is leased.
    #[must_use]
    pub fn leased_flags(&self, reference: OpenRef) -> Option<u32> {
        self.leased(reference).map(|leased| leased.entry.flags.load(Relaxed))
    }
}
