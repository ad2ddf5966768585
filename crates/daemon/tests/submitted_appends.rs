//! Files that are there, appended to, overwritten and cut without asking.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_transport_shm::{
    layout::{OPEN_PRIVATE, OPEN_PROMISED},
    submission_ring::Changes,
};
use mayfly_types::{FileId, OpenRef, Timestamp};
use mayfly_wire::{Ping, Request, SET_MODE, SET_SIZE, SetAttr, Target, Write};
use support::{
    INLINE_MAX, Node, O_RDWR, SESSION, set,
    submitting::{
        O_APPEND, O_TRUNC, OTHER, add, change_open_as, cut_as, cut_open_as, is_replaced, link_as,
        made, move_as, node_on_disk, open_to_write_after, open_to_write_as, put_as, read_own_as,
        remove, ring_at, state, submit_create, text, warm_as,
    },
    walk,
};

const TO_APPEND: u32 = O_RDWR | O_APPEND;

/// A node with a closed file that has this text.
fn with_file(content: &[u8]) -> (Node, FileId) {
    let mut node = node_on_disk();
    made(&node, "d/f", content);
    let id = node.stat("d/f", false).unwrap().id;
    (node, id)
}

fn open(node: &Node, path: &str, flags: u32) -> Option<OpenRef> {
    open_to_write_as(node, SESSION, path, flags)
}

fn put(node: &Node, open: OpenRef, at: usize, bytes: &[u8]) -> bool {
    put_as(node, SESSION, open, at, bytes)
}

fn own(node: &Node, open: OpenRef) -> Vec<u8> {
    read_own_as(node, SESSION, open).unwrap()
}

fn withdraw(node: &Node, open: OpenRef) -> bool {
    ring_at(node, SESSION).withdraw(open)
}

/// Appends as a shell does, without asking.
fn append(node: &Node, path: &str, bytes: &[u8]) {
    let open = open(node, path, TO_APPEND).unwrap();
    assert!(add(node, open, bytes) && withdraw(node, open));
}

#[test]
fn what_is_appended_is_behind_what_was_there() {
    let (mut node, id) = with_file(b"first");
    let before = node.stat("d/f", false).unwrap();
    let open = open(&node, "d/f", TO_APPEND).unwrap();
    assert!(!is_replaced(&node, id), "nothing was written so far");
    assert!(add(&node, open, b" second") && is_replaced(&node, id));
    assert_eq!(own(&node, open), b"first second");
    assert!(add(&node, open, b" third") && withdraw(&node, open));
    assert_eq!(text(&mut node, "d/f"), b"first second third");
    let after = node.stat("d/f", false).unwrap();
    assert_eq!((after.id, after.mode, after.btime), (id, before.mode, before.btime));
    assert!(!is_replaced(&node, id));
    assert_eq!(node.core().counters().open_files, 0);
}

#[test]
fn without_a_write_nothing_changes() {
    let (mut node, id) = with_file(b"text");
    let before = node.stat("d/f", false).unwrap();
    for flags in [O_RDWR, TO_APPEND] {
        let closed = open(&node, "d/f", flags).unwrap();
        assert_eq!(own(&node, closed), b"text");
        assert!(!is_replaced(&node, id) && withdraw(&node, closed));
        node.ask(&Ping {}, |()| ()).unwrap();
        let made = open(&node, "d/f", flags).unwrap();
        node.ask(&Ping {}, |()| ()).unwrap();
        assert_eq!(
            (state(&node, made), node.read(made, 0, 9).unwrap()),
            (OPEN_PRIVATE, b"text".to_vec())
        );
        node.close(made);
    }
    assert_eq!(node.stat("d/f", false).unwrap(), before);
    let changed = open(&node, "d/f", O_RDWR).unwrap();
    let mode = Changes { which: SET_MODE, mode: 0o711, ..Changes::default() };
    assert!(change_open_as(&node, SESSION, changed, &mode).is_some() && withdraw(&node, changed));
    let after = node.stat("d/f", false).unwrap();
    assert_eq!((after.mode, after.mtime, after.size_bytes), (0o711, before.mtime, 4));
    assert_eq!(text(&mut node, "d/f"), b"text");
}

