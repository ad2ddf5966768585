//! Listing a directory.
//!
//! The offset of an entry is the daemon's cookie for the one after it, so a listing holds no state
//! here, however long it is, and any position that a program remembers stays good. Attributes
//! travel with the names only where they are valid for some time: otherwise they would be asked for
//! again, and each name would make the kernel keep a node.

use mayfly_types::{
    Errno, FileId,
    limits::{LEASED_NAMES_MAX, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{
    listing::{Entry, entries},
    notices::{LEASED_ATTRIBUTES, LEASED_NOTHING},
};

use crate::{
    kernel::abi::{Body, Fields, Header},
    memory::believed::{Key, Leased},
    server::{Server, Work},
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
        work: &mut Work,
    ) -> Result<(), Errno> {
        let body = &mut work.body;
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
        let listed = entries(&names).map_while(Result::ok).filter(|entry| !is_dots(entry.name));
        let listed: Vec<&[u8]> = listed.map(|entry| entry.name).take(LEASED_NAMES_MAX).collect();
        let asked = if self.leases() { self.ask_for(directory, &listed) } else { None };
        let mut leases = asked.iter().flat_map(|asked| asked.what.iter().copied());
        let mut leased = Vec::new();
        each_fitting(&names, body, |body, entry| {
            let fits = body.has_room_for(room, entry.name);
            if fits {
                let at = body.bytes().len();
                let what = if is_dots(entry.name) { None } else { leases.next() };
                let told = self.tell_listed(directory, entry, body);
                if told && let Some(what) = what.filter(|what| *what != LEASED_NOTHING) {
                    let key = Key { directory, name: entry.name.into() };
                    let attributes = what == LEASED_ATTRIBUTES;
                    leased.push(Leased { key, id: entry.id, at, entry: true, attributes });
                }
                body.dirent(room, entry);
            }
            fits
        })?;
        // The directory's lock is held until the kernel has taken the listing in.
        work.promise = asked.map(|asked| asked.promise(None, leased));
        Ok(())
    }

    /// A name that is gone or another file's by now comes without attributes, and false.
    fn tell_listed(&self, directory: FileId, entry: &Entry<'_>, body: &mut Body) -> bool {
        if is_dots(entry.name) {
            body.no_entry();
            return false;
        }
        match self.stat(named(directory, entry.name)) {
            Ok(attr) if attr.id == entry.id => {
                self.tell(&attr, directory, entry.name, body);
                true
            }
            _ => {
                body.no_entry();
                false
            }
        }
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
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
