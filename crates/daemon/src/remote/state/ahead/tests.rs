use mayfly_wire::Writer;

use super::*;
use crate::shards::slots::ShardId;

const OPEN: OpenRef = OpenRef { index: 1, generation: 1 };
const FILE: FileId = FileId(7);
const COUNT: usize = 8192;

fn remote() -> Elsewhere {
    Elsewhere { shard: ShardId(1), open: OpenRef { index: 9, generation: 1 } }
}

fn at(ms: i64) -> Timestamp {
    Timestamp { seconds: ms / 1000, nanoseconds: (ms % 1000 * 1_000_000) as u32 }
}

/// What a home answers whose file has `file_bytes` bytes, each of which says where it is.
fn reply(wanted: &Wanted, file_bytes: u64) -> Body {
    let end = (wanted.offset + wanted.bytes as u64).min(file_bytes);
    let bytes: Vec<u8> = (wanted.offset..end).map(byte_at).collect();
    let mut body = vec![0; bytes.len() + 64];
    let mut to = Writer::new(&mut body);
    Data { object: true, bytes: &bytes }.encode(&mut to).expect("there is room");
    let used = to.used();
    body.truncate(used);
    body.into()
}

fn byte_at(offset: u64) -> u8 {
    (offset / 4096) as u8
}

/// A reader that has found out that it goes on.
fn reading_on() -> Ahead {
    let mut ahead = Ahead::default();
    assert!(!ahead.note(OPEN, (FILE, remote()), 0, COUNT));
    assert!(ahead.wanted(OPEN).is_none(), "who reads once is not read ahead for");
    assert!(ahead.note(OPEN, (FILE, remote()), COUNT as u64, COUNT));
    ahead
}

fn ask(ahead: &mut Ahead, request_id: u64, now: Timestamp) -> Option<Wanted> {
    let wanted = ahead.wanted(OPEN)?;
    ahead.asked(OPEN, request_id, wanted, now);
    Some(wanted)
}

#[test]
fn who_reads_on_finds_each_byte_and_the_end_of_the_file_where_it_is() {
    let file_bytes = 3 * TRANSFER_BYTES_MAX as u64 + 1000;
    let (mut ahead, mut last, mut buffer) = (reading_on(), 0, Vec::new());
    let (mut offset, mut asked_for_itself) = (COUNT as u64, 0);
    loop {
        let mut found = ahead.find(OPEN, (offset, COUNT), (at(0), false), &mut buffer);
        if found == Found::No {
            asked_for_itself += 1;
            assert!(ahead.note(OPEN, (FILE, remote()), offset, COUNT));
        }
        while !matches!(found, Found::Here(..)) {
            last += 1;
            if let Some(wanted) = ask(&mut ahead, last, at(0)) {
                ahead.answered(OPEN, last, Some(reply(&wanted, file_bytes)));
            }
            found = ahead.find(OPEN, (offset, COUNT), (at(0), true), &mut buffer);
        }
        assert!(buffer.iter().zip(offset..).all(|(byte, at)| *byte == byte_at(at)));
        offset += buffer.len() as u64;
        if buffer.is_empty() {
            break;
        }
        last += 1;
        if let Some(wanted) = ask(&mut ahead, last, at(0)) {
            ahead.answered(OPEN, last, Some(reply(&wanted, file_bytes)));
        }
    }
    assert_eq!(offset, file_bytes);
    // The first one, and the two at the end of the file.
    assert!(asked_for_itself <= 3, "{asked_for_itself}");
}

#[test]
fn what_is_old_or_was_changed_or_is_elsewhere_is_not_given() {
    let now = at(5000);
    let filled = || {
        let mut ahead = reading_on();
        let wanted = ask(&mut ahead, 1, now).expect("it goes on");
        ahead.answered(OPEN, 1, Some(reply(&wanted, 1 << 20)));
        ahead
    };
    let find = |ahead: &mut Ahead, offset: u64, now: Timestamp| {
        ahead.find(OPEN, (offset, COUNT), (now, false), &mut Vec::new())
    };
    let next = COUNT as u64;
    assert_eq!(find(&mut filled(), next, at(5000 + AHEAD_MS - 1)), Found::Here(COUNT, true));
    assert_eq!(find(&mut filled(), next, at(5000 + AHEAD_MS)), Found::No);
    assert_eq!(find(&mut filled(), 2 * next, now), Found::No, "he has gone elsewhere");
    let mut changed = filled();
    changed.drop_of(|file, _| file == FILE);
    assert!(changed.is_empty());
    assert_eq!(find(&mut changed, next, now), Found::No);
    let mut failed = reading_on();
    ask(&mut failed, 1, now).expect("it goes on");
    assert_eq!(find(&mut failed, next, now), Found::Soon);
    failed.answered(OPEN, 1, None);
    assert_eq!(find(&mut failed, next, now), Found::No);
    assert!(failed.wanted(OPEN).is_none());
}

#[test]
fn what_is_read_ahead_is_bounded() {
    let mut ahead = Ahead::default();
    for index in 0..1000 {
        let open = OpenRef { index, generation: 1 };
        ahead.note(open, (FILE, remote()), 0, COUNT);
        ahead.note(open, (FILE, remote()), COUNT as u64, COUNT);
        while let Some(wanted) = ahead.wanted(open) {
            ahead.asked(open, u64::from(index), wanted, at(0));
        }
    }
    assert!(ahead.bytes <= AHEAD_NODE_BYTES_MAX, "{}", ahead.bytes);
    assert!(ahead.bytes > AHEAD_NODE_BYTES_MAX / 2);
    for index in 0..1000 {
        ahead.end(OpenRef { index, generation: 1 });
    }
    assert!(ahead.is_empty() && ahead.windows.is_empty());
}
