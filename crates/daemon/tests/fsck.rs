//! What does not fit together is found, each kind of it; and what fits is not called wrong.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::{collections::BTreeSet, path::Path};

use mayfly_daemon::fsck::{Doubts, Finding, Kind, Look};
use mayfly_meta::{
    MemoryStore, Scan, Store, key,
    record::{BirthKey, Content, Dentry, Inode, Member},
};
use mayfly_object::{DirectoryStore, ObjectId, ObjectStore};
use mayfly_types::{Errno, FileId, FileKind, OpenRef};
use mayfly_wire::{
    GRANT_WRITE, Grant, INSPECT_OBJECTS, INSPECT_OPENS, INSPECT_RECORDS, Inspect, Inspected,
    RemoveStray,
    inspection::{Directory, Fact, File, Mark, Name, Object, Open, Operation, Part, Spread, facts},
};
use support::{Kept, Node, O_CREAT, O_RDWR, config, failed, fsck};

const SHARDS: u32 = 3;

/// Directories, small files, a large one, links, an open file and one that is open and removed.
fn lived_in() -> Node {
    let mut node = Node::several(config(), SHARDS, 11, false);
    for name in ["a", "b", "a/c"] {
        node.mkdir(name).unwrap();
    }
    for number in 0..40 {
        let open = node.open(&format!("a/{number}"), O_CREAT | O_RDWR).unwrap().0;
        node.write(open, 0, b"small").unwrap();
        node.close(open);
    }
    let open = node.open("b/large", O_CREAT | O_RDWR).unwrap().0;
    node.write(open, 0, &vec![b'x'; 200_000]).unwrap();
    node.close(open);
    node.link("a/1", "b/one").unwrap();
    node.rename("a/2", "b/two", 0).unwrap();
    node.symlink("a", "l").unwrap();
    let removed = node.open("a/3", O_RDWR).unwrap().0;
    node.write(removed, 0, &vec![b'y'; 100_000]).unwrap();
    node.unlink("a/3", false).unwrap();
    node.open("b/large", O_RDWR).unwrap();
    node.settle_down();
    node
}

fn store(node: &Node, shard: u32) -> MemoryStore {
    let kept = std::iter::once(&node.kept).chain(&node.more).nth(shard as usize).unwrap();
    let Kept::Memory(disk) = kept else { panic!("in memory") };
    MemoryStore::open(disk, 1 << 30)
}

/// All records with this first byte.
fn records(node: &Node, tag: u8) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for shard in 0..SHARDS {
        let visit = &mut |key: &[u8], record: &[u8]| {
            all.push((shard, key.to_vec(), record.to_vec()));
            Scan::More
        };
        store(node, shard).scan(&[tag], &[tag], visit).unwrap();
    }
    all
}

fn put(node: &Node, shard: u32, key: &[u8], record: &[u8]) {
    let mut store = store(node, shard);
    store.put(key, record).unwrap();
    store.commit().unwrap();
}

fn delete(node: &Node, shard: u32, key: &[u8]) {
    let mut store = store(node, shard);
    assert!(store.delete(key).unwrap());
    store.commit().unwrap();
}

/// A dentry of a file that is not a directory, and not fused.
fn plain_name(node: &Node) -> (u32, Vec<u8>, Vec<u8>) {
    let is_it = |record: &[u8]| {
        matches!(Dentry::decode(record).unwrap(), Dentry::Plain { kind: FileKind::Regular, .. })
    };
    records(node, key::DENTRY).into_iter().find(|(.., record)| is_it(record)).unwrap()
}

fn inode(node: &Node, is_it: impl Fn(&Inode) -> bool) -> (u32, Vec<u8>, Inode) {
    for (shard, key, record) in records(node, key::INODE) {
        let inode = Inode::decode_own(&record).unwrap();
        if is_it(&inode) {
            return (shard, key, inode);
        }
    }
    panic!("there is such an inode");
}

/// What is found after something was broken on purpose.
fn kinds(node: &Node) -> BTreeSet<Kind> {
    fsck::findings(node).iter().map(|finding| finding.kind).collect()
}

fn objects(node: &Node) -> DirectoryStore {
    DirectoryStore::open(&node.objects).unwrap()
}

