//! What it takes to make, open and reopen a store: microseconds.
//!
//! `cargo run --release -p mayfly-meta --example opening [keys] [directory]`

use std::{
    hint::black_box,
    path::{Path, PathBuf},
    time::Instant,
};

use mayfly_meta::{LmdbOptions, LmdbStore, Store, TreeOptions, TreeStore, key};
use mayfly_types::FileId;

const LIMIT_BYTES: u64 = 8 << 30;
const BOOT: &[u8] = b"boot";

fn lmdb(directory: &Path) -> Box<dyn Store> {
    let (directory, boot_id) = (directory.join("lmdb"), BOOT.to_vec());
    let options = LmdbOptions { directory, limit_bytes: LIMIT_BYTES, sync: false, boot_id };
    Box::new(LmdbStore::open(&options).expect("a whole store"))
}

fn tree(directory: &Path) -> Box<dyn Store> {
    let (directory, boot_id) = (directory.join("tree"), BOOT.to_vec());
    let options = TreeOptions { directory, limit_bytes: LIMIT_BYTES, boot_id };
    Box::new(TreeStore::open(&options).expect("a whole store"))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64() * 1e6)
}

fn measure(name: &str, open: fn(&Path) -> Box<dyn Store>, place: &Path, keys: usize) {
    let directory = tempfile::tempdir_in(place).expect("a directory for the store");
    let (mut store, made) = timed(|| open(directory.path()));
    let key = |at: usize| key::dentry(FileId(1), format!("file-{at}").as_bytes());
    for at in 0..keys {
        store.put(&key(at), &[1; 120]).expect("there is room");
        if at % 16 == 0 {
            store.commit().expect("there is room");
        }
    }
    // As a process that is killed in a transaction leaves it, for all that the next one can see.
    let used = store.used_bytes() >> 20;
    let ((), closed) = timed(|| drop(store));
    let (mut store, opened) = timed(|| open(directory.path()));
    let (found, first) = timed(|| store.get(&key(7)).expect("a whole store").map(<[u8]>::len));
    black_box(found);
    println!("{name:6} {made:10.0} {used:6} MiB {closed:10.0} {opened:10.0} {first:10.0}");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let keys = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let place = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    println!("{keys} keys in {}, us: make, (space), close, open, first lookup", place.display());
    for _ in 0..5 {
        measure("LMDB", lmdb, &place, keys);
        measure("tree", tree, &place, keys);
    }
}
