//! Whether what several shards have stored fits together, by the product's own comparison.

use std::collections::BTreeSet;

use mayfly_daemon::fsck::{Finding, Look, facts_of};
use mayfly_meta::{MemoryStore, Scan, Store};
use mayfly_object::{DirectoryStore, ObjectStore};
use mayfly_wire::inspection::{Fact, Object};

use super::{Kept, Node};

/// Panics with what is wrong. Nothing may be open.
pub fn check(node: &mut Node) {
    node.settle_down();
    for core in &mut node.cores {
        assert_eq!(core.counters().open_files, 0, "everything is closed");
    }
    let found = findings(node);
    assert!(found.is_empty(), "{found:#?}");
    // So it is what the next daemon finds, too.
    node.restart();
    node.settle_down();
    let found = findings(node);
    assert!(found.is_empty(), "after a restart: {found:#?}");
}

/// What is wrong in the stores, the tables and the object directory.
pub fn findings(node: &Node) -> BTreeSet<Finding> {
    look(node).findings()
}

pub fn look(node: &Node) -> Look {
    let stores: Vec<&Kept> = std::iter::once(&node.kept).chain(&node.more).collect();
    let mut look = Look::new(stores.len() as u32);
    for (shard, kept) in (0..).zip(stores) {
        let Kept::Memory(disk) = kept else { panic!("only stores in memory are checked") };
        let mut store = MemoryStore::open(disk, 1 << 30);
        let visit = &mut |key: &[u8], record: &[u8]| {
            facts_of(key, record, &mut |fact| look.take(shard, fact));
            Scan::More
        };
        store.scan(&[], b"A", visit).unwrap();
        if let Some(core) = node.cores.get(shard as usize) {
            core.tell_opens(0, &mut |open| {
                look.take(shard, &Fact::Open(*open));
                true
            });
        }
    }
    for listed in DirectoryStore::open(&node.objects).unwrap().list(None, usize::MAX).unwrap() {
        let (id, size_bytes) = (listed.id, listed.size_bytes);
        let object = Object { file: id.file, generation: id.generation, size_bytes };
        look.take(0, &Fact::Object(object));
    }
    look
}
