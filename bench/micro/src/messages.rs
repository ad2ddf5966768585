//! Requests and replies: to bytes and back.

use std::hint::black_box;

use mayfly_types::{Attr, FileId, FileKind, OpenRef};
use mayfly_wire::{
    HEADER_BYTES, Header, Op, Open, Opened, Reader, Request, Stat, Target, WALK_FOLLOW, Walk, Wire,
    Writer,
};

const PATH: &[u8] = b"/run-17/d4711/f123456";

fn walk() -> Walk<'static> {
    Walk { start: FileId::ROOT, flags: WALK_FOLLOW, path: black_box(PATH) }
}

/// Attributes of a small file.
pub(crate) fn attr() -> Attr {
    Attr {
        id: FileId(77),
        kind: FileKind::Regular,
        mode: 0o644,
        links: 1,
        uid: 1000,
        gid: 1000,
        size_bytes: 3901,
        blocks: 8,
        atime: Default::default(),
        mtime: Default::default(),
        ctime: Default::default(),
        btime: Default::default(),
    }
}

fn request<'a>(op: Op, buffer: &mut [u8], message: &impl Wire<'a>) {
    let mut to = Writer::new(buffer);
    message.encode(&mut to).expect("the buffer is large enough");
    let used = to.used();
    let _decoded = black_box(Request::decode(op, black_box(&buffer[..used])));
}

fn reply<R: for<'a> Wire<'a>>(buffer: &mut [u8], message: &R) {
    let mut to = Writer::new(buffer);
    message.encode(&mut to).expect("the buffer is large enough");
    let used = to.used();
    let _decoded = black_box(R::decode(&mut Reader::new(black_box(&buffer[..used]))).is_ok());
}

pub(crate) fn stat_request(count: u64) {
    let mut buffer = [0; 512];
    for _ in 0..count {
        request(Op::Stat, &mut buffer, &Stat { target: Target::Path(walk()) });
    }
}

pub(crate) fn open_request(count: u64) {
    let mut buffer = [0; 512];
    for _ in 0..count {
        let open = Open { walk: walk(), flags: black_box(0o101), mode: 0o644, uid: 0, gid: 0 };
        request(Op::Open, &mut buffer, &open);
    }
}

pub(crate) fn stat_reply(count: u64) {
    let mut buffer = [0; 512];
    for _ in 0..count {
        reply(&mut buffer, &black_box(attr()));
    }
}

pub(crate) fn open_reply(count: u64) {
    let mut buffer = [0; 512];
    let open = OpenRef { index: 7, generation: 3 };
    for _ in 0..count {
        reply(&mut buffer, &black_box(Opened { open, attr: attr(), created: true, mapped: false }));
    }
}

pub(crate) fn header(count: u64) {
    let mut buffer = [0; HEADER_BYTES];
    for request_id in 0..count {
        let header = Header {
            reply: false,
            op: Op::Stat,
            request_id,
            submitted_cycles: 0,
            slot_table_version: 0,
            body_bytes: 50,
            status: 0,
            body_checksum: 0,
        };
        header.encode(&mut buffer).expect("the buffer has the header's length");
        let _decoded = black_box(Header::decode(black_box(&buffer)));
    }
}
