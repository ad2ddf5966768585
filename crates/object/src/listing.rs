//! A page of objects out of more than fit.
//!
//! A directory tells its names in no order, so for a page all of them are looked at; those that
//! come first after where the page begins are kept.

use std::{collections::BTreeSet, os::fd::OwnedFd};

use mayfly_types::Errno;
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};

use crate::{Listed, ObjectId};

/// Directories of objects.
const DIRECTORIES: u64 = 256;

/// The first objects after some point, at most so many.
pub(crate) struct Page {
    after: Option<(u64, ObjectId)>,
    count_max: usize,
    first: BTreeSet<(u64, ObjectId)>,
}

impl Page {
    pub(crate) fn new(after: Option<ObjectId>, count_max: usize) -> Page {
        Page { after: after.map(ObjectId::place), count_max, first: BTreeSet::new() }
    }

    pub(crate) fn offer(&mut self, id: ObjectId) {
        let place = id.place();
        if self.after.is_some_and(|after| place <= after) {
            return;
        }
        self.first.insert(place);
        if self.first.len() > self.count_max {
            self.first.pop_last();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.first.len() >= self.count_max
    }

    pub(crate) fn sorted(self) -> impl Iterator<Item = ObjectId> {
        self.first.into_iter().map(|(_, id)| id)
    }
}

/// A page of what an object directory holds. Files that are no objects are not the store's.
pub(crate) fn list(
    root: &OwnedFd,
    after: Option<ObjectId>,
    count_max: usize,
) -> Result<Vec<Listed>, rustix::io::Errno> {
    let mut page = Page::new(after, count_max);
    for directory in after.map_or(0, ObjectId::directory)..DIRECTORIES {
        if page.is_full() {
            break;
        }
        offer_directory(root, &format!("{directory:02x}"), &mut page)?;
    }
    let mut listed = Vec::with_capacity(page.first.len());
    for id in page.sorted() {
        match fs::statat(root, id.path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => listed.push(Listed {
                id,
                size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            }),
            // Removed meanwhile. Who looks must not take a short page for the end.
            Err(rustix::io::Errno::NOENT) => {
                listed.push(Listed { id, size_bytes: 0, blocks: 0 });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

fn offer_directory(root: &OwnedFd, name: &str, page: &mut Page) -> Result<(), rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match fs::openat(root, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    for entry in Dir::new(opened)? {
        let entry = entry?;
        let found = entry.file_name().to_str().ok();
        if let Some(id) = found.and_then(|file| ObjectId::of_path(&format!("{name}/{file}"))) {
            page.offer(id);
        }
    }
    Ok(())
}

/// The same errors as the rest of the store has them.
pub(crate) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error()).unwrap_or(Errno::EIO)
}
