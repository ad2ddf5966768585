//! The keys that a walk needs, and the order of a directory's entries.

use mayfly_types::{FileId, slot::hash_of_dentry};

/// First byte of a dentry's key.
pub const DENTRY: u8 = b'D';
/// First byte of an inode's key.
pub const INODE: u8 = b'I';
/// First byte of how far a directory is spread over shards, at its seat.
pub const SPREAD: u8 = b'W';
/// First byte of the key of a name of another node's that this one remembers; the rest is as in a
/// dentry's.
pub const REMEMBERED: u8 = b'F';

/// Bytes of the record of such a name: the directory for which it stands, and until when that is
/// to be believed, by the processors' counter. With a file there follows what a dentry's record
/// with its inode would have, without content.
pub const REMEMBERED_BYTES: usize = 16;

/// Smallest position of an entry: 0 is the beginning, 1 and 2 come after `.` and `..`.
pub const COOKIE_MIN: u64 = 3;

/// What a dentry's key has before the name, bytes.
pub const PLACE_BYTES: usize = 17;

/// Position of the entry `name` in `directory`: the upper 63 bits of the hash whose upper 16 bits
/// are the slot ([`mayfly_types::slot::of_dentry`]), since `getdents64` reports positions as signed
/// numbers.
#[must_use]
pub fn cookie(directory: FileId, name: &[u8]) -> u64 {
    (hash_of_dentry(directory, name) >> 1).max(COOKIE_MIN)
}

/// What the key of an entry of `directory` at `cookie` has before the name.
#[must_use]
pub fn place(directory: FileId, cookie: u64) -> [u8; PLACE_BYTES] {
    let mut key = [DENTRY; PLACE_BYTES];
    key[1..9].copy_from_slice(&directory.0.to_be_bytes());
    key[9..].copy_from_slice(&cookie.to_be_bytes());
    key
}

/// Key of a record of kind `tag` about `file`.
#[must_use]
pub fn numbered(tag: u8, file: FileId) -> [u8; 9] {
    let mut key = [tag; 9];
    key[1..].copy_from_slice(&file.0.to_be_bytes());
    key
}
