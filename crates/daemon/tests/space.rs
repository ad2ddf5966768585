//! Space: what a full instance refuses, what is set aside for writers, and appends that go to an
//! object through the daemon.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_daemon::Progress;
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{GRANT_READ, GRANT_WRITE, Read, Write};
use support::{Failed, Node, O_CREAT, O_RDWR, SESSION, config, failed};

fn node() -> Node {
    Node::memory(config())
}

/// With objects where the directory for temporary files is, and in memory, where appends are done
/// on the spot.
fn nodes() -> impl Iterator<Item = Node> {
    let memory = std::path::Path::new("/dev/shm");
    std::iter::once(node()).chain(memory.is_dir().then(|| Node::on_disk_in(config(), memory)))
}

fn made(node: &mut Node, path: &str) -> OpenRef {
    node.open(path, O_CREAT | O_RDWR).unwrap().0
}

#[test]
fn a_full_instance_refuses_and_still_removes() {
    let capacity_bytes = 8 << 20;
    let mut node = Node::on_disk(mayfly_daemon::Config { capacity_bytes, ..config() });
    let open = made(&mut node, "big");
    let mut end = 0;
    let errno = loop {
        match node.write(open, end, &[3; 100_000]) {
            Ok(at) => end = at,
            Err(Failed::Errno(errno)) => break errno,
            Err(Failed::Escaped(_)) => unreachable!("a write has no path"),
        }
    };
    assert_eq!(errno, Errno::ENOSPC);
    assert!(end > 6 << 20, "{end} of {capacity_bytes} bytes could be used");
    assert!(node.core().counters().used_bytes <= capacity_bytes);
    node.close(open);
    node.unlink("big", false).unwrap();
    node.settle_down();
    let open = made(&mut node, "next");
    node.write(open, 0, &[3; 100_000]).unwrap();
}

/// Each was held against what was free before the others had taken theirs: four transfers of a long
/// write from another node together took three of them more than the capacity.
#[test]
fn writes_under_way_at_the_same_time_take_no_more_than_there_is() {
    let capacity_bytes = 4 << 20;
    let mut node = Node::memory(mayfly_daemon::Config { capacity_bytes, ..config() });
    let open = made(&mut node, "big");
    node.write(open, 0, &[1; 100_000]).unwrap();
    let bytes = vec![2; 100_000];
    let mut end = 100_000;
    let refused = loop {
        let request = Write { open, offset: end, append: false, bytes: &bytes };
        let caller = node.next_caller(SESSION);
        match node.submit(caller, &request, &mut [0; 100]) {
            Progress::Pending => end += 100_000,
            Progress::Replied(status, _) => break status,
        }
        assert!(end <= capacity_bytes, "nothing was taken in yet, and all were let in");
    };
    assert_eq!(refused, Errno::ENOSPC.raw() as u32);
    node.settle_down();
    assert!(node.core().counters().used_bytes <= capacity_bytes);
    // What is done is not counted any more.
    node.close(open);
    node.unlink("big", false).unwrap();
    node.settle_down();
    let open = made(&mut node, "next");
    for offset in (0..end - 100_000).step_by(100_000) {
        node.write(open, offset, &bytes).unwrap();
    }
}

#[test]
fn a_full_instance_takes_no_new_names_nor_bytes_until_something_is_removed() {
    let capacity_bytes = 4 << 20;
    let mut node = Node::memory(mayfly_daemon::Config { capacity_bytes, ..config() });
    let small = made(&mut node, "small");
    node.write(small, 0, b"small").unwrap();
    let spilled = made(&mut node, "spilled");
    node.write(spilled, 0, &[1; 10_000]).unwrap();
    node.mkdir("d").unwrap();
    let big = made(&mut node, "big");
    let mut end = 0;
    for step in [100_000_usize, 4096, 100] {
        while let Ok(at) = node.write(big, end, &vec![3; step]) {
            end = at;
        }
    }
    let mut made_last = 0;
    while node.mkdir(&format!("d/{made_last}")).is_ok() {
        made_last += 1;
    }
    assert!(node.core().counters().used_bytes + 1000 > capacity_bytes);
    assert_eq!(failed(node.open("new", O_CREAT | O_RDWR)), Errno::ENOSPC);
    assert_eq!(failed(node.mkdir("new")), Errno::ENOSPC);
    assert_eq!(failed(node.symlink("small", "new")), Errno::ENOSPC);
    assert_eq!(failed(node.link("small", "new")), Errno::ENOSPC);
    assert_eq!(failed(node.write(small, 5, &[1; 1000])), Errno::ENOSPC);
    assert_eq!(failed(node.write(small, 0, &[1; 10_000])), Errno::ENOSPC);
    assert_eq!(failed(node.append(spilled, &[1; 10_000])), Errno::ENOSPC);
    assert_eq!(node.write(small, 0, b"SMALL").unwrap(), 5, "nothing more is needed for that");
    assert_eq!(node.read(small, 0, 10).unwrap(), b"SMALL");
    for number in 0..made_last {
        node.unlink(&format!("d/{number}"), true).unwrap();
    }
    node.unlink("big", false).unwrap();
    node.close(big);
    node.settle_down();
    node.write(small, 0, &[1; 100_000]).unwrap();
    node.mkdir("new").unwrap();
}

