//! Directories of many names are submitted to: their tables grow, and are filled, a part at a time.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mayfly_wire::{Ping, Unlink};
use support::{
    Node, SESSION,
    submitting::{
        OTHER, THIRD, make_as, node, remove, remove_as, ring_at, submit_create, submit_create_as,
        warm_as,
    },
    walk,
};

/// Makes so many files in `d`, most of which nobody waits for; how many were asked for.
fn make_many(node: &mut Node, files: u64) -> u64 {
    let mut asked = 0;
    for number in 0..files {
        let path = format!("d/{number}");
        if let Some(open) = submit_create(node, &path) {
            assert!(ring_at(node, SESSION).withdraw(open));
        } else {
            asked += 1;
            let (open, created) = make_as(node, SESSION, &path).unwrap();
            assert!(created);
            node.close(open);
        }
        if number % 50 == 49 {
            node.ask(&Ping {}, |()| ()).unwrap();
        }
    }
    asked
}

#[test]
fn a_directory_of_many_names_is_still_submitted_to() {
    const FILES: u64 = 120_000;
    let mut node = node();
    let asked = make_many(&mut node, FILES);
    assert!(asked < 20, "{asked}");
    assert_eq!(node.core().counters().files, FILES + 8);
    for number in (0..FILES).step_by(9999) {
        assert!(submit_create(&node, &format!("d/{number}")).is_none());
        assert!(remove(&node, &format!("d/{number}")));
    }
}

/// Somebody else makes, removes and moves names meanwhile, before and behind what was read.
#[test]
fn a_directory_of_many_names_is_read_in_turns_and_delegated_then() {
    const FILES: u64 = 20_000;
    let mut node = node();
    make_many(&mut node, FILES);
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    let (mut removed, mut changed) = (0, 0);
    while !remove_as(&node, OTHER, &format!("d/{removed}")) {
        let path = format!("d/{removed}");
        let unlink = Unlink { walk: walk(&path, 0), directory: false };
        node.ask_as(OTHER, &unlink, |()| ()).unwrap();
        removed += 1;
        if removed % 3 == 0 {
            let (last, to) = (FILES - 1 - changed, format!("d/moved{changed}"));
            node.rename(&format!("d/{last}"), &to, 0).unwrap();
            make_as(&mut node, THIRD, &format!("d/{last}")).unwrap();
            node.unlink(&format!("d/{}", 10_000 + changed), false).unwrap();
            changed += 1;
        }
        assert!(removed <= FILES / 32 + 16, "as many requests as are worth it");
    }
    assert!(removed > 200, "not all at once: {removed}");
    for at in 0..changed {
        assert!(submit_create_as(&node, OTHER, &format!("d/moved{at}")).is_none());
        assert!(submit_create_as(&node, OTHER, &format!("d/{}", FILES - 1 - at)).is_none());
        assert!(!remove_as(&node, OTHER, &format!("d/{}", 10_000 + at)));
    }
    node.ask(&Ping {}, |()| ()).unwrap();
    let mut left = 0;
    for number in 0..FILES {
        left += u64::from(remove_as(&node, OTHER, &format!("d/{number}")));
        if number % 50 == 0 {
            node.ask(&Ping {}, |()| ()).unwrap();
        }
    }
    assert_eq!(left, FILES - removed - 1 - changed);
}

#[test]
fn a_directory_that_nobody_wants_any_more_is_not_read_to_its_end() {
    let mut node = node();
    make_many(&mut node, 2000);
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    node.mkdir("e").unwrap();
    for round in 0..20 {
        warm_as(&mut node, OTHER, "d");
        assert!(submit_create_as(&node, OTHER, "d/new").is_none(), "it was begun {round} times");
        make_as(&mut node, OTHER, &format!("e/{round}")).unwrap();
    }
}

#[test]
fn a_table_of_nonsense_has_names_asked_for() {
    let mut node = node();
    let words = (&raw const node.region.name_tables).cast::<AtomicU64>();
    let first = size_of_val(&node.region.name_tables) / 8 - (64 << 20) / 8;
    let mut asked = 0;
    for number in 0..500 {
        for at in 0..if number % 100 == 0 { 4096 } else { 0 } {
            // SAFETY: the first of the segments, which stand at the end.
            unsafe { (*words.add(first + at)).store(u64::MAX << 2 | 2, Relaxed) };
        }
        let path = format!("d/{number}");
        if let Some(open) = submit_create(&node, &path) {
            assert!(ring_at(&node, SESSION).withdraw(open));
            continue;
        }
        asked += 1;
        let (open, created) = make_as(&mut node, THIRD, &path).unwrap();
        assert!(created);
        node.close(open);
    }
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(node.core().counters().files, 500 + 8);
    assert!(asked > 50, "{asked}");
}
