//! What is said about files of which mounts keep pages, and about names that their kernels believe.
//! Changes are packed: file id, first byte, offset after the last byte, 8 bytes each. Names are
//! packed: id of the directory, id of the file, name.
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
        /// The names that are to be believed no more ([`names`]).
        names: &'a [u8],
    }
}
wire_struct! {
    /// See [`crate::Op::Lease`]: the names of one directory that the kernel of the caller's mount
    /// wants to believe ([`names`], with no file ids).
    Lease<'a> { names: &'a [u8], }
}
wire_struct! {
    /// Which of them it may believe.
    Leased<'a> {
        /// For how long, seconds from the request on.
        seconds: u32,
        /// For each name: one of the numbers below.
        what: &'a [u8],
    }
}

/// The kernel may believe nothing.
pub const LEASED_NOTHING: u8 = 0;
/// It may believe which file the name stands for.
pub const LEASED_NAME: u8 = 1;
/// And the attributes of that file.
pub const LEASED_ATTRIBUTES: u8 = 2;

wire_struct! {
    /// A name of a directory, and the file that it stands for.
    Name<'a> {
        /// The directory.
        directory: FileId,
        /// The file, where that is of interest.
        file: FileId,
        /// The name.
        name: &'a [u8],
    }
}

/// What a packed name has besides its bytes.
pub const NAME_HEAD_BYTES: usize = 20;

/// The names; ends at the first malformed one.
pub fn names(packed: &[u8]) -> impl Iterator<Item = Name<'_>> {
    let mut from = Reader::new(packed);
    core::iter::from_fn(move || {
        if from.clone().finish().is_ok() {
            return None;
        }
        Name::decode(&mut from).ok()
    })
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