#[test]
fn what_idle_writers_have_set_aside_is_taken_back_before_anybody_hears_enospc() {
    let capacity_bytes = 64 << 20;
    let mut node = Node::memory(mayfly_daemon::Config { capacity_bytes, ..config() });
    let idlers: Vec<OpenRef> = (0..20)
        .map(|number| {
            let open = made(&mut node, &format!("idle{number}"));
            node.write(open, 0, &[1; 10_000]).unwrap();
            open
        })
        .collect();
    let set_aside = node.core().counters().used_bytes;
    assert!(set_aside > 20 << 20, "{set_aside}");
    let big = made(&mut node, "big");
    node.write(big, 0, &vec![2; 60 << 20]).unwrap();
    let entry = |open: OpenRef| {
        let file = node.region.opens[open.index as usize].file.load(Relaxed);
        node.region.files[file as usize].allowance_end.load(Relaxed)
    };
    assert!(idlers.iter().all(|open| entry(*open) == 10_000));
    assert!(node.core().counters().used_bytes <= capacity_bytes);
    node.write(idlers[0], 10_000, &[1; 10_000]).unwrap();
    assert_eq!(node.grant(idlers[1], GRANT_WRITE, 8 << 20).unwrap(), "", "no leave for that");
    node.close(big);
    node.unlink("big", false).unwrap();
    node.write(idlers[1], 10_000, &vec![1; 8 << 20]).unwrap();
}

#[test]
fn an_append_that_was_done_but_not_answered_is_not_done_again() {
    // How much of it the dead daemon had written.
    for (done, mut node) in
        [0, 1, 2500, 5000].iter().flat_map(|done| nodes().map(move |node| (*done, node)))
    {
        let open = made(&mut node, "log");
        node.write(open, 0, &[1; 5000]).unwrap();
        let bytes: Vec<u8> = (0..5000_u32).map(|number| (number % 251) as u8).collect();
        let request = Write { open, offset: 0, append: true, bytes: &bytes };
        let caller = node.next_caller(SESSION);
        node.submit(caller, &request, &mut [0; 100]);
        // The reply was not stored. What the kernel had taken of the write is in the object.
        let path = node.grant(open, GRANT_READ, 0).unwrap();
        let object = std::fs::File::options().write(true).open(node.objects.join(path)).unwrap();
        object.set_len(5000 + done).unwrap();
        node.restart();
        node.submit(caller, &request, &mut [0; 100]);
        node.core().commit().unwrap();
        assert_eq!(node.fstat(open).unwrap().size_bytes, 10_000, "{done}");
        assert_eq!(node.read(open, 5000, 10_000).unwrap(), bytes);
        node.append(open, &bytes).unwrap();
        assert_eq!(node.fstat(open).unwrap().size_bytes, 15_000, "another one is another one");
        node.close(open);
        node.restart();
        assert_eq!(node.stat("log", false).unwrap().size_bytes, 15_000);
    }
}

#[test]
fn a_repeated_append_is_found_among_those_of_others() {
    nodes().for_each(repeat_among_others);
}

