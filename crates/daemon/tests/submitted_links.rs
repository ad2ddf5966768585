//! Second names that files get without asking.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_transport_shm::submission_ring::{Changes, Submission};
use mayfly_types::Errno;
use mayfly_wire::{Ping, SET_MODE};
use support::{
    Node, SESSION, failed,
    submitting::{
        OTHER, change_as, link_as, made, make_file_as, move_as, node_on_disk, remove, remove_as,
        submit_create, submit_directory_as, symlink_as, text, warm_as,
    },
};

fn links(node: &Node, from: &str, to: &str) -> bool {
    link_as(node, SESSION, (from, to))
}

/// How `git` gives an object its name.
#[test]
fn a_temporary_file_gets_its_name_by_a_link() {
    let mut node = node_on_disk();
    assert!(submit_directory_as(&node, SESSION, "d/76"));
    made(&node, "d/76/tmp", b"object");
    assert!(links(&node, "d/76/tmp", "d/76/name") && remove(&node, "d/76/tmp"));
    assert_eq!(text(&mut node, "d/76/name"), b"object");
    assert_eq!(node.stat("d/76/name", false).unwrap().links, 1);
    assert_eq!(failed(node.stat("d/76/tmp", false)), Errno::ENOENT);
    assert_eq!(node.core().counters().files, 8 + 1);
    // It has one name again, so it may be submitted about.
    let mode = Changes { which: SET_MODE, mode: 0o444, ..Changes::default() };
    assert_eq!(change_as(&node, SESSION, "d/76/name", &mode), Some(Submission::Record));
    assert!(links(&node, "d/76/name", "d/other"), "into another directory");
    assert_eq!(node.stat("d/other", false).unwrap().mode & 0o7777, 0o444);
    assert_eq!(node.stat("d/76/name", false).unwrap().links, 2);
}

#[test]
fn both_names_are_of_the_same_file_and_its_description() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(links(&node, "d/f", "d/g"));
    let ids = ["d/f", "d/g"].map(|path| node.stat(path, false).unwrap().id);
    assert_eq!(ids, [node.fstat(open).unwrap().id; 2]);
    node.write(open, 0, b"text").unwrap();
    assert!(remove(&node, "d/f"), "there is another one");
    assert_eq!(text(&mut node, "d/g"), b"text");
    assert_eq!(node.fstat(open).unwrap().links, 1);
    assert!(remove(&node, "d/g"));
    assert_eq!(node.fstat(open).unwrap().links, 0);
    node.close(open);
    assert_eq!(node.core().counters().files, 8);
}

#[test]
fn of_a_file_with_two_names_the_rest_is_asked_for() {
    let mut node = node_on_disk();
    make_file_as(&mut node, OTHER, "d/f");
    assert!(links(&node, "d/f", "d/g"));
    for executed in [false, true] {
        let mode = Changes { which: SET_MODE, mode: 0o711, ..Changes::default() };
        for name in ["d/f", "d/g"] {
            assert_eq!(change_as(&node, SESSION, name, &mode), None, "{name}, {executed}");
            assert!(!links(&node, name, "d/h"), "{name}, {executed}");
        }
        assert!(!move_as(&node, SESSION, ("d/f", "d/g"), false), "both would stay");
        node.ask(&Ping {}, |()| ()).unwrap();
    }
    node.rename("d/f", "d/g", 0).unwrap();
    assert_eq!(node.stat("d/f", false).unwrap().links, 2);
}

#[test]
fn what_is_not_certain_is_asked_for() {
    let mut node = node_on_disk();
    warm_as(&mut node, OTHER, "d");
    made(&node, "d/f", b"");
    made(&node, "d/there", b"");
    assert!(submit_directory_as(&node, SESSION, "d/new"));
    assert!(symlink_as(&node, SESSION, "d/symlink", "f"));
    for (from, to) in [
        ("d/f", "d/f"),
        ("d/f", "d/there"),
        ("d/f", "d/new"),
        ("d/f", "e"),
        ("d/none", "d/g"),
        ("d/new", "d/g"),
        ("d/symlink", "d/g"),
    ] {
        assert!(!links(&node, from, to), "{from} to {to}");
    }
    assert!(!link_as(&node, OTHER, ("d/f", "d/g")), "another one has claimed it");
    assert!(links(&node, "d/f", "d/g"), "the claims were given up");
    assert!(!link_as(&node, OTHER, ("d/warm1", "d/g")));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(link_as(&node, OTHER, ("d/there", "d/h")) && remove_as(&node, OTHER, "d/f"));
    assert_eq!(["d/g", "d/h"].map(|path| node.stat(path, false).unwrap().links), [1, 2]);
}

#[test]
fn a_restart_does_what_was_not_committed_and_nothing_twice() {
    let mut node = node_on_disk();
    made(&node, "d/tmp", b"object");
    assert!(links(&node, "d/tmp", "d/name") && remove(&node, "d/tmp"));
    // Executed, and not committed.
    let mut body = vec![0; 4096];
    let caller = node.next_caller(SESSION);
    node.submit(caller, &Ping {}, &mut body);
    node.restart();
    for _ in 0..2 {
        assert_eq!(text(&mut node, "d/name"), b"object");
        assert_eq!(node.stat("d/name", false).unwrap().links, 1);
        assert_eq!(failed(node.stat("d/tmp", false)), Errno::ENOENT);
        node.restart();
    }
    assert_eq!(node.core().counters().files, 8 + 1);
}