#[test]
fn what_fits_is_not_called_wrong() {
    let node = lived_in();
    let look = fsck::look(&node);
    assert_eq!(look.findings(), BTreeSet::new());
    let counts = look.counts();
    // The root too; 40 files, of which one has two names and one none, a large one and a link.
    assert_eq!((counts.directories, counts.files, counts.names), (4, 42, 3 + 41 + 1));
    assert_eq!((counts.objects, counts.descriptions), (2, 2));
}

#[test]
fn a_name_without_its_file_is_found() {
    let node = lived_in();
    let (_, _, record) = plain_name(&node);
    let id = Dentry::decode(&record).unwrap().id();
    let (shard, key, _) = inode(&node, |inode| inode.id == id);
    delete(&node, shard, &key);
    assert!(kinds(&node).contains(&Kind::Name));
}

#[test]
fn a_file_without_a_name_and_a_wrong_number_of_links_are_found() {
    let node = lived_in();
    let (shard, key, inode) =
        inode(&node, |inode| inode.links == 2 && inode.kind() == FileKind::Regular);
    put(&node, shard, &key, &Inode { links: 3, ..inode.clone() }.encode_own());
    assert_eq!(kinds(&node), BTreeSet::from([Kind::Links]));
    let names = records(&node, key::DENTRY);
    let of_it = |record: &[u8]| Dentry::decode(record).unwrap().id() == inode.id;
    for (shard, key, _) in names.into_iter().filter(|(.., record)| of_it(record)) {
        delete(&node, shard, &key);
    }
    let found = kinds(&node);
    // The directories that had them count one more, too.
    assert_eq!(found, BTreeSet::from([Kind::File, Kind::Directory]));
}

#[test]
fn an_orphan_that_nobody_has_open_is_found() {
    let node = lived_in();
    let (shard, key, inode) = inode(&node, |inode| inode.links == 0);
    let other = FileId(inode.id.0 + (1 << 40));
    let orphan = Inode { id: other, generation: 0, content: Content::Inline(Vec::new()), ..inode };
    let orphan = Inode { size_bytes: 0, unsettled: false, ..orphan };
    let _ = key;
    put(&node, shard, &key::numbered(key::INODE, other), &orphan.encode_own());
    put(&node, shard, &key::numbered(key::ORPHAN, other), &BirthKey::default().encode());
    assert_eq!(kinds(&node), BTreeSet::from([Kind::File]));
    delete(&node, shard, &key::numbered(key::ORPHAN, other));
    assert_eq!(kinds(&node), BTreeSet::from([Kind::File]));
}

#[test]
fn a_directory_whose_members_say_something_else_is_found() {
    let node = lived_in();
    let (shard, key, record) = records(&node, key::MEMBER).into_iter().next().unwrap();
    let member = Member::decode(&record).unwrap();
    let more = Member { entries: member.entries + 1, ..member };
    put(&node, shard, &key, &more.encode());
    assert_eq!(kinds(&node), BTreeSet::from([Kind::Directory]));
    put(&node, shard, &key::numbered(key::MEMBER, FileId(0x7777)), &member.encode());
    put(&node, shard, &key, &record);
    let found = fsck::findings(&node);
    assert_eq!(found.len(), 1);
    assert!(found.first().unwrap().what.contains("which is gone"), "{found:?}");
}

#[test]
fn a_directory_that_is_not_below_the_root_is_found() {
    let node = lived_in();
    let (shard, key, inode) = inode(&node, |inode| match &inode.content {
        Content::Directory(directory) => directory.name == b"c",
        _ => false,
    });
    let names = records(&node, key::DENTRY);
    let name = |of: &[u8]| Dentry::decode(of).unwrap().id() == inode.id;
    let (at, of, record) = names.into_iter().find(|(.., record)| name(record)).unwrap();
    delete(&node, at, &of);
    put(&node, at, &key::dentry(inode.id, b"c"), &record);
    let Content::Directory(mut directory) = inode.content.clone() else { unreachable!() };
    directory.parent = inode.id;
    put(
        &node,
        shard,
        &key,
        &Inode { content: Content::Directory(directory), ..inode }.encode_own(),
    );
    let found = fsck::findings(&node);
    assert!(found.iter().any(|finding| finding.what.contains("not below the root")), "{found:?}");
}

