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

/// See [`DentryCache::insert`].
pub(crate) const FOR_EVER: i64 = i64::MAX;

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
    /// Not to be believed from this second on.
    until: i64,
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

    /// `hash` is the [`key::cookie`] of the name, here and below; `now` the present, seconds.
    pub(crate) fn get(
        &mut self,
        hash: u64,
        directory: FileId,
        name: &[u8],
        now: i64,
    ) -> Option<Cached> {
        let is_it = |entry: &&Entry| {
            entry.directory == directory && *entry.name == *name && now < entry.until
        };
        if let Some(entry) = self.young.get(&hash).filter(is_it) {
            return Some(entry.cached.clone());
        }
        self.old.get(&hash).filter(is_it)?;
        let entry = self.old.remove(&hash)?;
        let cached = entry.cached.clone();
        self.insert_entry(hash, entry);
        Some(cached)
    }

    /// `until`: the second from which on it is not to be believed, [`FOR_EVER`] for who is told of
    /// every change.
    pub(crate) fn insert(&mut self, directory: FileId, name: &[u8], cached: Cached, until: i64) {
        let hash = key::cookie(directory, name);
        self.old.remove(&hash);
        self.insert_entry(hash, Entry { directory, name: name.into(), cached, until });
    }

    /// Whoever told of some of the entries may have forgotten that it did.
    pub(crate) fn forget_leases(&mut self) {
        for map in [&mut self.young, &mut self.old] {
            map.retain(|_, entry| entry.until == FOR_EVER);
        }
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
        cache.insert(FileId(1), b"used", Cached::Directory(FileId(2)), FOR_EVER);
        for number in 0..10_000_u64 {
            cache.insert(FileId(number + 10), b"x", Cached::Directory(FileId(3)), FOR_EVER);
            assert!(cache.get(used, FileId(1), b"used", 0).is_some());
            assert!(cache.young.len() + cache.old.len() <= 101);
        }
        cache.forget(used);
        assert_eq!(cache.get(used, FileId(1), b"used", 0), None);
    }

    #[test]
    fn a_lease_runs_out() {
        let mut cache = DentryCache::new(100);
        let hash = key::cookie(FileId(1), b"name");
        cache.insert(FileId(1), b"name", Cached::Directory(FileId(2)), 10);
        assert!(cache.get(hash, FileId(1), b"name", 9).is_some());
        assert_eq!(cache.get(hash, FileId(1), b"name", 10), None);
        cache.forget_leases();
        assert_eq!(cache.get(hash, FileId(1), b"name", 0), None);
    }
}
