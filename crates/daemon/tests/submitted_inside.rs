//! What is made and removed without asking in directories inside a delegated one.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use mayfly_daemon::{Caller, Progress};
use mayfly_transport_shm::submission_ring::{RECORD_REMOVES, RECORD_REMOVES_DIRECTORY, ring_of};
use mayfly_types::{Errno, SessionId};
use mayfly_wire::{Open, Ping, Unlink};
use support::{
    Node, O_CREAT, O_RDWR, SESSION, failed,
    submitting::{
        OTHER, THIRD, add, make_file_as, mkdir_as, node, node_of_three, remove,
        remove_directory_as, ring_at, submit_create, submit_create_as, submit_directory_as, warm,
        warm_as,
    },
    walk,
};

fn make(node: &Node, path: &str) -> bool {
    submit_directory_as(node, SESSION, path)
}

fn remove_directory(node: &Node, path: &str) -> bool {
    remove_directory_as(node, SESSION, path)
}

/// Submits a file and closes it; false when it has to be asked for.
fn touch(node: &Node, path: &str) -> bool {
    submit_create(node, path).is_some_and(|open| ring_at(node, SESSION).withdraw(open))
}

/// What was submitted is executed, and not committed.
fn execute(node: &mut Node) {
    let caller = node.next_caller(THIRD);
    node.submit(caller, &Ping {}, &mut [0; 4096]);
}

/// A node with a directory `d` that is delegated, and in it `d/a`, which was submitted and is
/// committed.
fn with_inner() -> Node {
    let mut node = node();
    assert!(make(&node, "d/a"));
    node.ask(&Ping {}, |()| ()).unwrap();
    node
}

#[test]
fn a_tree_is_submitted_and_all_of_it_is_there_for_the_next_request() {
    let mut node = node();
    let files = node.core().counters().files;
    assert!(make(&node, "d/a") && make(&node, "d/a/b") && make(&node, "d/b"));
    let open = submit_create(&node, "d/a/b/f").unwrap();
    assert!(add(&node, open, b"text") && touch(&node, "d/a/g") && touch(&node, "d/b/g"));
    assert!(submit_create(&node, "d/a/g").is_none() && !make(&node, "d/a/b"), "they are there");
    assert!(submit_create(&node, "d/a/b/f/x").is_none(), "no directory");
    assert!(submit_create(&node, "d/c/f").is_none(), "not there");
    assert_eq!(node.stat("d/a/b/f", false).unwrap().size_bytes, 4);
    node.write(open, 4, b" and more").unwrap();
    node.close(open);
    let links = |node: &mut Node, path: &str| node.stat(path, false).unwrap().links;
    assert_eq!(["d", "d/a", "d/a/b"].map(|path| links(&mut node, path)), [4, 3, 2]);
    assert_eq!(node.core().counters().files, files + 3);
    for path in ["d/a", "d/a/b", "d/b"] {
        assert!(!remove_directory(&node, path), "something is in {path}");
    }
    assert!(remove(&node, "d/a/b/f") && remove(&node, "d/a/g") && touch(&node, "d/a/g"));
    node.unlink("d/a/b", true).expect("it is empty");
    assert_eq!(failed(node.unlink("d/a", true)), Errno::ENOTEMPTY);
    assert_eq!(node.core().counters().files, files + 2);
}

#[test]
fn who_makes_a_file_in_a_directory_that_he_has_made_has_the_one_above_delegated() {
    let mut node = node_of_three();
    mkdir_as(&mut node, THIRD, "t");
    mkdir_as(&mut node, SESSION, "t/a");
    make_file_as(&mut node, SESSION, "t/a/f");
    assert!(touch(&node, "t/a/g") && make(&node, "t/b") && touch(&node, "t/b/f"));
    assert!(submit_create(&node, "t/a/f").is_none(), "it is there");
    assert!(remove(&node, "t/a/f"));
    assert_eq!(failed(node.stat("t/a/f", false)), Errno::ENOENT);
}

#[test]
fn names_that_were_in_directories_inside_are_known() {
    let mut node = node_of_three();
    for directory in ["d", "d/old", "d/old/er", "d/many"] {
        mkdir_as(&mut node, THIRD, directory);
    }
    make_file_as(&mut node, THIRD, "d/old/er/f");
    for number in 0..100 {
        make_file_as(&mut node, THIRD, &format!("d/many/f{number}"));
    }
    node.restart();
    warm(&mut node, "d");
    assert!(touch(&node, "d/old/new") && touch(&node, "d/old/er/new"));
    assert!(submit_create(&node, "d/old/er/f").is_none() && remove(&node, "d/old/er/f"));
    assert!(!remove_directory(&node, "d/old/er"));
    assert!(submit_create(&node, "d/many/new").is_none(), "to read them takes too long");
    node.stat("d/old/er/new", false).unwrap();
}

