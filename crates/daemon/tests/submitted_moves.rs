//! Names that are moved without asking.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

use mayfly_transport_shm::{
    layout::{OPEN_FREE, OPEN_PRIVATE},
    submission_ring::{Changes, RECORDS, Submission},
};
use mayfly_types::Errno;
use mayfly_wire::{Ping, SET_MODE};
use support::{
    Node, SESSION, failed,
    submitting::{
        OTHER, change_as, made, make_file_as, mkdir_as, move_as, node_on_disk, remove,
        remove_directory_as, ring_at, state, submit_create, submit_directory_as, text, warm_as,
    },
};

fn moves(node: &Node, from: &str, to: &str) -> bool {
    move_as(node, SESSION, (from, to), false)
}

#[test]
fn a_temporary_file_takes_the_place_of_another_one() {
    let mut node = node_on_disk();
    make_file_as(&mut node, OTHER, "d/f");
    let files = node.core().counters().files;
    made(&node, "d/.f.tmp", b"new");
    assert!(moves(&node, "d/.f.tmp", "d/f"));
    assert_eq!(text(&mut node, "d/f"), b"new");
    assert_eq!(failed(node.stat("d/.f.tmp", false)), Errno::ENOENT);
    assert_eq!(node.core().counters().files, files);
    // The file is where it is now for whoever goes on, and its old name is free.
    made(&node, "d/.f.tmp", b"newer");
    assert!(moves(&node, "d/.f.tmp", "d/f") && remove(&node, "d/f"));
    assert_eq!(failed(node.stat("d/f", false)), Errno::ENOENT);
    assert_eq!(node.core().counters().files, files - 1);
    assert_eq!(node.region.head.submitted.load(SeqCst), 0);
}

#[test]
fn a_file_that_is_there_is_moved_and_its_description_goes_along() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/f").unwrap();
    node.ask(&Ping {}, |()| ()).unwrap();
    make_file_as(&mut node, OTHER, "d/target");
    assert!(moves(&node, "d/f", "d/target"), "it has no other name");
    let (id, links) = node.stat("d/target", false).map(|attr| (attr.id, attr.links)).unwrap();
    assert_eq!((id, links), (node.fstat(open).unwrap().id, 1));
    assert_eq!(state(&node, open), OPEN_PRIVATE);
    node.write(open, 0, b"more").unwrap();
    assert_eq!(text(&mut node, "d/target"), b"more");
    // It has a record of its own by now.
    let mode = Changes { which: SET_MODE, mode: 0o711, ..Changes::default() };
    assert_eq!(change_as(&node, SESSION, "d/target", &mode), Some(Submission::Record));
    assert_eq!(node.stat("d/target", false).unwrap().mode & 0o7777, 0o711);
    node.close(open);
    assert_eq!(state(&node, open), OPEN_FREE);
    let fsck = node.core().counters().open_files;
    assert_eq!(fsck, 0);
}

#[test]
fn two_names_of_one_file_are_asked_for() {
    let mut node = node_on_disk();
    make_file_as(&mut node, SESSION, "d/f");
    node.link("d/f", "d/g").unwrap();
    assert!(!moves(&node, "d/f", "d/g"), "both would stay");
    assert!(moves(&node, "d/f", "d/h"), "to a name that is not there");
    assert_eq!(node.stat("d/h", false).unwrap().links, 2);
    assert_eq!(failed(node.stat("d/f", false)), Errno::ENOENT);
    node.rename("d/h", "d/g", 0).unwrap();
    assert_eq!(node.stat("d/h", false).unwrap().links, 2);
}

#[test]
fn what_is_not_certain_is_asked_for() {
    let mut node = node_on_disk();
    mkdir_as(&mut node, OTHER, "d/directory");
    mkdir_as(&mut node, OTHER, "e");
    made(&node, "d/f", b"");
    assert!(submit_directory_as(&node, SESSION, "d/new"));
    for (from, to) in [
        ("d/f", "d/f"),
        ("d/f", "d/directory"),
        ("d/f", "d/new"),
        ("d/f", "e/f"),
        ("d/f", "d/directory/f"),
        ("d/none", "d/g"),
        ("d/directory", "d/g"),
        ("d/new", "d/g"),
    ] {
        assert!(!moves(&node, from, to), "{from} to {to}");
    }
    made(&node, "d/g", b"");
    assert!(!move_as(&node, SESSION, ("d/f", "d/g"), true), "it is there");
    assert!(moves(&node, "d/f", "d/g"));
    assert!(!moves(&node, "d/f", "d/h"), "it is gone");
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(node.core().counters().files, 8 + 1);
}

#[test]
fn a_move_within_a_directory_inside_is_submitted() {
    let mut node = node_on_disk();
    assert!(submit_directory_as(&node, SESSION, "d/new"));
    made(&node, "d/new/.f", b"text");
    assert!(moves(&node, "d/new/.f", "d/new/f"));
    assert_eq!(text(&mut node, "d/new/f"), b"text");
    assert!(remove(&node, "d/new/f"));
    assert_eq!(failed(node.stat("d/new/f", false)), Errno::ENOENT);
    assert_eq!(node.stat("d/new", false).unwrap().links, 2);
    node.unlink("d/new", true).unwrap();
}

