//! The decoder takes whatever a peer sends; what it accepts it can say again, byte for byte.

use mayfly_types::{Attr, FileId, FileKind, OpenRef, Timestamp};
use mayfly_wire::{
    Allocate, Content, Data, DataHead, Full, GetXattr, HEADER_BYTES, Header, INSPECT_OBJECTS,
    Inspect, Inspected, Lease, Leased, ListXattr, Malformed, Map, MoveLock, Notices, Op, Open,
    OpenReply, Opened, Operation, Reader, RemoveStray, RemoveXattr, Request, Seek, SetAttr,
    SetXattr, Sought, Target, Tell, Walk, Watch, Wire, Write, WriteHead, Writer, XATTR_REPLACE,
    notices,
};
use proptest::prelude::*;

fn encoded<'a, T: Wire<'a>>(value: &T) -> Vec<u8> {
    let mut buffer = vec![0; 64 * 1024];
    let mut to = Writer::new(&mut buffer);
    value.encode(&mut to).expect("64 KiB hold any value of these tests");
    let used = to.used();
    buffer.truncate(used);
    buffer
}

fn encode_request(request: &Request<'_>) -> Vec<u8> {
    macro_rules! each {
        ($($op:ident)*) => { match request { $(Request::$op(body) => encoded(body),)* } };
    }
    each! {
        Ping Stat Open Close MakeDirectory Unlink Rename Link Symlink ReadLink SetAttr Read Write
        Grant List PathOf StatFs Sync Lock TestLock Cancel Status SetXattr
        GetXattr ListXattr RemoveXattr Allocate MakeSpecial Reach Map Tell Watch MoveLock Inspect
        Lease RemoveStray Seek Flush TierWork TierDone TierAsk
    }
}

proptest! {
    #[test]
    fn no_bytes_upset_who_reads_facts(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for fact in mayfly_wire::inspection::facts(&bytes) {
            let _ = fact.map(|fact| encoded(&fact));
        }
    }

    #[test]
    fn no_bytes_upset_the_header_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Header::decode(&bytes);
    }

    #[test]
    fn what_a_request_decoder_accepts_is_encoded_to_the_same_bytes(
        op in proptest::sample::select(Op::ALL),
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        if let Ok(request) = Request::decode(op, &bytes) {
            prop_assert_eq!(encode_request(&request), bytes);
        }
    }

    #[test]
    fn a_walk_comes_back_as_it_was(
        start in any::<u64>(),
        flags in any::<u32>(),
        path in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let walk = Walk { start: FileId(start), flags, path: &path };
        let open = Open { walk, flags: 0o102, mode: 0o644, uid: 1, gid: 2 };
        let bytes = encoded(&open);
        prop_assert_eq!(Request::decode(Op::Open, &bytes), Ok(Request::Open(open)));
    }

    #[test]
    fn a_truncated_body_is_refused(cut in 0_usize..60) {
        let request = SetAttr {
            target: Target::Open(OpenRef { index: 7, generation: 9 }),
            which: 8,
            mode: 0,
            uid: 0,
            gid: 0,
            size_bytes: 11,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
        };
        let bytes = encoded(&request);
        let cut = cut.min(bytes.len() - 1);
        prop_assert!(Request::decode(SetAttr::OP, &bytes[..cut]).is_err());
    }
}

#[test]
fn the_bytes_of_a_write_do_not_change() {
    let write = Write {
        open: OpenRef { index: 0x0102_0304, generation: 5 },
        offset: 0x1122_3344_5566_7788,
        append: true,
        bytes: b"abc",
    };
    assert_eq!(
        encoded(&write),
        [
            4, 3, 2, 1, 5, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 3, 0, 0, 0,
            b'a', b'b', b'c'
        ]
    );
}

#[test]
fn the_bytes_of_an_open_do_not_change() {
    let open = Open {
        walk: Walk { start: FileId::ROOT, flags: 1, path: b"/a" },
        flags: 0o102,
        mode: 0o640,
        uid: 3,
        gid: 4,
    };
    assert_eq!(
        encoded(&open),
        [
            1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, b'/', b'a', 0x42, 0, 0, 0, 0xa0, 1, 0,
            0, 3, 0, 0, 0, 4, 0, 0, 0
        ]
    );
}

#[test]
fn the_bytes_of_an_allocate_do_not_change() {
    let open = OpenRef { index: 2, generation: 3 };
    let bytes = encoded(&Allocate { open, mode: 16, offset: 4, bytes: 5 });
    let numbers = [4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes, [[2, 0, 0, 0, 3, 0, 0, 0, 16, 0, 0, 0].as_slice(), &numbers].concat());
    assert_eq!(Allocate::OP as u16, 27);
}

