//! A directory listed by another process, from the file of a tree, has what the tree has.

use std::collections::BTreeMap;

use mayfly_meta::{
    Store, TreeStore, key,
    record::{Content, Dentry, DirectoryNode, Inode, Layout},
};
use mayfly_records::{KEY_BYTES_MAX, Source, Unsure, key::PLACE_BYTES, list, page::VERSION_AT};
use mayfly_types::{FileId, FileKind, Timestamp};
use proptest::prelude::*;

use super::{Bytes, open, read};

pub(crate) fn inode(id: u64, links: u32, content: Content) -> Inode {
    let time = Timestamp { seconds: 1, nanoseconds: 2 };
    Inode {
        id: FileId(id),
        mode: 0o755,
        links,
        uid: 1,
        gid: 2,
        size_bytes: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        unsettled: false,
        unlisted: false,
        extended: false,
        linkable: false,
        generation: 0,
        layout: Layout::default(),
        parts: 0,
        replica: 0,
        origin: None,
        residency: Vec::new(),
        content,
    }
}

fn directory(id: u64, links: u32) -> Inode {
    let node = DirectoryNode { parent: FileId(id + 100), ..DirectoryNode::default() };
    inode(id, links, Content::Directory(node))
}

/// Makes a directory and its entries; these in the order of a listing.
fn fill(store: &mut TreeStore, id: u64, names: &[String]) -> Vec<(u64, FileKind, String)> {
    let own = FileId(id);
    store.put(&key::numbered(key::INODE, own), &directory(id, 2).encode_own()).unwrap();
    let mut entries = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        let file = 1000 * id + number as u64;
        let (dentry, kind) = match number % 3 {
            0 => {
                (Dentry::Plain { id: FileId(file), kind: FileKind::Directory }, FileKind::Directory)
            }
            // Long values lie elsewhere.
            n => {
                let content = Content::Inline(vec![7; if n == 1 { 0 } else { 3901 }]);
                (Dentry::Fused(Box::new(inode(file, 1, content))), FileKind::Regular)
            }
        };
        let place = key::dentry(own, name.as_bytes()).to_vec();
        store.put(&place, &dentry.encode()).unwrap();
        entries.insert(place, (file, kind, name.clone()));
    }
    let dots =
        [(id, FileKind::Directory, ".".into()), (id + 100, FileKind::Directory, "..".into())];
    dots.into_iter().chain(entries.into_values()).collect()
}

/// The whole directory, by pieces of so many entries.
fn listed(bytes: &Bytes, id: u64, piece: usize) -> Result<Vec<(u64, FileKind, String)>, Unsure> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let mut taken = 0;
        let whole = list(bytes, FileId(id), cookie, |entry| {
            if taken == piece {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            all.push((entry.id.0, entry.kind, String::from_utf8_lossy(entry.name).into_owned()));
            true
        })?;
        if whole {
            return Ok(all);
        }
    }
}

fn names(longest: usize) -> impl Strategy<Value = Vec<String>> {
    let name = prop::collection::vec(b'a'..=b'z', 1..=longest)
        .prop_map(|bytes| String::from_utf8(bytes).unwrap());
    prop::collection::btree_set(name, 0..300).prop_map(|names| names.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_listing_by_pieces_has_every_entry_once_and_in_order(
        first in names(20), second in names(KEY_BYTES_MAX - PLACE_BYTES), third in names(3),
        piece in 1..200_usize,
    ) {
        let place = tempfile::tempdir().unwrap();
        let mut store = open(place.path());
        let expected = [(5, &first), (6, &second), (7, &third)]
            .map(|(id, names)| (id, fill(&mut store, id, names)));
        store.commit().unwrap();
        let bytes = read(place.path());
        for (id, entries) in expected {
            prop_assert_eq!(listed(&bytes, id, piece), Ok(entries));
        }
    }

    #[test]
    fn a_listing_of_bytes_that_make_no_sense_ends(
        count in 1..400_u32,
        damage in prop::collection::vec((0..40_000_usize, any::<u8>()), 1..200),
    ) {
        let place = tempfile::tempdir().unwrap();
        let mut store = open(place.path());
        let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        fill(&mut store, 5, &names);
        store.commit().unwrap();
        let mut bytes = read(place.path());
        for (at, byte) in damage {
            if let Some(there) = bytes.0.get_mut(at) {
                *there = byte;
            }
        }
        let _any = list(&bytes, FileId(5), 0, |_| true);
    }
}

#[test]
fn what_is_not_certain_is_not_listed() {
    let place = tempfile::tempdir().unwrap();
    let mut store = open(place.path());
    fill(&mut store, 5, &["a".into(), "b".into()]);
    fill(&mut store, 6, &["x".repeat(KEY_BYTES_MAX - PLACE_BYTES + 1)]);
    let removed = directory(7, 0).encode_own();
    store.put(&key::numbered(key::INODE, FileId(7)), &removed).unwrap();
    let file = inode(8, 1, Content::Inline(Vec::new())).encode_own();
    store.put(&key::numbered(key::INODE, FileId(8)), &file).unwrap();
    store.commit().unwrap();
    let bytes = read(place.path());
    assert_eq!(listed(&bytes, 5, 10).unwrap().len(), 4);
    assert_eq!(listed(&bytes, 6, 10), Err(Unsure), "a long name");
    assert_eq!(listed(&bytes, 7, 10), Err(Unsure), "a removed directory");
    assert_eq!(listed(&bytes, 8, 10), Err(Unsure), "a file");
    assert_eq!(listed(&bytes, 9, 10), Err(Unsure), "nothing");
    store.put(b"a change under way", b"").unwrap();
    assert_eq!(listed(&read(place.path()), 5, 10), Err(Unsure));
}

/// The file changes while it is read.
struct Changing {
    bytes: Bytes,
    looks: std::cell::Cell<u32>,
}

impl Source for Changing {
    fn word(&self, at: usize) -> Option<u64> {
        let looks = self.looks.get();
        self.looks.set(looks + 1);
        let word = self.bytes.word(at)?;
        Some(if at == VERSION_AT && looks > 0 { word + 2 } else { word })
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.bytes.chunk(at)
    }
}

#[test]
fn a_listing_during_which_something_changed_is_not_certain() {
    let place = tempfile::tempdir().unwrap();
    let mut store = open(place.path());
    fill(&mut store, 5, &["a".into()]);
    store.commit().unwrap();
    let changing = Changing { bytes: read(place.path()), looks: 0.into() };
    assert_eq!(list(&changing, FileId(5), 0, |_| true), Err(Unsure));
}
