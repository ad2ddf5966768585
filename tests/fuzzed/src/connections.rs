//! What comes over a connection between daemons: from strangers, and from a wrong peer, whose
//! frames have right checksums.

use mayfly_transport_tcp::{
    Class, Lane,
    frame::{Decoder, FrameHeader, Kind, Sums, body_checksum},
    hostile::{Ear, stranger},
};

use crate::input::Input;

const CLASSES: [Class; 3] = [Class::Client, Class::Shard, Class::Leaf];
const KINDS: [Kind; 12] = [
    Kind::Request(Class::Client),
    Kind::Request(Class::Shard),
    Kind::Request(Class::Leaf),
    Kind::Reply,
    Kind::Cancel,
    Kind::Void(Class::Client),
    Kind::Void(Class::Shard),
    Kind::Void(Class::Leaf),
    Kind::Acknowledge,
    Kind::Credit,
    Kind::Probe,
    Kind::Alive,
];

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let lane = if input.u8() & 1 == 0 { Lane::Messages } else { Lane::Bulk };
    match input.u8() % 3 {
        0 => stranger(input.rest()),
        1 => garbage(lane, input.rest()),
        _ => peer(lane, &mut input),
    }
}

/// In one piece and byte by byte: both hear the same.
fn garbage(lane: Lane, bytes: &[u8]) {
    let mut whole = Ear::new(lane);
    let mut pieces = Ear::new(lane);
    let heard = whole.hear(bytes);
    assert_eq!(heard, bytes.iter().all(|byte| pieces.hear(std::slice::from_ref(byte))));
    let mut decoder = Decoder::new(lane, Sums::Absent);
    let mut rest = bytes;
    while !rest.is_empty() && decoder.next(&mut rest).is_ok() {}
}

fn peer(lane: Lane, input: &mut Input<'_>) {
    let mut ear = Ear::new(lane);
    while !input.is_over() {
        let what = input.u8();
        let class = CLASSES[usize::from(what >> 4) % 3];
        match what % 16 {
            0 => ear.take(class),
            1 => ear.send(class, input.u64()),
            _ => {
                let frame = frame(KINDS[usize::from(what) % 12], input);
                if !ear.hear(&frame) {
                    return;
                }
            }
        }
    }
}

fn frame(kind: Kind, input: &mut Input<'_>) -> Vec<u8> {
    let numbers = [0; 4].map(|_: u8| u64::from(input.u8()));
    let count = usize::from(input.u8());
    let body = input.take(count);
    let header = FrameHeader {
        kind,
        body_bytes: body.len() as u32,
        sequence: numbers[0],
        acknowledged: numbers[1],
        request_id: numbers[2],
        left_ms: numbers[3] as u32,
        body_checksum: body_checksum(body),
    };
    [&header.encode()[..], body].concat()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let requests = |lane: u8| {
        let frame = |number: u8| vec![2 + 12 * (number % 2), number, 0, number, 9, 3, 1, 2, 3];
        let frames = (1..7).flat_map(frame);
        [lane, 2].into_iter().chain(frames).chain([0, 16, 32]).collect()
    };
    let header = FrameHeader {
        kind: Kind::Request(Class::Leaf),
        body_bytes: 5,
        sequence: 1,
        acknowledged: 0,
        request_id: 1,
        left_ms: 100,
        body_checksum: body_checksum(b"bytes"),
    };
    let raw = [&[0, 1][..], &header.encode(), b"bytes"].concat();
    vec![requests(0), requests(1), raw, vec![0; 34], [&[0; 34][..], &[1]].concat()]
}
