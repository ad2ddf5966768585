//! The keys of the records.
//!
//! The first byte says what kind of record it is, numbers are big-endian so that the order of the
//! keys is the order of the numbers. The entries of a directory are ordered by the hash of
//! (directory, name): entries of one slot then lie side by side, and a position in a listing is a
//! number (a *cookie*) that means the same to every shard and after every restart.

use mayfly_records::key::place;
pub use mayfly_records::key::{
    COOKIE_MIN, DENTRY, INODE, PLACE_BYTES, REMEMBERED, REMEMBERED_BYTES, SPREAD, cookie, numbered,
};
use std::ops::Deref;

use mayfly_types::{FileId, limits::NAME_BYTES_MAX};

/// Counters of the store and the next file number. Its place is beside the first inodes: a name
/// that is made or removed changes both records, and mostly one page.
pub const COUNTERS: &[u8] = b"H";
/// Boot id with which the store was written.
pub const BOOT: &[u8] = b"B";
/// Identity and options of the instance.
pub const INSTANCE: &[u8] = b"G";
/// Slot table.
pub const SLOTS: &[u8] = b"S";

/// First byte of the mark of a file that is open and has no name.
pub const ORPHAN: u8 = b'O';
/// First byte of the mark of a file whose size is not settled.
pub const UNSETTLED: u8 = b'U';
/// First byte of the mark of an object that is to be removed.
pub const DOOMED: u8 = b'X';
/// First byte of the note of the files that are promised with the places of a submission ring: each
/// may have an object that no record names.
pub const PROMISED: u8 = b'Z';
/// First byte of the note of an append that is under way.
pub const APPEND: u8 = b'A';
/// First byte of the extended attributes of a file.
pub const XATTRS: u8 = b'E';
/// First byte of the locks of a file.
pub const LOCKS: u8 = b'L';

/// First byte of what a member keeps of a directory.
pub const MEMBER: u8 = b'M';
/// First byte of an operation over several shards that was decided and is not finished.
pub const INTENT: u8 = b'N';
/// First byte of the mark that steps of such an operation were done here.
pub const APPLIED: u8 = b'P';

/// First byte of what a server keeps of its part of a file.
pub const PART: u8 = b'T';
/// First byte of the mark that parts of a file that is gone are to be removed.
pub const UNLINKED: u8 = b'Q';

/// First byte of the note of who made a file whose name is another shard's.
pub const PENDING_CREATE: u8 = b'C';

/// First byte of the mark of a file that was changed here and not written back to its origin.
pub const DIRTY: u8 = b'V';
/// First byte of the note that a request of a lane changes names outside.
pub const THROUGH: u8 = b'J';
/// First byte of an entry of the journal: a change of names that is to be made at an origin.
pub const JOURNAL: u8 = b'j';
/// First byte of the record of which chunks of a file are here, while not all are.
pub const CHUNKS: u8 = b'Y';
/// First byte of the note of a copy that was written beside its master copy.
pub const CONFLICT: u8 = b'K';
/// First byte of the mark of an object that the process which works outside may be about to make
/// for an earlier daemon: it is to be removed once more when that process is gone.
pub const LATE: u8 = b'l';
/// First byte of the mark of a file of an origin that stays here.
pub const PINNED: u8 = b'p';
/// First byte of the mark that an origin is shown no more, by its number and one.
pub const ORIGIN_UNLINKED: u8 = b'o';

/// First byte of the note that a directory shows an origin, or a directory below one.
pub const SHOWN: u8 = b'a';

/// First byte of the answer to the last request of a process of another node.
pub const ANSWER: u8 = b'R';

/// Key of a name of another node's that this one remembers.
#[must_use]
pub fn remembered(directory: FileId, name: &[u8]) -> Vec<u8> {
    let mut key = place(directory, cookie(directory, name)).to_vec();
    key[0] = REMEMBERED;
    key.extend_from_slice(name);
    key
}

/// Key of the answer to the last request on this lane of this session that changed something.
#[must_use]
pub fn answer(session: u32, lane: u32) -> [u8; 9] {
    numbered(ANSWER, FileId(u64::from(session) << 32 | u64::from(lane)))
}

/// The session and the lane of the key of an answer.
#[must_use]
pub fn split_answer(key: &[u8]) -> Option<(u32, u32)> {
    split_numbered(key).map(|number| ((number.0 >> 32) as u32, number.0 as u32))
}

