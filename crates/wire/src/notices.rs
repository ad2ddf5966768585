//! What is said about files of which mounts keep pages. Changes are packed: file id, first byte,
//! offset after the last byte, 8 bytes each.
#![allow(missing_docs, reason = "the fields are the words of the protocol")]

use mayfly_types::{FileId, OpenRef};

use crate::{Full, Reader, Wire, Writer, wire_struct};

wire_struct! {
    /// See [`crate::Op::Map`]. Whoever changes bytes of the file from now on tells of it
    /// ([`Tell`]), until nobody has it open.
    Map { open: OpenRef, }
}
wire_struct! {
    /// See [`crate::Op::Tell`]: bytes from `start` up to and without `end`, or the length. Answered
    /// when every mount but the caller's own has dealt with it.
    Tell { open: OpenRef, start: u64, end: u64, }
}
wire_struct! {
    /// See [`crate::Op::Watch`]: what earlier replies told of is dealt with. Such a request has no
    /// deadline; the first one of a session is answered at once.
    Watch {}
}
wire_struct! {
    /// What changed.
    Notices<'a> {
        /// Anything may have changed.
        all: bool,
        /// The changes ([`changes`]).
        changes: &'a [u8],
    }
}

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