#[test]
fn an_object_that_is_missing_too_short_or_of_nobody_is_found() {
    let node = lived_in();
    let large = objects(&node).list(None, 10).unwrap();
    let large = large.into_iter().find(|listed| listed.size_bytes == 200_000).unwrap().id;
    objects(&node).set_size(large, 100).unwrap();
    assert_eq!(kinds(&node), BTreeSet::from([Kind::Length]));
    objects(&node).remove(large).unwrap();
    assert_eq!(kinds(&node), BTreeSet::from([Kind::Content]));
    let next = ObjectId { generation: large.generation + 1, ..large };
    objects(&node).create(large, &vec![b'x'; 200_000]).unwrap();
    objects(&node).create(next, b"of another generation").unwrap();
    objects(&node).create(ObjectId { file: FileId(0x9999), generation: 1 }, b"of nobody").unwrap();
    let found = fsck::findings(&node);
    let strays: Vec<ObjectId> = found.iter().map(|finding| finding.stray.unwrap().id).collect();
    assert_eq!(strays.len(), 2, "{found:?}");
    assert!(strays.contains(&next));
}

#[test]
fn marks_of_nothing_and_records_that_make_no_sense_are_found() {
    for (tag, record) in [(key::UNSETTLED, BirthKey::default().encode()), (key::XATTRS, vec![0])] {
        let node = lived_in();
        put(&node, 1, &key::numbered(tag, FileId(0x4242)), &record);
        assert_eq!(kinds(&node), BTreeSet::from([Kind::Mark]));
    }
    let node = lived_in();
    put(&node, 1, &key::doomed(FileId(0x4242), 1), &[1]);
    assert_eq!(kinds(&node), BTreeSet::from([Kind::Mark]));
    let node = lived_in();
    put(&node, 1, &key::numbered(key::INODE, FileId(0x4242)), b"nonsense");
    assert_eq!(kinds(&node), BTreeSet::from([Kind::Record]));
    let node = lived_in();
    put(&node, 1, &key::applied(0x4242_0001, 1), &[1]);
    assert_eq!(kinds(&node), BTreeSet::from([Kind::Operation]));
}

/// A root directory and a striped file with a part on each of two nodes.
fn two_nodes() -> Vec<(u32, Fact<'static>)> {
    let spread = Spread {
        width: 2,
        hashed: false,
        chunk_log2: 16,
        striped: true,
        tail_start_bytes: 0,
        tail_row: 0,
        tail_chunk_log2: 0,
    };
    let whole = Spread { width: 1, striped: false, ..spread };
    let (id, name) = (FileId(7), b"f");
    let file = File {
        id,
        kind: FileKind::Regular,
        links: 1,
        unsettled: false,
        extended: false,
        generation: 1,
        size_bytes: 100_000,
        spread,
        parts: 2,
    };
    let root = File { id: FileId::ROOT, kind: FileKind::Directory, links: 2, ..file };
    let root = File { generation: 0, size_bytes: 0, spread: whole, parts: 0, ..root };
    let (parent, kind) = (FileId::ROOT, FileKind::Regular);
    let part = |index| Fact::Part(Part { file: id, generation: 1, index, spread, cut: false });
    let object = |size_bytes| Fact::Object(Object { file: id, generation: 1, size_bytes });
    let directory = Directory { id: parent, parent, name: b"", entries: 1, members: &[] };
    vec![
        (0, Fact::File(root)),
        (0, Fact::Directory(directory)),
        (0, Fact::Name(Name { directory: parent, file: id, kind, name })),
        (0, Fact::File(file)),
        (0, part(0)),
        (0, object(1 << 16)),
        (1, part(1)),
        (1, object(100_000 - (1 << 16))),
    ]
}

