//! What others read of files is what their records have.

use mayfly_meta::{
    Store, key,
    record::{Content, Dentry, Inode},
};
use mayfly_records::{
    Bytes as Where, Linked, Question, Reached, Regular, Runs, Unsure, find_again, is_still,
    page::VERSION_AT, reach, read_link, version,
};
use mayfly_types::{FileId, FileKind};
use proptest::{prelude::*, strategy::ValueTree};

use super::{Bytes, open, read, readers::inode};

const LENGTHS: [usize; 14] =
    [0, 1, 7, 8, 100, 1000, 3000, 3901, 3960, 3966, 3967, 3976, 4095, 4096];

/// Lengths of links' targets.
const TARGETS: [usize; 8] = [1, 7, 8, 100, 1000, 3000, 3960, 4095];

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn file(id: u64, content: Content) -> Inode {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let any = inode().new_tree(&mut runner).unwrap().current();
    let size_bytes = if let Content::Inline(bytes) = &content { bytes.len() as u64 } else { 5 };
    let generation = u32::from(matches!(content, Content::Object(_)));
    Inode { id: FileId(id), size_bytes, generation, content, ..any }
}

fn runs(regular: &Regular) -> Runs {
    let Where::Runs(runs) = regular.bytes else { panic!("{regular:?} is not in its record") };
    runs
}

fn copied(bytes: &Bytes, small: &Regular, first: usize) -> Vec<u8> {
    let runs = runs(small);
    assert_eq!(Runs::of(runs.words()), runs);
    runs.from(first).flat_map(|(at, count)| bytes.0[at..at + count].to_vec()).collect()
}

fn ask<'a>(bytes: &Bytes, path: &'a str) -> Result<Reached<'a>, Unsure> {
    let question = Question { start: FileId(2), path: path.as_bytes(), follow: true };
    reach(bytes, question)
}

#[test]
fn small_files_of_every_length_are_found_with_their_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    for (number, length) in (10..).zip(LENGTHS) {
        let inode = file(number, Content::Inline(content(length)));
        let name = format!("f{length}");
        store.put(&key::dentry(FileId(2), name.as_bytes()), &inode.encode_fused()).unwrap();
        let moved = file(number + 100, Content::Inline(content(length)));
        store.put(&key::numbered(key::INODE, moved.id), &moved.encode_own()).unwrap();
        let plain = Dentry::Plain { id: moved.id, kind: FileKind::Regular };
        let name = format!("m{length}");
        store.put(&key::dentry(FileId(2), name.as_bytes()), &plain.encode()).unwrap();
    }
    store.commit().unwrap();
    let bytes = read(directory.path());
    for (number, length) in (10..).zip(LENGTHS) {
        for (id, name) in [(number, format!("f{length}")), (number + 100, format!("m{length}"))] {
            let Ok(Reached::Regular(small, found_in, found_as)) = ask(&bytes, &name) else {
                panic!("{name} is there")
            };
            assert_eq!((small.attr.id, small.attr.size_bytes), (FileId(id), length as u64));
            assert_eq!(copied(&bytes, &small, 0), content(length), "{name}");
            let first = length / 3;
            assert_eq!(copied(&bytes, &small, first), content(length)[first..], "{name}");
            assert_eq!(copied(&bytes, &small, length + 9), [], "{name}");
            let again = find_again(&bytes, small.attr.id, found_in, found_as);
            assert_eq!(again, Ok(small), "{name}");
            assert!(is_still(&bytes, small.version));
        }
    }
    let found = find_again(&bytes, FileId(110), FileId(2), b"f1");
    assert_eq!(found.unwrap().attr.id, FileId(110), "moved since, and another has its name");
    assert_eq!(find_again(&bytes, FileId(10), FileId::NONE, b""), Err(Unsure));
    assert_eq!(find_again(&bytes, FileId(99), FileId(2), b"f0"), Err(Unsure));
}

fn striped(mut inode: Inode) -> Inode {
    (inode.layout.striped, inode.parts) = (true, 1);
    inode
}

#[test]
fn the_object_of_a_file_is_found_and_whether_it_knows_better() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    for (number, settled) in [(10, true), (11, false)] {
        let plain = file(number, Content::Object(3));
        let inode = Inode { generation: 3, unsettled: !settled, ..plain };
        let name = number.to_string();
        store.put(&key::dentry(FileId(2), name.as_bytes()), &inode.encode_fused()).unwrap();
    }
    store.commit().unwrap();
    let bytes = read(directory.path());
    for (number, settled) in [(10, true), (11, false)] {
        let name = number.to_string();
        let Ok(Reached::Regular(found, found_in, found_as)) = ask(&bytes, &name) else {
            panic!("{name} is there")
        };
        assert_eq!(found.bytes, Where::Object { generation: 3, settled });
        assert_eq!((found.attr.id, found.attr.size_bytes), (FileId(number), 5));
        assert_eq!(find_again(&bytes, found.attr.id, found_in, found_as), Ok(found));
    }
}

