//! Listing a directory.
//!
//! The offset of an entry is the daemon's cookie for the one after it, so a listing holds no state
//! here, however long it is, and any position that a program remembers stays good. Attributes do
//! not travel with the names: they would be valid for no time, and each name would make the kernel
//! keep a node.

use mayfly_types::{Errno, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::listing::entries;

use crate::{
    abi::{Body, Fields},
    server::Server,
};

/// Room that every name fits into.
const PAGE_BYTES_MIN: usize = 1024;

impl Server {
    pub(crate) fn read_directory(
        &self,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let (handle, cookie, room) = (fields.u64()?, fields.u64()?, fields.u32()? as usize);
        let open = self.handle(handle)?;
        let bytes_max = room.clamp(PAGE_BYTES_MIN, TRANSFER_BYTES_MAX);
        self.client.list(open, cookie, bytes_max, |packed| {
            for entry in entries(packed) {
                let entry = entry.map_err(|_| Errno::EIO)?;
                if !body.dirent(room, &entry) {
                    // No answer at all would be the end of the directory.
                    return if body.bytes().is_empty() { Err(Errno::EINVAL) } else { Ok(()) };
                }
            }
            Ok(())
        })
    }
}