#[test]
fn what_another_one_asks_for_inside_is_known() {
    let mut node = with_inner();
    make_file_as(&mut node, OTHER, "d/a/theirs");
    mkdir_as(&mut node, OTHER, "d/a/directory");
    assert!(
        submit_create(&node, "d/a/theirs").is_none()
            && submit_create(&node, "d/a/directory").is_none()
    );
    assert!(!remove_directory(&node, "d/a"), "something was made in it");
    assert!(remove(&node, "d/a/theirs") && touch(&node, "d/a/theirs"));
    node.unlink("d/a/theirs", false).unwrap();
    assert!(touch(&node, "d/a/theirs") && touch(&node, "d/a/mine"));
    assert!(submit_create(&node, "d/a/directory/f").is_none(), "nobody has looked into it");
    make_file_as(&mut node, SESSION, "d/a/directory/f");
    assert!(touch(&node, "d/a/directory/g") && remove(&node, "d/a/directory/f"));
    node.rename("d/a/mine", "d/a/directory/mine", 0).unwrap();
    assert!(submit_create(&node, "d/a/directory/mine").is_none() && touch(&node, "d/a/mine"));
    node.stat("d/a/mine", false).unwrap();
}

/// As with `rm -r` of a tree whose files are gone.
#[test]
fn a_directory_that_a_commit_leaves_empty_is_removed_without_asking() {
    let mut node = node();
    warm_as(&mut node, OTHER, "d");
    assert!(make(&node, "d/a") && make(&node, "d/a/b") && touch(&node, "d/a/b/f"));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(remove(&node, "d/a/b/f") && !remove_directory(&node, "d/a/b"), "it waits");
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(remove_directory_as(&node, OTHER, "d/a/b") && !remove_directory(&node, "d/a"));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(touch(&node, "d/a/f") && !remove_directory(&node, "d/a"), "it is used again");
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(!remove_directory(&node, "d/a"));
    assert!(remove(&node, "d/a/f") && touch(&node, "d/other") && touch(&node, "d/a/f"));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(!remove_directory(&node, "d/a"), "it was empty in between");
    node.unlink("d/a/f", false).unwrap();
    assert!(remove_directory(&node, "d/a") && make(&node, "d/a"), "asked or not");
    assert_eq!(node.stat("d/a", false).unwrap().links, 2);
}

/// A file is submitted in a directory when the batch that empties it was executed, and not
/// committed.
#[test]
fn a_directory_in_which_something_was_submitted_meanwhile_is_not_removed_without_asking() {
    for other in [false, true] {
        let mut node = node();
        warm_as(&mut node, OTHER, "d");
        assert!(make(&node, "d/a") && touch(&node, "d/a/f"));
        node.ask(&Ping {}, |()| ()).unwrap();
        assert!(remove(&node, "d/a/f"));
        execute(&mut node);
        let submitter = if other { OTHER } else { SESSION };
        let open = submit_create_as(&node, submitter, "d/a/late").unwrap();
        assert!(ring_at(&node, submitter).withdraw(open));
        node.core().commit().unwrap();
        assert!(!remove_directory(&node, "d/a") && !remove_directory_as(&node, OTHER, "d/a"));
        assert_eq!(failed(node.unlink("d/a", true)), Errno::ENOTEMPTY);
        node.stat("d/a/late", false).unwrap();
    }
}

/// A process that meets the directory between the making of it and the commit asks.
#[test]
fn what_was_submitted_in_a_directory_whose_making_waits_is_executed_behind_it() {
    let mut node = node();
    warm_as(&mut node, OTHER, "d");
    assert!(make(&node, "d/a") && touch(&node, "d/a/f"));
    assert!(submit_create_as(&node, OTHER, "d/a/g").is_none(), "it may come first");
    assert!(!remove_directory(&node, "d/a") && !remove_directory_as(&node, OTHER, "d/a"));
    make_file_as(&mut node, OTHER, "d/a/g");
    assert!(
        submit_create_as(&node, OTHER, "d/a/h").is_some()
            && submit_create(&node, "d/a/h").is_none()
    );
    let number = |node: &mut Node| {
        ["f", "g", "h"].map(|name| node.stat(&format!("d/a/{name}"), false).is_ok())
    };
    assert_eq!(number(&mut node), [true; 3]);
}

