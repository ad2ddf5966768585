//! Requests and replies between processes and daemons.

use mayfly_types::{Attr, FileId, OpenRef};
use mayfly_wire::{
    Close, Counters, Data, Granted, HEADER_BYTES, Header, Op, Open, Opened, Reader, Request, Stat,
    Target, WALK_FOLLOW, Walk, Wire, Write, Writer, Written, listing,
};

pub(crate) fn run(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<HEADER_BYTES>() {
        header(head);
    }
    let Some((which, body)) = bytes.split_first() else { return };
    let op = Op::ALL[usize::from(*which) % Op::ALL.len()];
    if let Ok(request) = Request::decode(op, body) {
        again(
            body.len(),
            |to| request.encode(to),
            |bytes| {
                assert_eq!(Request::decode(op, bytes), Ok(request), "of {op:?}");
            },
        );
    }
    reply::<Attr>(body);
    reply::<Opened>(body);
    reply::<Counters>(body);
    reply::<Data<'_>>(body);
    reply::<Granted<'_>>(body);
    reply::<Written>(body);
    for entry in listing::entries(body) {
        if entry.is_err() {
            break;
        }
    }
}

fn header(bytes: &[u8; HEADER_BYTES]) {
    if let Ok(header) = Header::decode(bytes) {
        let mut written = [0; HEADER_BYTES];
        header.encode(&mut written).expect("it was read from so many bytes");
        assert_eq!(Header::decode(&written), Ok(header));
    }
}

fn reply<'a, T: Wire<'a>>(bytes: &'a [u8]) {
    if let Ok(read) = T::decode(&mut Reader::new(bytes)) {
        again(bytes.len(), |to| read.encode(to), |_| ());
    }
}

/// What was read can be written, in no more room.
fn again(
    room: usize,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), mayfly_wire::Full>,
    look: impl FnOnce(&[u8]),
) {
    let mut bytes = vec![0; room];
    let mut to = Writer::new(&mut bytes);
    write(&mut to).expect("it takes no more room than it had");
    let used = to.used();
    look(&bytes[..used]);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let walk = Walk { start: FileId::ROOT, flags: WALK_FOLLOW, path: b"a/path" };
    let open = OpenRef { index: 1, generation: 2 };
    let requests = [
        Request::Stat(Stat { target: Target::Path(walk) }),
        Request::Open(Open { walk, flags: 0o102, mode: 0o644, uid: 1, gid: 1 }),
        Request::Write(Write { open, offset: 7, append: false, bytes: b"bytes" }),
        Request::Close(Close { open }),
    ];
    let seed = |request: &Request<'_>| {
        let mut bytes = vec![0; 256];
        let place = Op::ALL.iter().position(|op| *op == request.op());
        bytes[0] = place.expect("every operation is among all") as u8;
        let mut to = Writer::new(&mut bytes[1..]);
        request.encode(&mut to).expect("it is short");
        let used = to.used();
        bytes.truncate(1 + used);
        bytes
    };
    requests.iter().map(seed).collect()
}
