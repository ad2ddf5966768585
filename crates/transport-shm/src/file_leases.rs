//! Descriptions that are leased: a process opens a small file for reading without asking.
//!
//! What a small file holds is in the daemon's records, which processes read by themselves. That a
//! file is *open* the daemon must know only when its last name goes: it would free it. So it leases
//! a process some entries of the node's table. The process finds the file in the records, writes
//! its identity into the entry and into [`SessionLeases::files`], and then looks at the records'
//! version: is it the one at which the file was found, no transaction began before what was written
//! could be seen. The daemon looks at all leased entries behind a fence, after it has begun the
//! transaction in which a file's last name goes, and makes a description of its own of each that is
//! about this file. Such words are known as hazard pointers (Michael, 2004).
//!
//! An entry's state tells whose turn it is. Only the process goes from [`OPEN_LEASED`] by
//! [`OPEN_LEASED_BUSY`] to [`OPEN_LEASED_USED`] and back, only the daemon goes from there by
//! [`OPEN_LEASED_RECALLED`] to `OPEN_PRIVATE`; each by compare-and-swap. While it is leased, the
//! process counts the generation up when it closes.
//!
//! Whatever a process cannot do by the records, it first has the daemon make a description of the
//! entry: it says which in [`SessionLeases::wanted`] and sends a `Ping`.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use mayfly_types::FileId;

use crate::{
    layout::{OPEN_LEASED, OPEN_LEASED_BUSY, OPEN_LEASED_RECALLED, OPEN_LEASED_USED},
    words,
};

/// Descriptions that a process is leased.
pub const FILE_LEASES_MAX: usize = 8;
/// Longest name under which a file may be found again, bytes.
pub const LEASED_NAME_BYTES_MAX: usize = 80;
const NAME_WORDS: usize = LEASED_NAME_BYTES_MAX / 8;

/// Does an entry of this state belong to a process that it is leased to?
#[must_use]
pub fn is_leased(state: u32) -> bool {
    matches!(state, OPEN_LEASED | OPEN_LEASED_BUSY | OPEN_LEASED_USED | OPEN_LEASED_RECALLED)
}

/// What is leased to a session.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct SessionLeases {
    /// Of each place, the file that is read by it; 0: none. Written by the process. The daemon
    /// looks at all of them at once: a cache line.
    pub files: [AtomicU64; FILE_LEASES_MAX],
    /// Of each place, the index of the entry plus one; 0: none. Written by the daemon.
    pub entries: [AtomicU32; FILE_LEASES_MAX],
    /// Places of whose entries descriptions are to be made, a bit each.
    pub wanted: AtomicU32,
    reserved: [AtomicU32; 7],
    /// Of each place, where the file is found. Written by the process.
    pub births: [Birth; FILE_LEASES_MAX],
}

/// Where a file is found: in the record of this name, unless it was moved since.
#[repr(C)]
#[derive(Debug)]
pub struct Birth {
    directory: AtomicU64,
    name_bytes: AtomicU32,
    reserved: AtomicU32,
    name: [AtomicU64; NAME_WORDS],
}

const _: () = assert!(size_of::<Birth>() == 96);
const _: () = assert!(size_of::<SessionLeases>() == 896);

impl Birth {
    /// Notes a name of at most [`LEASED_NAME_BYTES_MAX`] bytes.
    pub fn write(&self, directory: FileId, name: &[u8]) {
        self.directory.store(directory.0, Relaxed);
        self.name_bytes.store(name.len() as u32, Relaxed);
        words::write(&self.name, name);
    }

    /// The directory, and the name in `to`.
    #[must_use]
    pub fn read<'a>(&self, to: &'a mut [[u8; 8]; NAME_WORDS]) -> (FileId, &'a [u8]) {
        for (to, word) in to.iter_mut().zip(&self.name) {
            *to = word.load(Relaxed).to_le_bytes();
        }
        let bytes = (self.name_bytes.load(Relaxed) as usize).min(LEASED_NAME_BYTES_MAX);
        let name = to.as_flattened().get(..bytes).unwrap_or_default();
        (FileId(self.directory.load(Relaxed)), name)
    }
}

