//! What every store must do, run on each of them.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::{collections::BTreeMap, path::PathBuf};

use mayfly_meta::{
    LmdbOptions, LmdbStore, MemoryDisk, MemoryStore, Scan, Store, StoreError, TreeOptions,
    TreeStore, key,
};
use proptest::prelude::*;

/// A place where a store's content survives the store.
trait Bed {
    fn open(&self, limit_bytes: u64) -> Box<dyn Store>;
}

struct Memory(MemoryDisk);

impl Bed for Memory {
    fn open(&self, limit_bytes: u64) -> Box<dyn Store> {
        Box::new(MemoryStore::open(&self.0, limit_bytes))
    }
}

struct Lmdb {
    directory: tempfile::TempDir,
    sync: bool,
}

impl Lmdb {
    fn options(&self, limit_bytes: u64, boot_id: &[u8]) -> LmdbOptions {
        let directory: PathBuf = self.directory.path().join("meta");
        LmdbOptions { directory, limit_bytes, sync: self.sync, boot_id: boot_id.to_vec() }
    }
}

impl Bed for Lmdb {
    fn open(&self, limit_bytes: u64) -> Box<dyn Store> {
        Box::new(LmdbStore::open(&self.options(limit_bytes, b"boot")).unwrap())
    }
}

fn lmdb(sync: bool) -> Lmdb {
    Lmdb { directory: tempfile::tempdir().unwrap(), sync }
}

struct Tree(tempfile::TempDir);

impl Tree {
    fn options(&self, limit_bytes: u64, boot_id: &[u8]) -> TreeOptions {
        let directory = self.0.path().join("meta");
        TreeOptions { directory, limit_bytes, boot_id: boot_id.to_vec() }
    }
}

impl Bed for Tree {
    fn open(&self, limit_bytes: u64) -> Box<dyn Store> {
        Box::new(TreeStore::open(&self.options(limit_bytes, b"boot")).unwrap())
    }
}

fn tree() -> Tree {
    Tree(tempfile::tempdir().unwrap())
}

const LIMIT_BYTES: u64 = 1 << 30;

fn on_each(check: impl Fn(&dyn Bed)) {
    check(&Memory(MemoryDisk::default()));
    check(&lmdb(false));
    check(&lmdb(true));
    check(&tree());
}

fn all(store: &mut dyn Store, prefix: &[u8], from: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    store
        .scan(prefix, from, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            Scan::More
        })
        .unwrap();
    seen
}

#[test]
fn a_store_that_broke_in_a_transaction_never_looks_as_if_there_were_nothing_to_commit() {
    for bed in [&lmdb(false) as &dyn Bed, &tree()] {
        let mut store = bed.open(1 << 20);
        let number = store.committed_transaction();
        store.put(b"Ka", b"1").unwrap();
        // More than limit and reserve together.
        store.put(b"Kb", &vec![0; 300 << 20]).unwrap_err();
        assert!(store.pending_transaction() > number);
        assert!(store.commit().is_err());
        drop(store);
        assert_eq!(bed.open(1 << 20).get(b"Ka").unwrap(), None);
    }
    let disk = MemoryDisk::default();
    let mut store = Memory(disk.clone()).open(LIMIT_BYTES);
    store.put(b"Ka", b"1").unwrap();
    disk.fail_next_commit();
    assert!(store.commit().is_err());
    assert!(store.pending_transaction() > 0);
}

#[test]
fn a_store_outgrows_its_first_map_and_is_whole_after_reopening() {
    on_each(|bed| {
        let mut store = bed.open(LIMIT_BYTES);
        let key = |number: u32| [b"K", &number.to_be_bytes()[..]].concat();
        for round in 0..50 {
            for number in 0..250 {
                store.put(&key(round * 250 + number), &[round as u8; 4000]).unwrap();
            }
            store.commit().unwrap();
        }
        for number in (0..12_500).step_by(3) {
            assert!(store.delete(&key(number)).unwrap());
        }
        store.commit().unwrap();
        drop(store);
        let mut store = bed.open(LIMIT_BYTES);
        for number in 0..12_500 {
            let value = store.get(&key(number)).unwrap();
            let wanted = [(number / 250) as u8; 4000];
            assert_eq!(value, (number % 3 != 0).then_some(&wanted[..]), "{number}");
        }
        assert!(store.has_room());
    });
}

