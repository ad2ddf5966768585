//! Objects on a disk that has to be waited for, whatever the directory lies on.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use mayfly_object::{Allocation, DirectoryStore, Listed, ObjectAttr, ObjectId, ObjectStore, Space};
use mayfly_types::{Errno, Timestamp};

/// Objects that are at hand at once.
const AT_HAND_MAX: usize = 2;

/// Every call has to be waited for, except looking at the objects that were used last. Whoever
/// calls without leave to wait fails the test.
#[derive(Debug)]
pub struct SlowStore {
    pub objects: DirectoryStore,
    pub may_wait: Arc<AtomicBool>,
    pub at_hand: Mutex<VecDeque<ObjectId>>,
}

impl SlowStore {
    fn waits(&self) -> &DirectoryStore {
        assert!(self.may_wait.load(SeqCst), "a shard waits for a disk");
        &self.objects
    }

    fn uses(&self, id: ObjectId) -> &DirectoryStore {
        let objects = self.waits();
        let mut at_hand = self.at_hand.lock().unwrap();
        at_hand.retain(|other| *other != id);
        at_hand.push_front(id);
        at_hand.truncate(AT_HAND_MAX);
        objects
    }

    fn gives_up(&self, id: ObjectId) {
        self.at_hand.lock().unwrap().retain(|other| *other != id);
    }
}

impl ObjectStore for SlowStore {
    fn create(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno> {
        self.uses(id).create(id, bytes)
    }

    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.uses(id).read(id, offset, buffer)
    }

    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.uses(id).write(id, offset, bytes)
    }

    fn append(&self, id: ObjectId, bytes: &[u8]) -> Result<u64, Errno> {
        self.waits().append(id, bytes)
    }

    fn set_size(&self, id: ObjectId, size_bytes: u64) -> Result<(), Errno> {
        self.uses(id).set_size(id, size_bytes)
    }

    fn allocate(
        &self,
        id: ObjectId,
        what: Allocation,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        self.uses(id).allocate(id, what, offset, bytes)
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
        self.uses(id).set_times(id, atime, mtime)
    }

    fn sync(&self, id: ObjectId) -> Result<(), Errno> {
        self.uses(id).sync(id)
    }

    fn sync_all(&self) -> Result<(), Errno> {
        self.waits().sync_all()
    }

    fn remove(&self, id: ObjectId) -> Result<(), Errno> {
        self.gives_up(id);
        self.waits().remove(id)
    }

    fn abandon(&self, place: &[u8]) {
        self.waits().abandon(place);
    }

    fn list(&self, after: Option<ObjectId>, count_max: usize) -> Result<Vec<Listed>, Errno> {
        self.objects.list(after, count_max)
    }

    fn let_run(&self, id: ObjectId) {
        self.gives_up(id);
        self.objects.let_run(id);
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn attr_at_hand(&self, id: ObjectId) -> Result<Option<ObjectAttr>, Errno> {
        let is_at_hand = self.at_hand.lock().unwrap().contains(&id);
        is_at_hand.then(|| self.objects.attr(id)).transpose()
    }

    fn space(&self) -> Result<Space, Errno> {
        self.objects.space()
    }
}
