//! Simulated disks: objects that have to be waited for, that fill up and fail, and a store that
//! breaks its promise on purpose.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use mayfly_meta::{MemoryDisk, MemoryStore, Scan, Store, StoreError};
use mayfly_object::{Allocation, Listed, ObjectAttr, ObjectId, ObjectStore, Space};
use mayfly_types::{Errno, Timestamp};

use crate::dice::Dice;

/// Objects that are at hand without waiting.
const AT_HAND_MAX: usize = 4;
/// Space of a node's disk, bytes.
const DISK_BYTES: u64 = 1 << 32;

/// What a disk that is broken on purpose does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Some writes are acknowledged and not done.
    LosesWrites,
    /// Some objects that are removed stay.
    KeepsObjects,
}

/// The objects of a node. They outlive its daemons.
#[derive(Debug)]
pub struct Disk {
    objects: mayfly_object::MemoryStore,
    at_hand: Mutex<VecDeque<ObjectId>>,
    /// Nothing that takes space succeeds.
    pub full: AtomicBool,
    /// Nothing that writes succeeds.
    pub failing: AtomicBool,
    planted: Option<Planted>,
    calls: AtomicU64,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            objects: mayfly_object::MemoryStore::new(DISK_BYTES),
            at_hand: Mutex::default(),
            full: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            planted: None,
            calls: AtomicU64::new(0),
        }
    }
}

impl Disk {
    /// One that is broken on purpose.
    #[must_use]
    pub fn planted(planted: Planted) -> Disk {
        Disk { planted: Some(planted), ..Disk::default() }
    }

    /// Every fifth call meets it.
    fn meets(&self, planted: Planted) -> bool {
        self.planted == Some(planted) && self.calls.fetch_add(1, Relaxed) % 5 == 4
    }

    /// Objects there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.objects.count()
    }

    /// What only an earlier daemon had at hand.
    pub fn forget(&self) {
        self.at_hand().clear();
    }

    /// The length of an object, for a process that has it open.
    ///
    /// # Errors
    /// It is gone.
    pub fn attr_of_process(&self, id: ObjectId) -> Result<u64, Errno> {
        self.objects.attr(id).map(|attr| attr.size_bytes)
    }

    /// A process makes an object that is not there.
    ///
    /// # Errors
    /// EEXIST; what the disk says.
    pub fn make_of_process(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno> {
        if self.objects.attr(id).is_ok() {
            return Err(Errno::EEXIST);
        }
        if self.full.load(Relaxed) || self.failing.load(Relaxed) {
            return Err(Errno::ENOSPC);
        }
        self.objects.create(id, bytes)
    }

    /// The objects, for a process that has them open.
    #[must_use]
    pub fn objects(&self) -> &mayfly_object::MemoryStore {
        &self.objects
    }

    /// A process fills an object, which may be there.
    ///
    /// # Errors
    /// What the disk says.
    pub fn fill_of_process(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno> {
        self.check_room()?;
        let _removed = self.objects.remove(id);
        self.objects.create(id, bytes)
    }

    /// A process can write to an object that it has open.
    ///
    /// # Errors
    /// ENOSPC.
    pub fn check_room(&self) -> Result<(), Errno> {
        match self.full.load(Relaxed) || self.failing.load(Relaxed) {
            true => Err(Errno::ENOSPC),
            false => Ok(()),
        }
    }

    /// It removes it again.
    pub fn remove_of_process(&self, id: ObjectId) {
        // What is not removed has its mark.
        let _removed = self.objects.remove(id);
    }

    fn at_hand(&self) -> std::sync::MutexGuard<'_, VecDeque<ObjectId>> {
        self.at_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self, id: ObjectId) -> &mayfly_object::MemoryStore {
        let mut at_hand = self.at_hand();
        at_hand.retain(|other| *other != id);
        at_hand.push_front(id);
        at_hand.truncate(AT_HAND_MAX);
        &self.objects
    }

    fn writes(&self, id: ObjectId) -> Result<&mayfly_object::MemoryStore, Errno> {
        if self.failing.load(Relaxed) {
            return Err(Errno::EIO);
        }
        Ok(self.uses(id))
    }

    fn takes_space(&self, id: ObjectId) -> Result<&mayfly_object::MemoryStore, Errno> {
        if self.full.load(Relaxed) {
            return Err(Errno::ENOSPC);
        }
        self.writes(id)
    }
}