fn found(facts: &[(u32, Fact<'_>)]) -> Vec<(Kind, String)> {
    let mut look = Look::new(1);
    facts.iter().for_each(|(shard, fact)| look.take(*shard, fact));
    look.findings().into_iter().map(|finding| (finding.kind, finding.what)).collect()
}

#[test]
fn parts_without_their_file_and_a_wrong_length_of_a_striped_file_are_found() {
    assert_eq!(found(&two_nodes()), []);
    let mut facts = two_nodes();
    facts.retain(|(_, fact)| !matches!(fact, Fact::File(File { id: FileId(7), .. })));
    let kinds: BTreeSet<Kind> = found(&facts).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, BTreeSet::from([Kind::Name, Kind::Part]));
    facts.retain(|(_, fact)| !matches!(fact, Fact::Name(_)));
    facts[1].1 = match facts[1].1 {
        Fact::Directory(root) => Fact::Directory(Directory { entries: 0, ..root }),
        other => other,
    };
    assert_eq!(found(&facts).len(), 2);
    // They are on their way out: that alone is what stays.
    facts.push((0, Fact::Mark(Mark { what: key::UNLINKED, file: FileId(7), generation: 1 })));
    assert_eq!(found(&facts).first().unwrap().0, Kind::Mark);
    let mut facts = two_nodes();
    facts.retain(|(shard, fact)| *shard == 0 || !matches!(fact, Fact::Object(_)));
    assert_eq!(found(&facts).first().unwrap().0, Kind::Length);
    let mut facts = two_nodes();
    facts.retain(|(shard, fact)| *shard == 0 || !matches!(fact, Fact::Part(_)));
    let kinds: Vec<Kind> = found(&facts).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::Length, Kind::Object]);
}

/// The file's home would neither ask it how far it reaches nor have it removed with the file.
#[test]
fn a_part_that_the_home_of_its_file_does_not_know_of_is_found() {
    let mut facts = two_nodes();
    for (_, fact) in &mut facts {
        if let Fact::File(file @ File { id: FileId(7), .. }) = fact {
            file.parts = 1;
        }
    }
    let found = found(&facts);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0], (Kind::Part, "/f: part 1 of generation 1 is there, of 1".to_owned()));
}

#[test]
fn descriptions_of_nobody_are_found() {
    let (mut facts, file) = (two_nodes(), FileId(7));
    let number = |index| OpenRef { index, generation: 3 };
    let at_home =
        Open { open: number(4), file, of_node: 2, at_shard: 0, there: number(4), held: false };
    let stand_in = Open { open: number(9), of_node: 0, at_shard: 1, held: true, ..at_home };
    facts.push((0, Fact::Open(at_home)));
    assert!(found(&facts)[0].1.contains("does not know it"), "{:?}", found(&facts));
    facts.push((1, Fact::Open(stand_in)));
    assert_eq!(found(&facts), []);
    facts.retain(|(_, fact)| *fact != Fact::Open(at_home));
    assert!(found(&facts)[0].1.contains("not at shard 0"), "{:?}", found(&facts));
    let mut facts = two_nodes();
    facts.push((0, Fact::Open(Open { of_node: 0, ..at_home })));
    assert!(found(&facts)[0].1.contains("a process that is gone"), "{:?}", found(&facts));
    facts.push((0, Fact::Open(Open { open: number(5), file: FileId(8), ..at_home })));
    assert!(found(&facts).iter().any(|found| found.1.contains("has no file")));
}

#[test]
fn an_operation_that_is_under_way_explains_what_it_is_at() {
    let mut facts = two_nodes();
    facts.retain(|(_, fact)| !matches!(fact, Fact::File(File { id: FileId(7), .. })));
    let operation = Operation { id: 0x50000, file: FileId(7) };
    facts.push((0, Fact::Operation(operation)));
    let found = found(&facts);
    assert_eq!(found.len(), 1, "only that it is not finished: {found:?}");
    assert_eq!(found[0].0, Kind::Operation);
}

#[test]
fn what_changes_between_two_looks_is_no_doubt_any_more() {
    let finding = |what: &str| {
        let node = lived_in();
        put(&node, 1, &key::doomed(FileId(what.len() as u64), 1), &[1]);
        fsck::findings(&node).into_iter().next().unwrap()
    };
    let (one, other): (Finding, Finding) = (finding("a"), finding("bb"));
    let mut doubts = Doubts::default();
    doubts.add(BTreeSet::from([one.clone(), other.clone()]));
    doubts.add(BTreeSet::from([other.clone()]));
    doubts.add(BTreeSet::from([one, other.clone()]));
    assert_eq!((doubts.looks(), doubts.found().clone()), (3, BTreeSet::from([other])));
}

