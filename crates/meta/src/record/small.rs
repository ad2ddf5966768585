//! The small records: counters, marks, locks, instance, slot table.

use mayfly_types::{FileId, limits::LOCKS_PER_FILE_MAX};

use crate::{
    StoreError,
    bytes::{Put, Take},
};

const COUNTERS_V1: u8 = 0x31;
/// The form, and six numbers.
const COUNTERS_BYTES: usize = 1 + 6 * 8;
const BIRTH_V1: u8 = 0x41;
const APPEND_V1: u8 = 0x81;
const LOCKS_V1: u8 = 0x51;
const INSTANCE_V1: u8 = 0x61;
const SLOTS_V1: u8 = 0x71;

pub(super) fn form(record: &[u8], wanted: u8) -> Result<Take<'_>, StoreError> {
    match record.split_first() {
        Some((form, body)) if *form == wanted => Ok(Take(body)),
        _ => Err(StoreError::Corrupt("a record has an unknown form")),
    }
}

/// What the shard counts, and the next file number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Number that the next new file gets.
    pub next_file: u64,
    /// Files and symbolic links.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Files that are open and have no name.
    pub orphans: u64,
    /// Objects.
    pub objects: u64,
    /// Space of the objects of settled files, bytes.
    pub settled_bytes: u64,
}

impl Counters {
    /// The record. Almost each batch makes one, so it is no allocation.
    #[must_use]
    pub fn encode(&self) -> [u8; COUNTERS_BYTES] {
        let values = [
            self.next_file,
            self.files,
            self.directories,
            self.orphans,
            self.objects,
            self.settled_bytes,
        ];
        let mut record = [COUNTERS_V1; COUNTERS_BYTES];
        let (to, _) = record[1..].as_chunks_mut();
        for (to, value) in to.iter_mut().zip(values) {
            *to = value.to_le_bytes();
        }
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Counters, StoreError> {
        let mut from = form(record, COUNTERS_V1)?;
        let counters = Counters {
            next_file: from.u64()?,
            files: from.u64()?,
            directories: from.u64()?,
            orphans: from.u64()?,
            objects: from.u64()?,
            settled_bytes: from.u64()?,
        };
        from.finish()?;
        Ok(counters)
    }
}

/// The name under which a file was created, in whose dentry its inode may still be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct BirthKey {
    /// The directory; [`FileId::NONE`] when the inode never was in a dentry.
    pub directory: FileId,
    /// The name.
    pub name: Vec<u8>,
}

impl BirthKey {
    /// Whether it is this name in this directory.
    #[must_use]
    pub fn is(&self, directory: FileId, name: &[u8]) -> bool {
        self.directory == directory && self.name == name
    }

    /// The record (of an orphan or unsettled mark).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![BIRTH_V1];
        record.put_u64(self.directory.0);
        record.push(self.name.len() as u8);
        record.extend_from_slice(&self.name);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<BirthKey, StoreError> {
        let mut from = form(record, BIRTH_V1)?;
        let directory = FileId(from.u64()?);
        let name_bytes = usize::from(from.u8()?);
        let name = from.bytes(name_bytes)?.to_vec();
        from.finish()?;
        Ok(BirthKey { directory, name })
    }
}

/// An append that was about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Append {
    /// Session of the request.
    pub session: u32,
    /// Its id.
    pub request_id: u64,
    /// Length of the object before it.
    pub start: u64,
    /// How much is appended.
    pub bytes: u32,
}

impl Append {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![APPEND_V1];
        record.put_u32(self.session);
        record.put_u64(self.request_id);
        record.put_u64(self.start);
        record.put_u32(self.bytes);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Append, StoreError> {
        let mut from = form(record, APPEND_V1)?;
        let append = Append {
            session: from.u32()?,
            request_id: from.u64()?,
            start: from.u64()?,
            bytes: from.u32()?,
        };
        from.finish()?;
        Ok(append)
    }
}

/// A lock that somebody holds; the meaning of the numbers is the daemon's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLock {
    /// Kind of owner (`LOCK_FLOCK`, `LOCK_POSIX`, `LOCK_OFD`).
    pub owner_kind: u8,
    /// `LOCK_READ` or `LOCK_WRITE`.
    pub kind: u8,
    /// Process, or index of the open file description.
    pub owner: u32,
    /// Generation of the open file description; 0 for a process.
    pub owner_generation: u32,
    /// First byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

/// The record of the locks of a file.
#[must_use]
pub fn encode_locks(locks: &[HeldLock]) -> Vec<u8> {
    let mut record = vec![LOCKS_V1];
    record.put_u16(locks.len() as u16);
    for lock in locks {
        record.push(lock.owner_kind);
        record.push(lock.kind);
        record.put_u32(lock.owner);
        record.put_u32(lock.owner_generation);
        record.put_u64(lock.start);
        record.put_u64(lock.end);
    }
    record
}

/// From the record of the locks of a file.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn decode_locks(record: &[u8]) -> Result<Vec<HeldLock>, StoreError> {
    let mut from = form(record, LOCKS_V1)?;
    let count = usize::from(from.u16()?);
    if count > LOCKS_PER_FILE_MAX {
        return Err(StoreError::Corrupt("a file has too many locks"));
    }
    let mut locks = Vec::with_capacity(count);
    for _ in 0..count {
        let lock = HeldLock {
            owner_kind: from.u8()?,
            kind: from.u8()?,
            owner: from.u32()?,
            owner_generation: from.u32()?,
            start: from.u64()?,
            end: from.u64()?,
        };
        if lock.owner_kind > 2 || lock.kind > 1 || lock.start >= lock.end {
            return Err(StoreError::Corrupt("an impossible lock"));
        }
        locks.push(lock);
    }
    from.finish()?;
    Ok(locks)
}

/// Identity and fixed options of the instance that the store belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// The instance.
    pub id: u64,
    /// Number of this shard.
    pub shard: u32,
    /// Size of a chunk, logarithm to base 2 of bytes.
    pub chunk_log2: u8,
}

impl Instance {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![INSTANCE_V1];
        record.put_u64(self.id);
        record.put_u32(self.shard);
        record.push(self.chunk_log2);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Instance, StoreError> {
        let mut from = form(record, INSTANCE_V1)?;
        let instance = Instance { id: from.u64()?, shard: from.u32()?, chunk_log2: from.u8()? };
        from.finish()?;
        Ok(instance)
    }
}

/// The slot table: runs of slots with one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRanges {
    /// Version of the table.
    pub version: u32,
    /// First slot of each run and its owner, ascending, the first run at slot 0.
    pub runs: Vec<(u16, u32)>,
}

impl SlotRanges {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![SLOTS_V1];
        record.put_u32(self.version);
        record.put_u32(self.runs.len() as u32);
        for (first, owner) in &self.runs {
            record.put_u16(*first);
            record.put_u32(*owner);
        }
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<SlotRanges, StoreError> {
        let mut from = form(record, SLOTS_V1)?;
        let version = from.u32()?;
        let count = from.u32()?;
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push((from.u16()?, from.u32()?));
        }
        from.finish()?;
        let ascending = runs.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if runs.first().is_none_or(|run| run.0 != 0) || !ascending {
            return Err(StoreError::Corrupt("an impossible slot table"));
        }
        Ok(SlotRanges { version, runs })
    }
}
