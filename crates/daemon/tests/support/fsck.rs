//! Whether what several shards have stored fits together.

use std::collections::{HashMap, HashSet};

use mayfly_daemon::SlotTable;
use mayfly_meta::{
    MemoryStore, Scan, Store, key,
    record::{Content, Dentry, Inode, Member, Xattrs},
};
use mayfly_types::{FileId, FileKind};

use super::{Kept, Node};

#[derive(Default)]
struct Found {
    /// Where each file has names.
    names: HashMap<FileId, Vec<(FileId, Vec<u8>, FileKind)>>,
    inodes: HashMap<FileId, (u32, Inode)>,
    members: HashMap<(FileId, u32), Member>,
    /// Files with extended attributes, and the shard that has them.
    extended: HashSet<(FileId, u32)>,
    /// Entries and directories among them, for each directory and shard.
    entries: HashMap<(FileId, u32), (u64, u32)>,
}

/// Panics with what is wrong. Nothing may be open. The shards must be at rest.
pub fn check(node: &mut Node) {
    node.settle_down();
    for core in &mut node.cores {
        assert_eq!(core.counters().open_files, 0, "everything is closed");
    }
    node.cores.clear();
    let stores = [node.kept.clone()].into_iter().chain(node.more.clone());
    let mut found = Found::default();
    let mut shards = 0;
    for kept in stores {
        let Kept::Memory(disk) = kept else { panic!("only stores in memory are checked") };
        let mut store = MemoryStore::open(&disk, 1 << 30);
        for tag in b'A'..=b'Z' {
            let visit = &mut |key: &[u8], record: &[u8]| take_in(&mut found, shards, key, record);
            store.scan(&[tag], &[tag], visit).unwrap();
        }
        shards += 1;
    }
    let slots = SlotTable::even(1, shards);
    check_files(&found, &slots);
    check_directories(&found);
    node.restart();
}

fn take_in(found: &mut Found, shard: u32, key: &[u8], record: &[u8]) -> Scan {
    match key[0] {
        key::DENTRY => {
            let (directory, _, name) = key::split_dentry(key).unwrap();
            let dentry = Dentry::decode(record).unwrap();
            let of = found.entries.entry((directory, shard)).or_default();
            of.0 += 1;
            of.1 += u32::from(dentry.kind() == FileKind::Directory);
            let names = found.names.entry(dentry.id()).or_default();
            names.push((directory, name.to_vec(), dentry.kind()));
            if let Dentry::Fused(inode) = dentry {
                let twice = found.inodes.insert(inode.id, (shard, *inode));
                assert!(twice.is_none(), "fused or on its own, never both: {twice:?}");
            }
        }
        key::INODE => {
            let inode = Inode::decode_own(record).unwrap();
            let twice = found.inodes.insert(inode.id, (shard, inode));
            assert!(twice.is_none(), "fused or on its own, never both: {twice:?}");
        }
        key::MEMBER => {
            let directory = key::split_numbered(key).unwrap();
            found.members.insert((directory, shard), Member::decode(record).unwrap());
        }
        key::XATTRS => {
            assert!(!Xattrs::decode(record).unwrap().is_empty());
            found.extended.insert((key::split_numbered(key).unwrap(), shard));
        }
        key::INTENT | key::APPLIED => panic!("something is left of an operation: {key:?}"),
        key::ORPHAN | key::UNSETTLED => panic!("a mark is left: {key:?}"),
        _ => {}
    }
    Scan::More
}

fn check_files(found: &Found, slots: &SlotTable) {
    for (id, names) in &found.names {
        let (home, inode) = found.inodes.get(id).unwrap_or_else(|| panic!("{names:?}: no inode"));
        assert_eq!(slots.home(*id).0, *home, "{id:?} is at home");
        for (.., kind) in names {
            assert_eq!(inode.kind(), *kind, "{names:?}");
        }
        if inode.kind() != FileKind::Directory {
            assert_eq!(inode.links as usize, names.len(), "{names:?}");
        }
    }
    let said = found.inodes.iter().filter(|(_, (_, inode))| inode.extended);
    let said: HashSet<_> = said.map(|(id, (home, _))| (*id, *home)).collect();
    assert_eq!(said, found.extended, "extended attributes are where an inode says so");
    for (id, (_, inode)) in &found.inodes {
        assert!(*id == FileId::ROOT || found.names.contains_key(id), "no name: {inode:?}");
    }
}

fn check_directories(found: &Found) {
    for (id, (home, inode)) in &found.inodes {
        let Content::Directory(node) = &inode.content else { continue };
        if *id != FileId::ROOT {
            let names = &found.names[id];
            assert_eq!(names.len(), 1, "a directory has one name");
            assert_eq!((names[0].0, &names[0].1), (node.parent, &node.name), "and knows it");
            assert!(reaches_root(found, *id), "{inode:?} is in a circle");
        }
        let (entries, directories) = found.entries.get(&(*id, *home)).copied().unwrap_or_default();
        assert_eq!((node.entries, inode.links), (entries, 2 + directories), "{inode:?}");
        for member in &node.members {
            assert!(found.members.contains_key(&(*id, *member)) || *member != *home);
        }
    }
    for ((directory, shard), (entries, directories)) in &found.entries {
        let (home, inode) = found.inodes.get(directory).expect("entries are in a directory");
        if shard == home {
            continue;
        }
        let member = found.members.get(&(*directory, *shard)).expect("who has entries is a member");
        assert_eq!((member.entries, member.subdirectories), (*entries, *directories));
        let Content::Directory(node) = &inode.content else { panic!("not a directory") };
        assert!(node.members.contains(shard), "the home knows of its members");
    }
    for (directory, shard) in found.members.keys() {
        let at_home = found.inodes.contains_key(directory);
        assert!(at_home, "shard {shard} is a member of {directory:?}, which is gone");
    }
}

fn reaches_root(found: &Found, mut directory: FileId) -> bool {
    for _ in 0..found.inodes.len() + 1 {
        if directory == FileId::ROOT {
            return true;
        }
        let Some((_, inode)) = found.inodes.get(&directory) else { return false };
        let Content::Directory(node) = &inode.content else { return false };
        directory = node.parent;
    }
    false
}