#[test]
fn what_was_committed_is_there_after_reopening_and_nothing_else() {
    on_each(|bed| {
        let mut store = bed.open(LIMIT_BYTES);
        store.put(b"Ka", b"1").unwrap();
        let number = store.commit().unwrap();
        store.put(b"Kb", b"2").unwrap();
        store.delete(b"Ka").unwrap();
        assert_eq!(store.get(b"Ka").unwrap(), None);
        assert_eq!(store.pending_transaction(), number + 1);
        drop(store);
        let mut store = bed.open(LIMIT_BYTES);
        assert_eq!(store.committed_transaction(), number);
        assert_eq!(all(&mut *store, b"K", b"K"), [(b"Ka".to_vec(), b"1".to_vec())]);
    });
}

#[test]
fn only_a_transaction_that_wrote_gets_a_number() {
    on_each(|bed| {
        let mut store = bed.open(LIMIT_BYTES);
        let before = store.commit().unwrap();
        assert_eq!(store.get(b"K").unwrap(), None);
        assert!(!store.delete(b"K").unwrap());
        assert_eq!(store.pending_transaction(), 0);
        assert_eq!(store.commit().unwrap(), before);
        store.put(b"K", b"").unwrap();
        let pending = store.pending_transaction();
        assert!(pending > before);
        assert_eq!(store.commit().unwrap(), pending);
        assert_eq!(store.committed_transaction(), pending);
    });
}

#[test]
fn a_scan_keeps_to_its_prefix_and_stops_when_told() {
    on_each(|bed| {
        let mut store = bed.open(LIMIT_BYTES);
        for key in [b"Da".as_slice(), b"Db", b"Dc", b"E"] {
            store.put(key, key).unwrap();
        }
        let keys: Vec<Vec<u8>> =
            all(&mut *store, b"D", b"Db").into_iter().map(|entry| entry.0).collect();
        assert_eq!(keys, [b"Db".to_vec(), b"Dc".to_vec()]);
        let mut count = 0;
        store
            .scan(b"D", b"D", &mut |_, _| {
                count += 1;
                Scan::Enough
            })
            .unwrap();
        assert_eq!(count, 1);
    });
}

#[test]
fn a_key_of_impossible_length_is_refused() {
    on_each(|bed| {
        let mut store = bed.open(LIMIT_BYTES);
        assert!(matches!(store.put(b"", b"x"), Err(StoreError::BadKey)));
        assert!(matches!(store.put(&[1; 512], b"x"), Err(StoreError::BadKey)));
        store.put(&[1; 511], b"x").unwrap();
        store.commit().unwrap();
    });
}

#[test]
fn a_full_store_says_so_and_still_removes() {
    on_each(|bed| {
        let mut store = bed.open(256 * 1024);
        let mut count = 0_u32;
        while store.has_room() {
            store.put(&count.to_be_bytes(), &[7; 1000]).unwrap();
            store.commit().unwrap();
            count += 1;
        }
        assert!(count > 50);
        for number in 0..count {
            assert!(store.delete(&number.to_be_bytes()).unwrap());
            store.commit().unwrap();
        }
        assert!(store.has_room());
    });
}

#[test]
fn a_failed_commit_closes_the_store_and_leaves_the_last_state() {
    let disk = MemoryDisk::default();
    let mut store = MemoryStore::open(&disk, LIMIT_BYTES);
    store.put(b"a", b"1").unwrap();
    store.commit().unwrap();
    store.put(b"b", b"2").unwrap();
    disk.fail_next_commit();
    assert!(store.commit().is_err());
    assert!(matches!(store.put(b"c", b"3"), Err(StoreError::Poisoned)));
    assert!(matches!(store.commit(), Err(StoreError::Poisoned)));
    let mut store = MemoryStore::open(&disk, LIMIT_BYTES);
    assert_eq!(store.get(b"a").unwrap(), Some(b"1".as_slice()));
    assert_eq!(store.get(b"b").unwrap(), None);
}