#[test]
fn a_directory_that_was_not_removed_is_submitted_in_from_the_commit_on() {
    let mut node = with_inner();
    assert!(touch(&node, "d/a/f"));
    let unlink = Unlink { walk: walk("d/a", 0), directory: true };
    let (caller, mut answer) = (node.next_caller(OTHER), [0; 4096]);
    node.submit(caller, &unlink, &mut answer);
    assert!(submit_create(&node, "d/a/g").is_none(), "not yet");
    // What changes meanwhile is noted.
    let open =
        Open { walk: walk("d/a/new", 0), flags: O_CREAT | O_RDWR, mode: 0o644, uid: 0, gid: 0 };
    let caller = Caller { lane: 1, ..node.next_caller(OTHER) };
    node.submit(caller, &open, &mut answer);
    let unlink = Unlink { walk: walk("d/a/f", 0), directory: false };
    let caller = Caller { lane: 2, ..node.next_caller(OTHER) };
    node.submit(caller, &unlink, &mut answer);
    node.core().commit().unwrap();
    assert!(
        submit_create(&node, "d/a/new").is_none() && touch(&node, "d/a/f") && touch(&node, "d/a/g")
    );
    assert!(remove(&node, "d/a/new"));
    assert_eq!(failed(node.stat("d/a/new", false)), Errno::ENOENT);
    node.stat("d/a/f", false).unwrap();
}

#[test]
fn another_directory_of_the_same_path_has_names_of_its_own() {
    for submitted in [true, false] {
        let mut node = with_inner();
        assert!(touch(&node, "d/a/f"));
        assert!(remove(&node, "d/a/f"));
        node.unlink("d/a", true).unwrap();
        assert!(submit_create(&node, "d/a/f").is_none(), "it is gone");
        if submitted {
            assert!(make(&node, "d/a"));
        } else {
            mkdir_as(&mut node, OTHER, "d/a");
            make_file_as(&mut node, OTHER, "d/a/g");
            make_file_as(&mut node, SESSION, "d/a/h");
            node.unlink("d/a/h", false).unwrap();
        }
        assert!(touch(&node, "d/a/f"));
        assert_eq!(submit_create(&node, "d/a/g").is_some(), submitted);
        node.stat("d/a/f", false).unwrap();
        node.unlink("d/a/f", false).unwrap();
        node.unlink("d/a/g", false).unwrap();
        node.unlink("d/a", true).unwrap();
        assert!(touch(&node, "d/a"), "a file may have its name");
        assert!(submit_create(&node, "d/a/f").is_none());
        node.stat("d/a", false).unwrap();
    }
}

#[test]
fn a_directory_that_is_moved_takes_its_names_along() {
    let mut node = with_inner();
    assert!(touch(&node, "d/a/f"));
    node.rename("d/a", "d/z", 0).unwrap();
    assert!(submit_create(&node, "d/a/f").is_none() && submit_create(&node, "d/z/f").is_none());
    warm(&mut node, "d");
    assert!(submit_create(&node, "d/a/f").is_none(), "there is no such directory");
    assert!(submit_create(&node, "d/z/f").is_none() && touch(&node, "d/z/g"));
    assert!(make(&node, "d/a") && touch(&node, "d/a/f") && remove(&node, "d/z/f"));
    assert_eq!(failed(node.stat("d/z/f", false)), Errno::ENOENT);
    node.stat("d/a/f", false).unwrap();
}

/// A name is in one table only: who comes by the same spelling has that delegated, and with another
/// one this ends it.
#[test]
fn several_submit_in_a_directory_inside_where_their_paths_lead_by_the_same_one() {
    let mut node = with_inner();
    warm_as(&mut node, OTHER, "d/a");
    assert!(submit_create_as(&node, OTHER, "d/a/theirs").is_some() && touch(&node, "d/a/mine"));
    assert!(
        submit_create(&node, "d/a/theirs").is_none()
            && submit_create_as(&node, OTHER, "d/a/mine").is_none()
    );
    assert!(touch(&node, "d/mine"), "there, too");
    warm_as(&mut node, OTHER, "d/a/.");
    assert!(submit_create_as(&node, OTHER, "d/a/./more").is_some());
    assert!(submit_create(&node, "d/a/g").is_none() && submit_create(&node, "d/g").is_none());
    warm(&mut node, "d");
    assert!(touch(&node, "d/g") && submit_create(&node, "d/a/g").is_none());
    make_file_as(&mut node, SESSION, "d/a/g");
    assert!(submit_create_as(&node, OTHER, "d/a/./g").is_none());
    for name in ["theirs", "mine", "more", "g"] {
        node.stat(&format!("d/a/{name}"), false).unwrap();
    }
}

/// A path of a record may lead through many directories.
#[test]
fn what_another_one_makes_far_inside_is_known() {
    let mut node = node();
    let mut path = "d".to_owned();
    let mut depth = 0;
    while make(&node, &(path.clone() + "/x")) {
        path.push_str("/x");
        depth += 1;
        node.ask(&Ping {}, |()| ()).unwrap();
    }
    assert_eq!(depth, 128, "as many as a record's path can name");
    let last_but_one = path.strip_suffix("/x").unwrap();
    assert!(remove_directory(&node, &path) && touch(&node, &path));
    make_file_as(&mut node, OTHER, &format!("{last_but_one}/y"));
    assert!(submit_create(&node, &format!("{last_but_one}/y")).is_none());
    assert!(remove(&node, &format!("{last_but_one}/y")) && remove(&node, &path));
    assert!(!remove_directory(&node, last_but_one));
    node.unlink(last_but_one, true).unwrap();
}

