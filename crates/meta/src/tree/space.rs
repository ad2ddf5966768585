//! Memory that outlives the process: what the tree and its journal lie in.
//!
//! In an instance it is a mapped file ([`super::file`]). In the tests it is memory that is cut
//! off after any number of stores, as a process is by a SIGKILL.

use crate::StoreError;

/// A write that a page's bytes have led out of the file.
pub(super) const OUTSIDE: StoreError = StoreError::Corrupt("a place beyond the end of the file");

/// Bytes that survive, changed by one owner. What a death leaves is a beginning of the sequence of
/// changes, and [`Space::publish`] is done at once or not at all.
pub(super) trait Space {
    /// All of them.
    fn bytes(&self) -> &[u8];

    /// So many cache lines from `at` on are about to be read: whatever makes that faster.
    fn prefetch<const LINES: usize>(&self, _at: usize) {}

    /// Writes `from` at `at`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when that is not within the bytes.
    fn write(&mut self, at: usize, from: &[u8]) -> Result<(), StoreError>;

    /// Moves `bytes` bytes from `from` to `to`, which may overlap.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when they are not within the bytes.
    fn shift(&mut self, from: usize, bytes: usize, to: usize) -> Result<(), StoreError>;

    /// Writes a number at a multiple of 8, after all that was written before and before all that
    /// is written later.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when that is not within the bytes.
    fn publish(&mut self, at: usize, value: u64) -> Result<(), StoreError>;

    /// Makes the space at least so long; the new bytes are allocated.
    ///
    /// # Errors
    /// [`StoreError::Full`] when the disk has no room, or what it says.
    fn grow(&mut self, bytes: usize) -> Result<(), StoreError>;

    /// Makes it survive a power loss, as far as the owner has nothing under way.
    ///
    /// # Errors
    /// What the disk says.
    fn sync(&mut self) -> Result<(), StoreError>;
}

/// The little-endian number at `at`.
#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, StoreError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map(|bytes| u32::from_le_bytes(*bytes)).ok_or(OUTSIDE)
}

/// The little-endian number at `at`.
#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Result<u64, StoreError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(OUTSIDE)
}