/// The key of a dentry. Each request makes a few, so it is no allocation.
#[derive(Debug, Clone, Copy)]
pub struct DentryKey {
    bytes: [u8; PLACE_BYTES + NAME_BYTES_MAX],
    used: usize,
}

impl Default for DentryKey {
    fn default() -> DentryKey {
        DentryKey { bytes: [0; PLACE_BYTES + NAME_BYTES_MAX], used: 0 }
    }
}

impl DentryKey {
    /// Becomes the key of the dentry `name` in `directory`, whose [`cookie`] is known. Made where
    /// it stays: to move it costs as much as to make it.
    #[inline]
    pub fn set(&mut self, directory: FileId, cookie: u64, name: &[u8]) {
        debug_assert!(name.len() <= NAME_BYTES_MAX);
        let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
        let (head, rest) = self.bytes.split_at_mut(PLACE_BYTES);
        head.copy_from_slice(&place(directory, cookie));
        rest[..name.len()].copy_from_slice(name);
        self.used = PLACE_BYTES + name.len();
    }
}

impl Deref for DentryKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or(&self.bytes)
    }
}

/// Key of the dentry `name` in `directory`. A name has at most [`NAME_BYTES_MAX`] bytes.
#[must_use]
pub fn dentry(directory: FileId, name: &[u8]) -> DentryKey {
    dentry_at(directory, cookie(directory, name), name)
}

/// The same when the [`cookie`] is known.
#[must_use]
#[inline]
pub fn dentry_at(directory: FileId, cookie: u64, name: &[u8]) -> DentryKey {
    let mut key = DentryKey::default();
    key.set(directory, cookie, name);
    key
}

/// What the keys of all dentries of `directory` start with.
#[must_use]
pub fn directory(directory: FileId) -> Vec<u8> {
    numbered(DENTRY, directory).to_vec()
}

/// Where the dentries of `directory` at `cookie` and after it start.
#[must_use]
pub fn directory_from(directory: FileId, cookie: u64) -> Vec<u8> {
    place(directory, cookie).to_vec()
}

/// Splits the key of a dentry into directory, cookie and name.
#[must_use]
pub fn split_dentry(key: &[u8]) -> Option<(FileId, u64, &[u8])> {
    let rest = key.strip_prefix(&[DENTRY])?;
    let (directory, rest) = rest.split_first_chunk()?;
    let (cookie, name) = rest.split_first_chunk()?;
    let valid = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    valid.then_some((FileId(u64::from_be_bytes(*directory)), u64::from_be_bytes(*cookie), name))
}

/// The file that the key of such a record is about.
#[must_use]
pub fn split_numbered(key: &[u8]) -> Option<FileId> {
    let bytes: [u8; 8] = key.get(1..)?.try_into().ok()?;
    Some(FileId(u64::from_be_bytes(bytes)))
}

/// Key of the note about an append to `file` by the thread that uses this lane of this session.
#[must_use]
pub fn append(file: FileId, session: u32, lane: u32) -> Vec<u8> {
    let mut key = numbered(APPEND, file).to_vec();
    key.extend_from_slice(&session.to_be_bytes());
    key.extend_from_slice(&lane.to_be_bytes());
    key
}

/// File, session and lane of such a key.
#[must_use]
pub fn split_append(key: &[u8]) -> Option<(FileId, u32, u32)> {
    let (file, rest) = key.strip_prefix(&[APPEND])?.split_first_chunk()?;
    let (session, lane) = rest.split_first_chunk()?;
    let lane: [u8; 4] = lane.try_into().ok()?;
    let file = FileId(u64::from_be_bytes(*file));
    Some((file, u32::from_be_bytes(*session), u32::from_be_bytes(lane)))
}

/// Key of an [`INTENT`].
#[must_use]
pub fn intent(operation: u64) -> [u8; 9] {
    numbered(INTENT, FileId(operation))
}

/// Key of the mark that the steps of wave `wave` were done.
#[must_use]
pub fn applied(operation: u64, wave: u8) -> Vec<u8> {
    let mut key = numbered(APPLIED, FileId(operation)).to_vec();
    key.push(wave);
    key
}

/// The operation that such a key is about.
#[must_use]
pub fn split_applied(key: &[u8]) -> Option<u64> {
    let (operation, _wave) = key.strip_prefix(&[APPLIED])?.split_first_chunk()?;
    Some(u64::from_be_bytes(*operation))
}

