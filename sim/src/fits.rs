//! Whether everything that all nodes keep fits together, by the comparison of `mayfly fsck`.
//!
//! At rest nothing is in flux, so one look is enough.

use std::collections::BTreeSet;

use mayfly_daemon::fsck::{Finding, Look, facts_of};
use mayfly_meta::{Scan, Store};
use mayfly_object::ObjectStore;
use mayfly_wire::inspection::{Fact, Object};

use crate::{judge::Wrong, node::Node};

/// What does not fit.
pub fn check(nodes: &mut dyn Iterator<Item = &mut Node>, shards: u32) -> Vec<Wrong> {
    let say = |Finding { kind, what, .. }| Wrong(format!("{}: {what}", kind.words()));
    findings(nodes, shards).into_iter().map(say).collect()
}

fn findings(nodes: &mut dyn Iterator<Item = &mut Node>, shards: u32) -> BTreeSet<Finding> {
    let mut look = Look::new(shards);
    for (number, node) in (0..).zip(nodes) {
        for shard in 0..shards {
            let at = number * shards + shard;
            let visit = &mut |key: &[u8], record: &[u8]| {
                facts_of(key, record, &mut |fact| look.take(at, fact));
                Scan::More
            };
            // A store that cannot be read is told by who looks what is left.
            let _read = node.records(shard).scan(&[], b"A", visit);
            if let Some(daemon) = &mut node.daemon {
                daemon.service(shard).tell_opens(0, &mut |open| {
                    look.take(at, &Fact::Open(*open));
                    true
                });
            }
        }
        for listed in node.disk.list(None, usize::MAX).unwrap_or_default() {
            let (id, size_bytes) = (listed.id, listed.size_bytes);
            let object = Object { file: id.file, generation: id.generation, size_bytes };
            look.take(number * shards, &Fact::Object(object));
        }
    }
    look.findings()
}
