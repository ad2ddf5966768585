//! Objects: one node's part of one file, one sparse file in the node-local file system.
//!
//! The bytes of a file that outgrew its inode are in objects. Processes of the node open the object
//! of a local file themselves and read and write it directly (the daemon's leave permitting), so an
//! object's *length*, *space* and *times* are the truth about the file while it is being written,
//! and this crate reports them. A name in the namespace never moves an object: its path follows
//! from file id and generation.
//!
//! [`DirectoryStore`] keeps objects in a directory; [`MemoryStore`] is its twin for the simulator
//! and for tests; one conformance suite runs on both. [`Jobs`] is the bounded pool in which a
//! daemon runs whatever may wait for a disk. The crate knows no network, no clock and no metadata.

mod directory;
mod jobs;
mod listing;
mod memory;
mod spread;

pub use directory::DirectoryStore;
pub use jobs::{BY_HAND, Jobs};
pub use memory::MemoryStore;
pub use spread::{Further, spread};

use mayfly_types::{Errno, FileId, ObjectPath, Timestamp};

/// Names an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// The file.
    pub file: FileId,
    /// Which of the file's objects: each spill makes a new generation, from 1.
    pub generation: u32,
}

impl ObjectId {
    /// Path relative to the object directory: two hexadecimal digits of the file number to keep
    /// directories short, then file id and generation.
    #[must_use]
    pub fn path(self) -> String {
        String::from_utf8_lossy(ObjectPath::of(self.file, self.generation).as_bytes()).into_owned()
    }

    fn directory(self) -> u64 {
        self.file.0 & 0xff
    }

    /// The object whose path this is; nothing when there is none.
    #[must_use]
    pub fn of_path(path: &str) -> Option<ObjectId> {
        let (file, generation) = path.split_once('/')?.1.split_once('.')?;
        let file = FileId(u64::from_str_radix(file, 16).ok()?);
        let id = ObjectId { file, generation: generation.parse().ok()? };
        // Signs, leading zeros, another directory: another path.
        (id.path() == path).then_some(id)
    }

    /// In which order objects are listed: as they lie in directories.
    fn place(self) -> (u64, ObjectId) {
        (self.directory(), self)
    }
}

/// An object in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Which.
    pub id: ObjectId,
    /// Length, bytes.
    pub size_bytes: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
}

/// What an object's length, space and times are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectAttr {
    /// Length, bytes.
    pub size_bytes: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
    /// Somebody may have mapped it, and have its bytes in memory long after the last descriptor
    /// was closed ([`mayfly_types::OBJECT_MAPPED`]).
    pub mapped: bool,
}

/// What to do with a range of an object, as `fallocate` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// Its space is taken; the object reaches to its end at least.
    Extend,
    /// Its space is taken; the length stays.
    Reserve,
    /// It reads as zeros and gives its space back; the length stays.
    Punch,
    /// It reads as zeros, its space is taken, and the object reaches to its end at least.
    ZeroExtend,
    /// It reads as zeros and its space is taken; the length stays.
    Zero,
}

/// Space of the file system below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it, bytes.
    pub total_bytes: u64,
    /// What is left for us, bytes.
    pub free_bytes: u64,
}

/// Keeps objects. May be used by several threads; calls block for as long as the disk takes.
pub trait ObjectStore: Send + Sync {
    /// Makes an object that holds `bytes`, in place of whatever has its name.
    ///
    /// # Errors
    /// What the file system says.
    fn create(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno>;

    /// Reads at `offset` until `buffer` is full or the object ends; returns the number of bytes.
    ///
    /// # Errors
    /// What the file system says; ENOENT when there is no such object.
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// As [`ObjectStore::read`], into memory of its own: so many bytes, or fewer where the object
    /// ends.
    ///
    /// # Errors
    /// As [`ObjectStore::read`].
    fn read_up_to(&self, id: ObjectId, offset: u64, count: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; count];
        let count = self.read(id, offset, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the file system says; then part of the bytes may have been written.
    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Writes all of `bytes` at the end, wherever that is at that moment; returns the new end.
    ///
    /// # Errors
    /// What the file system says.
    fn append(&self, id: ObjectId, bytes: &[u8]) -> Result<u64, Errno>;

    /// Cuts or extends (with a hole).
    ///
    /// # Errors
    /// What the file system says.
    fn set_size(&self, id: ObjectId, size_bytes: u64) -> Result<(), Errno>;

    /// Takes or gives back the space of `bytes` bytes at `offset`.
    ///
    /// # Errors
    /// What the file system says; EOPNOTSUPP when it cannot do that.
    fn allocate(
        &self,
        id: ObjectId,
        what: Allocation,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno>;

    /// Length, space and times.
    ///
    /// # Errors
    /// ENOENT when there is no such object.
    fn attr(&self, id: ObjectId) -> Result<ObjectAttr, Errno>;

    /// Sets access and modification time; `None` leaves one alone.
    ///
    /// # Errors
    /// What the file system says.
    fn set_times(
        &self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno>;

    /// Makes its bytes survive a power loss.
    ///
    /// # Errors
    /// What the file system says.
    fn sync(&self, id: ObjectId) -> Result<(), Errno>;

    /// The first offset from `offset` on that has data, or the first in a hole; the end is one.
    /// `None` when there is none. A store that does not know of holes has none but that.
    ///
    /// # Errors
    /// What the file system says; ENOENT when there is no such object.
    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<Option<u64>, Errno> {
        let end = self.attr(id)?.size_bytes;
        Ok((offset < end).then_some(if hole { end } else { offset }))
    }

    /// Makes the bytes of every object survive a power loss.
    ///
    /// # Errors
    /// What the file system says.
    fn sync_all(&self) -> Result<(), Errno>;

    /// Cuts it to nothing, then removes it: a process that still has it open frees no space later.
    /// An absent object is fine. One that somebody may have mapped, to execute it or otherwise,
    /// keeps its bytes until the last mapping ends.
    ///
    /// # Errors
    /// What the file system says.
    fn remove(&self, id: ObjectId) -> Result<(), Errno>;

    /// The objects that come after `after`, or the first ones, at most `count_max` of them, in an
    /// order that does not change; fewer only at the end. What is made or removed meanwhile may be
    /// among them or not.
    ///
    /// # Errors
    /// What the file system says.
    fn list(&self, after: Option<ObjectId>, count_max: usize) -> Result<Vec<Listed>, Errno>;

    /// Gives up every descriptor with which the store could write the object, as long as no call
    /// needs one: the kernel does not execute a file that is open for writing.
    fn let_run(&self, id: ObjectId);

    /// Whether a call may wait for a disk. Where the objects lie in memory nothing does, and to
    /// hand a small call to another thread would cost more than the call.
    fn may_wait(&self) -> bool;

    /// The same as [`ObjectStore::attr`] if that waits for nothing just now, because the object is
    /// open or nothing here waits at all; otherwise `None`.
    ///
    /// # Errors
    /// What the file system says.
    fn attr_at_hand(&self, id: ObjectId) -> Result<Option<ObjectAttr>, Errno>;

    /// Removes the kernel's own pipe or socket that stood for one in the instance, if it is one and
    /// lies in a directory for them ([`mayfly_types::special`]) of this machine.
    fn abandon(&self, place: &[u8]);

    /// Space below.
    ///
    /// # Errors
    /// What the file system says.
    fn space(&self) -> Result<Space, Errno>;
}
