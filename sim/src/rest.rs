//! What is left when everybody has gone and everything was removed: a root directory, and nothing
//! else.

use mayfly_meta::{Scan, Store, key, record::Inode};
use mayfly_types::FileId;

use crate::{judge::Wrong, node::Node};

/// What is left.
#[derive(Debug, Default)]
pub struct Left {
    /// What must not be.
    pub wrong: Vec<Wrong>,
    /// Descriptions that a node has at another one and does not know of, and what they keep: known,
    /// see `docs/SIMULATOR.md`.
    pub leaked: Vec<Wrong>,
}

/// What should not be there.
pub fn check(nodes: &mut dyn Iterator<Item = &mut Node>, shards: u32) -> Left {
    let mut left = Left::default();
    let (mut kept, mut open_files) = (Vec::new(), Vec::new());
    for (number, node) in nodes.enumerate() {
        let objects = node.disk.count();
        if objects > 0 {
            kept.push(Wrong(format!("node {number} has {objects} objects of no file")));
        }
        match &mut node.daemon {
            Some(daemon) => {
                let open = daemon.service(0).counters().open_files;
                if open > 0 {
                    open_files.push(Wrong(format!("node {number} has {open} open files")));
                }
            }
            None => left.wrong.push(Wrong(format!("node {number} has no daemon"))),
        }
        for shard in 0..shards {
            let place = format!("shard {shard} of node {number}");
            let mut store = node.records(shard);
            for tag in b'A'..=b'Z' {
                let visit = &mut |key: &[u8], record: &[u8]| {
                    match look(&place, key, record) {
                        Some(Leftover::Wrong(wrong)) => left.wrong.push(wrong),
                        Some(Leftover::OfOpenFile(of)) => kept.push(of),
                        None => {}
                    }
                    Scan::More
                };
                if let Err(error) = store.scan(&[tag], &[tag], visit) {
                    left.wrong.push(Wrong(format!("{place}: {error}")));
                }
            }
        }
    }
    // What nobody has open is kept by nothing.
    let all = if open_files.is_empty() { &mut left.wrong } else { &mut left.leaked };
    all.append(&mut open_files);
    all.append(&mut kept);
    left
}

enum Leftover {
    Wrong(Wrong),
    /// As it should be while the file is open.
    OfOpenFile(Wrong),
}

fn look(place: &str, key: &[u8], record: &[u8]) -> Option<Leftover> {
    let say = |what: &str| Wrong(format!("{place} still has {what} ({key:?})"));
    Some(match key[0] {
        key::DENTRY => {
            let (directory, _, name) = key::split_dentry(key)?;
            let name = String::from_utf8_lossy(name);
            Leftover::Wrong(say(&format!("a name in {directory:?}: {name}")))
        }
        key::INODE => {
            let inode = Inode::decode_own(record).ok()?;
            match inode.links {
                _ if inode.id == FileId::ROOT => return None,
                0 => Leftover::OfOpenFile(say(&format!("an inode: {inode:?}"))),
                _ => Leftover::Wrong(say(&format!("an inode without a name: {inode:?}"))),
            }
        }
        key::MEMBER if key::split_numbered(key) == Some(FileId::ROOT) => return None,
        key::MEMBER => Leftover::Wrong(say("a part of a directory")),
        key::INTENT | key::APPLIED => Leftover::Wrong(say("something of an operation")),
        key::ORPHAN | key::UNSETTLED | key::DOOMED | key::APPEND => {
            Leftover::OfOpenFile(say("a mark"))
        }
        key::XATTRS => Leftover::Wrong(say("extended attributes")),
        key::ANSWER => Leftover::Wrong(say("an answer that nobody asks for again")),
        _ => return None,
    })
}
