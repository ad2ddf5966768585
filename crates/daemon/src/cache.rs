//! The node's dentry cache: directories and symbolic links, never files.
//!
//! A cached path costs no look into the store. Entries are found by (directory id, name), so
//! renaming a directory above changes nothing here; renaming or removing the entry itself forgets
//! it. The size is bounded by keeping two generations: when the young one is full it becomes the
//! old one and the former old one goes; an entry found in the old one is young again.

use std::{collections::HashMap, sync::Arc};

use mayfly_meta::key;
use mayfly_types::FileId;

use crate::by_number::ByNumber;

/// What a cached name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cached {
    Directory(FileId),
    Symlink(FileId, Arc<[u8]>),
}

struct Entry {
    directory: FileId,
    name: Box<[u8]>,
    cached: Cached,
}

type Map = HashMap<u64, Entry, ByNumber>;

pub(crate) struct DentryCache {
    young: Map,
    old: Map,
    entries_max: usize,
}

impl DentryCache {
    pub(crate) fn new(entries_max: usize) -> Self {
        DentryCache { young: Map::default(), old: Map::default(), entries_max }
    }

    /// `hash` is the [`key::cookie`] of the name, here and below.
    pub(crate) fn get(&mut self, hash: u64, directory: FileId, name: &[u8]) -> Option<Cached> {
        let is_it = |entry: &&Entry| entry.directory == directory && *entry.name == *name;
        if let Some(entry) = self.young.get(&hash).filter(is_it) {
            return Some(entry.cached.clone());
        }
        self.old.get(&hash).filter(is_it)?;
        let entry = self.old.remove(&hash)?;
        let cached = entry.cached.clone();
        self.insert_entry(hash, entry);
        Some(cached)
    }

    pub(crate) fn insert(&mut self, directory: FileId, name: &[u8], cached: Cached) {
        let hash = key::cookie(directory, name);
        self.old.remove(&hash);
        self.insert_entry(hash, Entry { directory, name: name.into(), cached });
    }

    fn insert_entry(&mut self, hash: u64, entry: Entry) {
        if self.young.len() >= self.entries_max.div_ceil(2) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, entry);
    }

    /// To be called whenever the dentry changes.
    pub(crate) fn forget(&mut self, hash: u64) {
        self.young.remove(&hash);
        self.old.remove(&hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_stays_within_its_bound_and_keeps_what_is_used() {
        let mut cache = DentryCache::new(100);
        let used = key::cookie(FileId(1), b"used");
        cache.insert(FileId(1), b"used", Cached::Directory(FileId(2)));
        for number in 0..10_000_u64 {
            cache.insert(FileId(number + 10), b"x", Cached::Directory(FileId(3)));
            assert!(cache.get(used, FileId(1), b"used").is_some());
            assert!(cache.young.len() + cache.old.len() <= 101);
        }
        cache.forget(used);
        assert_eq!(cache.get(used, FileId(1), b"used"), None);
    }
}