#[test]
fn what_is_written_first_may_be_in_the_midst() {
    let (mut node, _) = with_file(b"0123456789");
    let first = open(&node, "d/f", O_RDWR).unwrap();
    assert!(put(&node, first, 2, b"ab"));
    assert_eq!(own(&node, first), b"01ab456789");
    assert!(!put(&node, first, 4, b"cd"), "the daemon may be reading");
    assert!(put(&node, first, 12, b"end"), "behind the end nobody reads");
    assert!(withdraw(&node, first));
    assert_eq!(text(&mut node, "d/f"), b"01ab456789\0\0end");
    let longer = open(&node, "d/f", O_RDWR).unwrap();
    assert!(!put(&node, longer, INLINE_MAX as usize - 1, b"no"), "it has no room in a record");
    assert!(put(&node, longer, 14, b"END") && withdraw(&node, longer));
    assert_eq!(text(&mut node, "d/f"), b"01ab456789\0\0enEND");
}

#[test]
fn a_length_is_set_by_path_and_by_description() {
    let (mut node, _) = with_file(b"0123456789");
    assert!(cut_as(&node, SESSION, "d/f", 4));
    assert_eq!(text(&mut node, "d/f"), b"0123");
    assert!(cut_as(&node, SESSION, "d/f", 6) && cut_as(&node, SESSION, "d/f", 7));
    assert_eq!(text(&mut node, "d/f"), b"0123\0\0\0");
    assert!(!cut_as(&node, SESSION, "d/f", INLINE_MAX as usize + 1));
    let open = open(&node, "d/f", O_RDWR).unwrap();
    assert!(cut_open_as(&node, SESSION, open, 2) && add(&node, open, b"xyz"));
    assert!(cut_open_as(&node, SESSION, open, 3) && cut_open_as(&node, SESSION, open, 5));
    assert!(withdraw(&node, open));
    assert_eq!(text(&mut node, "d/f"), b"01x\0\0");
}

#[test]
fn what_follows_about_a_file_that_was_closed_waits_with_it() {
    let (mut node, id) = with_file(b"one");
    append(&node, "d/f", b" two");
    append(&node, "d/f", b" three");
    assert!(cut_as(&node, SESSION, "d/f", 7));
    append(&node, "d/f", b" four");
    assert_eq!(ring_at(&node, SESSION).waiting(), 4);
    let last = open(&node, "d/f", O_RDWR).unwrap();
    assert_eq!(own(&node, last), b"one two four");
    assert_eq!(open(&node, "d/f", TO_APPEND), None, "it is open");
    assert!(put(&node, last, 0, b"ONE"));
    assert_eq!(text(&mut node, "d/f"), b"ONE two four");
    node.close(last);
    assert_eq!(node.stat("d/f", false).unwrap().id, id);

    let new = submit_create(&node, "d/new").unwrap();
    assert_eq!(open(&node, "d/new", TO_APPEND), None, "it is open");
    assert!(add(&node, new, b"made") && withdraw(&node, new));
    append(&node, "d/new", b" and more");
    let emptied = open(&node, "d/f", O_RDWR | O_TRUNC).unwrap();
    assert!(add(&node, emptied, b"x") && withdraw(&node, emptied));
    append(&node, "d/f", b"y");
    let again = open(&node, "d/f", O_RDWR | O_TRUNC).unwrap();
    assert!(add(&node, again, b"z") && withdraw(&node, again));
    append(&node, "d/f", b"!");
    assert_eq!(ring_at(&node, SESSION).waiting(), 6);
    assert_eq!(text(&mut node, "d/new"), b"made and more");
    assert_eq!(text(&mut node, "d/f"), b"z!");
    assert_eq!(node.core().counters().open_files, 0);
}

