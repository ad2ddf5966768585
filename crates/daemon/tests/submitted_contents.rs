//! Content of files that are there, replaced without asking.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use mayfly_transport_shm::{
    layout::{OPEN_PRIVATE, OPEN_PROMISED},
    submission_ring::{Changes, Submission},
};
use mayfly_types::{Errno, FileId, OpenRef, SessionId, Timestamp};
use mayfly_wire::{
    GRANT_OBJECT, GRANT_READ, Map, Ping, Request, SET_MODE, SET_SIZE, SetAttr, Target,
};
use support::{
    Answer, INLINE_MAX, Node, O_RDWR, SESSION, failed, set,
    submitting::{
        O_TRUNC, OTHER, add, add_as, change_as, change_open_as, is_replaced, link_as, made,
        make_file_as, move_as, node_on_disk, open_to_write_after, remove, replace_as, ring_at,
        state, submit_create, text, warm_as,
    },
    walk,
};

/// A node with a closed file that has this text.
fn with_file(content: &[u8]) -> (Node, FileId) {
    let mut node = node_on_disk();
    made(&node, "d/f", content);
    let id = node.stat("d/f", false).unwrap().id;
    (node, id)
}

fn replace(node: &Node, path: &str) -> Option<OpenRef> {
    replace_as(node, SESSION, path)
}

fn replace_after(node: &mut Node, others: fn(&mut Node)) -> Option<OpenRef> {
    open_to_write_after(node, ("d/f", O_RDWR | O_TRUNC), others)
}

fn withdraw(node: &Node, open: OpenRef) -> bool {
    ring_at(node, SESSION).withdraw(open)
}

#[test]
fn content_is_replaced_and_the_file_stays_the_same() {
    let (mut node, id) = with_file(b"what it had before");
    let before = node.stat("d/f", false).unwrap();
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"new") && add(&node, open, b"er") && withdraw(&node, open));
    assert!(is_replaced(&node, id) && !is_replaced(&node, FileId(id.0 + 1)));
    assert_eq!(text(&mut node, "d/f"), b"newer");
    assert!(!is_replaced(&node, id) && node.region.head.rings.replacing.load(SeqCst) == 0);
    let after = node.stat("d/f", false).unwrap();
    assert_eq!((after.id, after.mode, after.uid, after.links), (id, before.mode, before.uid, 1));
    assert_eq!((after.size_bytes, after.btime), (5, before.btime));
    assert_eq!(node.core().counters().open_files, 0);
}

#[test]
fn a_file_that_is_cut_and_closed_is_empty() {
    let (mut node, _) = with_file(b"what it had before");
    let open = replace(&node, "d/f").unwrap();
    assert!(withdraw(&node, open));
    assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 0);
    assert_eq!(text(&mut node, "d/f"), b"");
}

#[test]
fn who_goes_on_writing_has_the_description_that_was_promised() {
    let (mut node, id) = with_file(b"what it had before");
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"some") && state(&node, open) == OPEN_PROMISED);
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(state(&node, open), OPEN_PRIVATE);
    assert!(!add(&node, open, b"late") && !withdraw(&node, open));
    assert_eq!(node.fstat(open).unwrap().id, id);
    assert_eq!(node.write(open, 4, b" more"), Ok(9));
    assert_eq!(node.region.head.writers.load(Relaxed), 1);
    node.close(open);
    assert_eq!(text(&mut node, "d/f"), b"some more");
    assert!(replace(&node, "d/f").is_some());
}

#[test]
fn what_is_not_certain_is_asked_for() {
    let (mut node, _) = with_file(b"text");
    node.mkdir("d/directory").unwrap();
    node.symlink("f", "d/link").unwrap();
    made(&node, "d/large", b"");
    let (large, _) = node.open("d/large", O_RDWR).unwrap();
    node.write(large, INLINE_MAX, b"behind").unwrap();
    node.close(large);
    made(&node, "d/two", b"");
    node.link("d/two", "d/names").unwrap();
    for path in ["d/none", "d/directory", "d/link", "d/large", "d/two", "d/names"] {
        assert_eq!(replace(&node, path), None, "{path}");
    }
    node.unlink("d/names", false).unwrap();
    // It may be found by its number.
    assert_eq!(replace(&node, "d/two"), None);
    let waiting = submit_create(&node, "d/new").unwrap();
    assert_eq!(replace(&node, "d/new"), None, "it is open");
    assert!(withdraw(&node, waiting) && replace(&node, "d/f").is_some());
    assert_eq!(replace(&node, "d/f"), None, "it is open");
}

