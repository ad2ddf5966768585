//! Directories that are made and removed without asking.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use mayfly_transport_shm::submission_ring::{RECORD_REMOVES_DIRECTORY, ring_of};
use mayfly_types::{Errno, FileKind};
use mayfly_wire::{MakeDirectory, Ping, SET_MODE, SetAttr, Target};
use support::{
    Answer, Node, O_CREAT, SESSION, failed, set,
    submitting::{
        OTHER, mkdir_as, node, node_of_three, remove, remove_directory_as, ring_at, submit_create,
        submit_directory_as, warm, warm_as,
    },
    walk,
};

fn make(node: &Node, path: &str) -> bool {
    submit_directory_as(node, SESSION, path)
}

fn remove_directory(node: &Node, path: &str) -> bool {
    remove_directory_as(node, SESSION, path)
}

#[test]
fn a_directory_that_was_submitted_is_there_for_the_next_request() {
    let mut node = node();
    let mode = SetAttr { mode: 0o2755, ..set() };
    let parent = node.set_attr(Target::Path(walk("d", 0)), SET_MODE, mode).unwrap();
    let (files, directories) = (node.core().counters().files, node.core().counters().directories);
    assert!(make(&node, "d/new") && make(&node, "d/next") && !make(&node, "d/new"));
    let attr = node.stat("d/new", false).unwrap();
    assert_eq!((attr.kind, attr.mode & 0o7777), (FileKind::Directory, 0o3750), "the group's bit");
    assert_eq!((attr.uid, attr.gid, attr.links), (3, parent.gid, 2));
    assert_eq!(node.stat("d", false).unwrap().links, 4);
    assert_eq!(node.core().counters().directories, directories + 2);
    assert_eq!(node.core().counters().files, files);
    assert_eq!(failed(node.mkdir("d/new")), Errno::EEXIST);
    assert!(remove_directory(&node, "d/next") && !remove(&node, "d/new"));
    assert_eq!(failed(node.stat("d/next", false)), Errno::ENOENT);
    assert_eq!(node.stat("d", false).unwrap().links, 3);
    warm(&mut node, "d/new");
    assert!(submit_create(&node, "d/new/f").is_some(), "it may be delegated itself");
    assert_eq!(node.core().counters().open_files, 0);
}

/// Who has made eight directories in a row in a directory need not ask for the next one.
#[test]
fn a_directory_is_delegated_to_who_makes_directories_in_it() {
    let mut node = node_of_three();
    mkdir_as(&mut node, OTHER, "e");
    for number in 0..8 {
        assert!(!make(&node, &format!("e/n{number}")));
        node.mkdir(&format!("e/n{number}")).unwrap();
    }
    assert!(make(&node, "e/n8") && submit_create(&node, "e/f").is_some());
    assert_eq!(node.stat("e", false).unwrap().links, 11);
}

type Way = fn(&mut Node, &str) -> Answer<()>;

/// The ways in which a directory comes to have an entry.
const WAYS: [(&str, Way); 6] = [
    ("open", |node, path| {
        let (open, _) = node.open(path, O_CREAT)?;
        node.close(open);
        Ok(())
    }),
    ("mkdir", |node, path| node.mkdir(path)),
    ("symlink", |node, path| node.symlink("anything", path)),
    ("link", |node, path| node.link("source", path)),
    ("rename", |node, path| node.rename("source", path, 0)),
    ("rename of a directory", |node, path| node.rename("directory", path, 0)),
];

/// A node with what is linked and moved, and the directory `d/new`, of which the process that has
/// it delegated knows that nothing is in it.
fn with_new() -> Node {
    let mut node = node();
    let (source, _) = node.open("source", O_CREAT).unwrap();
    node.close(source);
    node.mkdir("directory").unwrap();
    warm(&mut node, "d");
    assert!(make(&node, "d/new"));
    node.ask(&Ping {}, |()| ()).unwrap();
    node
}

