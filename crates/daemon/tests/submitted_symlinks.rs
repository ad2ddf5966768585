//! Symbolic links that are made without asking.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_types::{FileKind, limits::SYMLINK_BYTES_MAX};
use support::{
    SESSION,
    submitting::{
        OTHER, add, make_file_as, mkdir_as, move_as, node, node_on_disk, remove, submit_create,
        submit_directory_as, symlink_as,
    },
};

#[test]
fn a_link_says_what_it_was_made_with_and_leads_there() {
    let mut node = node();
    assert!(symlink_as(&node, SESSION, "d/l", "f"));
    assert!(!symlink_as(&node, SESSION, "d/l", "g"), "there is one");
    let open = submit_create(&node, "d/f").unwrap();
    assert!(add(&node, open, b"text"));
    assert_eq!(node.read_link("d/l").unwrap(), b"f");
    let attr = node.stat("d/l", false).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.uid, attr.gid), (FileKind::Symlink, 0o777, 3, 4));
    assert_eq!((attr.size_bytes, attr.links), (1, 1));
    assert_eq!(node.stat("d/l", true).unwrap().size_bytes, 4);
}

/// A program that made 300 of them asked for each.
#[test]
fn who_has_made_links_in_a_row_makes_the_next_ones_without_asking() {
    let mut node = node();
    mkdir_as(&mut node, OTHER, "links");
    let mut asked = 0;
    while !symlink_as(&node, SESSION, &format!("links/l{asked}"), "there") {
        node.symlink("there", &format!("links/l{asked}")).unwrap();
        asked += 1;
        assert!(asked <= 8, "it is delegated then");
    }
    assert!(asked > 0 && symlink_as(&node, SESSION, "links/next", "there"));
    assert_eq!(node.read_link("links/next").unwrap(), b"there");
}

#[test]
fn links_of_every_length_are_whole() {
    let mut node = node();
    for bytes in [1, 7, 8, 9, 255, SYMLINK_BYTES_MAX] {
        let target = "t".repeat(bytes);
        assert!(symlink_as(&node, SESSION, &format!("d/l{bytes}"), &target));
        assert_eq!(node.read_link(&format!("d/l{bytes}")).unwrap(), target.as_bytes());
    }
    let long = "t".repeat(SYMLINK_BYTES_MAX + 1);
    assert!(!symlink_as(&node, SESSION, "d/long", &long) && !symlink_as(&node, SESSION, "d/x", ""));
}

#[test]
fn a_link_is_moved_and_removed_without_asking_as_a_file_is() {
    let mut node = node_on_disk();
    assert!(symlink_as(&node, SESSION, "d/l", "one") && remove(&node, "d/l"));
    assert!(symlink_as(&node, SESSION, "d/l", "other"));
    assert!(move_as(&node, SESSION, ("d/l", "d/m"), true));
    assert_eq!(node.read_link("d/m").unwrap(), b"other");
    node.stat("d/l", false).unwrap_err();
    make_file_as(&mut node, OTHER, "d/f");
    assert!(!move_as(&node, SESSION, ("d/m", "d/f"), false), "it may have other names");
}

#[test]
fn links_to_directories_inside_lead_there() {
    let mut node = node();
    assert!(submit_directory_as(&node, SESSION, "d/in"));
    assert!(symlink_as(&node, SESSION, "d/in/l", "../in"));
    assert!(symlink_as(&node, SESSION, "d/way", "in"));
    assert_eq!(node.stat("d/way/l/l", true).unwrap().kind, FileKind::Directory);
    mkdir_as(&mut node, OTHER, "d/way/there");
    assert_eq!(node.stat("d/in/there", false).unwrap().kind, FileKind::Directory);
}

#[test]
fn a_daemon_that_dies_makes_each_link_once() {
    let mut node = node();
    for number in 0..40 {
        assert!(symlink_as(&node, SESSION, &format!("d/l{number}"), &format!("to {number}")));
    }
    let files = node.core().counters().files;
    node.restart();
    for number in 0..40 {
        let says = node.read_link(&format!("d/l{number}")).unwrap();
        assert_eq!(says, format!("to {number}").as_bytes());
    }
    assert_eq!(node.core().counters().files, files + 40);
}
