//! Objects that processes make for files that they submit.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::{os::unix::fs::FileExt, path::PathBuf, sync::atomic::Ordering::Relaxed};

use mayfly_daemon::Config;
use mayfly_transport_shm::{
    layout::{FILE_OBJECT, OPEN_PRIVATE},
    submission_ring::{Changes, NewObject, RECORDS},
};
use mayfly_types::{OpenRef, Timestamp};
use mayfly_wire::{GRANT_OBJECT, GRANT_READ, GRANT_WRITE, Ping, SET_ATIME, SET_MODE, SET_MTIME};
use support::{
    Node, O_RDWR, SESSION, config,
    submitting::{
        OTHER, add, change_as, make_as, mkdir_as, move_as, node, node_on_disk, object_of_promised,
        remove, ring_at, state, submit_create, warm, with_three,
    },
};

const LONG_AGO: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 7 };

fn begin(node: &Node, open: OpenRef, (at, end): (u64, u64)) -> Option<(NewObject, PathBuf)> {
    let new = ring_at(node, SESSION).begin_object(open, (at, end))?;
    Some((new, object_of_promised(node, open)))
}

/// As a process does it: the object has the content of the record, and these bytes.
fn make_object(node: &Node, (new, place): &(NewObject, PathBuf), bytes: &[u8]) {
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    let object = std::fs::File::options().write(true).create_new(true).open(place).unwrap();
    let before = ring_at(node, SESSION).content_before(*new);
    object.write_all_at(before, 0).unwrap();
    object.write_all_at(bytes, before.len() as u64).unwrap();
}

/// All of it.
fn write_object(node: &Node, open: OpenRef, before: u64, bytes: &[u8]) -> bool {
    let Some(new) = begin(node, open, (before, before + bytes.len() as u64)) else { return false };
    make_object(node, &new, bytes);
    ring_at(node, SESSION).finish_object(new.0)
}

/// Objects there are.
fn objects(node: &Node) -> usize {
    let directories = std::fs::read_dir(&node.objects).unwrap();
    let count = |directory: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_dir(directory.unwrap().path()).unwrap().count()
    };
    directories.map(count).sum()
}

fn content(node: &mut Node, path: &str) -> Vec<u8> {
    let (open, _) = node.open(path, O_RDWR).unwrap();
    let bytes = node.read_direct(open, 0, 1 << 20).unwrap();
    node.close(open);
    bytes
}

fn check_sound(node: &mut Node) {
    node.settle_down();
    let named = node.core().counters().objects;
    assert_eq!(objects(node) as u64, named, "objects that a record names");
}

#[test]
fn a_file_that_outgrows_its_record_and_is_closed_is_made_with_its_object() {
    let mut node = node();
    let used = node.core().counters().used_bytes;
    let open = submit_create(&node, "d/f").unwrap();
    assert!(add(&node, open, b"some"));
    assert!(write_object(&node, open, 4, &[7; 9000]) && ring_at(&node, SESSION).withdraw(open));
    let attr = node.stat("d/f", false).unwrap();
    assert_eq!((attr.size_bytes, attr.blocks), (9004, 24));
    assert_eq!(content(&mut node, "d/f"), [&b"some"[..], &[7; 9000]].concat());
    let counters = node.core().counters();
    assert_eq!((counters.objects, counters.open_files), (1, 0));
    assert!(counters.used_bytes >= used + 9004);
    check_sound(&mut node);
    node.unlink("d/f", false).unwrap();
    check_sound(&mut node);
    assert_eq!(objects(&node), 0);
}

#[test]
fn one_that_is_still_open_may_be_written_by_its_process_as_far_as_it_was_told() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]));
    let end = ring_at(&node, SESSION).object_end(open).unwrap();
    let object =
        std::fs::File::options().write(true).open(object_of_promised(&node, open)).unwrap();
    object.write_all_at(&[8; 1000], 9000).unwrap();
    assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 10_000, "as the object says");
    assert_eq!(ring_at(&node, SESSION).object_end(open), None, "its entry tells it now");
    assert_eq!(state(&node, open), OPEN_PRIVATE);
    let file = node.region.opens[open.index as usize].file.load(Relaxed);
    let entry = &node.region.files[file as usize];
    assert_eq!(entry.allowance_end.load(Relaxed), end);
    assert_ne!(entry.flags.load(Relaxed) & FILE_OBJECT, 0);
    object.write_all_at(&[9; 1000], 10_000).unwrap();
    node.close(open);
    assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 11_000);
    check_sound(&mut node);
}

