//! Identities: files, sessions, open file descriptions.

/// Identity of a file for the life of the instance; never reused.
///
/// The upper 16 bits are the slot whose owner is the file's home, the lower 48 a number that the
/// home hands out. It is what `st_ino` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FileId(pub u64);

impl FileId {
    /// No file.
    pub const NONE: FileId = FileId(0);
    /// The root directory of the instance.
    pub const ROOT: FileId = FileId(1);
    /// Bits of the number below the slot.
    pub const NUMBER_BITS: u32 = 48;

    /// Composes an id; `None` when the number does not fit 48 bits.
    #[must_use]
    pub const fn new(slot: u16, number: u64) -> Option<FileId> {
        if number >> Self::NUMBER_BITS != 0 {
            return None;
        }
        Some(FileId((slot as u64) << Self::NUMBER_BITS | number))
    }

    /// The slot whose owner is this file's home.
    #[must_use]
    pub const fn slot(self) -> u16 {
        (self.0 >> Self::NUMBER_BITS) as u16
    }
}

/// One attached process image: its shared memory, open files and locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionId(pub u32);

/// An open file description in the node's table: index and the generation that makes a stale
/// reference harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OpenRef {
    /// Index in the table, below [`crate::limits::OPEN_FILES_MAX`].
    pub index: u32,
    /// Generation of the entry; a freed entry has moved on.
    pub generation: u32,
}