#[test]
fn the_bytes_of_what_mounts_are_told_do_not_change() {
    let open = OpenRef { index: 2, generation: 3 };
    let number = |value| [value, 0, 0, 0, 0, 0, 0, 0];
    let reference = [2, 0, 0, 0, 3, 0, 0, 0];
    assert_eq!(encoded(&Map { open }), reference);
    let tell = encoded(&Tell { open, start: 4, end: 5 });
    assert_eq!(tell, [reference, number(4), number(5)].concat());
    assert_eq!(encoded(&Watch {}), []);
    let change = notices::Notice { file: FileId(6), start: 4, end: 5 };
    let packed = encoded(&change);
    assert_eq!(packed, [number(6), number(4), number(5)].concat());
    assert_eq!(packed.len(), notices::NOTICE_BYTES);
    let name = notices::Name { directory: FileId(7), file: FileId(6), name: b"n" };
    let named = encoded(&name);
    assert_eq!(named, [&number(7)[..], &number(6), &[1, 0, 0, 0, b'n']].concat());
    assert_eq!(named.len(), notices::NAME_HEAD_BYTES + 1);
    assert_eq!(notices::names(&named).collect::<Vec<_>>(), [name]);
    let told = encoded(&Notices { all: true, changes: &packed, names: &named });
    let names = [&[21, 0, 0, 0], &named[..]].concat();
    assert_eq!(told, [[1, 24, 0, 0, 0].as_slice(), &packed, &names].concat());
    assert_eq!(encoded(&Lease { names: &named }), names);
    let leased = encoded(&Leased { seconds: 4, what: &[0, 2] });
    assert_eq!(leased, [4, 0, 0, 0, 2, 0, 0, 0, 0, 2]);
    assert_eq!(Lease::OP as u16, 41);
    assert_eq!(notices::changes(&packed).collect::<Vec<_>>(), [change]);
    assert_eq!((Map::OP as u16, Tell::OP as u16, Watch::OP as u16), (30, 31, 32));
}