#[test]
fn a_store_of_another_boot_is_lost_unless_it_was_synced() {
    for sync in [false, true] {
        let bed = lmdb(sync);
        drop(LmdbStore::open(&bed.options(LIMIT_BYTES, b"one")).unwrap());
        let again = LmdbStore::open(&bed.options(LIMIT_BYTES, b"two"));
        assert_eq!(again.is_ok(), sync);
        match again {
            Ok(store) => drop(store),
            Err(error) => assert!(matches!(error, StoreError::Lost)),
        }
        drop(LmdbStore::open(&bed.options(LIMIT_BYTES, b"one")).unwrap());
    }
}

#[test]
fn a_tree_of_another_boot_is_lost() {
    let bed = tree();
    drop(TreeStore::open(&bed.options(LIMIT_BYTES, b"one")).unwrap());
    let again = TreeStore::open(&bed.options(LIMIT_BYTES, b"two"));
    assert!(matches!(again, Err(StoreError::Lost)));
    drop(TreeStore::open(&bed.options(LIMIT_BYTES, b"one")).unwrap());
}

#[test]
fn a_process_that_dies_with_a_transaction_under_way_leaves_the_last_commit() {
    let bed = lmdb(false);
    let mut store = bed.open(LIMIT_BYTES);
    store.put(key::COUNTERS, b"kept").unwrap();
    store.commit().unwrap();
    // The child dies in the middle of a transaction, as by SIGKILL: nothing of it runs at its end.
    store.put(key::COUNTERS, b"not kept").unwrap();
    std::mem::forget(store);
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("meta")).unwrap();
    let data = "meta/data.mdb";
    std::fs::copy(bed.directory.path().join(data), copy.path().join(data)).unwrap();
    let after = Lmdb { directory: copy, sync: false };
    assert_eq!(after.open(LIMIT_BYTES).get(key::COUNTERS).unwrap(), Some(b"kept".as_slice()));
}

#[derive(Debug, Clone)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>),
    Commit,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || prop::collection::vec(0..3_u8, 1..5);
    prop_oneof![
        6 => (key(), prop::collection::vec(any::<u8>(), 0..3000)).prop_map(|(k, v)| Op::Put(k, v)),
        3 => key().prop_map(Op::Delete),
        2 => key().prop_map(Op::Get),
        2 => (key(), key()).prop_map(|(prefix, rest)| {
            let from = [prefix.clone(), rest].concat();
            Op::Scan(prefix, from)
        }),
        2 => Just(Op::Commit),
        1 => Just(Op::Reopen),
    ]
}

fn compare(bed: &dyn Bed, ops: &[Op]) {
    let mut store = bed.open(LIMIT_BYTES);
    let own = |key: &[u8]| [b"K".as_slice(), key].concat();
    let mut committed: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut model = committed.clone();
    for op in ops {
        match op {
            Op::Put(key, value) => {
                store.put(&own(key), value).unwrap();
                model.insert(own(key), value.clone());
            }
            Op::Delete(key) => {
                assert_eq!(store.delete(&own(key)).unwrap(), model.remove(&own(key)).is_some());
            }
            Op::Get(key) => {
                assert_eq!(store.get(&own(key)).unwrap(), model.get(&own(key)).map(Vec::as_slice));
            }
            Op::Scan(prefix, from) => {
                let wanted: Vec<_> = model
                    .range(own(from)..)
                    .take_while(|entry| entry.0.starts_with(&own(prefix)))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                assert_eq!(all(&mut *store, &own(prefix), &own(from)), wanted);
            }
            Op::Commit => {
                store.commit().unwrap();
                committed = model.clone();
            }
            Op::Reopen => {
                drop(store);
                store = bed.open(LIMIT_BYTES);
                model = committed.clone();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_store_behaves_as_a_sorted_map(ops in prop::collection::vec(op(), 1..60)) {
        compare(&Memory(MemoryDisk::default()), &ops);
        compare(&lmdb(false), &ops);
        compare(&tree(), &ops);
    }
}
