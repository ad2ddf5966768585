//! What a create, lookup, update and remove cost on each store: nanoseconds, in transactions of so
//! many operations; and the space that they take.
//!
//! `cargo run --release -p mayfly-meta --example stores [keys] [operations]`

use std::time::Instant;

use mayfly_meta::{LmdbOptions, LmdbStore, MemoryStore, Store, TreeOptions, TreeStore, key};
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
        key::dentry(directory, format!("file-{at}").as_bytes()).to_vec()
    };
    (0..count).map(key).collect()
}

/// Nanoseconds: of an operation on average, and of the transaction that took longer than 99 in 100.
struct Cost {
    mean: f64,
    slow: u64,
}

fn measure(
    store: &mut dyn Store,
    keys: &[Vec<u8>],
    operations: usize,
    mut each: impl FnMut(&mut dyn Store, &[u8]),
) -> Cost {
    let mut transactions = Vec::with_capacity(keys.len() / operations + 1);
    let start = Instant::now();
    let mut begun = start;
    for batch in keys.chunks(operations) {
        for key in batch {
            each(store, key);
        }
        store.commit().expect("there is room");
        let now = Instant::now();
        transactions.push((now - begun).as_nanos() as u64);
        begun = now;
    }
    let mean = start.elapsed().as_nanos() as f64 / keys.len() as f64;
    transactions.sort_unstable();
    Cost { mean, slow: transactions[transactions.len() * 99 / 100] }
}

fn row(name: &str, store: &mut dyn Store, keys: &[Vec<u8>], operations: usize) {
    let (first, second) = ([1; VALUE_BYTES], [2; VALUE_BYTES + 8]);
    let put = |value: &'static [u8]| {
        move |store: &mut dyn Store, key: &[u8]| store.put(key, value).expect("there is room")
    };
    let (first, second) = (Box::leak(Box::new(first)), Box::leak(Box::new(second)));
    let create = measure(store, keys, operations, put(first));
    let full = store.used_bytes() >> 20;
    let lookup = measure(store, keys, operations, |store, key| {
        assert!(store.get(key).expect("a good key").is_some());
    });
    let update = measure(store, keys, operations, put(second));
    let remove = measure(store, keys, operations, |store, key| {
        assert!(store.delete(key).expect("a good key"));
    });
    let left = store.used_bytes() >> 10;
    print!("{name:10}");
    for cost in [create, lookup, update, remove] {
        print!(" {:7.0} {:7}", cost.mean, cost.slow);
    }
    println!(" {full:5} MiB {left:5} KiB");
}

fn main() {
    let (count, operations) = (number(1, 1_000_000), number(2, 16));
    let keys = keys(count);
    println!("{count} keys, {operations} in a transaction, ns: create, lookup, update, remove;");
    println!("of an operation, and the slowest of 100 transactions; space when full, and emptied");
    for _ in 0..3 {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = LmdbOptions {
            directory: directory.path().join("meta"),
            limit_bytes: LIMIT_BYTES,
            sync: false,
            boot_id: b"boot".to_vec(),
        };
        row("LMDB", &mut LmdbStore::open(&options).expect("a fresh store"), &keys, operations);
        let options = TreeOptions {
            directory: directory.path().join("tree"),
            limit_bytes: LIMIT_BYTES,
            boot_id: b"boot".to_vec(),
        };
        row("tree", &mut TreeStore::open(&options).expect("a fresh store"), &keys, operations);
        row("in memory", &mut MemoryStore::volatile(LIMIT_BYTES), &keys, operations);
    }
}