fn repeat_among_others(mut node: Node) {
    let open = made(&mut node, "log");
    node.write(open, 0, &[1; 5000]).unwrap();
    let request = Write { open, offset: 0, append: true, bytes: b"mine" };
    let caller = node.next_caller(SESSION);
    let path = node.grant(open, GRANT_READ, 0).unwrap();
    node.submit(caller, &request, &mut [0; 100]);
    node.core().commit().unwrap();
    let mut object = std::fs::File::options().append(true).open(node.objects.join(path)).unwrap();
    std::io::Write::write_all(&mut object, b"theirs").unwrap();
    node.restart();
    let done = node.answer_to(caller, &request);
    assert_eq!(done.status, 0);
    let body = done.body.to_vec();
    let mut from = mayfly_wire::Reader::new(&body);
    let written = <mayfly_wire::Written as mayfly_wire::Wire>::decode(&mut from).unwrap();
    assert_eq!((written.count, written.end), (4, 5004));
    assert_eq!(node.read(open, 5000, 100).unwrap(), b"minetheirs");
}

/// There was one note for each file. The second append of a batch took the place of the first
/// one's, which was then executed twice when the daemon died before it had answered either.
#[test]
fn two_appends_in_doubt_at_once_are_each_done_once() {
    nodes().for_each(repeat_two);
}

fn repeat_two(mut node: Node) {
    let open = made(&mut node, "log");
    node.write(open, 0, &[1; 5000]).unwrap();
    let request = |bytes| Write { open, offset: 0, append: true, bytes };
    let first = node.next_caller(SESSION);
    let second = mayfly_daemon::Caller { lane: 1, ..node.next_caller(SESSION) };
    node.submit(first, &request(b"first"), &mut [0; 100]);
    node.submit(second, &request(b"second"), &mut [0; 100]);
    node.core().commit().unwrap();
    node.restart();
    let third = mayfly_daemon::Caller { lane: 2, ..node.next_caller(SESSION) };
    // It may have to wait for the others.
    node.submit(third, &request(b"third"), &mut [0; 100]);
    for (caller, bytes) in [(second, b"second".as_slice()), (first, b"first")] {
        assert_eq!(node.answer_to(caller, &request(bytes)).status, 0);
    }
    node.settle_down();
    assert_eq!(node.read(open, 5000, 100).unwrap(), b"firstsecondthird");
}

#[test]
fn a_sparse_file_longer_than_the_capacity_can_be_written_through_the_daemon() {
    let mut node = node();
    let open = made(&mut node, "sparse");
    let far = 1_u64 << 40;
    assert_eq!(node.grant(open, GRANT_WRITE, far + 3).unwrap(), "");
    assert_eq!(node.write(open, far, b"end").unwrap(), far + 3);
    assert_eq!(node.fstat(open).unwrap().size_bytes, far + 3);
    assert!(node.core().counters().used_bytes < 1 << 20);
}

#[test]
fn an_allowance_is_given_back_when_the_last_writer_closes() {
    let mut node = node();
    let open = made(&mut node, "f");
    node.write(open, 0, &[1; 10_000]).unwrap();
    assert!(node.core().counters().used_bytes > 1 << 20);
    node.restart();
    assert!(node.core().counters().used_bytes > 1 << 20, "it survives a restart");
    node.close(open);
    assert!(node.core().counters().used_bytes < 100_000);
}

/// A switch to a thread of the pool and back costs as much as a long copy, where no processor is
/// free for it.
#[test]
fn with_few_processors_long_reads_and_writes_of_memory_need_no_other_thread() {
    let memory = std::path::Path::new("/dev/shm");
    if !memory.is_dir() {
        return;
    }
    let config = mayfly_daemon::Config { io_threads: 1, processors: 2, ..config() };
    let mut node = Node::on_disk_in(config, memory);
    let open = made(&mut node, "f");
    let bytes = vec![7; 256 << 10];
    // To make the object is another thread's.
    node.write(open, 0, &bytes).unwrap();
    // A commit starts what it makes possible.
    let done = |node: &mut Node| {
        node.core().commit().unwrap();
        node.core().idle_work();
        let done = node.completions().pop().expect("it is done");
        assert_eq!(done.status, 0);
        done
    };
    for round in 0..50 {
        let write = Write { open, offset: 0, append: false, bytes: &bytes };
        let read = Read { open, offset: 0, count: bytes.len() as u32 };
        let (writer, reader) = (node.next_caller(SESSION), node.next_caller(SESSION));
        assert_eq!(node.submit(writer, &write, &mut []), Progress::Pending);
        assert_eq!(done(&mut node).caller, writer, "round {round}");
        assert_eq!(node.submit(reader, &read, &mut []), Progress::Pending);
        let done = done(&mut node);
        assert_eq!(done.caller, reader, "round {round}");
        assert_eq!(**done.body.shared(), *bytes);
    }
}
