//! What was seen of an origin is told as long as it is believed.

use mayfly_meta::{
    Store, key,
    record::{Content, Dentry, DirectoryNode, Inode, Master, Origin, Seen},
};
use mayfly_records::{
    Bytes as Where, Found, Linked, Origins, Question, Reached, Source, Unsure, list, look, reach,
    read_link, version,
};
use mayfly_types::{FileId, FileKind};
use proptest::{prelude::*, strategy::ValueTree};

use super::{
    Bytes, open, read,
    readers::{attr, inode},
};

/// The records at a moment.
struct At<'a>(&'a Bytes, Origins, u64);

impl Source for At<'_> {
    fn word(&self, at: usize) -> Option<u64> {
        self.0.word(at)
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.0.chunk(at)
    }

    fn origins(&self) -> Origins {
        self.1
    }

    fn now(&self) -> u64 {
        self.2
    }
}

/// The same, by who remembers one directory that is whole.
struct Remembering<'a>(At<'a>, std::cell::Cell<Option<(FileId, u64, u64)>>);

impl Source for Remembering<'_> {
    fn word(&self, at: usize) -> Option<u64> {
        self.0.word(at)
    }

    fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        self.0.chunk(at)
    }

    fn origins(&self) -> Origins {
        self.0.origins()
    }

    fn now(&self) -> u64 {
        self.0.now()
    }

    fn recall_whole(&self, directory: FileId, version: u64) -> bool {
        let known = |(of, at, until)| (of, at) == (directory, version) && self.now() < until;
        self.1.get().is_some_and(known)
    }

    fn remember_whole(&self, directory: FileId, version: u64, until: u64) {
        self.1.set(Some((directory, version, until)));
    }
}

#[test]
fn that_a_directory_is_whole_is_remembered_for_a_version_and_as_long_as_it_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    plant(&mut store, &[7]);
    let bytes = read(directory.path());
    let question = Question { start: FileId::ROOT, path: b"d/none", follow: true };
    let mut process = Remembering(At(&bytes, Origins::Until, 49), Default::default());
    assert_eq!(look(&process, question), Ok(Found::Nothing));
    let known = process.1.get().unwrap();
    assert_eq!((known.0, Some(known.1), known.2), (FileId(2), version(&bytes), 50));
    // From then on it is believed without the directory's record, which says 50.
    process.1.set(Some((known.0, known.1, 60)));
    process.0.2 = 55;
    assert_eq!(look(&process, question), Ok(Found::Nothing));
    process.0.2 = 60;
    assert_eq!(look(&process, question), Err(Unsure));
    process.0.2 = 55;
    process.1.set(Some((known.0, known.1 + 2, 60)));
    assert_eq!(look(&process, question), Err(Unsure), "of another version");
    // Who leaves origins to the daemon does not believe what was remembered either.
    process.0.1 = Origins::Never;
    process.1.set(Some((known.0, known.1, 60)));
    assert_eq!(look(&process, question), Err(Unsure));
}

fn of(id: u64, content: Content, origin: Option<Origin>) -> Inode {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let any = inode().new_tree(&mut runner).unwrap().current();
    let size_bytes = if let Content::Inline(bytes) = &content { bytes.len() as u64 } else { 5 };
    let generation = u32::from(matches!(content, Content::Object(_)));
    let name = b"n".repeat(255);
    let residency = origin.map_or_else(Vec::new, |_| Master { name, ..Master::default() }.encode());
    Inode { id: FileId(id), links: 2, size_bytes, generation, content, origin, residency, ..any }
}

/// Seen until 100; of the directory its names until 50.
fn seen(resident: bool) -> Option<Origin> {
    let seen = Seen { until: 100, names_until: 50 };
    Some(Origin { resident, seen, ..Origin::default() })
}

/// A directory of the root, `d`, that has an origin, with a file of each length, and one that is
/// not here.
fn plant(store: &mut impl Store, lengths: &[usize]) {
    let node = |name: &str| DirectoryNode {
        parent: FileId::ROOT,
        name: name.as_bytes().to_vec(),
        ..DirectoryNode::default()
    };
    let root = of(FileId::ROOT.0, Content::Directory(node("")), None);
    let dir = of(2, Content::Directory(node("d")), seen(false));
    let new = Inode { unlisted: true, ..of(3, Content::Directory(node("new")), seen(false)) };
    for (name, inode) in [("d", &dir), ("new", &new)] {
        let plain = Dentry::Plain { id: inode.id, kind: FileKind::Directory };
        store.put(&key::dentry(FileId::ROOT, name.as_bytes()), &plain.encode()).unwrap();
    }
    for inode in [&root, &dir, &new] {
        store.put(&key::numbered(key::INODE, inode.id), &inode.encode_own()).unwrap();
    }
    let mut put = |name: &str, inode: &Inode| {
        store.put(&key::dentry(FileId(2), name.as_bytes()), &inode.encode_fused()).unwrap();
    };
    for (id, length) in (10..).zip(lengths) {
        let content = (0..*length).map(|at| (at % 251) as u8).collect();
        put(&length.to_string(), &of(id, Content::Inline(content), seen(true)));
    }
    let away = of(5, Content::Inline(Vec::new()), seen(false));
    put("away", &Inode { size_bytes: 9000, ..away });
    put("object", &of(6, Content::Object(1), seen(true)));
    put("link", &of(7, Content::Symlink(b"target".to_vec()), seen(true)));
    store.commit().unwrap();
}

