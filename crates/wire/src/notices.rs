//! Changes of files, packed: file id, first byte, offset after the last byte, 8 bytes each.

use mayfly_types::FileId;

use crate::{Full, Reader, Wire, Writer, wire_struct};

/// Length of a packed change, bytes.
pub const NOTICE_BYTES: usize = 24;

wire_struct! {
    /// A change of a file.
    Notice {
        /// Which file.
        file: FileId,
        /// First byte.
        start: u64,
        /// Offset after the last byte.
        end: u64,
    }
}

/// Appends a change.
///
/// # Errors
/// [`Full`].
pub fn push(notice: &Notice, to: &mut Writer<'_>) -> Result<(), Full> {
    notice.encode(to)
}

/// The changes.
pub fn changes(packed: &[u8]) -> impl Iterator<Item = Notice> + '_ {
    packed
        .chunks_exact(NOTICE_BYTES)
        .filter_map(|bytes| Notice::decode(&mut Reader::new(bytes)).ok())
}