#[test]
fn what_follows_something_else_about_the_name_is_asked_for() {
    let (mut node, _) = with_file(b"text");
    made(&node, "d/moved", b"");
    assert!(move_as(&node, SESSION, ("d/moved", "d/g"), true));
    assert_eq!(open(&node, "d/g", TO_APPEND), None);
    append(&node, "d/f", b"1");
    let changed = Changes { which: SET_MODE, mode: 0o600, ..Changes::default() };
    let unwritten = open(&node, "d/f", TO_APPEND).unwrap();
    assert!(change_open_as(&node, SESSION, unwritten, &changed).is_some());
    assert!(withdraw(&node, unwritten));
    assert_eq!(open(&node, "d/f", TO_APPEND), None, "nothing was written by the last record");
    assert_eq!(text(&mut node, "d/f"), b"text1");
    assert!(link_as(&node, SESSION, ("d/f", "d/h")));
    assert_eq!(open(&node, "d/f", TO_APPEND), None, "it has two names");
    assert!(remove(&node, "d/h") && remove(&node, "d/f"));
    assert_eq!(open(&node, "d/f", TO_APPEND), None, "it is gone");
    made(&node, "d/f", b"new");
    append(&node, "d/f", b"er");
    assert_eq!(text(&mut node, "d/f"), b"newer");
}

