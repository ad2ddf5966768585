//! The word that says how a record stands.

use mayfly_types::limits::INLINE_BYTES_MAX;
use mayfly_wire::{SET_ATIME, SET_ATIME_NOW, SET_MTIME, SET_MTIME_NOW};

/// The bits of `RECORD_*`.
const KIND: u32 = (1 << 5) - 1;
/// Of a file that is there: the content is what it has, since nothing was written.
const UNWRITTEN: u32 = 1 << 5;
/// Its process may make an object for the file that is made, or has done so.
const STARTED: u32 = 1 << 6;
/// The content of the file is in that object.
const IN_OBJECT: u32 = 1 << 7;
/// Above those: bytes of content.
const CONTENT_SHIFT: u32 = 8;
/// Above those: which attributes are changed.
const CHANGES_SHIFT: u32 = 21;
const CHANGES: u32 = (1 << 8) - 1;
/// The file is there: its content is replaced by that of the record.
const REPLACES: u32 = 1 << 29;
/// Its process has looked at the file, and told when it was made.
const SEEN: u32 = 1 << 30;
/// The daemon executes the record as it is, or has done so.
const TAKEN: u32 = 1 << 31;

const _: () = assert!(INLINE_BYTES_MAX < 1 << (CHANGES_SHIFT - CONTENT_SHIFT));

/// Attributes that a write changes, too.
const TIMES: u32 = SET_ATIME | SET_ATIME_NOW | SET_MTIME | SET_MTIME_NOW;

/// How a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) u32);

impl State {
    pub(super) const fn of(kind: u32) -> State {
        State(kind)
    }

    /// `RECORD_*`.
    pub(super) fn kind(self) -> u32 {
        self.0 & KIND
    }

    /// Bytes of content.
    pub(super) fn content(self) -> usize {
        (self.0 >> CONTENT_SHIFT) as usize & ((1 << (CHANGES_SHIFT - CONTENT_SHIFT)) - 1)
    }

    /// Which attributes are changed after the file is made (`mayfly_wire::SET_*`).
    pub(super) fn changes(self) -> u32 {
        self.0 >> CHANGES_SHIFT & CHANGES
    }

    /// What is written after these changes is in the file with them as it is before: owner and
    /// permission bits are no write's affair, but a time that was set would come too late.
    pub(super) fn may_be_written(self) -> bool {
        self.changes() & TIMES == 0
    }

    /// Nothing is added to the record any more.
    pub(super) fn is_taken(self) -> bool {
        self.0 & TAKEN != 0
    }

    /// Its process has looked at the file that is made.
    pub(super) fn is_seen(self) -> bool {
        self.0 & SEEN != 0
    }

    /// Its process may have made an object for the file.
    pub(super) fn is_started(self) -> bool {
        self.0 & STARTED != 0
    }

    /// The content is in that object.
    pub(super) fn is_in_object(self) -> bool {
        self.0 & IN_OBJECT != 0
    }

    /// The record is about a file that is there, whose content it replaces.
    pub(super) fn replaces(self) -> bool {
        self.0 & REPLACES != 0
    }

    /// The content of that file is what it was, so far.
    pub(super) fn is_unwritten(self) -> bool {
        self.0 & UNWRITTEN != 0
    }

    pub(super) fn and_replaces(self) -> State {
        State(self.0 | REPLACES)
    }

    pub(super) fn and_unwritten(self) -> State {
        State(self.0 | UNWRITTEN)
    }

    pub(super) fn and_written(self) -> State {
        State(self.0 & !UNWRITTEN)
    }

    pub(super) fn and_started(self) -> State {
        State(self.0 | STARTED)
    }

    pub(super) fn and_in_object(self) -> State {
        State(self.0 | IN_OBJECT)
    }

    pub(super) fn and_seen(self) -> State {
        State(self.0 | SEEN)
    }

    pub(super) fn and_kind(self, kind: u32) -> State {
        State(self.0 & !KIND | kind)
    }

    pub(super) fn and_content(self, bytes: usize) -> State {
        const MASK: u32 = ((1 << CHANGES_SHIFT) - 1) & !((1 << CONTENT_SHIFT) - 1);
        State(self.0 & !MASK | (bytes as u32) << CONTENT_SHIFT & MASK)
    }

    pub(super) fn and_changes(self, which: u32) -> State {
        State(self.0 | (which & CHANGES) << CHANGES_SHIFT)
    }

    #[cfg(feature = "server")]
    pub(super) fn and_taken(self) -> State {
        State(self.0 | TAKEN)
    }
}
