//! What the bytes were before the transaction changed them.
//!
//! The journal lies in a space of its own: the number of the transaction to which it belongs, where
//! its last note ends, and the notes: a place in the file of pages, a length, and the bytes that
//! stood there. A note is published before its place is changed. So when the process dies, the
//! notes of an unfinished transaction lead back to the last committed one: they are written back,
//! the last one first, since a place may have been noted more than once. Doing so twice does no
//! harm, so it may itself be broken off.
//!
//! The transaction is committed by the one store that raises the number in the header of the pages:
//! from there on the journal's number is not the one of a transaction under way, and its notes
//! mean nothing. Nothing is erased.
//!
//! Ranges are noted, not whole pages: a create changes three records in two or three pages, and
//! what it overwrites of them is some 250 bytes of 8 to 12 KiB.

use super::space::{OUTSIDE, Space, u64_at};
use crate::StoreError;

const MAGIC: u64 = u64::from_le_bytes(*b"MAYFLYU1");
const MAGIC_AT: usize = 0;
/// The transaction to which the notes belong.
const NUMBER_AT: usize = 8;
/// Where the last note ends.
const END_AT: usize = 16;
/// Where the first note begins.
const NOTES_AT: usize = 32;
/// Place and length of a note.
const NOTE_BYTES: usize = 16;
/// The journal grows at least by so much, bytes.
const STEP_BYTES: usize = 1 << 20;

const TORN: StoreError = StoreError::Corrupt("a note in the journal makes no sense");

/// The journal and how far it is filled.
#[derive(Debug)]
pub(super) struct Journal<S> {
    space: S,
    /// Where the next note goes.
    end: usize,
    /// Notes before it are in force.
    published: usize,
}

impl<S: Space> Journal<S> {
    /// Writes an empty journal into a space of zeros.
    ///
    /// # Errors
    /// As [`Space::grow`].
    pub(super) fn create(space: &mut S) -> Result<(), StoreError> {
        space.grow(STEP_BYTES)?;
        space.publish(NUMBER_AT, 0)?;
        space.publish(END_AT, NOTES_AT as u64)?;
        space.publish(MAGIC_AT, MAGIC)
    }

    /// Opens what a process left, and undoes in `pages` what it had not committed: that is the
    /// transaction after `committed`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub(super) fn open(
        space: S,
        committed: u64,
        pages: &mut impl Space,
    ) -> Result<Journal<S>, StoreError> {
        if u64_at(space.bytes(), MAGIC_AT)? != MAGIC {
            return Err(StoreError::Corrupt("the journal's file is not one"));
        }
        let mut journal = Journal { space, end: NOTES_AT, published: NOTES_AT };
        if u64_at(journal.space.bytes(), NUMBER_AT)? == committed.wrapping_add(1) {
            journal.undo(pages)?;
            // Only now may the notes be overwritten.
            journal.space.publish(END_AT, NOTES_AT as u64)?;
        }
        Ok(journal)
    }

    fn undo(&self, pages: &mut impl Space) -> Result<(), StoreError> {
        let bytes = self.space.bytes();
        let end = usize::try_from(u64_at(bytes, END_AT)?).map_err(|_| TORN)?;
        let mut rest = bytes.get(NOTES_AT..end).ok_or(TORN)?;
        let mut notes = Vec::new();
        while !rest.is_empty() {
            let place = usize::try_from(u64_at(rest, 0)?).map_err(|_| TORN)?;
            let length = usize::try_from(u64_at(rest, 8)?).map_err(|_| TORN)?;
            let whole = length.checked_next_multiple_of(8).ok_or(TORN)?;
            let whole = whole.checked_add(NOTE_BYTES).ok_or(TORN)?;
            let (note, after) = rest.split_at_checked(whole).ok_or(TORN)?;
            notes.push((place, &note[NOTE_BYTES..NOTE_BYTES + length]));
            rest = after;
        }
        for (place, old) in notes.into_iter().rev() {
            pages.write(place, old)?;
        }
        Ok(())
    }

    /// Begins the notes of transaction `number`.
    ///
    /// # Errors
    /// None while the file is whole.
    #[inline]
    pub(super) fn begin(&mut self, number: u64) -> Result<(), StoreError> {
        (self.end, self.published) = (NOTES_AT, NOTES_AT);
        // In this order: the old notes must not come into force under the new number.
        self.space.publish(END_AT, NOTES_AT as u64)?;
        self.space.publish(NUMBER_AT, number)
    }

    /// Notes that `old` stands at `place`. It comes into force with [`Journal::publish`].
    ///
    /// # Errors
    /// As [`Space::grow`].
    #[inline]
    pub(super) fn note(&mut self, place: usize, old: &[u8]) -> Result<(), StoreError> {
        let after = self.end + NOTE_BYTES + old.len().next_multiple_of(8);
        if after > self.space.bytes().len() {
            self.space
                .grow(after.max(2 * self.space.bytes().len()).next_multiple_of(STEP_BYTES))?;
        }
        let mut head = [0; NOTE_BYTES];
        head[..8].copy_from_slice(&(place as u64).to_le_bytes());
        head[8..].copy_from_slice(&(old.len() as u64).to_le_bytes());
        self.space.write(self.end, &head)?;
        self.space.write(self.end + NOTE_BYTES, old)?;
        self.end = after;
        Ok(())
    }

    /// Brings what was noted into force.
    ///
    /// # Errors
    /// None while the file is whole.
    #[inline]
    pub(super) fn publish(&mut self) -> Result<(), StoreError> {
        if self.published != self.end {
            self.space.publish(END_AT, self.end as u64)?;
            self.published = self.end;
        }
        Ok(())
    }

    /// As [`Space::sync`].
    ///
    /// # Errors
    /// What the disk says.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.space.sync()
    }

    #[cfg(test)]
    pub(super) fn into_space(self) -> S {
        self.space
    }
}

const _: () = assert!(NOTES_AT.is_multiple_of(8) && NOTE_BYTES.is_multiple_of(8));

/// Copies a range, for a note about it.
#[inline]
pub(super) fn range(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], StoreError> {
    let end = at.checked_add(length).ok_or(OUTSIDE)?;
    bytes.get(at..end).ok_or(OUTSIDE)
}