#[test]
fn a_name_that_another_process_has_claimed_is_asked_for() {
    let mut node = node_on_disk();
    warm_as(&mut node, OTHER, "d");
    make_file_as(&mut node, SESSION, "d/g");
    made(&node, "d/f", b"");
    assert!(!move_as(&node, OTHER, ("d/f", "d/h"), false));
    assert!(!move_as(&node, OTHER, ("d/g", "d/f"), false));
    assert!(moves(&node, "d/f", "d/h"), "the claim was given up");
    assert!(move_as(&node, OTHER, ("d/g", "d/i"), false));
    for (path, is_there) in [("d/f", false), ("d/g", false), ("d/h", true), ("d/i", true)] {
        assert_eq!(node.stat(path, false).is_ok(), is_there, "{path}");
    }
}

#[test]
fn a_name_moves_between_directories_of_what_is_delegated() {
    let mut node = node_on_disk();
    for directory in ["d/new", "d/old"] {
        assert!(submit_directory_as(&node, SESSION, directory));
    }
    made(&node, "d/old/f", b"text");
    made(&node, "d/new/f", b"older");
    let files = 8 + 1;
    assert!(moves(&node, "d/old/f", "d/new/f"));
    assert_eq!(text(&mut node, "d/new/f"), b"text");
    assert_eq!(failed(node.stat("d/old/f", false)), Errno::ENOENT);
    assert_eq!(node.core().counters().files, files);
    // What is there, up and down again, to a name that is there.
    assert!(moves(&node, "d/new/f", "d/f"));
    made(&node, "d/old/f", b"older");
    assert!(!moves(&node, "d/f", "d/old/f"), "nothing tells what waits there");
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(moves(&node, "d/f", "d/old/f"));
    assert_eq!(text(&mut node, "d/old/f"), b"text");
    assert_eq!(node.core().counters().files, files);
    assert!(remove(&node, "d/old/f"));
    assert_eq!(failed(node.stat("d/old/f", false)), Errno::ENOENT);
    for directory in ["d/new", "d/old"] {
        node.unlink(directory, true).unwrap();
    }
    assert_eq!(node.stat("d", false).unwrap().links, 2);
}

#[test]
fn a_file_that_is_there_moves_to_another_directory_with_its_description() {
    let mut node = node_on_disk();
    assert!(submit_directory_as(&node, SESSION, "d/new"));
    let open = submit_create(&node, "d/f").unwrap();
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(moves(&node, "d/f", "d/new/f"));
    node.write(open, 0, b"more").unwrap();
    assert_eq!(text(&mut node, "d/new/f"), b"more");
    node.restart();
    assert_eq!(node.fstat(open).unwrap().links, 1);
    node.unlink("d/new/f", false).unwrap();
    assert_eq!(node.fstat(open).unwrap().links, 0);
    node.close(open);
    assert_eq!(state(&node, open), OPEN_FREE);
}

#[test]
fn nobody_removes_a_directory_to_which_a_name_moves() {
    let mut node = node_on_disk();
    warm_as(&mut node, OTHER, "d");
    assert!(submit_directory_as(&node, SESSION, "d/new"));
    node.ask(&Ping {}, |()| ()).unwrap();
    made(&node, "d/f", b"");
    assert!(moves(&node, "d/f", "d/new/f"));
    assert!(!remove_directory_as(&node, OTHER, "d/new"), "something is in it");
    assert_eq!(failed(node.unlink("d/new", true)), Errno::ENOTEMPTY);
    assert!(remove(&node, "d/new/f"));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(remove_directory_as(&node, OTHER, "d/new"), "it is empty again");
}

/// The two records of a move may be executed, and committed, one without the other.
#[test]
fn a_move_that_is_executed_in_two_parts_is_done_once() {
    let mut node = node_on_disk();
    for number in 0..RECORDS / 4 - 1 {
        made(&node, &format!("d/before{number}"), b"");
    }
    made(&node, "d/g", b"old");
    node.ask(&Ping {}, |()| ()).unwrap();
    for number in 0..RECORDS / 4 - 2 {
        made(&node, &format!("d/f{number}"), b"");
    }
    made(&node, "d/f", b"new");
    assert!(moves(&node, "d/f", "d/g"));
    made(&node, "d/last", b"");
    node.region.head.rings.ripe.store(node.region.head.submitted.load(SeqCst), SeqCst);
    // A quarter of the ring: up to the first record of the two.
    node.core().idle_work();
    node.core().commit().unwrap();
    let ring = ring_at(&node, SESSION);
    assert_eq!(ring.waiting(), 2, "the second one and the last file");
    assert!(!moves(&node, "d/g", "d/f") || ring.waiting() == 4);
    node.restart();
    let last = ring.executed.load(Relaxed);
    assert_eq!(ring.count(), last);
    let is_back = node.stat("d/f", false).is_ok();
    let path = if is_back { "d/f" } else { "d/g" };
    assert_eq!(text(&mut node, path), b"new");
    assert_eq!(node.core().counters().files as usize, 8 + 2 * (RECORDS / 4 - 1) + 1);
}

#[test]
fn a_restart_does_what_was_not_committed_and_nothing_twice() {
    let mut node = node_on_disk();
    made(&node, "d/f", b"new");
    assert!(moves(&node, "d/f", "d/g"));
    // Executed, and not committed.
    let mut body = vec![0; 4096];
    let caller = node.next_caller(SESSION);
    node.submit(caller, &Ping {}, &mut body);
    node.restart();
    assert_eq!(text(&mut node, "d/g"), b"new");
    make_file_as(&mut node, SESSION, "d/f");
    node.restart();
    assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 0);
    assert_eq!(text(&mut node, "d/g"), b"new");
    assert_eq!(node.core().counters().files, 8 + 2);
}