impl SessionLeases {
    /// The place of the entry with this index.
    #[must_use]
    pub fn place_of(&self, index: u32) -> Option<usize> {
        self.entries.iter().position(|entry| entry.load(Acquire) == index.wrapping_add(1))
    }

    /// The index of a place's entry.
    #[must_use]
    pub fn entry_at(&self, place: usize) -> Option<u32> {
        self.entries.get(place)?.load(Acquire).checked_sub(1)
    }

    /// The daemon leases an entry, or none any more.
    pub fn set_entry(&self, place: usize, index: Option<u32>) {
        if let Some(entry) = self.entries.get(place) {
            entry.store(index.map_or(0, |index| index.wrapping_add(1)), Release);
        }
    }

    /// The process reads a file by a place. Whatever it looks at from here on it looks at after the
    /// daemon can see that.
    pub fn show(&self, place: usize, file: FileId) {
        if let Some(shown) = self.files.get(place) {
            shown.store(file.0, Release);
            fence(SeqCst);
        }
    }

    /// It does not any more.
    pub fn hide(&self, place: usize) {
        if let Some(shown) = self.files.get(place) {
            shown.store(0, Release);
        }
    }

    /// The places by which a file is read.
    pub fn places_with(&self, file: FileId) -> impl Iterator<Item = usize> {
        let is_it =
            move |(at, shown): (usize, &AtomicU64)| (shown.load(SeqCst) == file.0).then_some(at);
        self.files.iter().enumerate().filter_map(is_it)
    }

    /// Is the file read by any place?
    #[must_use]
    #[inline]
    pub fn shows(&self, file: FileId) -> bool {
        self.files.iter().fold(false, |any, shown| any | (shown.load(Acquire) == file.0))
    }

    /// How many files are read.
    #[must_use]
    pub fn used(&self) -> usize {
        self.files.iter().filter(|shown| shown.load(Relaxed) != 0).count()
    }

    /// Nothing is leased.
    pub fn clear(&self) {
        for place in 0..FILE_LEASES_MAX {
            self.set_entry(place, None);
            self.hide(place);
        }
        self.wanted.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> Box<SessionLeases> {
        // SAFETY: all fields are atomics, for which zeros are valid.
        unsafe { Box::new(core::mem::zeroed()) }
    }

    #[test]
    fn a_name_comes_back_as_it_was_written() {
        let leases = leases();
        for name in [&b""[..], b"f", b"12345678", b"a longer name", &[b'n'; LEASED_NAME_BYTES_MAX]]
        {
            leases.births[3].write(FileId(7), name);
            let mut to = [[0; 8]; NAME_WORDS];
            assert_eq!(leases.births[3].read(&mut to), (FileId(7), name));
        }
        leases.births[3].name_bytes.store(u32::MAX, Relaxed);
        let mut to = [[0; 8]; NAME_WORDS];
        assert_eq!(leases.births[3].read(&mut to).1.len(), LEASED_NAME_BYTES_MAX);
    }

    #[test]
    fn a_file_is_found_by_the_places_that_show_it() {
        let leases = leases();
        leases.show(2, FileId(9));
        leases.show(5, FileId(9));
        leases.show(6, FileId(8));
        assert_eq!(leases.places_with(FileId(9)).collect::<Vec<_>>(), [2, 5]);
        leases.hide(2);
        assert_eq!(leases.places_with(FileId(9)).collect::<Vec<_>>(), [5]);
        leases.set_entry(1, Some(0));
        assert_eq!(
            (leases.place_of(0), leases.entry_at(1), leases.entry_at(0)),
            (Some(1), Some(0), None)
        );
    }
}
