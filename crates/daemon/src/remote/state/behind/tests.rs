use super::*;
use crate::shards::slots::ShardId;

const FILE: FileId = FileId(7);

fn open(index: u32) -> OpenRef {
    OpenRef { index, generation: 1 }
}

fn remote() -> Elsewhere {
    Elsewhere { shard: ShardId(1), open: open(9) }
}

fn add(behind: &mut Behind, index: u32, offset: u64, bytes: &[u8]) {
    assert_eq!(behind.room(open(index), bytes.len()), Room::Yes);
    behind.add(open(index), (FILE, remote()), offset, bytes);
}

/// Everything is sent, as far as it may be.
fn send_all(behind: &mut Behind, last: &mut u64) -> Vec<(OpenRef, Sent)> {
    let mut sent = Vec::new();
    for (open, _) in behind.to_send() {
        loop {
            *last += 1;
            let Some(piece) = behind.send(open, *last) else { break };
            sent.push((open, piece));
        }
    }
    sent
}

/// A home that has executed what was sent, in any order; the file as it is then.
fn arrive(file: &mut Vec<u8>, sent: &Sent) {
    let (start, end) = (sent.offset as usize, sent.offset as usize + sent.bytes.len());
    file.resize(file.len().max(end), 0);
    file[start..end].copy_from_slice(&sent.bytes);
}

#[test]
fn what_is_written_in_a_row_is_one_piece_as_long_as_a_transfer() {
    let (mut behind, mut last) = (Behind::default(), 0);
    let write = [7; 8192];
    for number in 0..TRANSFER_BYTES_MAX / write.len() {
        assert!(behind.to_send().is_empty());
        add(&mut behind, 1, (number * write.len()) as u64, &write);
    }
    let sent = send_all(&mut behind, &mut last);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1.bytes.len(), TRANSFER_BYTES_MAX);
}

/// Writes of any length anywhere, pieces that arrive in any order: the file is as if each write had
/// been executed by itself.
#[test]
fn the_file_is_as_if_each_write_had_been_executed_in_its_turn() {
    let mut seed = 1_u64;
    let mut dice = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let (mut behind, mut last) = (Behind::default(), 0);
        let (mut home, mut wanted) = (Vec::new(), Vec::new());
        let mut under_way: Vec<(OpenRef, Sent)> = Vec::new();
        for number in 0..100 {
            let (offset, bytes) = (dice(300), vec![number; 1 + dice(60) as usize]);
            add(&mut behind, 1, offset, &bytes);
            let end = offset as usize + bytes.len();
            wanted.resize(wanted.len().max(end), 0);
            wanted[offset as usize..end].copy_from_slice(&bytes);
            if dice(5) == 0 {
                behind.close_pieces(behind.writes, |_| true);
            }
            under_way.extend(send_all(&mut behind, &mut last));
            if dice(3) == 0 && !under_way.is_empty() {
                let (open, sent) = under_way.swap_remove(dice(under_way.len() as u64) as usize);
                arrive(&mut home, &sent);
                behind.answered(open, sent.request_id, Ok(sent.bytes.len()));
            }
        }
        loop {
            behind.close_pieces(behind.writes, |_| true);
            under_way.extend(send_all(&mut behind, &mut last));
            let Some((open, sent)) = under_way.pop() else { break };
            arrive(&mut home, &sent);
            behind.answered(open, sent.request_id, Ok(sent.bytes.len()));
        }
        assert_eq!(home, wanted);
        assert!(behind.is_empty() && behind.bytes == 0);
    }
}

#[test]
fn what_was_written_before_is_waited_for_and_what_comes_later_is_not() {
    let (mut behind, mut last) = (Behind::default(), 0);
    add(&mut behind, 1, 0, b"before");
    let upto = behind.writes;
    assert!(behind.close_pieces(upto, |_| true));
    let sent = send_all(&mut behind, &mut last);
    add(&mut behind, 1, 6, b"later");
    behind.answered(open(1), sent[0].1.request_id, Ok(6));
    assert!(!behind.close_pieces(upto, |_| true));
    assert!(behind.is_any(|written| written.file == FILE));
}

#[test]
fn a_short_write_is_gone_on_with() {
    let (mut behind, mut last) = (Behind::default(), 0);
    add(&mut behind, 1, 10, b"abcdef");
    behind.close_pieces(1, |_| true);
    let sent = send_all(&mut behind, &mut last);
    assert_eq!(behind.answered(open(1), sent[0].1.request_id, Ok(2)), Left::Something);
    let rest = send_all(&mut behind, &mut last);
    assert_eq!((rest[0].1.offset, &rest[0].1.bytes[..]), (12, &b"cdef"[..]));
    assert_eq!(behind.answered(open(1), rest[0].1.request_id, Ok(4)), Left::Nothing);
}

#[test]
fn a_failure_is_told_once_to_each_description_that_wrote() {
    let (mut behind, mut last) = (Behind::default(), 0);
    add(&mut behind, 1, 0, b"one");
    add(&mut behind, 2, 10, b"two");
    behind.close_pieces(2, |_| true);
    for (open, sent) in send_all(&mut behind, &mut last) {
        behind.answered(open, sent.request_id, Err(Errno::ENOSPC));
    }
    assert!(!behind.close_pieces(2, |_| true), "nothing is waited for any more");
    for index in [1, 2] {
        assert_eq!(behind.take_failure(open(index)), Some(Errno::ENOSPC));
        assert_eq!(behind.take_failure(open(index)), None);
        assert!(!behind.is_empty(), "the answer may be lost");
        assert_eq!(behind.goes_on(open(index)), Left::Nothing);
    }
    assert!(behind.is_empty());
}

#[test]
fn what_is_behind_of_one_description_and_of_all_is_bounded() {
    let mut behind = Behind::default();
    let piece = vec![0; TRANSFER_BYTES_MAX];
    for index in 0..(BEHIND_NODE_BYTES_MAX / BEHIND_BYTES_MAX) as u32 {
        for number in 0..BEHIND_BYTES_MAX / piece.len() {
            add(&mut behind, index, (number * piece.len()) as u64, &piece);
        }
        assert_eq!(behind.room(open(index), 1), Room::Later);
    }
    assert_eq!(behind.room(open(1000), 1), Room::No);
    // Many small writes all over the file count more than their bytes.
    let mut behind = Behind::default();
    let mut count = 0;
    while behind.room(open(1), 1) == Room::Yes {
        behind.add(open(1), (FILE, remote()), count * 1000, b"x");
        count += 1;
    }
    assert_eq!(count as usize, BEHIND_BYTES_MAX / BEHIND_WRITE_BYTES_MIN);
}

#[test]
fn the_end_of_a_description_comes_behind_what_it_wrote() {
    let (mut behind, mut last) = (Behind::default(), 0);
    add(&mut behind, 1, 0, b"one");
    assert_eq!(behind.end(open(1)), Some(Left::Something));
    assert_eq!(behind.ended_at().collect::<Vec<_>>(), [remote()]);
    let sent = send_all(&mut behind, &mut last);
    let left = behind.answered(open(1), sent[0].1.request_id, Ok(3));
    assert_eq!(left, Left::Ended(remote(), FILE, None));
    assert!(behind.is_empty());
    assert_eq!(behind.end(open(2)), None);
}