#[test]
fn a_directory_in_which_something_was_made_is_not_removed_unasked() {
    for (way, make_there) in WAYS {
        let mut node = with_new();
        make_there(&mut node, "d/new/inside").expect(way);
        assert!(!remove_directory(&node, "d/new"), "{way}");
        assert_eq!(failed(node.unlink("d/new", true)), Errno::ENOTEMPTY, "{way}");
        node.stat("d/new/inside", false).expect(way);
    }
}

/// The removal is submitted when a request to make something there was taken up already.
#[test]
fn what_would_be_made_in_a_directory_whose_removal_was_submitted_is_not() {
    for (way, make_there) in WAYS {
        let mut node = with_new();
        assert!(remove_directory(&node, "d/new"), "{way}");
        node.region.head.submitted.store(0, SeqCst);
        assert_eq!(failed(make_there(&mut node, "d/new/inside")), Errno::ENOENT, "{way}");
        assert_eq!(failed(node.stat("d/new", false)), Errno::ENOENT, "{way}");
        node.stat("source", false).expect("it was not moved");
    }
}

/// Both are executed before either is committed, so that the claim on the name is still there.
#[test]
fn something_made_in_the_batch_that_makes_the_directory_keeps_it() {
    let mut node = node();
    assert!(make(&node, "d/new"));
    let inside = MakeDirectory { walk: walk("d/new/inside", 0), mode: 0o755, uid: 0, gid: 0 };
    let caller = node.next_caller(OTHER);
    node.submit(caller, &inside, &mut [0; 4096]);
    assert!(!remove_directory(&node, "d/new"), "before the commit");
    node.core().commit().unwrap();
    assert!(!remove_directory(&node, "d/new"), "and after it");
    node.stat("d/new/inside", false).unwrap();
}

#[test]
fn a_directory_that_another_one_removes_is_not_removed_twice() {
    let mut node = with_new();
    assert!(remove_directory(&node, "d/new"));
    node.region.head.submitted.store(0, SeqCst);
    assert_eq!(failed(node.unlink("d/new", true)), Errno::ENOENT);
}

#[test]
fn directories_are_made_and_removed_once_across_restarts() {
    let mut node = node();
    let directories = node.core().counters().directories;
    assert!(make(&node, "d/kept") && make(&node, "d/gone") && remove_directory(&node, "d/gone"));
    // Executed, and not committed.
    let caller = node.next_caller(SESSION);
    node.submit(caller, &Ping {}, &mut [0; 4096]);
    node.restart();
    assert_eq!(node.stat("d/kept", false).unwrap().links, 2);
    assert_eq!(failed(node.stat("d/gone", false)), Errno::ENOENT);
    assert_eq!(node.core().counters().directories, directories + 1);
    warm(&mut node, "d");
    assert!(make(&node, "d/gone"), "its name is free");
    assert!(remove_directory(&node, "d/kept") && make(&node, "d/kept"), "nothing is in it");
    node.restart();
    assert_eq!(node.stat("d", false).unwrap().links, 4);
}

/// A process that says what it does not know.
#[test]
fn a_record_that_removes_a_directory_in_use_comes_to_nothing() {
    for delegated in [false, true] {
        let mut node = node();
        node.mkdir("d/full").unwrap();
        if delegated {
            warm_as(&mut node, OTHER, "d/full");
        } else {
            node.mkdir("d/full/inside").unwrap();
        }
        warm(&mut node, "d");
        assert!(remove(&node, "d/warm0"));
        let submissions = ring_at(&node, SESSION);
        let record =
            &submissions.records[(submissions.count() as usize - 1) % submissions.records.len()];
        record.path_bytes.store(4, Relaxed);
        record.path[0].store(u64::from_le_bytes(*b"full\0\0\0\0"), Relaxed);
        record.state.store(RECORD_REMOVES_DIRECTORY, Relaxed);
        node.region.head.submitted.fetch_or(1 << ring_of(SESSION.0), SeqCst);
        node.ask(&Ping {}, |()| ()).unwrap();
        node.stat("d/full", false).expect("nothing has come of it");
        assert_eq!(failed(node.unlink("d/full", true)), Errno::ENOTEMPTY);
    }
}
