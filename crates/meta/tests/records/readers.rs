//! What other processes find in the file of a tree is what the tree has.

use std::collections::BTreeMap;

use mayfly_meta::{
    Store, key,
    record::{self, Content, DirectoryNode, Inode, Layout},
};
use mayfly_records::{
    Found, KEY_BYTES_MAX, Question, RECORD_CHUNKS, Source, Unsure, get, look, of_dentry, of_inode,
    page::VERSION_AT,
};
use mayfly_types::{Attr, FileId, FileKind, Timestamp};
use proptest::{prelude::*, strategy::ValueTree};

use super::{Bytes, open, read};

fn version(bytes: &Bytes) -> u64 {
    bytes.word(VERSION_AT).unwrap()
}

#[derive(Debug, Clone)]
enum Op {
    Put(Vec<u8>, usize),
    Delete(Vec<u8>),
    Commit,
}

/// Keys that meet and share beginnings, like those of directories.
fn some_key() -> impl Strategy<Value = Vec<u8>> {
    let long = prop::collection::vec(0..3_u8, 1..120);
    let dentry = (1..4_u64, "[a-c]{1,3}")
        .prop_map(|(directory, name)| key::dentry(FileId(directory), name.as_bytes()).to_vec());
    prop_oneof![3 => dentry, 1 => long]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (some_key(), prop_oneof![0..300_usize, 0..9000_usize])
            .prop_map(|(key, bytes)| Op::Put(key, bytes)),
        2 => some_key().prop_map(Op::Delete),
        1 => Just(Op::Commit),
    ]
}

fn value(key: &[u8], length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(key.len() as u8)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn readers_find_every_key_with_the_beginning_of_its_value(
        ops in prop::collection::vec(op(), 1..400)
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path());
        let mut model = BTreeMap::new();
        for op in &ops {
            match op {
                Op::Put(key, length) => {
                    let value = value(key, *length);
                    store.put(key, &value).unwrap();
                    model.insert(key.clone(), value);
                }
                Op::Delete(key) => {
                    store.delete(key).unwrap();
                    model.remove(key);
                }
                Op::Commit => {
                    store.commit().unwrap();
                }
            }
            let pending = store.pending_transaction() != 0;
            let version = version(&read(directory.path()));
            prop_assert_eq!(version, 2 * store.committed_transaction() + u64::from(pending));
        }
        store.commit().unwrap();
        let bytes = read(directory.path());
        for (key, value) in &model {
            let mut to = [[0; 8]; 13];
            if !(9..=KEY_BYTES_MAX).contains(&key.len()) {
                prop_assert_eq!(get(&bytes, key, &mut to), Err(Unsure));
                continue;
            }
            let count = get(&bytes, key, &mut to).unwrap().unwrap();
            prop_assert_eq!(&to.as_flattened()[..count], &value[..value.len().min(104)]);
            let absent = [key, b"x".as_slice()].concat();
            if absent.len() <= KEY_BYTES_MAX && !model.contains_key(&absent) {
                prop_assert_eq!(get(&bytes, &absent, &mut to), Ok(None));
            }
        }
    }

    #[test]
    fn bytes_that_make_no_sense_are_no_answer_and_no_panic(
        count in 1..400_u32,
        damage in prop::collection::vec((0..40_000_usize, any::<u8>()), 1..200),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path());
        for number in 0..count {
            let key = key::dentry(FileId(1), number.to_string().as_bytes());
            store.put(&key, &value(&key, 150)).unwrap();
        }
        store.commit().unwrap();
        let mut bytes = read(directory.path());
        for (at, byte) in damage {
            bytes.0[at] = byte;
        }
        for number in 0..count {
            let path = number.to_string();
            let question = Question { start: FileId::ROOT, path: path.as_bytes(), follow: true };
            let _any = look(&bytes, question);
        }
    }
}

/// What follows a key of less than eight bytes was read with it, and at the end of a page nothing
/// follows.
#[test]
fn a_short_key_at_the_end_of_a_page_is_compared() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    let key = [2, 1, 0, 0, 0, 2, 1, 2, 2];
    store.put(&key[..2], b"").unwrap();
    store.put(&key, b"value").unwrap();
    store.commit().unwrap();
    let mut to = [[0; 8]; 13];
    assert_eq!(get(&read(directory.path()), &key, &mut to), Ok(Some(5)));
}

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds })
}

fn content() -> impl Strategy<Value = Content> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..4096);
    prop_oneof![
        bytes().prop_map(Content::Inline),
        bytes().prop_map(Content::Symlink),
        (1..u32::MAX).prop_map(Content::Object),
        (any::<u64>(), any::<u64>()).prop_map(|(parent, entries)| {
            let name = b"name".to_vec();
            let parent = FileId(parent);
            Content::Directory(DirectoryNode { parent, name, entries, members: Vec::new() })
        }),
    ]
}

pub(crate) fn inode() -> impl Strategy<Value = Inode> {
    let numbers = (any::<u64>(), 0..0o10000_u16, any::<u32>(), any::<u32>(), any::<u32>());
    (numbers, (any::<u32>(), any::<u32>()), [time(), time(), time(), time()], content()).prop_map(
        |((id, mode, links, uid, gid), (size, blocks), [atime, mtime, ctime, btime], content)| {
            Inode {
                id: FileId(id),
                mode,
                links,
                uid,
                gid,
                size_bytes: size.into(),
                blocks: blocks.into(),
                atime,
                mtime,
                ctime,
                btime,
                unsettled: false,
                unlisted: false,
                extended: false,
                linkable: false,
                generation: if let Content::Object(generation) = content { generation } else { 0 },
                layout: Layout::default(),
                parts: 0,
                replica: 0,
                origin: None,
                residency: Vec::new(),
                content,
            }
        },
    )
}

