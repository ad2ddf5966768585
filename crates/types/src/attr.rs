//! What `stat` reports.

use crate::FileId;

/// Permission bit of an object's file (the sticky bit, which means nothing to the kernel there):
/// somebody has mapped the object or run it as a program. Nobody is told when a mapping ends, so it
/// stays, and the object's bytes are never taken away but by a change of the file's length.
pub const OBJECT_MAPPED: u32 = 0o1000;

/// What a directory's length is reported as, bytes.
pub const DIRECTORY_BYTES: u64 = 4096;
/// What a block in `st_blocks` is, bytes.
pub const BLOCK_BYTES: u64 = 512;
/// What a file in its record is reported to take is a multiple of this, bytes.
const INLINE_UNIT_BYTES: u64 = 4096;

/// The blocks that a file of this length is reported to take when its bytes are in its record.
#[must_use]
pub const fn inline_blocks(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(INLINE_UNIT_BYTES) * (INLINE_UNIT_BYTES / BLOCK_BYTES)
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FileKind {
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A pipe with a name. Its bytes are the kernel's.
    Fifo = 4,
    /// A socket with a name. What is sent through it is the kernel's.
    Socket = 5,
}

impl FileKind {
    /// From its stored number; `None` for anything unknown.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<FileKind> {
        match raw {
            1 => Some(FileKind::Regular),
            2 => Some(FileKind::Directory),
            3 => Some(FileKind::Symlink),
            4 => Some(FileKind::Fifo),
            5 => Some(FileKind::Socket),
            _ => None,
        }
    }

    /// The `S_IFMT` bits.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => 0o100_000,
            FileKind::Directory => 0o040_000,
            FileKind::Symlink => 0o120_000,
            FileKind::Fifo => 0o010_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// The `d_type` of `getdents64`.
    #[must_use]
    pub const fn dirent_type(self) -> u8 {
        match self {
            FileKind::Regular => 8,
            FileKind::Directory => 4,
            FileKind::Symlink => 10,
            FileKind::Fifo => 1,
            FileKind::Socket => 12,
        }
    }
}

/// A point in time: seconds and nanoseconds since the epoch, nanoseconds below 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The file (`st_ino`).
    pub id: FileId,
    /// Its type.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits (0o7777), without the type.
    pub mode: u32,
    /// Number of links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}