#[test]
fn another_process_asks_while_something_waits() {
    let (mut node, _) = with_file(b"text");
    warm_as(&mut node, OTHER, "d");
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"mine") && withdraw(&node, open));
    assert_eq!(replace_as(&node, OTHER, "d/f"), None);
    let (theirs, _) = node.open("d/f", O_RDWR | O_TRUNC).unwrap();
    node.write(theirs, 0, b"theirs").unwrap();
    assert_eq!(text(&mut node, "d/f"), b"theirs");
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"mine") && withdraw(&node, open));
    node.write(theirs, 2, b"xx").unwrap();
    node.close(theirs);
    assert_eq!(text(&mut node, "d/f"), b"mixx");
    let open = replace_as(&node, OTHER, "d/f").unwrap();
    assert!(add_as(&node, OTHER, open, b"again") && ring_at(&node, OTHER).withdraw(open));
    assert_eq!(text(&mut node, "d/f"), b"again");
}

/// What others do by asking after a process has looked whether it may, and before it submits.
#[test]
fn whoever_gets_leave_to_change_bytes_meanwhile_is_first() {
    type Other = (&'static str, fn(&mut Node));
    let others: [Other; 7] = [
        ("opens it for writing", |node| assert!(node.open("d/f", O_RDWR).is_ok())),
        ("cuts it by its description", |node| assert!(node.open("d/f", O_RDWR | O_TRUNC).is_ok())),
        ("sets its length", |node| {
            let longer = SetAttr { size_bytes: 2 * INLINE_MAX, ..set() };
            assert!(node.set_attr(Target::Path(walk("d/f", 0)), SET_SIZE, longer).is_ok());
        }),
        ("wants its object", |node| {
            let (open, _) = node.open("d/f", 0).unwrap();
            assert!(node.grant(open, GRANT_READ | GRANT_OBJECT, 0).is_ok());
        }),
        ("keeps pages of it in a kernel", |node| {
            let (open, _) = node.open("d/f", 0).unwrap();
            node.ask(&Map { open }, |()| ()).unwrap();
        }),
        ("gives it another name", |node| node.link("d/f", "d/g").unwrap()),
        ("moves it", |node| node.rename("d/f", "d/g", 0).unwrap()),
    ];
    for (what, other) in others {
        let (mut node, _) = with_file(b"text");
        assert_eq!(replace_after(&mut node, other), None, "who {what}");
        assert!(submit_create(&node, "d/new").is_some(), "who {what} ends no delegation");
    }
    let (mut node, _) = with_file(b"text");
    let harmless = |node: &mut Node| {
        assert_eq!(text(node, "d/f"), b"text");
        let changed = SetAttr { mode: 0o600, ..set() };
        node.set_attr(Target::Path(walk("d/f", 0)), SET_MODE, changed).unwrap();
    };
    let open = replace_after(&mut node, harmless).unwrap();
    assert!(add(&node, open, b"new") && withdraw(&node, open));
    assert_eq!(node.stat("d/f", false).unwrap().mode, 0o600);
    assert_eq!(text(&mut node, "d/f"), b"new");
}

#[test]
fn nobody_replaces_unasked_what_a_kernel_may_have_mapped() {
    let (mut node, _) = with_file(b"text");
    let waiting = replace(&node, "d/f").unwrap();
    assert!(add(&node, waiting, b"new") && withdraw(&node, waiting));
    made(&node, "d/g", b"");
    let (open, _) = node.open("d/g", 0).unwrap();
    node.ask(&Map { open }, |()| ()).unwrap();
    assert_eq!(replace(&node, "d/f"), None);
    node.close(open);
    node.restart();
    warm_as(&mut node, SESSION, "d");
    assert_eq!(replace(&node, "d/f"), None, "it may be mapped still");
    assert_eq!(text(&mut node, "d/f"), b"new");
}

#[test]
fn what_follows_about_the_name_is_submitted_too() {
    let (mut node, id) = with_file(b"text");
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"first"));
    let mode = Changes { which: SET_MODE, mode: 0o711, ..Changes::default() };
    assert_eq!(change_open_as(&node, SESSION, open, &mode), Some(Submission::Joined));
    assert!(withdraw(&node, open) && move_as(&node, SESSION, ("d/f", "d/g"), true));
    assert_eq!(ring_at(&node, SESSION).waiting(), 3);
    let attr = node.stat("d/g", false).unwrap();
    assert_eq!((attr.id, attr.mode, attr.size_bytes), (id, 0o711, 5));
    assert_eq!(failed(node.stat("d/f", false)), Errno::ENOENT);
    // Its record is found by its number now.
    assert_eq!(replace(&node, "d/g"), None);
    made(&node, "d/f", b"other");
    node.ask(&Ping {}, |()| ()).unwrap();
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"second") && withdraw(&node, open));
    assert!(link_as(&node, SESSION, ("d/f", "d/h")));
    assert_eq!(text(&mut node, "d/h"), b"second");
    node.unlink("d/f", false).unwrap();
    made(&node, "d/f", b"third");
    node.ask(&Ping {}, |()| ()).unwrap();
    let open = replace(&node, "d/f").unwrap();
    assert!(remove(&node, "d/f") && add(&node, open, b"of no name"));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(node.read(open, 0, 100).unwrap(), b"of no name");
    assert_eq!(node.fstat(open).unwrap().links, 0);
}

