//! The node's dentry cache: directories and symbolic links, and files of other nodes that are told
//! under a lease ([`crate::namespace::attributes`]).
//!
//! A cached path costs no look into the store. Entries are found by (directory id, name), so
//! renaming a directory above changes nothing here; renaming or removing the entry itself forgets
//! it. The size is bounded by keeping two generations: when the young one is full it becomes the
//! old one and the former old one goes; an entry found in the old one is young again.

use std::{collections::HashMap, sync::Arc};

use mayfly_meta::key;
use mayfly_types::{Attr, FileId};

use crate::maps::by_number::ByNumber;

/// See [`DentryCache::insert`].
pub(crate) const FOR_EVER: i64 = i64::MAX;

/// What a cached name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cached {
    Directory(FileId),
    Symlink(FileId, Arc<[u8]>),
    /// And whether its bytes are in the records.
    File(Box<Attr>, bool),
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
    trodden: Trodden,
}

/// So many directories a path may lead through to be remembered as a whole.
const TRODDEN_MAX: usize = 8;

/// The hashes of the names of directories that a walk led through.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Way {
    hashes: [u64; TRODDEN_MAX],
    pub(crate) count: usize,
}

impl Way {
    /// One more; `None` when they are too many.
    pub(super) fn and(mut self, hash: u64) -> Option<Way> {
        *self.hashes.get_mut(self.count)? = hash;
        self.count += 1;
        Some(self)
    }

    fn hashes(&self) -> &[u64] {
        self.hashes.get(..self.count).unwrap_or(&self.hashes)
    }
}

/// The beginning of a path that was walked, and where it led: through directories that are names
/// of each other, by no link and not upwards. Who asks for one file of a directory asks for the
/// next one mostly by the same words.
#[derive(Debug, Default)]
struct Trodden {
    start: FileId,
    /// With the slash behind it.
    path: Vec<u8>,
    directory: FileId,
    way: Way,
}

impl DentryCache {
    pub(crate) fn new(entries_max: usize) -> Self {
        let (young, old) = (Map::default(), Map::default());
        DentryCache { young, old, entries_max, trodden: Trodden::default() }
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

    /// What is kept of a name, whether that may be believed still or not. It does not get younger
    /// by that.
    fn peek(&self, directory: FileId, name: &[u8]) -> Option<&Entry> {
        let hash = key::cookie(directory, name);
        let entry = self.young.get(&hash).or_else(|| self.old.get(&hash))?;
        (entry.directory == directory && *entry.name == *name).then_some(entry)
    }

    /// The directory that a name stands for, and from which second on that is not to be believed.
    pub(crate) fn directory(
        &self,
        directory: FileId,
        name: &[u8],
        now: i64,
    ) -> Option<(FileId, i64)> {
        let entry = self.peek(directory, name).filter(|entry| now < entry.until)?;
        match &entry.cached {
            Cached::Directory(id) => Some((*id, entry.until)),
            _ => None,
        }
    }

    /// Whether the bytes of a file of another node's may be believed at that second.
    pub(crate) fn has_bytes(&self, directory: FileId, name: &[u8], at: i64) -> bool {
        let entry = self.peek(directory, name).filter(|entry| at < entry.until);
        entry.is_some_and(|entry| matches!(entry.cached, Cached::File(_, true)))
    }

    /// From which second on a file of another node's is not to be believed.
    pub(crate) fn file_until(&self, directory: FileId, name: &[u8]) -> Option<i64> {
        let entry = self.peek(directory, name)?;
        matches!(entry.cached, Cached::File(..)).then_some(entry.until)
    }

    /// `until`: the second from which on it is not to be believed, [`FOR_EVER`] for who is told of
    /// every change.
    pub(crate) fn insert(&mut self, directory: FileId, name: &[u8], cached: Cached, until: i64) {
        let hash = key::cookie(directory, name);
        self.old.remove(&hash);
        self.insert_entry(hash, Entry { directory, name: name.into(), cached, until });
    }

    /// The shard that told of an entry may have forgotten that it did.
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

    /// How much of a path need not be walked, since it was just now, and the directory to which
    /// that led. What is left begins with a name.
    pub(super) fn trodden(&self, start: FileId, path: &[u8]) -> Option<(usize, FileId, Way)> {
        let Trodden { start: from, path: known, directory, way } = &self.trodden;
        let behind = path.get(known.len()).is_some_and(|byte| *byte != b'/');
        let it_is = !known.is_empty() && *from == start && behind && path.starts_with(known);
        it_is.then_some((known.len(), *directory, *way))
    }

    /// A walk from `start` along `path`, which ends with a slash, led through these names of
    /// directories alone. Each of them is forgotten before it changes.
    pub(super) fn tread(&mut self, (start, path): (FileId, &[u8]), directory: FileId, way: Way) {
        let known = &mut self.trodden;
        (known.start, known.directory, known.way) = (start, directory, way);
        known.path.clear();
        known.path.extend_from_slice(path);
    }

    /// To be called whenever the dentry changes.
    pub(crate) fn forget(&mut self, hash: u64) {
        if self.trodden.way.hashes().contains(&hash) {
            self.trodden = Trodden::default();
        }
        self.young.remove(&hash);
        if !self.old.is_empty() {
            self.old.remove(&hash);
        }
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
    fn a_way_is_forgotten_with_each_of_its_names() {
        let names = [key::cookie(FileId(1), b"a"), key::cookie(FileId(2), b"b")];
        let way = Way::default().and(names[0]).and_then(|way| way.and(names[1])).unwrap();
        for name in names {
            let mut cache = DentryCache::new(100);
            cache.tread((FileId(1), b"a//b/"), FileId(3), way);
            let found = cache.trodden(FileId(1), b"a//b/name").map(|found| (found.0, found.1));
            assert_eq!(found, Some((5, FileId(3))));
            for other in ["a//b/", "a//b", "a//b//name", "a/b/name", "a//bc/name", ""] {
                assert!(cache.trodden(FileId(1), other.as_bytes()).is_none(), "{other}");
            }
            assert!(cache.trodden(FileId(2), b"a//b/name").is_none(), "from elsewhere");
            cache.forget(key::cookie(FileId(3), b"name"));
            assert!(cache.trodden(FileId(1), b"a//b/name").is_some());
            cache.forget(name);
            assert!(cache.trodden(FileId(1), b"a//b/name").is_none());
        }
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