/// Key of the mark that generation `generation` of the object of `file` is to be removed.
#[must_use]
pub fn doomed(file: FileId, generation: u32) -> Vec<u8> {
    with_generation(DOOMED, file, generation)
}

/// Key of the mark that an object may be made late.
#[must_use]
pub fn late(file: FileId, generation: u32) -> Vec<u8> {
    with_generation(LATE, file, generation)
}

/// The object that such a key is about.
#[must_use]
pub fn split_late(key: &[u8]) -> Option<(FileId, u32)> {
    split_generation(LATE, key)
}

/// Key of the note of the files that are promised with the places of a submission ring.
#[must_use]
pub fn promised(ring: usize) -> [u8; 9] {
    numbered(PROMISED, FileId(ring as u64))
}

/// Key of the record of which chunks of `file` its object of that generation has, while it is not
/// the file's yet.
#[must_use]
pub fn chunks(file: FileId, generation: u32) -> Vec<u8> {
    with_generation(CHUNKS, file, generation)
}

/// The object that such a key is about.
#[must_use]
pub fn split_chunks(key: &[u8]) -> Option<(FileId, u32)> {
    split_generation(CHUNKS, key)
}

/// Key of the mark that parts of generation `generation` of `file` are to be removed.
#[must_use]
pub fn unlinked(file: FileId, generation: u32) -> Vec<u8> {
    with_generation(UNLINKED, file, generation)
}

/// File and generation of such a key.
#[must_use]
pub fn split_unlinked(key: &[u8]) -> Option<(FileId, u32)> {
    split_generation(UNLINKED, key)
}

/// The object that such a key is about.
#[must_use]
pub fn split_doomed(key: &[u8]) -> Option<(FileId, u32)> {
    split_generation(DOOMED, key)
}

fn with_generation(tag: u8, file: FileId, generation: u32) -> Vec<u8> {
    let mut key = numbered(tag, file).to_vec();
    key.extend_from_slice(&generation.to_be_bytes());
    key
}

fn split_generation(tag: u8, key: &[u8]) -> Option<(FileId, u32)> {
    let rest = key.strip_prefix(&[tag])?;
    let (file, generation) = rest.split_first_chunk()?;
    let generation: [u8; 4] = generation.try_into().ok()?;
    Some((FileId(u64::from_be_bytes(*file)), u32::from_be_bytes(generation)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_types::slot;

    #[test]
    fn the_position_of_an_entry_starts_with_its_slot() {
        for name in ["a", "Makefile", "x".repeat(255).as_str()] {
            let cookie = cookie(FileId(77), name.as_bytes());
            assert_eq!((cookie >> 47) as u16, slot::of_dentry(FileId(77), name.as_bytes()));
            assert!(cookie < 1 << 63, "fits a signed offset");
        }
    }

    #[test]
    fn the_longest_name_makes_a_key_that_the_store_takes() {
        assert!(dentry(FileId(u64::MAX), &[b'x'; NAME_BYTES_MAX]).len() <= crate::KEY_BYTES_MAX);
    }

    #[test]
    fn the_bytes_of_the_keys_do_not_change() {
        assert_eq!(
            *dentry(FileId(1), b"a"),
            [b"D\0\0\0\0\0\0\0\x01".as_slice(), &cookie(FileId(1), b"a").to_be_bytes(), b"a"]
                .concat()[..]
        );
        assert_eq!(cookie(FileId(1), b"a"), GOLDEN_COOKIE);
        assert_eq!(&numbered(INODE, FileId(258)), b"I\0\0\0\0\0\0\x01\x02");
        assert_eq!(&numbered(XATTRS, FileId(258)), b"E\0\0\0\0\0\0\x01\x02");
        assert_eq!(doomed(FileId(2), 3), b"X\0\0\0\0\0\0\0\x02\0\0\0\x03");
        assert_eq!(split_doomed(&doomed(FileId(2), 3)), Some((FileId(2), 3)));
        assert_eq!(append(FileId(2), 3, 4), b"A\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x04");
        assert_eq!(split_append(&append(FileId(2), 3, 4)), Some((FileId(2), 3, 4)));
    }

    const GOLDEN_COOKIE: u64 = 6_436_786_733_673_066_638;
}
