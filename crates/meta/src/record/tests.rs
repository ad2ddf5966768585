//! The bytes of the records, and what becomes of bytes that are none.

use mayfly_types::{FileId, FileKind, Timestamp};
use proptest::prelude::*;

use super::*;

fn time(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 7 }
}

fn inode(content: Content) -> Inode {
    Inode {
        id: FileId(0x0102_0304_0506_0708),
        mode: 0o644,
        links: 1,
        uid: 1000,
        gid: 100,
        size_bytes: 2,
        blocks: 8,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        btime: time(4),
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

/// Bytes 1 to 104 of a record with the inode above.
fn golden_head(kind: u8) -> Vec<u8> {
    let mut bytes = vec![8, 7, 6, 5, 4, 3, 2, 1, kind, 0, 0xa4, 0x01];
    for value in [1_u32, 1000, 100, 0] {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    for seconds in 1..=4 {
        bytes.extend_from_slice(&[seconds, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    }
    // Layout: first server 0, width 1, striped, chunks of 2^19 bytes; replica 0; no origin, no
    // residency map.
    bytes.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 19, 0, 0, 0]);
    bytes
}

#[test]
fn the_bytes_of_a_small_file_do_not_change() {
    let record = inode(Content::Inline(b"hi".to_vec())).encode_own();
    let wanted = [&[0x21], golden_head(1).as_slice(), &[0, 2, 0, 0, 0, b'h', b'i']].concat();
    assert_eq!(record, wanted);
    assert_eq!(record.len(), 1 + 103 + 7);
}

#[test]
fn the_bytes_of_a_directory_do_not_change() {
    let node =
        DirectoryNode { parent: FileId(1), name: b"src".to_vec(), entries: 5, members: vec![9] };
    let record = Dentry::Fused(Box::new(inode(Content::Directory(node)))).encode();
    let tail =
        [1, 0, 0, 0, 0, 0, 0, 0, 3, b's', b'r', b'c', 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0];
    assert_eq!(record, [&[0x12], golden_head(2).as_slice(), &tail].concat());
}

/// Who removes the name of a light file looks at nothing else.
#[test]
fn a_light_file_has_one_name_and_nothing_outside_its_record() {
    let light = inode(Content::Inline(b"hi".to_vec()));
    let is_light = |inode: &Inode| Dentry::is_light(&inode.encode_fused());
    assert!(is_light(&light));
    assert!(!Dentry::is_light(&light.encode_own()));
    let plain = Dentry::Plain { id: light.id, kind: FileKind::Regular };
    assert!(!Dentry::is_light(&plain.encode()));
    assert!(!Dentry::is_light(&light.encode_fused()[..102]));
    let layout = |policy| Layout { policy, ..Layout::default() };
    let source =
        Origin { source: 1, mtime: time(1), size_bytes: 2, resident: true, ..Origin::default() };
    let heavy = [
        Inode { links: 2, ..light.clone() },
        Inode { links: 0, ..light.clone() },
        Inode { links: 257, ..light.clone() },
        Inode { unsettled: true, ..light.clone() },
        Inode { extended: true, ..light.clone() },
        Inode { linkable: true, ..light.clone() },
        Inode { layout: layout(Policy::Local), ..light.clone() },
        Inode { layout: layout(Policy::Pool), ..light.clone() },
        Inode { origin: Some(source), ..light.clone() },
        Inode { residency: vec![1], ..light.clone() },
        Inode { generation: 1, content: Content::Object(1), ..light.clone() },
        inode(Content::Symlink(b"hi".to_vec())),
        inode(Content::Fifo(Vec::new())),
    ];
    for inode in &heavy {
        assert!(!is_light(inode), "{inode:?}");
    }
}

/// Each create touches its directory, so the record is not made anew. A field more that a touch
/// changes has to be brought up to date as well.
#[test]
fn a_directory_that_was_touched_has_the_record_that_it_would_be_given() {
    let node = DirectoryNode { parent: FileId(1), name: b"src".to_vec(), ..Default::default() };
    let before = inode(Content::Directory(node.clone()));
    for members in [vec![], vec![7, 9]] {
        let node = DirectoryNode { members, ..node.clone() };
        let before = Inode { content: Content::Directory(node.clone()), ..before.clone() };
        let mut record = before.encode_own();
        let content = Content::Directory(DirectoryNode { entries: 0x0102_0304, ..node });
        let (mtime, ctime) = (time(1 << 40), time(-5));
        let after = Inode { links: 77, mtime, ctime, content, ..before };
        assert!(after.touch_own(&mut record));
        assert_eq!(record, after.encode_own());
        let renamed = DirectoryNode { name: b"a longer name".to_vec(), ..Default::default() };
        let other = inode(Content::Directory(renamed));
        assert!(!other.touch_own(&mut record), "a record of another length");
        assert!(!inode(Content::Inline(Vec::new())).touch_own(&mut record), "a file");
    }
}

#[test]
fn the_bytes_of_a_plain_dentry_do_not_change() {
    let record = Dentry::Plain { id: FileId(258), kind: FileKind::Symlink }.encode();
    assert_eq!(record, [0x11, 3, 2, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_bytes_of_the_small_records_do_not_change() {
    let counters = Counters {
        next_file: 1,
        files: 2,
        directories: 3,
        orphans: 4,
        objects: 5,
        settled_bytes: 6,
    };
    let numbers: Vec<u8> = (1..=6_u64).flat_map(u64::to_le_bytes).collect();
    assert_eq!(counters.encode().as_slice(), [&[0x31], numbers.as_slice()].concat());
    let birth = BirthKey { directory: FileId(1), name: b"ab".to_vec() };
    assert_eq!(birth.encode(), [0x41, 1, 0, 0, 0, 0, 0, 0, 0, 2, b'a', b'b']);
    let append = Append { session: 1, request_id: 2, start: 3, bytes: 4 };
    let mut bytes = vec![0x81, 1, 0, 0, 0];
    bytes.extend([2_u64, 3].iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend([4, 0, 0, 0]);
    assert_eq!(append.encode(), bytes);
    assert_eq!(Append::decode(&bytes).unwrap(), append);
    let lock = HeldLock { owner_kind: 1, kind: 1, owner: 2, owner_generation: 3, start: 4, end: 5 };
    assert_eq!(
        encode_locks(&[lock]),
        [0x51, 1, 0, 1, 1, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]
    );
    let instance = Instance { id: 1, shard: 2, chunk_log2: 19 };
    assert_eq!(instance.encode(), [0x61, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 19]);
    let mut xattrs = Xattrs::default();
    assert_eq!(xattrs.replace(b"user.a", b"bc"), None);
    let bytes = [0xb1, 1, 0, 6, b'u', b's', b'e', b'r', b'.', b'a', 2, 0, 0, 0, b'b', b'c'];
    assert_eq!(xattrs.encode(), bytes);
    assert_eq!(Xattrs::decode(&bytes).unwrap(), xattrs);
    let slots = SlotRanges { version: 1, runs: vec![(0, 0)] };
    assert_eq!(slots.encode(), [0x71, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_bytes_of_the_records_of_several_shards_do_not_change() {
    let layout = Layout { first_server: 6, width: 7, ..Layout::default() };
    let member = Member { entries: 1, subdirectories: 2, mode: 3, gid: 4, mtime: time(5), layout };
    let mut bytes = vec![0xa2, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 4, 0, 0, 0];
    bytes.extend([5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    bytes.extend([6, 0, 0, 0, 7, 0, 0, 19]);
    assert_eq!(member.encode(), bytes);
    assert_eq!(Member::decode(&bytes).unwrap(), member);
    let maker = Maker { node: 1, session: 2, request_id: 3 };
    let bytes = [0xe1, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(maker.encode(), bytes);
    assert_eq!(Maker::decode(&bytes).unwrap(), maker);
    let step = Step::RemoveName {
        directory: FileId(1),
        name: b"ab".to_vec(),
        id: FileId(2),
        kind: FileKind::Regular,
    };
    let parts = vec![(4, vec![step])];
    let intent = Intent { session: 1, lane: 2, request_id: 3, cut: Some(FileId(9)), parts };
    let mut bytes = vec![0x92, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]);
    bytes.extend([4, 1, 0, 0, 0, 0, 0, 0, 0, 2, b'a', b'b', 2, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(intent.encode(), bytes);
}

/// Each step comes back, and makes names before it removes them.
#[test]
fn the_steps_of_an_intent_come_back() {
    let (id, birth) = (FileId(5), BirthKey { directory: FileId(1), name: b"n".to_vec() });
    let (directory, name, kind) = (FileId(1), b"n".to_vec(), FileKind::Directory);
    let (layout, maker) = (Layout::default(), Maker { node: 1, session: 2, request_id: 3 });
    let names = vec![NamedFile { name: name.clone(), id, kind }];
    let steps = vec![
        Step::MakeFile { id, mode: 0o644, uid: 1, gid: 2, layout, maker },
        Step::MakeDirectory {
            id,
            mode: 0o755,
            uid: 1,
            gid: 2,
            layout,
            parent: directory,
            name: name.clone(),
        },
        Step::AddLink { id, birth: birth.clone() },
        Step::Moved { id, birth: birth.clone(), parent: directory, name: name.clone() },
        Step::SetName { directory, name: name.clone(), id, kind, expected: None },
        Step::SetName { directory, name: name.clone(), id, kind, expected: Some((id, kind)) },
        Step::TakeNames { directory, names: names.clone() },
        Step::UpdateMember { id, mode: 0o755, gid: 1, forget_times: true },
        Step::SetLayout { id, layout, members: vec![3] },
        Step::SetMemberLayout { id, layout },
        Step::RemoveName { directory, name, id, kind },
        Step::GiveNames { directory, from: 7, upto: u64::MAX, names },
        Step::DropLink { id, birth },
        Step::RemoveDirectory { id, members: vec![1, 2] },
        Step::DropMember { id },
        Step::Elect,
    ];
    assert!(steps.is_sorted_by_key(Step::wave));
    let parts = vec![(0, steps)];
    let intent = Intent { session: 1, lane: 2, request_id: 3, cut: None, parts };
    assert_eq!(Intent::decode(&intent.encode()).unwrap(), intent);
}

/// By kind, each with its place behind the fixed fields.
#[test]
fn pipes_and_sockets_are_a_kind_and_a_place() {
    for (kind, content) in
        [(4, Content::Fifo(b"/r/special/1".to_vec())), (5, Content::Socket(Vec::new()))]
    {
        let place = match &content {
            Content::Fifo(place) | Content::Socket(place) => place.clone(),
            _ => unreachable!(),
        };
        let record = inode(content);
        let bytes = record.encode_own();
        assert_eq!(bytes[1 + 8], kind);
        assert_eq!(bytes[bytes.len() - place.len()..], place);
        assert_eq!(bytes[bytes.len() - place.len() - 4..][..4], (place.len() as u32).to_le_bytes());
        assert_eq!(Inode::decode_own(&bytes).unwrap(), record);
    }
}

/// Every form that is reserved for later comes back as it was stored.
#[test]
fn what_is_kept_for_later_comes_back() {
    let mut file = inode(Content::Object(3));
    file.generation = 3;
    file.unsettled = true;
    file.replica = 2;
    file.residency = vec![1; 300];
    file.origin = Some(Origin {
        source: 4,
        mtime: time(-5),
        size_bytes: 1 << 40,
        dirty: true,
        seen: Seen { until: 1 << 60, names_until: 7 },
        ..Origin::default()
    });
    assert_eq!(Inode::decode_own(&file.encode_own()).unwrap(), file);
    let mut directory = inode(Content::Directory(DirectoryNode::default()));
    directory.unlisted = true;
    assert_eq!(Inode::decode_own(&directory.encode_own()).unwrap(), directory);
    directory.extended = true;
    directory.linkable = true;
    let record = directory.encode_own();
    assert_eq!(record[10], 2 | 4 | 8, "the flags");
    assert_eq!(Inode::decode_own(&record).unwrap(), directory);
}

/// A cached file of a tier: the size is the origin's word while nothing of the file is here, so an
/// absent range is neither a hole nor the end of the file.
#[test]
fn an_origin_tells_an_absent_range_from_a_hole_and_from_the_end() {
    #[derive(Debug, PartialEq)]
    enum Range {
        Present,
        Absent,
        BeyondEnd,
    }
    // The model of a reader: which pages of 4 KiB are here stands in the residency map, a bit for
    // each.
    let ask = |inode: &Inode, offset: u64| {
        let present = |page: u64| {
            let byte = inode.residency.get((page / 8) as usize);
            byte.is_some_and(|byte| byte >> (page % 8) & 1 == 1)
        };
        match &inode.origin {
            _ if offset >= inode.size_bytes => Range::BeyondEnd,
            Some(origin) if !origin.resident && !present(offset / 4096) => Range::Absent,
            _ => Range::Present,
        }
    };
    let mut file = inode(Content::Object(1));
    file.generation = 1;
    file.size_bytes = 3 * 4096;
    file.origin = Some(Origin {
        source: 1,
        mtime: time(9),
        size_bytes: file.size_bytes,
        ..Origin::default()
    });
    assert_eq!(ask(&file, 0), Range::Absent);
    file.residency = vec![0b010];
    let mut file = Inode::decode_own(&file.encode_own()).unwrap();
    assert_eq!(ask(&file, 4096), Range::Present);
    assert_eq!(ask(&file, 8192), Range::Absent);
    assert_eq!(ask(&file, 12_288), Range::BeyondEnd);
    file.origin.as_mut().unwrap().resident = true;
    assert_eq!(ask(&file, 8192), Range::Present, "a hole of a file that is all here");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode_to_a_value_or_an_error(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        form in prop::sample::select(vec![
            0x11_u8, 0x12, 0x21, 0x31, 0x41, 0x51, 0x61, 0x71, 0x81, 0x92, 0xa2, 0xb1, 0xe1,
        ]),
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = form;
        }
        drop(Dentry::decode(&bytes));
        drop(Dentry::peek(&bytes));
        drop(Inode::decode_own(&bytes));
        drop(Counters::decode(&bytes));
        drop(Append::decode(&bytes));
        drop(BirthKey::decode(&bytes));
        drop(decode_locks(&bytes));
        drop(Instance::decode(&bytes));
        drop(SlotRanges::decode(&bytes));
        drop(Intent::decode(&bytes));
        drop(Member::decode(&bytes));
        drop(Maker::decode(&bytes));
        if let Ok(xattrs) = Xattrs::decode(&bytes) {
            prop_assert_eq!(xattrs.encode(), bytes);
        }
    }

    #[test]
    fn a_cut_or_lengthened_record_is_refused(cut in 0..100_usize) {
        let record = inode(Content::Inline(b"hi".to_vec())).encode_own();
        prop_assert!(Inode::decode_own(&record[..record.len() - 1 - cut]).is_err());
        prop_assert!(Inode::decode_own(&[record.as_slice(), &[0]].concat()).is_err());
    }
}