pub(crate) fn attr(inode: &Inode) -> Attr {
    let (size_bytes, blocks) = match &inode.content {
        Content::Directory(_) => (4096, 8),
        Content::Inline(_) => (inode.size_bytes, inode.size_bytes.div_ceil(4096) * 8),
        _ => (inode.size_bytes, inode.blocks),
    };
    Attr {
        id: inode.id,
        kind: inode.kind(),
        mode: u32::from(inode.mode),
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        size_bytes,
        blocks,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: inode.btime,
    }
}

proptest! {
    #[test]
    fn records_tell_others_the_attributes_that_they_have(inode in inode()) {
        let cut = |record: Vec<u8>| record[..record.len().min(8 * RECORD_CHUNKS)].to_vec();
        let found = of_dentry(&cut(inode.encode_fused()));
        prop_assert_eq!(found, Ok(mayfly_records::Dentry::Fused(attr(&inode), None)));
        prop_assert_eq!(of_inode(&cut(inode.encode_own())).map(|own| own.attr), Ok(attr(&inode)));
        let unlisted = of_inode(&cut(Inode { unlisted: true, ..inode.clone() }.encode_own()));
        prop_assert!(unlisted.unwrap().unlisted);
        for unusual in [
            Inode { unsettled: true, ..inode.clone() },
            Inode { extended: true, ..inode.clone() },
            Inode { residency: vec![1], ..inode.clone() },
        ] {
            prop_assert_eq!(of_inode(&cut(unusual.encode_own())), Err(Unsure));
        }
    }
}

#[test]
fn a_walk_answers_what_is_certain_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    let of = |id: u64, content: Content| {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let inode = inode().new_tree(&mut runner).unwrap().current();
        let generation = u32::from(matches!(content, Content::Object(_)));
        Inode { id: FileId(id), generation, content, ..inode }
    };
    let node = |parent| DirectoryNode { parent, ..DirectoryNode::default() };
    let dir = Inode { links: 2, ..of(2, Content::Directory(node(FileId::ROOT))) };
    let gone = Inode { links: 0, ..of(5, Content::Directory(node(FileId::ROOT))) };
    let root = of(FileId::ROOT.0, Content::Directory(DirectoryNode::default()));
    let file = of(3, Content::Inline(b"x".to_vec()));
    let link = of(4, Content::Symlink(b"d".to_vec()));
    let plain = |id, kind| record::Dentry::Plain { id: FileId(id), kind }.encode();
    for (key, value) in [
        (key::numbered(key::INODE, FileId::ROOT).to_vec(), root.encode_own()),
        (key::numbered(key::INODE, FileId(2)).to_vec(), dir.encode_own()),
        (key::numbered(key::INODE, FileId(5)).to_vec(), gone.encode_own()),
        (key::dentry(FileId::ROOT, b"d").to_vec(), plain(2, FileKind::Directory)),
        (key::dentry(FileId(2), b"f").to_vec(), file.encode_fused()),
        (key::dentry(FileId(2), b"l").to_vec(), link.encode_fused()),
    ] {
        store.put(&key, &value).unwrap();
    }
    store.commit().unwrap();
    let bytes = read(directory.path());
    let ask = |start: u64, path: &str, follow| {
        look(&bytes, Question { start: FileId(start), path: path.as_bytes(), follow })
    };
    let is = |inode: &Inode| Ok(Found::File(attr(inode)));
    for path in ["d/f", "/d/f", "//d//./f", "./d/f"] {
        assert_eq!(ask(1, path, true), is(&file), "{path}");
    }
    assert_eq!(ask(2, "f", true), is(&file));
    assert_eq!(ask(2, "/d/f", true), is(&file));
    for path in ["d", "d/", "/d/.", "d//", "d/../d", "/d/.././d/"] {
        assert_eq!(ask(1, path, true), is(&dir), "{path}");
    }
    assert_eq!(ask(2, "../d/f", true), is(&file));
    for (start, path) in [(1, "d/.."), (2, ".."), (2, "../")] {
        assert_eq!(ask(start, path, true), is(&root), "{path}");
    }
    assert_eq!(ask(9, "/", true), is(&root));
    assert_eq!(ask(1, "d/l", false), is(&link));
    for path in ["x", "d/x", "x/y", "d/x/"] {
        assert_eq!(ask(1, path, true), Ok(Found::Nothing), "{path}");
    }
    // Where a link leads, whether it is a directory, whether the start is one, what is above.
    for path in ["d/l", "d/l/x", "d/f/", "d/f/x", "d/f/..", "..", "d/../..", "", &"n".repeat(256)] {
        assert_eq!(ask(1, path, true), Err(Unsure), "{path}");
    }
    assert_eq!(ask(2, "x", true), Err(Unsure), "is that a directory still?");
    assert_eq!(ask(2, ".", true), is(&dir));
    for path in ["..", "."] {
        assert_eq!(ask(5, path, true), Err(Unsure), "it was removed");
    }
    assert_eq!(ask(3, ".", true), Err(Unsure), "it is none");
    store.put(&key::dentry(FileId(2), b"new"), &file.encode_fused()).unwrap();
    let bytes = read(directory.path());
    let question = Question { start: FileId::ROOT, path: b"d/f", follow: true };
    assert_eq!(look(&bytes, question), Err(Unsure), "a transaction is under way");
}