#[test]
fn what_is_set_aside_for_an_open_file_is_given_back_when_it_is_closed() {
    let mut node = node();
    let before = node.core().counters().used_bytes;
    let open = submit_create(&node, "d/f").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]));
    let end = ring_at(&node, SESSION).object_end(open).unwrap();
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(node.core().counters().used_bytes >= before + end);
    node.close(open);
    node.unlink("d/f", false).unwrap();
    node.settle_down();
    assert!(node.core().counters().used_bytes < before + 9000);
}

#[test]
fn a_record_that_is_executed_while_the_object_is_made_makes_the_file_without_it() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(add(&node, open, b"some"));
    let new = begin(&node, open, (4, 9000)).unwrap();
    assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 4);
    // Late, since the thread was stopped.
    make_object(&node, &new, &[7; 9000]);
    assert!(!ring_at(&node, SESSION).finish_object(new.0));
    let path = node.grant(open, GRANT_READ | GRANT_WRITE | GRANT_OBJECT, 9004).unwrap();
    assert!(!new.1.ends_with(&path), "{path} is what nobody writes late");
    assert_eq!(node.read_direct(open, 0, 100).unwrap(), b"some");
    node.close(open);
    // The process was killed before it has removed it.
    node.core().session_closed(SESSION);
    node.sessions.retain(|(session, _)| *session != SESSION);
    node.ask_as(OTHER, &Ping {}, |()| ()).unwrap();
    check_sound(&mut node);
}

#[test]
fn of_objects_that_were_begun_one_after_the_other_none_stays() {
    let mut node = node();
    for number in 0..5 {
        let open = submit_create(&node, &format!("d/f{number}")).unwrap();
        let new = begin(&node, open, (0, 9000)).unwrap();
        make_object(&node, &new, &[7; 9000]);
        node.ask(&Ping {}, |()| ()).unwrap();
        assert!(!ring_at(&node, SESSION).finish_object(new.0));
    }
    node.settle_down();
    assert_eq!(objects(&node), 1, "the last one may be about to be made");
    node.restart();
    node.settle_down();
    assert_eq!(objects(&node), 0);
}

#[test]
fn a_process_that_is_killed_before_it_says_that_the_object_is_filled_leaves_its_record() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(add(&node, open, b"some"));
    let new = begin(&node, open, (4, 9000)).unwrap();
    make_object(&node, &new, &[7; 9000]);
    node.core().session_closed(SESSION);
    node.sessions.retain(|(session, _)| *session != SESSION);
    assert_eq!(node.ask_as(OTHER, &Ping {}, |()| ()), Ok(()));
    check_sound(&mut node);
    assert_eq!(objects(&node), 0);
}

/// At every moment: before the record is executed, after that and before the commit, after it.
#[test]
fn a_daemon_that_dies_loses_nothing_that_was_written_to_an_object() {
    for executed in [false, true] {
        for closed in [false, true] {
            let mut node = node();
            let open = submit_create(&node, "d/f").unwrap();
            assert!(write_object(&node, open, 0, &[7; 9000]));
            if closed {
                assert!(ring_at(&node, SESSION).withdraw(open));
            }
            if executed {
                node.ask(&Ping {}, |()| ()).unwrap();
            }
            node.restart();
            assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 9000, "{executed} {closed}");
            if !closed {
                assert_eq!(node.write(open, 9000, b"more").unwrap(), 9004);
                node.close(open);
            }
            check_sound(&mut node);
            node.restart();
            check_sound(&mut node);
            assert_eq!(objects(&node), 1);
        }
    }
}

/// The shared memory is gone with all that waited in it, as when the supervisor is killed, too.
#[test]
fn objects_of_files_that_were_never_made_go_at_the_next_start() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]));
    let begun = submit_create(&node, "d/begun").unwrap();
    make_object(&node, &begin(&node, begun, (0, 9000)).unwrap(), &[7; 9000]);
    assert_eq!(objects(&node), 2);
    node.region = support::region();
    node.sessions.retain(|(session, _)| *session == OTHER);
    node.restart();
    node.settle_down();
    assert_eq!(objects(&node), 0);
    assert_eq!(node.core().counters().objects, 0);
}

#[test]
fn attributes_and_a_name_that_were_changed_with_it_are_the_files() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/temporary").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]));
    let changes =
        Changes { which: SET_MODE | SET_MTIME, mode: 0o751, mtime: LONG_AGO, ..Changes::default() };
    assert!(change_as(&node, SESSION, "d/temporary", &changes).is_some());
    assert!(ring_at(&node, SESSION).withdraw(open));
    assert!(move_as(&node, SESSION, ("d/temporary", "d/f"), false));
    let attr = node.stat("d/f", false).unwrap();
    assert_eq!((attr.size_bytes, attr.mode, attr.mtime), (9000, 0o751, LONG_AGO));
    let (open, _) = node.open("d/f", O_RDWR).unwrap();
    node.grant(open, GRANT_READ | GRANT_WRITE, 9000).unwrap();
    node.close(open);
    assert_eq!(node.stat("d/f", false).unwrap().mtime, LONG_AGO, "nobody has written");
    check_sound(&mut node);
}