#[test]
fn a_tree_is_there_once_after_a_daemon_that_died_before_the_commit() {
    let mut node = node();
    let counters = |node: &mut Node| {
        let counters = node.core().counters();
        (counters.files, counters.directories)
    };
    let (files, directories) = counters(&mut node);
    for _ in 0..2 {
        assert!(make(&node, "d/a") && make(&node, "d/a/b") && touch(&node, "d/a/b/f"));
        assert!(touch(&node, "d/a/g") && remove(&node, "d/a/g"));
        execute(&mut node);
        assert!(touch(&node, "d/a/b/late"));
        node.restart();
        assert_eq!(counters(&mut node), (files + 2, directories + 2));
        node.stat("d/a/b/late", false).unwrap();
        warm(&mut node, "d");
        assert!(submit_create(&node, "d/a/b/f").is_none() && remove(&node, "d/a/b/f"));
        node.unlink("d/a/b/late", false).unwrap();
        for directory in ["d/a/b", "d/a"] {
            node.unlink(directory, true).unwrap();
        }
        for number in 0..8 {
            node.unlink(&format!("d/warm{}", files + 2 + number), false).unwrap();
        }
        assert_eq!(counters(&mut node), (files, directories));
    }
}

/// A process that writes what it likes.
#[test]
fn a_record_with_a_path_that_is_none_comes_to_nothing() {
    let paths = ["../d/a", "a/../warm0", "a//f", "/a", "a/", "warm0/f", "none/f", "a/f/", "a"];
    for path in paths {
        for state in [RECORD_REMOVES, RECORD_REMOVES_DIRECTORY] {
            let mut node = with_inner();
            assert!(touch(&node, "d/a/f") && remove(&node, "d/warm1"));
            let submissions = ring_at(&node, SESSION);
            let record = &submissions.records
                [(submissions.count() as usize - 1) % submissions.records.len()];
            record.path_bytes.store(path.len() as u32, Relaxed);
            for (to, bytes) in record.path.iter().zip(path.as_bytes().chunks(8)) {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                to.store(u64::from_le_bytes(word), Relaxed);
            }
            record.state.store(state, Relaxed);
            node.region.head.submitted.fetch_or(1 << ring_of(SESSION.0), SeqCst);
            for path in ["d/a/f", "d/warm0", "d/warm1", "d/a"] {
                node.stat(path, false).expect("nothing has come of it");
            }
        }
    }
}

/// Asks for the removal of a directory or file without ending the batch; whether it was removed.
fn removes(node: &mut Node, path: &str, directory: bool) -> bool {
    let caller = node.next_caller(THIRD);
    let done = node.submit(caller, &Unlink { walk: walk(path, 0), directory }, &mut [0; 4096]);
    matches!(done, Progress::Replied(0, _))
}

/// The same of the making of a file, which stays open.
fn makes(node: &mut Node, session: SessionId, path: &str) {
    let caller = node.next_caller(session);
    let open = Open { walk: walk(path, 0), flags: O_CREAT | O_RDWR, mode: 0o644, uid: 0, gid: 0 };
    let done = node.submit(caller, &open, &mut [0; 4096]);
    assert!(matches!(done, Progress::Replied(0, _)), "{path}: {done:?}");
}

/// A directory was taken back and delegated again in one batch. At the commit its new table was
/// told what had been waiting for the one before: that `d/a`, whose removal had failed, was
/// covered, though nobody had looked into it, and that a file was gone which had come again. So
/// both names were made a second time.
#[test]
fn a_table_is_not_told_what_waited_for_the_one_before_it() {
    let mut node = with_inner();
    assert!(touch(&node, "d/a/f") && touch(&node, "d/f"));
    node.ask(&Ping {}, |()| ()).unwrap();
    assert!(!removes(&mut node, "d/a", true) && removes(&mut node, "d/f", false));
    assert!(!removes(&mut node, "d", true), "it has names, and is nobody's now");
    makes(&mut node, THIRD, "d/f");
    for file in 0..8 {
        makes(&mut node, SESSION, &format!("d/again{file}"));
    }
    node.core().commit().unwrap();
    assert!(touch(&node, "d/g"), "it is delegated");
    assert!(
        submit_create(&node, "d/f").is_none() && submit_create(&node, "d/a/f").is_none(),
        "they are there"
    );
}
