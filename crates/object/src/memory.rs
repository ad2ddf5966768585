//! The in-memory twin of the object directory.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use mayfly_types::{Errno, Timestamp};

use crate::{Allocation, Listed, ObjectAttr, ObjectId, ObjectStore, Space, listing::Page};

#[derive(Debug, Default)]
struct Object {
    bytes: Vec<u8>,
    atime: Timestamp,
    mtime: Timestamp,
}

/// Objects in memory. Its clock is a counter, so that runs repeat.
#[derive(Debug)]
pub struct MemoryStore {
    objects: Mutex<(HashMap<ObjectId, Object>, i64)>,
    total_bytes: u64,
}

/// Longest object, so that a test cannot exhaust the memory.
const OBJECT_BYTES_MAX: u64 = 1 << 28;

impl MemoryStore {
    /// An empty store that reports `total_bytes` of space.
    #[must_use]
    pub fn new(total_bytes: u64) -> Self {
        MemoryStore { objects: Mutex::default(), total_bytes }
    }

    /// Number of objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).0.len()
    }

    fn with<T>(
        &self,
        id: ObjectId,
        work: impl FnOnce(&mut Object, Timestamp) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.1 += 1;
        let now = Timestamp { seconds: objects.1, nanoseconds: 0 };
        work(objects.0.get_mut(&id).ok_or(Errno::ENOENT)?, now)
    }
}

impl Object {
    fn resize(&mut self, size_bytes: u64) -> Result<(), Errno> {
        if size_bytes > OBJECT_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        self.bytes.resize(size_bytes as usize, 0);
        Ok(())
    }

    fn allocate(
        &mut self,
        what: Allocation,
        offset: u64,
        bytes: u64,
        now: Timestamp,
    ) -> Result<(), Errno> {
        let end = offset.checked_add(bytes).filter(|_| bytes > 0).ok_or(Errno::EINVAL)?;
        let extends = matches!(what, Allocation::Extend | Allocation::ZeroExtend);
        let size_bytes = self.bytes.len() as u64;
        if extends && end > size_bytes {
            self.resize(end)?;
        }
        if !matches!(what, Allocation::Extend | Allocation::Reserve) {
            let (start, end) = (offset.min(size_bytes), end.min(size_bytes));
            self.bytes[start as usize..end as usize].fill(0);
        }
        self.mtime = now;
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8], now: Timestamp) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        if end > self.bytes.len() as u64 {
            self.resize(end)?;
        }
        self.bytes[offset as usize..end as usize].copy_from_slice(bytes);
        self.mtime = now;
        Ok(())
    }
}

impl ObjectStore for MemoryStore {
    fn create(&self, id: ObjectId, bytes: &[u8]) -> Result<(), Errno> {
        self.objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .insert(id, Object { bytes: bytes.to_vec(), ..Object::default() });
        Ok(())
    }

    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.with(id, |object, _| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(object.bytes.len());
            let count = buffer.len().min(object.bytes.len() - start);
            buffer[..count].copy_from_slice(&object.bytes[start..start + count]);
            Ok(count)
        })
    }

    fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.with(id, |object, now| object.write(offset, bytes, now))
    }

    fn append(&self, id: ObjectId, bytes: &[u8]) -> Result<u64, Errno> {
        self.with(id, |object, now| {
            object.write(object.bytes.len() as u64, bytes, now)?;
            Ok(object.bytes.len() as u64)
        })
    }

    fn set_size(&self, id: ObjectId, size_bytes: u64) -> Result<(), Errno> {
        self.with(id, |object, now| {
            object.mtime = now;
            object.resize(size_bytes)
        })
    }

    fn allocate(
        &self,
        id: ObjectId,
        what: Allocation,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        self.with(id, |object, now| object.allocate(what, offset, bytes, now))
    }

    fn attr(&self, id: ObjectId) -> Result<ObjectAttr, Errno> {
        self.with(id, |object, _| {
            Ok(ObjectAttr {
                size_bytes: object.bytes.len() as u64,
                blocks: (object.bytes.len() as u64).div_ceil(512),
                atime: object.atime,
                mtime: object.mtime,
                ctime: object.mtime,
                mapped: false,
            })
        })
    }

    fn set_times(
        &self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        self.with(id, |object, _| {
            object.atime = atime.unwrap_or(object.atime);
            object.mtime = mtime.unwrap_or(object.mtime);
            Ok(())
        })
    }

    fn sync(&self, id: ObjectId) -> Result<(), Errno> {
        self.with(id, |_, _| Ok(()))
    }

    fn sync_all(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&self, id: ObjectId) -> Result<(), Errno> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&id);
        Ok(())
    }

    fn list(&self, after: Option<ObjectId>, count_max: usize) -> Result<Vec<Listed>, Errno> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = Page::new(after, count_max);
        objects.0.keys().for_each(|id| page.offer(*id));
        let listed = |id: ObjectId| {
            let size_bytes = objects.0.get(&id)?.bytes.len() as u64;
            Some(Listed { id, size_bytes, blocks: size_bytes.div_ceil(512) })
        };
        Ok(page.sorted().filter_map(listed).collect())
    }

    fn let_run(&self, _id: ObjectId) {}

    fn may_wait(&self) -> bool {
        false
    }

    fn attr_at_hand(&self, id: ObjectId) -> Result<Option<ObjectAttr>, Errno> {
        self.attr(id).map(Some)
    }

    fn abandon(&self, _place: &[u8]) {}

    fn space(&self) -> Result<Space, Errno> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let used: u64 = objects.0.values().map(|object| object.bytes.len() as u64).sum();
        let free_bytes = self.total_bytes.saturating_sub(used);
        Ok(Space { total_bytes: self.total_bytes, free_bytes })
    }
}