#[test]
fn what_was_seen_is_told_until_its_time_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    plant(&mut store, &[7]);
    let bytes = read(directory.path());
    let ask = |path: &str, origins, now| {
        let question = Question { start: FileId::ROOT, path: path.as_bytes(), follow: true };
        look(&At(&bytes, origins, now), question)
    };
    for path in ["d", "new", "d/7", "d/away", "d/object"] {
        let Ok(Found::File(_)) = ask(path, Origins::Until, 99) else { panic!("{path}") };
        assert!(ask(path, Origins::ForEver, 101).is_ok(), "{path}");
        assert_eq!(ask(path, Origins::Until, 100), Err(Unsure), "{path}");
        assert_eq!(ask(path, Origins::None, 1), Err(Unsure), "{path}");
        assert_eq!(ask(path, Origins::Never, 1), Err(Unsure), "{path}");
    }
    let away = Inode { size_bytes: 9000, ..of(5, Content::Inline(Vec::new()), None) };
    assert_eq!(ask("d/away", Origins::Until, 1), Ok(Found::File(attr(&away))));
    let link = |origins, now| {
        let question = Question { start: FileId::ROOT, path: b"d/link", follow: false };
        let mut room = [0; 6];
        read_link(&At(&bytes, origins, now), question, &mut room).map(|found| (found, room))
    };
    assert_eq!(link(Origins::Until, 99), Ok((Linked::Link(6), *b"target")));
    assert_eq!((link(Origins::Until, 100), link(Origins::Never, 1)), (Err(Unsure), Err(Unsure)));
    assert_eq!(ask("d/none", Origins::Until, 49), Ok(Found::Nothing));
    assert_eq!(ask("d/none", Origins::Until, 50), Err(Unsure), "the names are not believed");
    assert_eq!(ask("d/none", Origins::ForEver, 50), Ok(Found::Nothing));
    assert_eq!(ask("d/none", Origins::Never, 49), Err(Unsure));
    for origins in [Origins::Until, Origins::ForEver] {
        assert_eq!(ask("new/none", origins, 1), Err(Unsure), "nobody has looked there");
        assert_eq!(ask("none", origins, 1000), Ok(Found::Nothing), "it has no origin");
    }
    let names = |origins, now| list(&At(&bytes, origins, now), FileId(2), 0, |_| true);
    assert_eq!(names(Origins::Until, 49), Ok(true));
    assert_eq!(names(Origins::Until, 50), Err(Unsure));
    assert_eq!(list(&At(&bytes, Origins::ForEver, 1), FileId(3), 0, |_| true), Err(Unsure));
}

/// What is known of the master copy stands behind the bytes.
#[test]
fn files_that_are_here_are_found_with_their_bytes_and_until_when_they_may_be_opened() {
    const LENGTHS: [usize; 9] = [0, 1, 7, 100, 3700, 3901, 3976, 4095, 4096];
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    plant(&mut store, &LENGTHS);
    let bytes = read(directory.path());
    let ask = |path: &str, origins| {
        let path = path.to_owned();
        let question = Question { start: FileId(2), path: path.as_bytes(), follow: true };
        reach(&At(&bytes, origins, 1), question).map(|reached| match reached {
            Reached::Regular(regular, ..) => regular,
            Reached::Nothing => panic!("{path} is there"),
        })
    };
    for length in LENGTHS {
        let found = ask(&length.to_string(), Origins::Until).unwrap();
        let Where::Runs(runs) = found.bytes else { panic!("{found:?}") };
        let copied = runs.from(0).flat_map(|(at, count)| bytes.0[at..at + count].to_vec());
        let wanted: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        assert_eq!(copied.collect::<Vec<u8>>(), wanted, "{length}");
        assert_eq!((found.until, found.opens_until), (u64::MAX, 100));
    }
    assert_eq!(ask("7", Origins::ForEver).unwrap().opens_until, u64::MAX);
    assert_eq!(ask("object", Origins::Until).unwrap().opens_until, 100);
    assert_eq!(ask("away", Origins::Until), Err(Unsure));
    assert_eq!(ask("away", Origins::ForEver), Err(Unsure));
}
