//! The in-memory twin: a B-tree.
//!
//! [`MemoryDisk`] is what survives: a store opened on a disk that another store left sees what that
//! one committed, exactly as with LMDB after a crash. A [`MemoryStore::volatile`] one has none: it
//! keeps each record once, its commits only count, and with it everything is gone.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{KEY_BYTES_MAX, Scan, Store, StoreError};

type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Default)]
struct Committed {
    tree: Tree,
    transaction: u64,
    fail_next_commit: bool,
}

/// What is left when the store is gone.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Committed>>);

impl MemoryDisk {
    /// Lets the next commit fail, as a full or broken disk would.
    pub fn fail_next_commit(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fail_next_commit = true;
    }
}

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    disk: Option<MemoryDisk>,
    tree: Tree,
    /// What the transaction under way has changed; empty where there is no disk.
    changed: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    dirty: bool,
    committed: u64,
    used_bytes: u64,
    limit_bytes: u64,
    poisoned: bool,
}

impl MemoryStore {
    /// Opens what `disk` holds; `limit_bytes` is where [`Store::has_room`] turns false.
    #[must_use]
    pub fn open(disk: &MemoryDisk, limit_bytes: u64) -> Self {
        let kept = disk.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used_bytes = kept.tree.iter().map(|(key, value)| cost(key, value)).sum();
        MemoryStore {
            disk: Some(disk.clone()),
            tree: kept.tree.clone(),
            changed: BTreeMap::new(),
            dirty: false,
            committed: kept.transaction,
            used_bytes,
            limit_bytes,
            poisoned: false,
        }
    }

    /// An empty store that nothing outlives.
    #[must_use]
    pub fn volatile(limit_bytes: u64) -> Self {
        MemoryStore {
            disk: None,
            tree: Tree::new(),
            changed: BTreeMap::new(),
            dirty: false,
            committed: 0,
            used_bytes: 0,
            limit_bytes,
            poisoned: false,
        }
    }

    fn note(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.dirty = true;
        if self.disk.is_some() {
            self.changed.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
    }

    fn check(&self, key: &[u8]) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(StoreError::BadKey);
        }
        Ok(())
    }
}

fn cost(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

impl Store for MemoryStore {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.check(key)?;
        Ok(self.tree.get(key).map(Vec::as_slice))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.check(key)?;
        self.used_bytes += cost(key, value);
        if let Some(place) = self.tree.get_mut(key) {
            self.used_bytes -= cost(key, place);
            place.clear();
            place.extend_from_slice(value);
        } else {
            self.tree.insert(key.to_vec(), value.to_vec());
        }
        self.note(key, Some(value));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.check(key)?;
        let Some(old) = self.tree.remove(key) else { return Ok(false) };
        self.used_bytes -= cost(key, &old);
        self.note(key, None);
        Ok(true)
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError> {
        self.check(from)?;
        for (key, value) in self.tree.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            if !key.starts_with(prefix) || visit(key, value) == Scan::Enough {
                break;
            }
        }
        Ok(())
    }

    fn move_directory(&mut self) -> Result<(), StoreError> {
        // Nobody else reads it.
        Ok(())
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        if !std::mem::take(&mut self.dirty) {
            return Ok(self.committed);
        }
        let Some(disk) = &self.disk else {
            self.committed += 1;
            return Ok(self.committed);
        };
        let mut kept = disk.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut kept.fail_next_commit) {
            self.poisoned = true;
            return Err(StoreError::Backend("a commit was made to fail".to_owned()));
        }
        for (key, value) in std::mem::take(&mut self.changed) {
            match value {
                Some(value) => kept.tree.insert(key, value),
                None => kept.tree.remove(&key),
            };
        }
        kept.transaction += 1;
        self.committed = kept.transaction;
        Ok(self.committed)
    }

    fn pending_transaction(&self) -> u64 {
        if !self.dirty && !self.poisoned { 0 } else { self.committed + 1 }
    }

    fn committed_transaction(&self) -> u64 {
        self.committed
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn has_room(&mut self) -> bool {
        self.used_bytes < self.limit_bytes
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.poisoned { Err(StoreError::Poisoned) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volatile_store_counts_its_transactions_and_keeps_nothing_twice() {
        let mut store = MemoryStore::volatile(1 << 20);
        assert_eq!(store.commit().expect("nothing to do"), 0);
        store.put(b"key", b"value").expect("there is room");
        store.put(b"key", b"longer value").expect("there is room");
        assert_eq!(store.pending_transaction(), 1);
        assert!(store.changed.is_empty());
        assert_eq!(store.commit().expect("it cannot fail"), 1);
        assert_eq!(store.pending_transaction(), 0);
        assert_eq!(store.get(b"key").expect("a good key"), Some(&b"longer value"[..]));
        assert_eq!(store.used_bytes(), 15);
        assert!(store.delete(b"key").expect("a good key"));
        assert_eq!((store.used_bytes(), store.commit().expect("it cannot fail")), (0, 2));
    }
}