#[test]
fn the_bytes_of_an_inspection_do_not_change() {
    let inspect = Inspect { shard: 3, what: INSPECT_OBJECTS, after: b"k" };
    assert_eq!(encoded(&inspect), [3, 0, 0, 0, 2, 1, 0, 0, 0, b'k']);
    let remove = RemoveStray { shard: 3, file: FileId(4), generation: 5 };
    assert_eq!(encoded(&remove), [3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!([Inspect::OP as u16, RemoveStray::OP as u16], [33, 34]);
    let page = Inspected { nodes: 4, shards: 1, next: b"", facts: b"f" };
    assert_eq!(encoded(&page), [4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'f']);
}

const SPREAD: mayfly_wire::inspection::Spread = mayfly_wire::inspection::Spread {
    width: 4,
    hashed: true,
    chunk_log2: 16,
    striped: true,
    tail_start_bytes: 11,
    tail_row: 0x12,
    tail_chunk_log2: 17,
};

#[test]
fn the_bytes_of_facts_do_not_change() {
    use mayfly_wire::inspection::{
        Directory, Fact, File, Mark, Member, Name, Object, Open, Operation, Part, Unreadable, facts,
    };
    let (file, spread) = (FileId(2), SPREAD);
    let there = OpenRef { index: 8, generation: 9 };
    let all = [
        Fact::Name(Name { directory: FileId(1), file, kind: FileKind::Regular, name: b"n" }),
        Fact::File(File {
            id: file,
            kind: FileKind::Regular,
            links: 3,
            unsettled: true,
            extended: false,
            generation: 5,
            size_bytes: 6,
            spread,
            parts: 2,
        }),
        Fact::Directory(Directory {
            id: file,
            parent: FileId(1),
            name: b"d",
            entries: 7,
            members: &[5],
        }),
        Fact::Member(Member { directory: file, entries: 7, subdirectories: 1 }),
        Fact::Mark(Mark { what: b'X', file, generation: 5 }),
        Fact::Part(Part { file, generation: 5, index: 3, spread, cut: true }),
        Fact::Operation(Operation { id: 10, file }),
        Fact::Object(Object { file, generation: 5, size_bytes: 6 }),
        Fact::Open(Open { open: there, file, of_node: 1, at_shard: 2, there, held: true }),
        Fact::Unreadable(Unreadable { key: b"k" }),
    ];
    let long = |low: u8| [low, 0, 0, 0, 0, 0, 0, 0];
    let tail = [&long(11)[..], &long(0x12), &[17]].concat();
    let wanted = [
        [&[1], &long(1)[..], &long(2), &[1, 1, 0, 0, 0, b'n']].concat(),
        [
            &[2],
            &long(2)[..],
            &[1, 3, 0, 0, 0, 1, 0, 5, 0, 0, 0],
            &long(6),
            &[4, 0, 1, 16, 1],
            &tail,
            &[2, 0],
        ]
        .concat(),
        [&[3], &long(2)[..], &long(1), &[1, 0, 0, 0, b'd'], &long(7), &[1, 0, 0, 0, 5]].concat(),
        [&[4], &long(2)[..], &long(7), &[1, 0, 0, 0]].concat(),
        [&[5, b'X'], &long(2)[..], &[5, 0, 0, 0]].concat(),
        [&[6], &long(2)[..], &[5, 0, 0, 0, 3, 0, 4, 0, 1, 16, 1], &tail, &[1]].concat(),
        [&[7], &long(10)[..], &long(2)].concat(),
        [&[8], &long(2)[..], &[5, 0, 0, 0], &long(6)].concat(),
        [
            &[9, 8, 0, 0, 0, 9, 0, 0, 0],
            &long(2)[..],
            &[1, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 1],
        ]
        .concat(),
        vec![10, 1, 0, 0, 0, b'k'],
    ];
    for (fact, wanted) in all.iter().zip(&wanted) {
        assert_eq!(encoded(fact), *wanted, "{fact:?}");
    }
    let packed = wanted.concat();
    assert_eq!(facts(&packed).collect::<Result<Vec<_>, _>>(), Ok(all.to_vec()));
}

#[test]
fn the_bytes_of_a_lock_that_moves_do_not_change() {
    let (open, to) = (OpenRef { index: 2, generation: 3 }, OpenRef { index: 4, generation: 5 });
    let bytes = [2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0];
    assert_eq!(encoded(&MoveLock { open, to }), bytes);
    assert_eq!(MoveLock::OP as u16, 35);
}

#[test]
fn the_bytes_of_a_seek_do_not_change() {
    let open = OpenRef { index: 2, generation: 3 };
    let bytes = encoded(&Seek { open, offset: 4, hole: true });
    assert_eq!(bytes, [2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(encoded(&Sought { offset: 5 }), [5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Seek::OP as u16, 36);
}

#[test]
fn the_bytes_of_the_requests_for_extended_attributes_do_not_change() {
    let target = Target::Open(OpenRef { index: 2, generation: 3 });
    let open = [1, 2, 0, 0, 0, 3, 0, 0, 0];
    let name = [2, 0, 0, 0, b'u', b'n'];
    let set = SetXattr { target, name: b"un", value: b"v", flags: XATTR_REPLACE };
    let rest = [1, 0, 0, 0, b'v', 2, 0, 0, 0];
    assert_eq!(encoded(&set), [open.as_slice(), &name, &rest].concat());
    assert_eq!(encoded(&GetXattr { target, name: b"un" }), [open.as_slice(), &name].concat());
    assert_eq!(encoded(&RemoveXattr { target, name: b"un" }), [open.as_slice(), &name].concat());
    assert_eq!(encoded(&ListXattr { target }), open);
    assert_eq!(
        [SetXattr::OP, GetXattr::OP, ListXattr::OP, RemoveXattr::OP].map(|op| op as u16),
        [23, 24, 25, 26]
    );
}

#[test]
fn a_body_that_does_not_fit_is_refused_and_not_cut() {
    let mut buffer = [0; HEADER_BYTES];
    let write =
        Write { open: OpenRef::default(), offset: 0, append: false, bytes: &[1; HEADER_BYTES] };
    assert_eq!(write.encode(&mut Writer::new(&mut buffer)), Err(Full));
}

#[test]
fn the_answer_to_an_open_may_end_before_the_content() {
    let attr = Attr {
        id: FileId(7),
        kind: FileKind::Regular,
        mode: 0o644,
        links: 1,
        uid: 2,
        gid: 3,
        size_bytes: 2,
        blocks: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        btime: Timestamp::default(),
    };
    let opened =
        Opened { open: OpenRef { index: 1, generation: 2 }, attr, created: false, mapped: true };
    let data = Data { object: false, bytes: b"hi" };
    let with = OpenReply { opened, content: Some(Content { version: 0x0403_0201, data }) };
    let bytes = encoded(&with);
    let opened_bytes = encoded(&opened);
    assert_eq!(bytes[..opened_bytes.len()], opened_bytes);
    assert_eq!(bytes[opened_bytes.len()..], [1, 2, 3, 4, 0, 2, 0, 0, 0, b'h', b'i']);
    assert_eq!(OpenReply::decode(&mut Reader::new(&bytes)), Ok(with));
    let without = OpenReply { opened, content: None };
    assert_eq!(OpenReply::decode(&mut Reader::new(&opened_bytes)), Ok(without));
    let cut = &bytes[..bytes.len() - 1];
    assert_eq!(OpenReply::decode(&mut Reader::new(cut)), Err(Malformed));
}

#[test]
fn a_head_and_its_bytes_are_what_stands_behind_each_other() {
    let (bytes, count) = (&b"bytes"[..], 5);
    let (open, offset, append) = (OpenRef { index: 7, generation: 8 }, u64::MAX - 1, true);
    let whole = encoded(&Write { open, offset, append, bytes });
    let head = encoded(&WriteHead { open, offset, append, count });
    assert_eq!(whole, [&head, bytes].concat());
    let whole = encoded(&Data { object: true, bytes });
    assert_eq!(whole, [&encoded(&DataHead { object: true, count }), bytes].concat());
}