#[test]
fn times_that_are_set_while_it_is_open_stay_when_it_is_closed() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]));
    let changes = Changes { which: SET_MTIME, mtime: LONG_AGO, ..Changes::default() };
    assert!(change_as(&node, SESSION, "d/f", &changes).is_some());
    assert_eq!(node.stat("d/f", false).unwrap().mtime, LONG_AGO);
    node.close(open);
    assert_eq!(node.stat("d/f", false).unwrap().mtime, LONG_AGO);
}

#[test]
fn a_write_behind_a_change_of_times_has_its_own_time() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]));
    let times = SET_MTIME | SET_ATIME;
    let changes = Changes { which: times, atime: LONG_AGO, mtime: LONG_AGO, ..Changes::default() };
    assert!(change_as(&node, SESSION, "d/f", &changes).is_some());
    assert_eq!(ring_at(&node, SESSION).object_end(open), None, "more is asked for");
    assert_eq!(node.write(open, 9000, b"y").unwrap(), 9001);
    node.close(open);
    let attr = node.stat("d/f", false).unwrap();
    assert!(attr.mtime > LONG_AGO && attr.atime == LONG_AGO, "{attr:?}");
}

#[test]
fn a_file_that_is_removed_before_it_is_made_takes_its_object_along() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]));
    assert!(remove(&node, "d/f"));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(node.fstat(open).unwrap().size_bytes, 9000, "it is open");
    node.close(open);
    check_sound(&mut node);
    assert_eq!(objects(&node), 0);
}

#[test]
fn a_process_that_says_what_is_not_so_harms_its_file_alone() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    let (new, _) = begin(&node, open, (0, 9000)).unwrap();
    assert!(ring_at(&node, SESSION).finish_object(new));
    let after = submit_create(&node, "d/g").unwrap();
    assert!(add(&node, after, b"some"));
    assert_eq!(node.stat("d/g", false).unwrap().size_bytes, 4);
    node.close(open);
    node.unlink("d/f", false).unwrap();
    check_sound(&mut node);
}

#[test]
fn where_little_is_free_objects_are_asked_for_and_all_of_it_can_be_written() {
    let mut node = with_three(Node::memory(Config { capacity_bytes: 24 << 20, ..config() }));
    mkdir_as(&mut node, OTHER, "d");
    warm(&mut node, "d");
    let offered = ring_at(&node, SESSION).object_bytes.load(Relaxed);
    assert!(offered > 0 && u64::from(offered) * RECORDS as u64 <= 12 << 20, "{offered}");
    let (open, _) = make_as(&mut node, OTHER, "d/large").unwrap();
    let path = node.grant(open, GRANT_READ | GRANT_WRITE | GRANT_OBJECT, 20 << 20).unwrap();
    assert!(!path.is_empty(), "there is room for it");
    assert_eq!(ring_at(&node, SESSION).object_bytes.load(Relaxed), 0);
}

#[test]
fn where_objects_are_waited_for_a_closed_file_is_settled_when_nobody_waits() {
    let mut node = node().slowed();
    warm(&mut node, "d");
    let open = submit_create(&node, "d/f").unwrap();
    assert!(write_object(&node, open, 0, &[7; 9000]) && ring_at(&node, SESSION).withdraw(open));
    assert_eq!(node.ask(&Ping {}, |()| ()), Ok(()));
    while node.run_job(0, 0) {}
    let attr = node.stat("d/f", false).unwrap();
    assert_eq!(attr.size_bytes, 9000);
    node.unlink("d/f", false).unwrap();
    while node.run_job(0, 0) {}
    assert_eq!(objects(&node), 0);
}

/// The start of the next daemon used to fail on it, for everybody.
#[test]
fn who_says_that_he_has_made_an_object_and_has_not_harms_that_file_alone() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    let (new, _) = begin(&node, open, (0, 9000)).unwrap();
    assert!(ring_at(&node, SESSION).finish_object(new));
    node.ask(&Ping {}, |()| ()).unwrap();
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    for number in 0..2 {
        node.restart();
        let path = format!("d/other{number}");
        make_as(&mut node, OTHER, &path).unwrap();
        node.settle_down();
        assert!(node.stat(&path, false).is_ok() && node.stat("d/f", false).is_err());
    }
    node.unlink("d/f", false).unwrap();
    check_sound(&mut node);
}
