//! Listing a directory.
//!
//! The offset of an entry is the daemon's cookie for the one after it, so a listing holds no state
//! here, however long it is, and any position that a program remembers stays good. Attributes
//! travel with the names only where they are valid for some time: otherwise they would be asked for
//! again, and each name would make the kernel keep a node.

use mayfly_types::{Errno, FileId, limits::TRANSFER_BYTES_MAX};
use mayfly_wire::listing::{Entry, entries};

use crate::{
    kernel::abi::{Body, Fields, Header},
    server::Server,
};

use super::attributes::named;

/// Room that every name fits into.
const PAGE_BYTES_MIN: usize = 1024;
/// How many times longer than its name alone an entry with attributes is, at least.
const NAMES_SHARE: usize = 4;

impl Server {
    pub(super) fn read_directory(
        &self,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let (handle, cookie, room) = (fields.u64()?, fields.u64()?, fields.u32()? as usize);
        let open = self.handle(handle)?;
        let bytes_max = room.clamp(PAGE_BYTES_MIN, TRANSFER_BYTES_MAX);
        self.client.list(open, cookie, bytes_max, |packed| {
            each_fitting(packed, body, |body, entry| body.dirent(room, entry))
        })
    }

    /// The same with attributes, which the daemon's records have.
    pub(super) fn read_directory_plus(
        &self,
        header: &Header,
        mut fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let (handle, cookie, room) = (fields.u64()?, fields.u64()?, fields.u32()? as usize);
        let open = self.handle(handle)?;
        let directory = FileId(header.node);
        // Names take less room in the daemon's answer than in this one.
        let mut names = Vec::new();
        let bytes_max = (room / NAMES_SHARE).clamp(PAGE_BYTES_MIN, TRANSFER_BYTES_MAX);
        self.client.list(open, cookie, bytes_max, |packed| {
            names.extend_from_slice(packed);
            Ok(())
        })?;
        each_fitting(&names, body, |body, entry| {
            let fits = body.has_room_for(room, entry.name);
            if fits {
                self.tell_listed(directory, entry, body);
                body.dirent(room, entry);
            }
            fits
        })
    }

    /// A name that is gone or another file's by now comes without attributes.
    fn tell_listed(&self, directory: FileId, entry: &Entry<'_>, body: &mut Body) {
        if matches!(entry.name, b"." | b"..") {
            body.no_entry();
            return;
        }
        match self.stat(named(directory, entry.name)) {
            Ok(attr) if attr.id == entry.id => self.tell(&attr, directory, entry.name, body),
            _ => drop(body.no_entry()),
        }
    }
}

/// Gives names to `put` until one does not fit.
fn each_fitting(
    packed: &[u8],
    body: &mut Body,
    mut put: impl FnMut(&mut Body, &Entry<'_>) -> bool,
) -> Result<(), Errno> {
    for entry in entries(packed) {
        if !put(body, &entry.map_err(|_| Errno::EIO)?) {
            // No answer at all would be the end of the directory.
            return if body.bytes().is_empty() { Err(Errno::EINVAL) } else { Ok(()) };
        }
    }
    Ok(())
}
