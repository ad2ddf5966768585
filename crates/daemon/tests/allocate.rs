//! fallocate: what is set aside for it, whatever else happens to the file and to the daemon.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::{Config, Progress};
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{
    ALLOCATE_KEEP_SIZE, ALLOCATE_PUNCH_HOLE, ALLOCATE_ZERO_RANGE, Allocate, GRANT_WRITE,
};
use support::{Answer, Node, O_CREAT, O_RDWR, SESSION, config, failed};

const MIB: u64 = 1 << 20;
const PUNCH: u32 = ALLOCATE_KEEP_SIZE | ALLOCATE_PUNCH_HOLE;

fn node_of(capacity_bytes: u64) -> Node {
    Node::memory(Config { capacity_bytes, ..config() })
}

fn made(node: &mut Node, path: &str) -> OpenRef {
    node.open(path, O_CREAT | O_RDWR).unwrap().0
}

fn allocate(node: &mut Node, open: OpenRef, mode: u32, offset: u64, bytes: u64) -> Answer<()> {
    node.ask(&Allocate { open, mode, offset, bytes }, |()| ())
}

fn used(node: &mut Node) -> u64 {
    node.core().counters().used_bytes
}

#[test]
fn what_is_allocated_can_be_written_when_nothing_else_is_left() {
    let mut node = node_of(64 * MIB);
    let open = made(&mut node, "f");
    assert_eq!(failed(allocate(&mut node, open, 0, 0, 65 * MIB)), Errno::ENOSPC);
    assert_eq!(failed(allocate(&mut node, open, 0, 60 * MIB, 1 << 61)), Errno::ENOSPC);
    assert_eq!(node.fstat(open).unwrap().size_bytes, 0);
    allocate(&mut node, open, 0, 0, 40 * MIB).unwrap();
    assert_eq!(node.fstat(open).unwrap().size_bytes, 40 * MIB);
    assert!((40 * MIB..42 * MIB).contains(&used(&mut node)));
    let other = made(&mut node, "other");
    assert_eq!(failed(allocate(&mut node, other, 0, 0, 30 * MIB)), Errno::ENOSPC);
    allocate(&mut node, other, 0, 0, 23 * MIB).unwrap();
    node.write(open, 0, &vec![1; 40 << 20]).unwrap();
    node.write(other, 0, &vec![2; 23 << 20]).unwrap();
    assert!(used(&mut node) <= 64 * MIB);
    // What is there already is not asked for again.
    allocate(&mut node, open, 0, 0, 40 * MIB).unwrap();
    allocate(&mut node, open, ALLOCATE_ZERO_RANGE, MIB, 30 * MIB).unwrap();
    node.close(open);
    node.close(other);
    node.settle_down();
    assert!((63 * MIB..64 * MIB).contains(&used(&mut node)));
    node.restart();
    assert!((63 * MIB..64 * MIB).contains(&used(&mut node)));
}

#[test]
fn what_is_punched_out_serves_others() {
    let mut node = node_of(64 * MIB);
    let (open, other) = (made(&mut node, "f"), made(&mut node, "other"));
    allocate(&mut node, open, 0, 0, 60 * MIB).unwrap();
    assert_eq!(failed(allocate(&mut node, other, 0, 0, 30 * MIB)), Errno::ENOSPC);
    allocate(&mut node, open, PUNCH, 10 * MIB, 40 * MIB).unwrap();
    allocate(&mut node, other, 0, 0, 30 * MIB).unwrap();
    assert_eq!(node.fstat(open).unwrap().size_bytes, 60 * MIB);
    // The hole has to be paid for again.
    assert_eq!(failed(allocate(&mut node, open, 0, 0, 60 * MIB)), Errno::ENOSPC);
    assert_eq!(node.grant(open, GRANT_WRITE, 60 * MIB).unwrap(), "");
    node.close(other);
    node.unlink("other", false).unwrap();
    node.settle_down();
    allocate(&mut node, open, 0, 0, 60 * MIB).unwrap();
    assert!(used(&mut node) <= 64 * MIB);
}

#[test]
fn space_that_is_promised_is_not_given_to_others_meanwhile() {
    let mut node = node_of(64 * MIB).slowed();
    let open = made(&mut node, "f");
    node.write(open, 0, &[1; 10_000]).unwrap();
    let caller = node.next_caller(SESSION);
    let request = Allocate { open, mode: 0, offset: 0, bytes: 40 * MIB };
    assert_eq!(node.submit(caller, &request, &mut [0; 100]), Progress::Pending);
    node.core().commit().unwrap();
    assert!(used(&mut node) >= 40 * MIB);
    let other = made(&mut node, "other");
    let second = node.next_caller(SESSION);
    let more = Allocate { open: other, mode: 0, offset: 0, bytes: 30 * MIB };
    let errno = Errno::ENOSPC.raw() as u32;
    assert_eq!(node.submit(second, &more, &mut [0; 100]), Progress::Replied(errno, 0));
    node.settle_down();
    let done = node.completions();
    assert_eq!((done.len(), done[0].caller, done[0].status), (1, caller, 0));
    assert_eq!(failed(allocate(&mut node, other, 0, 0, 30 * MIB)), Errno::ENOSPC);
    node.close(open);
    node.settle_down();
    assert!((40 * MIB..43 * MIB).contains(&used(&mut node)));
}

#[test]
fn a_repeated_allocation_is_whole_when_the_daemon_died_before_or_after_the_disk() {
    for done in [false, true] {
        let mut node = node_of(64 * MIB).slowed();
        let open = made(&mut node, "f");
        node.write(open, 0, b"small").unwrap();
        let caller = node.next_caller(SESSION);
        let request = Allocate { open, mode: 0, offset: 3, bytes: 10 * MIB };
        assert_eq!(node.submit(caller, &request, &mut [0; 100]), Progress::Pending);
        node.core().commit().unwrap();
        while done && node.run_job(0, 0) {
            node.core().idle_work();
        }
        node.restart();
        let answer = node.answer_to(caller, &request);
        assert_eq!(answer.status, 0, "{done}");
        assert_eq!(node.read(open, 0, 7).unwrap(), b"small\0\0");
        let attr = node.fstat(open).unwrap();
        assert_eq!(attr.size_bytes, 3 + 10 * MIB);
        assert!(attr.blocks * 512 >= 10 * MIB);
    }
}

#[test]
fn an_allocation_is_judged_by_the_daemon_too() {
    let mut node = node_of(64 * MIB);
    let open = made(&mut node, "f");
    let reader = node.open("f", 0).unwrap().0;
    let mut wrong =
        |open, mode, offset, bytes| failed(allocate(&mut node, open, mode, offset, bytes));
    assert_eq!(wrong(open, 0, 0, 0), Errno::EINVAL);
    assert_eq!(wrong(open, 0, u64::MAX, 1), Errno::EINVAL);
    assert_eq!(wrong(open, 0, 1, u64::MAX), Errno::EINVAL);
    assert_eq!(wrong(open, 0, i64::MAX as u64, i64::MAX as u64), Errno::EFBIG);
    assert_eq!(wrong(open, ALLOCATE_PUNCH_HOLE, 0, 1), Errno::EOPNOTSUPP);
    assert_eq!(wrong(open, 8, 0, 1), Errno::EOPNOTSUPP);
    assert_eq!(wrong(reader, 0, 0, 1), Errno::EBADF);
    assert_eq!(wrong(open, ALLOCATE_KEEP_SIZE, 0, 65 * MIB), Errno::ENOSPC);
    assert_eq!(node.fstat(open).unwrap().size_bytes, 0);
}
