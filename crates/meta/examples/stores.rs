//! What a create, lookup, update and remove cost on each store: processor nanoseconds, in
//! transactions of so many operations.
//!
//! `cargo run --release -p mayfly-meta --example stores [keys] [operations]`

use std::time::Instant;

use mayfly_meta::{LmdbOptions, LmdbStore, MemoryStore, Store, key};
use mayfly_types::FileId;

/// Bytes of an inode's record with its dentry.
const VALUE_BYTES: usize = 120;
const LIMIT_BYTES: u64 = 8 << 30;

fn number(at: usize, usual: usize) -> usize {
    std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Keys as many directories of a thousand files have them, in the order of their creation.
fn keys(count: usize) -> Vec<Vec<u8>> {
    let key = |at: usize| {
        let directory = FileId(at as u64 / 1000 + 1);
        key::dentry(directory, format!("file-{at}").as_bytes())
    };
    (0..count).map(key).collect()
}

fn measure(
    store: &mut dyn Store,
    keys: &[Vec<u8>],
    operations: usize,
    mut each: impl FnMut(&mut dyn Store, &[u8]),
) -> f64 {
    let start = Instant::now();
    for batch in keys.chunks(operations) {
        for key in batch {
            each(store, key);
        }
        store.commit().expect("there is room");
    }
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}

fn row(name: &str, store: &mut dyn Store, keys: &[Vec<u8>], operations: usize) {
    let (first, second) = ([1; VALUE_BYTES], [2; VALUE_BYTES + 8]);
    let put = |value: &'static [u8]| {
        move |store: &mut dyn Store, key: &[u8]| store.put(key, value).expect("there is room")
    };
    let (first, second) = (Box::leak(Box::new(first)), Box::leak(Box::new(second)));
    let create = measure(store, keys, operations, put(first));
    let lookup = measure(store, keys, operations, |store, key| {
        assert!(store.get(key).expect("a good key").is_some());
    });
    let update = measure(store, keys, operations, put(second));
    let remove = measure(store, keys, operations, |store, key| {
        assert!(store.delete(key).expect("a good key"));
    });
    println!("{name:10} {create:8.0} {lookup:8.0} {update:8.0} {remove:8.0}");
}

fn main() {
    let (count, operations) = (number(1, 1_000_000), number(2, 16));
    let keys = keys(count);
    println!("{count} keys, {operations} in a transaction, ns: create, lookup, update, remove");
    for _ in 0..3 {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = LmdbOptions {
            directory: directory.path().join("meta"),
            limit_bytes: LIMIT_BYTES,
            sync: false,
            boot_id: b"boot".to_vec(),
        };
        row("LMDB", &mut LmdbStore::open(&options).expect("a fresh store"), &keys, operations);
        row("in memory", &mut MemoryStore::volatile(LIMIT_BYTES), &keys, operations);
    }
}
