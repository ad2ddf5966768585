//! What is left when everybody has gone and everything was removed: a root directory, and nothing
//! else.

use mayfly_meta::{Scan, Store, key, record::Inode};
use mayfly_types::{FileId, limits::SESSIONS_MAX};

use crate::{judge::Wrong, node::Node};

/// What should not be there.
pub(super) fn check(nodes: &mut dyn Iterator<Item = &mut Node>, shards: u32) -> Vec<Wrong> {
    let mut left = Vec::new();
    for (number, node) in nodes.enumerate() {
        let objects = node.disk.count();
        if objects > 0 {
            left.push(Wrong(format!("node {number} has {objects} objects of no file")));
        }
        match &mut node.daemon {
            Some(daemon) => {
                let open = daemon.service(0).counters().open_files;
                if open > 0 {
                    left.push(Wrong(format!("node {number} has {open} open files")));
                }
            }
            None => left.push(Wrong(format!("node {number} has no daemon"))),
        }
        for shard in 0..shards {
            let place = format!("shard {shard} of node {number}");
            let mut store = node.records(shard);
            for tag in b'A'..=b'Z' {
                let visit = &mut |key: &[u8], record: &[u8]| {
                    left.extend(look(&place, key, record));
                    Scan::More
                };
                if let Err(error) = store.scan(&[tag], &[tag], visit) {
                    left.push(Wrong(format!("{place}: {error}")));
                }
            }
        }
    }
    left
}

/// Locks of nobody, when every process has ended.
pub(super) fn check_locks(nodes: &mut dyn Iterator<Item = &mut Node>, shards: u32) -> Vec<Wrong> {
    let mut left = Vec::new();
    for (number, node) in nodes.enumerate() {
        for shard in 0..shards {
            let mut store = node.records(shard);
            let visit = &mut |key: &[u8], record: &[u8]| {
                let place = format!("shard {shard} of node {number}");
                left.extend(look(&place, key, record));
                Scan::More
            };
            // A store that cannot be read is told by who looks what is left.
            let _read = store.scan(&[key::LOCKS], &[key::LOCKS], visit);
        }
    }
    left
}

fn look(place: &str, key: &[u8], record: &[u8]) -> Option<Wrong> {
    let say = |what: &str| Wrong(format!("{place} still has {what} ({key:?})"));
    Some(match key[0] {
        key::DENTRY => {
            let (directory, _, name) = key::split_dentry(key)?;
            let name = String::from_utf8_lossy(name);
            say(&format!("a name in {directory:?}: {name}"))
        }
        key::INODE => {
            let inode = Inode::decode_own(record).ok()?;
            match inode.links {
                _ if inode.id == FileId::ROOT => return None,
                0 => say(&format!("an inode: {inode:?}")),
                _ => say(&format!("an inode without a name: {inode:?}")),
            }
        }
        key::MEMBER if key::split_numbered(key) == Some(FileId::ROOT) => return None,
        key::MEMBER => say("a part of a directory"),
        key::PART => say("a part of a file"),
        key::INTENT | key::APPLIED => say("something of an operation"),
        key::ORPHAN | key::UNSETTLED | key::DOOMED | key::APPEND | key::UNLINKED => say("a mark"),
        key::LOCKS => say("locks"),
        key::PROMISED => say("files that are promised"),
        key::XATTRS => say("extended attributes"),
        // A daemon asks for itself by as many lanes as a process: what their last ones heard stays.
        key::ANSWER
            if key::split_answer(key).is_some_and(|(session, _)| session % SESSIONS_MAX == 0) =>
        {
            return None;
        }
        key::ANSWER => say("an answer that nobody asks for again"),
        _ => return None,
    })
}