#[test]
fn a_look_tells_when_it_was_replaced() {
    let (mut node, id) = with_file(b"text");
    let before = node.stat("d/f", false).unwrap();
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"four"));
    // By so much that when the node began, which is told by cycles, is before it.
    let now = Timestamp { nanoseconds: before.mtime.nanoseconds + 77_000, ..before.mtime };
    let look = |node: &Node| {
        ring_at(node, SESSION).look_at_replaced(open, now, |_, path| {
            assert_eq!(path, b"f");
            Some(before)
        })
    };
    assert_eq!(look(&node), Some((before, Some((4, now)))));
    assert_eq!(look(&node), None, "it is told once");
    assert!(withdraw(&node, open));
    let after = node.stat("d/f", false).unwrap();
    assert_eq!((after.id, after.mtime, after.ctime), (id, now, now));
    let other = replace(&node, "d/f").unwrap();
    let none = ring_at(&node, SESSION).look_at_replaced(other, now, |_, _| None);
    assert_eq!(none, None);
    let wrong = mayfly_types::Attr { id: FileId(id.0 + 1), ..before };
    let wrong = ring_at(&node, SESSION).look_at_replaced(other, now, |_, _| Some(wrong));
    assert_eq!(wrong, None, "another file has the name");
}

/// With a kill before and after the commit.
#[test]
fn what_a_daemon_left_undone_is_done_by_the_next_one() {
    for (is_closed, is_executed) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut node, id) = with_file(b"what it had before");
        let open = replace(&node, "d/f").unwrap();
        assert!(add(&node, open, b"new") && (!is_closed || withdraw(&node, open)));
        if is_executed {
            // Without a commit.
            let caller = node.next_caller(SESSION);
            let mut reply = vec![0; 1 << 16];
            node.core().handle(caller, Request::Ping(Ping {}), &mut reply);
        }
        node.restart();
        assert_eq!(text(&mut node, "d/f"), b"new");
        assert_eq!(node.stat("d/f", false).unwrap().id, id);
        assert_eq!(state(&node, open) == OPEN_PRIVATE, !is_closed);
        if !is_closed {
            assert_eq!(node.write(open, 3, b"er"), Ok(5));
            assert_eq!(node.fstat(open).unwrap().id, id);
            node.close(open);
        }
        assert_eq!(node.core().counters().open_files, 0);
        assert!(!is_replaced(&node, id));
    }
}

/// What a process writes into a record may be anything.
#[test]
fn a_record_about_another_file_changes_nothing() {
    let (mut node, _) = with_file(b"text");
    make_file_as(&mut node, OTHER, "d/g");
    let open = replace(&node, "d/f").unwrap();
    assert!(add(&node, open, b"new") && withdraw(&node, open));
    let at = ring_at(&node, SESSION).count() as usize - 1;
    let record = &ring_at(&node, SESSION).records[at % 128];
    record.mode.fetch_add(1, SeqCst);
    assert_eq!(text(&mut node, "d/f"), b"text");
    assert_eq!(text(&mut node, "d/g"), b"");
    let nobody = SessionId(9);
    assert_eq!(change_as(&node, nobody, "d/f", &Changes::default()), None);
}

/// A name was removed when a request to change its file's bytes was taken up already. It counted as
/// one that is there, so that nothing new was made of it, and it could be removed again.
#[test]
fn a_name_that_was_removed_just_before_its_file_is_to_be_changed_is_gone() {
    type Change = (&'static str, fn(&mut Node) -> Answer<()>);
    let changes: [Change; 3] = [
        ("opens it for writing", |node| node.open("d/f", O_RDWR).map(drop)),
        ("sets its length", |node| {
            node.set_attr(Target::Path(walk("d/f", 0)), SET_SIZE, set()).map(drop)
        }),
        ("gives it another name", |node| node.link("d/f", "d/g")),
    ];
    for (what, change) in changes {
        let (mut node, _) = with_file(b"text");
        assert!(remove(&node, "d/f"));
        node.region.head.submitted.store(0, SeqCst);
        assert_eq!(failed(change(&mut node)), Errno::ENOENT, "who {what}");
        assert!(!remove(&node, "d/f"), "who {what} leaves nothing to be removed");
        assert!(submit_create(&node, "d/f").is_some(), "who {what} leaves the name free");
        assert!(remove(&node, "d/f"), "who {what}");
    }
}