/// Where objects lie in memory they are made on the spot, in the middle of a batch.
#[test]
fn a_daemon_that_is_killed_when_it_has_made_an_object_leaves_none_of_nobody() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return;
    }
    let mut node = Node::on_disk_in(config(), memory);
    let open = node.open("file", O_CREAT | O_RDWR).unwrap().0;
    node.write(open, 0, b"small").unwrap();
    node.settle_down();
    let caller = node.next_caller(support::SESSION);
    let grant = Grant { open, want: GRANT_WRITE, end: 100_000 };
    node.submit(caller, &grant, &mut vec![0; 4096]);
    assert_eq!(objects(&node).list(None, 10).unwrap().len(), 1, "it is made");
    node.restart();
    node.settle_down();
    assert_eq!(objects(&node).list(None, 10).unwrap(), []);
    assert_eq!(ask_all(&mut node, 1).0.findings(), BTreeSet::new());
    node.write(open, 0, &vec![b'x'; 100_000]).unwrap();
    node.settle_down();
    let look = ask_all(&mut node, 1).0;
    assert_eq!((look.findings(), look.counts().objects), (BTreeSet::new(), 1));
}

/// Looks as `mayfly fsck` does.
fn ask_all(node: &mut Node, all: u32) -> (Look, u32) {
    let (mut look, mut pages) = (Look::new(all), 0);
    for (what, shards) in [(INSPECT_OPENS, all), (INSPECT_OBJECTS, 1), (INSPECT_RECORDS, all)] {
        for shard in 0..shards {
            let mut after = Vec::new();
            loop {
                let request = Inspect { shard, what, after: &after };
                let take = |page: Inspected<'_>| {
                    assert_eq!((page.nodes, page.shards), (1, all));
                    facts(page.facts).for_each(|fact| look.take(shard, &fact.unwrap()));
                    page.next.to_vec()
                };
                after = node.ask(&request, take).unwrap();
                pages += 1;
                if after.is_empty() {
                    break;
                }
            }
        }
    }
    (look, pages)
}

#[test]
fn shards_tell_by_pages_what_they_keep() {
    let mut node = lived_in();
    for number in 0..6000 {
        node.symlink("x", &format!("b/{number}")).unwrap();
    }
    node.settle_down();
    let (asked, pages) = ask_all(&mut node, SHARDS);
    assert_eq!(asked.findings(), BTreeSet::new());
    assert_eq!(asked.counts(), fsck::look(&node).counts());
    assert!(pages > 2 * SHARDS + 1, "{pages} pages");
}

#[test]
fn what_makes_no_sense_is_refused_at_the_door() {
    let mut node = lived_in();
    let long = [b'I'; 600];
    for (shard, what, after) in [
        (SHARDS, INSPECT_RECORDS, &b""[..]),
        (0, 0, b""),
        (1, 9, b""),
        (1, INSPECT_RECORDS, &long),
        (1, INSPECT_OPENS, b"abc"),
        (1, INSPECT_OBJECTS, b"abc"),
    ] {
        let answer = node.ask(&Inspect { shard, what, after }, |_| ());
        assert_eq!(failed(answer), Errno::EINVAL, "{shard} {what} {after:?}");
    }
    let stray = RemoveStray { shard: SHARDS, file: FileId(5), generation: 1 };
    assert_eq!(failed(node.ask(&stray, |()| ())), Errno::EINVAL);
}

#[test]
fn an_object_of_nobody_is_removed_and_one_that_is_used_is_not() {
    let mut node = lived_in();
    let stray = ObjectId { file: FileId(0x9999), generation: 1 };
    objects(&node).create(stray, b"of nobody").unwrap();
    for object in objects(&node).list(None, 10).unwrap() {
        let ObjectId { file, generation } = object.id;
        let shards = mayfly_daemon::SlotTable::even(1, SHARDS);
        let shard = shards.home(file).0;
        let answer = node.ask(&RemoveStray { shard, file, generation }, |()| ());
        match object.id == stray {
            true => assert_eq!(answer, Ok(())),
            false => assert_eq!(failed(answer), Errno::EBUSY),
        }
    }
    node.settle_down();
    assert_eq!(objects(&node).attr(stray), Err(Errno::ENOENT));
    assert_eq!(fsck::findings(&node), BTreeSet::new());
}
