//! Objects on a disk that has to be waited for, whatever the directory lies on.

use mayfly_object::{DirectoryStore, ObjectAttr, ObjectId, ObjectStore, Space};
use mayfly_types::{Errno, Timestamp};

/// Says that every call may wait, and that no object is at hand.
#[derive(Debug)]
pub struct SlowStore {
    pub objects: DirectoryStore,
}

impl ObjectStore for SlowStore {
    fn create(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno> {
        self.objects.create(id, bytes)
    }

    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.objects.read(id, offset, buffer)
    }

    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.objects.write(id, offset, bytes)
    }

    fn append(&self, id: ObjectId, bytes: &[u8]) -> Result<u64, Errno> {
        self.objects.append(id, bytes)
    }

    fn set_size(&self, id: ObjectId, size_bytes: u64) -> Result<(), Errno> {
        self.objects.set_size(id, size_bytes)
    }

    fn attr(&self, id: ObjectId) -> Result<ObjectAttr, Errno> {
        self.objects.attr(id)
    }

    fn set_times(
        &self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        self.objects.set_times(id, atime, mtime)
    }

    fn sync(&self, id: ObjectId) -> Result<(), Errno> {
        self.objects.sync(id)
    }

    fn sync_all(&self) -> Result<(), Errno> {
        self.objects.sync_all()
    }

    fn remove(&self, id: ObjectId) -> Result<(), Errno> {
        self.objects.remove(id)
    }

    fn let_run(&self, id: ObjectId) {
        self.objects.let_run(id);
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn is_at_hand(&self, _id: ObjectId) -> bool {
        false
    }

    fn space(&self) -> Result<Space, Errno> {
        self.objects.space()
    }
}
