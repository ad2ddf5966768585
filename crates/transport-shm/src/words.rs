//! Text in shared memory: eight bytes to a word, little-endian.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The words of a text, with zeros behind the last bytes.
pub(crate) fn of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    whole.iter().copied().chain([last]).map(u64::from_le_bytes)
}

/// Writes a text, as far as it fits.
pub(crate) fn write(to: &[AtomicU64], bytes: &[u8]) {
    to.iter().zip(of(bytes)).for_each(|(to, word)| to.store(word, Relaxed));
}
