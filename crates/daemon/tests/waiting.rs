//! Jobs of the I/O pool that take their time: meanwhile the shard answers others, and whatever
//! happens in between, the file is whole.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::{Caller, Completion, Config, Progress};
use mayfly_object::BY_HAND;
use mayfly_types::{OpenRef, Timestamp};
use mayfly_wire::{
    Close, Open, Opened, Reader, SET_MTIME, SetAttr, Target, WALK_FOLLOW, Wire, Write,
};
use support::{Node, O_CREAT, O_RDWR, SESSION, config, failed, set, walk};

const O_TRUNC: u32 = 0o1000;

/// A node whose jobs run when they are told, and a file with an object that is open there.
fn node() -> (Node, OpenRef) {
    let config = Config { io_threads: BY_HAND, ..config() };
    let mut node = Node::memory(config).slowed();
    let open = node.open("f", O_CREAT | O_RDWR).unwrap().0;
    node.write(open, 0, &[1; 10_000]).unwrap();
    (node, open)
}

fn run_all(node: &mut Node) -> Vec<Completion> {
    while node.core().run_job(0) {}
    node.core().idle_work();
    node.completions()
}

fn begin_truncating(node: &mut Node) -> Caller {
    let caller = node.next_caller(SESSION);
    truncate(node, caller);
    caller
}

fn truncate(node: &mut Node, caller: Caller) {
    let flags = O_RDWR | O_TRUNC;
    let request = Open { walk: walk("f", 0), flags, mode: 0, uid: 0, gid: 0 };
    assert_eq!(node.submit(caller, &request, &mut [0; 4096]), Progress::Pending);
    assert_eq!(node.completions(), [], "not before the object is cut");
}

fn opened(done: &Completion) -> Opened {
    assert_eq!(done.status, 0);
    Opened::decode(&mut Reader::new(&done.body)).unwrap()
}

#[test]
fn others_are_answered_while_an_open_truncates() {
    let (mut node, open) = node();
    let caller = begin_truncating(&mut node);
    assert_eq!(node.fstat(open).unwrap().size_bytes, 10_000, "the shard answers");
    node.mkdir("d").unwrap();
    node.rename("f", "d/f", 0).unwrap();
    let done = run_all(&mut node);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].caller, caller);
    let opened = opened(&done[0]);
    assert_eq!((opened.attr.size_bytes, opened.created), (0, false));
    assert_eq!(node.fstat(opened.open).unwrap().size_bytes, 0);
    assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 0);
}

#[test]
fn an_open_that_truncates_is_whole_when_the_daemon_dies_before_or_after_the_cut() {
    for cut in [false, true] {
        let (mut node, open) = node();
        let caller = begin_truncating(&mut node);
        if cut {
            assert!(node.core().run_job(0));
        }
        node.restart();
        truncate(&mut node, caller);
        let done = run_all(&mut node);
        let again = opened(&done[0]).open;
        assert_eq!(node.core().counters().open_files, 2, "the first attempt left nothing open");
        node.close(again);
        node.close(open);
        run_all(&mut node);
        assert_eq!(node.stat("f", false).unwrap().size_bytes, 0);
    }
}

#[test]
fn a_file_that_goes_while_an_open_truncates_it_leaves_no_object() {
    let (mut node, _) = node();
    begin_truncating(&mut node);
    node.unlink("f", false).unwrap();
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    // The removal before the cut, too.
    while node.core().run_job(1) || node.core().run_job(0) {}
    run_all(&mut node);
    run_all(&mut node);
    let counters = node.core().counters();
    assert_eq!((counters.open_files, counters.objects, counters.orphans), (0, 0, 0));
    let left = std::fs::read_dir(&node.objects).unwrap();
    assert!(left.flatten().all(|parent| std::fs::read_dir(parent.path()).unwrap().count() == 0));
}

#[test]
fn closing_waits_for_no_disk_and_the_size_is_settled_later() {
    let (mut node, open) = node();
    let caller = node.next_caller(SESSION);
    let closed = node.submit(caller, &Close { open }, &mut []);
    assert_eq!(closed, Progress::Replied(0, 0));
    node.core().commit().unwrap();
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 10_000, "the object tells");
    let open = node.open("f", O_RDWR).unwrap().0;
    run_all(&mut node);
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 10_000);
    let write = Write { open, offset: 10_000, append: false, bytes: &[2; 10] };
    let caller = node.next_caller(SESSION);
    assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
    assert_eq!(run_all(&mut node).len(), 1);
    node.close(open);
    run_all(&mut node);
    node.restart();
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 10_010);
    assert_eq!(failed(node.fstat(open)), mayfly_types::Errno::EBADF);
}

#[test]
fn times_are_set_in_the_pool_and_stay_when_the_size_is_settled() {
    let (mut node, open) = node();
    let mtime = Timestamp { seconds: 77, nanoseconds: 5 };
    let target = Target::Path(walk("f", WALK_FOLLOW));
    let request = SetAttr { target, which: SET_MTIME, mtime, ..set() };
    let caller = node.next_caller(SESSION);
    assert_eq!(node.submit(caller, &request, &mut [0; 4096]), Progress::Pending);
    node.core().commit().unwrap();
    node.close(open);
    node.mkdir("d").unwrap();
    assert_eq!(run_all(&mut node).len(), 1);
    run_all(&mut node);
    assert_eq!(node.stat("f", false).unwrap().mtime, mtime);
    node.restart();
    assert_eq!(node.stat("f", false).unwrap().mtime, mtime);
}