/// What others do by asking after a process has copied the bytes, and before it submits.
#[test]
fn whoever_changes_bytes_meanwhile_is_first() {
    type Other = (&'static str, fn(&mut Node, OpenRef));
    let others: [Other; 5] = [
        ("writes", |node, open| {
            // By nothing but a write: leave to write has the claim taken back, too.
            let write = Write { open, offset: 0, append: false, bytes: b"new" };
            node.ask(&write, |_| ()).unwrap();
        }),
        ("outgrows the record", |node, open| {
            assert!(node.write(open, INLINE_MAX, b"far").is_ok());
        }),
        ("cuts by the description", |node, open| {
            let shorter = SetAttr { size_bytes: 1, ..set() };
            assert!(node.set_attr(Target::Open(open), SET_SIZE, shorter).is_ok());
        }),
        ("cuts by the path", |node, _| {
            let shorter = SetAttr { size_bytes: 1, ..set() };
            assert!(node.set_attr(Target::Path(walk("d/f", 0)), SET_SIZE, shorter).is_ok());
        }),
        ("allocates", |node, open| {
            let bytes = 100;
            let request = mayfly_wire::Allocate { open, mode: 0, offset: 0, bytes };
            node.ask(&request, |()| ()).unwrap();
        }),
    ];
    for (what, other) in others {
        let (mut node, _) = with_file(b"text");
        let (theirs, _) = node.open("d/f", O_RDWR).unwrap();
        let does = |node: &mut Node| other(node, theirs);
        let opened = open_to_write_after(&mut node, ("d/f", TO_APPEND), does);
        assert_eq!(opened, None, "who {what}");
        assert!(submit_create(&node, "d/new").is_some(), "who {what} ends no delegation");
    }
}

/// The request is executed, and its answer is still to come: the records tell nothing then.
#[test]
fn bytes_that_are_not_committed_are_not_taken_for_those_of_the_file() {
    let (mut node, _) = with_file(b"text");
    let (theirs, _) = node.open("d/f", O_RDWR).unwrap();
    append(&node, "d/f", b"1");
    node.ask(&Ping {}, |()| ()).unwrap();
    let caller = node.next_caller(OTHER);
    let write = Write { open: theirs, offset: 0, append: false, bytes: b"TEXT" };
    let mut reply = vec![0; 1 << 16];
    node.core().handle(caller, Request::Write(write), &mut reply);
    assert_eq!(open(&node, "d/f", TO_APPEND), None);
    assert!(!cut_as(&node, SESSION, "d/f", 3));
    node.core().commit().unwrap();
    append(&node, "d/f", b"2");
    assert_eq!(text(&mut node, "d/f"), b"TEXT12");
    node.close(theirs);
}

#[test]
fn who_has_it_open_for_writing_and_who_appends_see_each_other() {
    let (mut node, _) = with_file(b"");
    warm_as(&mut node, OTHER, "d");
    let (theirs, _) = node.open("d/f", O_RDWR).unwrap();
    for turn in 0..3 {
        append(&node, "d/f", b"a");
        let own = open_to_write_as(&node, OTHER, "d/f", TO_APPEND);
        assert_eq!(own, None, "something waits about it");
        assert_eq!(node.write(theirs, turn * 2 + 1, b"b"), Ok(turn * 2 + 2));
    }
    assert_eq!(text(&mut node, "d/f"), b"ababab");
    node.close(theirs);
}

#[test]
fn a_look_tells_what_it_was_until_something_is_written() {
    let (mut node, id) = with_file(b"text");
    let before = node.stat("d/f", false).unwrap();
    // By so much that when the node began, which is told by cycles, is before it.
    let now = Timestamp { nanoseconds: before.mtime.nanoseconds + 77_000, ..before.mtime };
    let open = open(&node, "d/f", TO_APPEND).unwrap();
    let look =
        |node: &Node| ring_at(node, SESSION).look_at_replaced(open, now, |_, _| Some(before));
    assert_eq!((look(&node), look(&node)), (Some((before, None)), Some((before, None))));
    assert!(add(&node, open, b"!"));
    assert_eq!((look(&node), look(&node)), (Some((before, Some((5, now)))), None));
    assert!(!cut_open_as(&node, SESSION, open, 4), "its time was told");
    assert!(withdraw(&node, open));
    let after = node.stat("d/f", false).unwrap();
    assert_eq!((after.id, after.size_bytes, after.mtime), (id, 5, now));
    append(&node, "d/f", b"1");
    append(&node, "d/f", b"2");
    let second = open_to_write_as(&node, SESSION, "d/f", TO_APPEND).unwrap();
    let later = Timestamp { nanoseconds: now.nanoseconds + 77_000, ..now };
    let look = |node: &Node, open, now| {
        ring_at(node, SESSION).look_at_replaced(open, now, |_, _| Some(after))
    };
    assert_eq!(look(&node, second, later), Some((after, Some((7, later)))), "of the one before");
    assert!(withdraw(&node, second));
    let third = open_to_write_as(&node, SESSION, "d/f", TO_APPEND);
    assert_eq!(third, None, "by the last record nothing was written");
    let last = node.stat("d/f", false).unwrap();
    assert_eq!((last.size_bytes, last.mtime, last.ctime), (7, later, later));
}

/// With a kill before and after the commit.
#[test]
fn what_a_daemon_left_undone_is_done_by_the_next_one() {
    for (is_closed, is_executed) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut node, id) = with_file(b"one");
        append(&node, "d/f", b" two");
        let open = open(&node, "d/f", TO_APPEND).unwrap();
        assert!(add(&node, open, b" three") && (!is_closed || withdraw(&node, open)));
        made(&node, "d/g", b"a");
        append(&node, "d/g", b"b");
        if is_executed {
            // Without a commit.
            let caller = node.next_caller(SESSION);
            let mut reply = vec![0; 1 << 16];
            node.core().handle(caller, Request::Ping(Ping {}), &mut reply);
        }
        node.restart();
        assert_eq!(text(&mut node, "d/f"), b"one two three");
        assert_eq!(
            (text(&mut node, "d/g"), node.stat("d/f", false).unwrap().id),
            (b"ab".to_vec(), id)
        );
        assert_eq!(state(&node, open) == OPEN_PRIVATE, !is_closed);
        if !is_closed {
            assert_ne!(state(&node, open), OPEN_PROMISED);
            node.close(open);
        }
        assert_eq!(node.core().counters().open_files, 0);
    }
}