impl ObjectStore for Disk {
    /// No process makes pipes or sockets here.
    fn abandon(&self, _place: &[u8]) {}

    fn create(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno> {
        self.takes_space(id)?.create(id, bytes)
    }

    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.uses(id).read(id, offset, buffer)
    }

    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let objects = self.takes_space(id)?;
        if self.meets(Planted::LosesWrites) { Ok(()) } else { objects.write(id, offset, bytes) }
    }

    fn append(&self, id: ObjectId, bytes: &[u8]) -> Result<u64, Errno> {
        self.takes_space(id)?.append(id, bytes)
    }

    fn set_size(&self, id: ObjectId, size_bytes: u64) -> Result<(), Errno> {
        self.writes(id)?.set_size(id, size_bytes)
    }

    fn allocate(
        &self,
        id: ObjectId,
        what: Allocation,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        self.takes_space(id)?.allocate(id, what, offset, bytes)
    }

    fn attr(&self, id: ObjectId) -> Result<ObjectAttr, Errno> {
        self.uses(id).attr(id)
    }

    fn set_times(
        &self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        self.writes(id)?.set_times(id, atime, mtime)
    }

    fn sync(&self, id: ObjectId) -> Result<(), Errno> {
        self.writes(id)?.sync(id)
    }

    fn sync_all(&self) -> Result<(), Errno> {
        self.objects.sync_all()
    }

    fn remove(&self, id: ObjectId) -> Result<(), Errno> {
        self.at_hand().retain(|other| *other != id);
        if self.meets(Planted::KeepsObjects) { Ok(()) } else { self.objects.remove(id) }
    }

    fn list(&self, after: Option<ObjectId>, count_max: usize) -> Result<Vec<Listed>, Errno> {
        self.objects.list(after, count_max)
    }

    fn let_run(&self, id: ObjectId) {
        self.at_hand().retain(|other| *other != id);
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn attr_at_hand(&self, id: ObjectId) -> Result<Option<ObjectAttr>, Errno> {
        let is_at_hand = self.at_hand().contains(&id);
        is_at_hand.then(|| self.objects.attr(id)).transpose()
    }

    fn space(&self) -> Result<Space, Errno> {
        self.objects.space()
    }
}

/// A store that acknowledges some transactions before they survive anything: the next one takes
/// them along, if there is one.
#[derive(Debug)]
pub struct Forgetful {
    store: MemoryStore,
    dice: Dice,
    /// The transaction that was acknowledged and is not kept.
    owed: bool,
    dirty: bool,
}

impl Forgetful {
    /// On a disk.
    #[must_use]
    pub fn open(disk: &MemoryDisk, limit_bytes: u64, dice: Dice) -> Forgetful {
        Forgetful { store: MemoryStore::open(disk, limit_bytes), dice, owed: false, dirty: false }
    }
}

impl Store for Forgetful {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.store.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.dirty = true;
        self.store.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.dirty = true;
        self.store.delete(key)
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError> {
        self.store.scan(prefix, from, visit)
    }

    fn move_directory(&mut self) -> Result<(), StoreError> {
        self.store.move_directory()
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        if !std::mem::take(&mut self.dirty) {
            return Ok(self.committed_transaction());
        }
        self.owed = self.dice.below(4) > 0;
        if self.owed { Ok(self.committed_transaction()) } else { self.store.commit() }
    }

    fn pending_transaction(&self) -> u64 {
        if self.dirty { self.store.committed_transaction() + 1 } else { 0 }
    }

    fn committed_transaction(&self) -> u64 {
        self.store.committed_transaction() + u64::from(self.owed)
    }

    fn used_bytes(&self) -> u64 {
        self.store.used_bytes()
    }

    fn has_room(&mut self) -> bool {
        self.store.has_room()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.store.sync()
    }
}