/// Links of every length, one name of a file in a record of its own, and a directory.
fn plant_links(store: &mut impl Store) {
    let put = |store: &mut dyn Store, name: &str, inode: &Inode| {
        store.put(&key::dentry(FileId(2), name.as_bytes()), &inode.encode_fused()).unwrap();
    };
    for (number, length) in (10..).zip(TARGETS) {
        let link = file(number, Content::Symlink(content(length)));
        put(store, &format!("f{length}"), &link);
        let moved = Inode { id: FileId(number + 100), ..link };
        store.put(&key::numbered(key::INODE, moved.id), &moved.encode_own()).unwrap();
        let plain = Dentry::Plain { id: moved.id, kind: FileKind::Symlink };
        let name = format!("m{length}");
        store.put(&key::dentry(FileId(2), name.as_bytes()), &plain.encode()).unwrap();
    }
    put(store, "file", &file(200, Content::Inline(content(9))));
    let plain = Dentry::Plain { id: FileId(201), kind: FileKind::Directory };
    store.put(&key::dentry(FileId(2), b"directory"), &plain.encode()).unwrap();
    store.commit().unwrap();
}

fn linked(bytes: &Bytes, path: &str, room: &mut [u8]) -> Result<Linked, Unsure> {
    let question = Question { start: FileId(2), path: path.as_bytes(), follow: false };
    read_link(bytes, question, room)
}

#[test]
fn links_lead_where_their_records_say_and_what_is_none_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    plant_links(&mut store);
    let bytes = read(directory.path());
    for length in TARGETS {
        for name in [format!("f{length}"), format!("m{length}")] {
            let mut room = vec![1; length];
            assert_eq!(linked(&bytes, &name, &mut room), Ok(Linked::Link(length)), "{name}");
            assert_eq!(room, content(length), "{name}");
            assert_eq!(linked(&bytes, &name, &mut room[1..]), Err(Unsure), "{name}");
        }
    }
    for name in ["file", "directory"] {
        assert_eq!(linked(&bytes, name, &mut []), Ok(Linked::Other), "{name}");
    }
    for name in ["none", "directory/", "f7/", "", ".."] {
        assert_eq!(linked(&bytes, name, &mut [0; 9]), Err(Unsure), "{name}");
    }
}

#[test]
fn what_is_no_file_or_in_parts_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    let small = || Content::Inline(b"text".to_vec());
    let cases = [
        ("striped", striped(file(10, Content::Object(1)))),
        ("no object", Inode { generation: 0, ..file(16, Content::Object(0)) }),
        ("link", file(11, Content::Symlink(b"text".to_vec()))),
        ("pipe", file(12, Content::Fifo(b"place".to_vec()))),
        ("unsettled", Inode { unsettled: true, ..file(13, small()) }),
        ("extended", Inode { extended: true, ..file(14, small()) }),
        ("longer", Inode { size_bytes: 5, ..file(15, small()) }),
    ];
    for (name, inode) in &cases {
        store.put(&key::dentry(FileId(2), name.as_bytes()), &inode.encode_fused()).unwrap();
    }
    let there = file(20, small());
    store.put(&key::dentry(FileId(2), b"there"), &there.encode_fused()).unwrap();
    store.commit().unwrap();
    let mut bytes = read(directory.path());
    for (name, inode) in &cases {
        assert_eq!(ask(&bytes, name), Err(Unsure), "{name}");
        assert_eq!(find_again(&bytes, inode.id, FileId(2), name.as_bytes()), Err(Unsure), "{name}");
    }
    for path in ["there/", "there/x", "..", "", "none", "."] {
        assert_eq!(ask(&bytes, path), Err(Unsure), "{path}");
    }
    assert_eq!(ask(&bytes, "/none"), Ok(Reached::Nothing));
    assert_eq!(ask(&bytes, "/none/x"), Ok(Reached::Nothing));
    assert!(matches!(ask(&bytes, "there"), Ok(Reached::Regular(..))));
    assert!(version(&bytes).is_some());
    bytes.0[VERSION_AT] |= 1;
    assert_eq!((ask(&bytes, "there"), version(&bytes)), (Err(Unsure), None));
}

#[test]
fn a_transaction_that_is_announced_is_seen_before_its_first_change() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    store.put(b"key", b"value").unwrap();
    store.commit().unwrap();
    let before = version(&read(directory.path()));
    store.announce().unwrap();
    assert_eq!(version(&read(directory.path())), None);
    store.commit().unwrap();
    let after = version(&read(directory.path()));
    assert!(after > before, "{after:?} {before:?}");
}

proptest! {
    #[test]
    fn bytes_that_mean_nothing_lead_nowhere(
        seed in prop::collection::vec((0..16_384_usize, any::<u8>()), 1..200),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path());
        for length in LENGTHS {
            let inode = file(length as u64 + 10, Content::Inline(content(length)));
            let key = key::dentry(FileId(2), format!("f{length}").as_bytes());
            store.put(&key, &inode.encode_fused()).unwrap();
        }
        for length in TARGETS {
            let inode = file(length as u64 + 5000, Content::Symlink(content(length)));
            let key = key::dentry(FileId(2), format!("l{length}").as_bytes());
            store.put(&key, &inode.encode_fused()).unwrap();
        }
        store.commit().unwrap();
        let mut bytes = read(directory.path());
        for (at, byte) in seed {
            // Not in the header, whose end of the file is what was allocated.
            if let Some(there) = bytes.0.get_mut(4096 + at) {
                *there = byte;
            }
        }
        for length in LENGTHS {
            let name = format!("f{length}");
            if let Ok(Reached::Regular(small, ..)) = ask(&bytes, &name) {
                prop_assert_eq!(runs(&small).bytes() as u64, small.attr.size_bytes);
            }
            let _ = linked(&bytes, &name, &mut [0; 1024]);
        }
        for length in TARGETS {
            let _ = linked(&bytes, &format!("l{length}"), &mut [0; 4096]);
        }
    }
}
