//! Attributes that are changed without asking.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use mayfly_transport_shm::{
    layout::OPEN_PRIVATE,
    submission_ring::{Changes, RECORDS, Submission},
};
use mayfly_types::{Attr, Errno, OpenRef, Timestamp};
use mayfly_wire::{
    Ping, SET_ATIME, SET_GID, SET_MODE, SET_MTIME, SET_MTIME_NOW, SET_SIZE, SET_UID, SetAttr,
    Target,
};
use support::{
    Node, SESSION, failed, set,
    submitting::{
        OTHER, add, change_as, change_open_as, make_file_as, node_on_disk, remove, ring_at, state,
        submit_create, warm_as,
    },
    walk,
};

const LONG_AGO: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 7 };

fn mode(mode: u32) -> Changes {
    Changes { which: SET_MODE, mode, ..Changes::default() }
}

fn owner(uid: u32, gid: u32) -> Changes {
    Changes { which: SET_UID | SET_GID, uid, gid, ..Changes::default() }
}

fn modified(mtime: Timestamp) -> Changes {
    Changes { which: SET_MTIME, mtime, ..Changes::default() }
}

fn change(node: &Node, path: &str, changes: &Changes) -> Option<Submission> {
    change_as(node, SESSION, path, changes)
}

fn change_open(node: &Node, open: OpenRef, changes: &Changes) -> Option<Submission> {
    change_open_as(node, SESSION, open, changes)
}

/// What attributes tell, but the time of the change.
fn told(attr: &Attr) -> (u32, u32, u32, Timestamp, Timestamp) {
    (attr.mode, attr.uid, attr.gid, attr.atime, attr.mtime)
}

#[test]
fn attributes_go_with_the_record_that_makes_the_file() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/f").unwrap();
    assert!(add(&node, open, b"text"));
    for changes in [modified(LONG_AGO), owner(5, 6), mode(0o751)] {
        assert_eq!(change_open(&node, open, &changes), Some(Submission::Joined));
    }
    assert!(!add(&node, open, b"more"), "its time would be that of the change");
    assert!(ring_at(&node, SESSION).withdraw(open));
    let both = Changes { which: SET_ATIME, atime: LONG_AGO, ..Changes::default() };
    assert_eq!(change(&node, "d/f", &both), Some(Submission::Joined), "it is closed");
    assert_eq!(ring_at(&node, SESSION).waiting(), 1);
    let attr = node.stat("d/f", false).unwrap();
    assert_eq!(told(&attr), (0o751, 5, 6, LONG_AGO, LONG_AGO));
    assert_eq!((attr.size_bytes, attr.links), (4, 1));
    assert_eq!(node.core().counters().open_files, 0);
}

/// `rsync` sets the mode before it writes. What is written is the later change.
#[test]
fn what_is_written_after_owner_and_mode_goes_with_the_same_record() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/f").unwrap();
    assert_eq!(change_open(&node, open, &mode(0o751)), Some(Submission::Joined));
    assert!(add(&node, open, b"text"));
    assert_eq!(change_open(&node, open, &owner(5, 6)), Some(Submission::Record), "bits go");
    assert!(!add(&node, open, b"more"), "it would count before the change of the owner");
    assert!(ring_at(&node, SESSION).withdraw(open));
    let owned = submit_create(&node, "d/g").unwrap();
    assert_eq!(change_open(&node, owned, &owner(5, 6)), Some(Submission::Joined));
    assert_eq!(change_open(&node, owned, &mode(0o751)), Some(Submission::Joined));
    assert!(add(&node, owned, b"te") && add(&node, owned, b"xt"));
    assert!(ring_at(&node, SESSION).withdraw(owned));
    assert_eq!(ring_at(&node, SESSION).waiting(), 3);
    for path in ["d/f", "d/g"] {
        let attr = node.stat(path, false).unwrap();
        assert_eq!((attr.mode, attr.uid, attr.gid, attr.size_bytes), (0o751, 5, 6, 4), "{path}");
    }
    let attr = node.stat("d/g", false).unwrap();
    assert!(attr.ctime >= attr.mtime, "{attr:?}");
}

#[test]
fn attributes_of_a_file_that_is_there_take_a_record() {
    let mut node = node_on_disk();
    make_file_as(&mut node, OTHER, "d/f");
    let before = node.stat("d/f", false).unwrap();
    assert_eq!(change(&node, "d/f", &mode(0o700)), Some(Submission::Record));
    assert_eq!(change(&node, "d/f", &modified(LONG_AGO)), Some(Submission::Joined));
    assert_eq!(change(&node, "d/none", &mode(0o700)), None);
    assert_eq!(ring_at(&node, SESSION).waiting(), 1);
    let attr = node.stat("d/f", false).unwrap();
    assert_eq!(told(&attr), (0o700, before.uid, before.gid, before.atime, LONG_AGO));
    assert_eq!(attr.id, before.id);
    assert_eq!(node.region.head.submitted.load(SeqCst), 0);
}

#[test]
fn what_is_not_certain_is_asked_for() {
    let mut node = node_on_disk();
    node.mkdir("d/directory").unwrap();
    make_file_as(&mut node, OTHER, "d/f");
    node.link("d/f", "d/g").unwrap();
    for path in ["d/directory", "d/f", "d/g"] {
        assert_eq!(change(&node, path, &mode(0o700)), None, "{path}");
    }
    let cut = Changes { which: SET_SIZE, ..Changes::default() };
    assert!(submit_create(&node, "d/new").is_some());
    assert_eq!(change(&node, "d/new", &cut), None);
}

/// All that may be changed, two of them after another, by submitting and by asking.
#[test]
fn two_changes_count_in_the_order_in_which_they_were_submitted() {
    let now = Changes { which: SET_MTIME | SET_MTIME_NOW, ..Changes::default() };
    let later = Timestamp { seconds: 2_000_000_000, nanoseconds: 0 };
    let all = [mode(0o6755), mode(0o600), owner(8, 9), modified(LONG_AGO), modified(later), now];
    let mut node = node_on_disk();
    for (number, (first, second)) in
        all.iter().flat_map(|first| all.iter().map(move |second| (first, second))).enumerate()
    {
        let paths = ["made", "there", "asked"].map(|name| format!("d/{name}{number}"));
        for path in &paths[1..] {
            make_file_as(&mut node, OTHER, path);
        }
        let set = SetAttr { mode: 0o640, uid: 3, gid: 4, ..set() };
        for path in &paths[1..] {
            let target = Target::Path(walk(path, 0));
            node.set_attr(target, SET_MODE | SET_UID | SET_GID, set).unwrap();
        }
        let open = submit_create(&node, &paths[0]).unwrap();
        assert!(change_open(&node, open, first).is_some());
        assert!(ring_at(&node, SESSION).withdraw(open));
        assert!(change(&node, &paths[0], second).is_some(), "{first:?} {second:?}");
        for changes in [first, second] {
            assert!(change(&node, &paths[1], changes).is_some());
            let Changes { which, mode, uid, gid, atime, mtime, .. } = *changes;
            let set = SetAttr { mode, uid, gid, atime, mtime, ..set };
            // Whoever asks has the ring executed.
            let target = Target::Path(walk(&paths[2], 0));
            assert!(ring_at(&node, SESSION).waiting() > 0 || changes == second);
            node.set_attr(target, which, set).unwrap();
        }
        let attrs = paths.map(|path| node.stat(&path, false).unwrap());
        let modes = attrs.map(|attr| (attr.mode & 0o7777, attr.uid, attr.gid));
        assert_eq!([modes[0], modes[1]], [modes[2]; 2], "{first:?} {second:?}");
        let is_now = |time: Timestamp| time != LONG_AGO && time != later;
        let times = attrs.map(|attr| (is_now(attr.mtime), attr.mtime.seconds));
        for time in &times[..2] {
            assert_eq!(time.0, times[2].0, "{first:?} {second:?}");
            assert!(time.0 || time.1 == times[2].1, "{first:?} {second:?}");
        }
    }
}

#[test]
fn a_description_that_is_made_knows_its_file_as_long_as_that_has_its_name() {
    let mut node = node_on_disk();
    let open = submit_create(&node, "d/f").unwrap();
    node.ask(&Ping {}, |()| ()).unwrap();
    assert_eq!(state(&node, open), OPEN_PRIVATE);
    assert_eq!(change_open(&node, open, &mode(0o711)), Some(Submission::Record));
    assert_eq!(change_open(&node, open, &modified(LONG_AGO)), Some(Submission::Joined));
    let attr = node.fstat(open).unwrap();
    assert_eq!((attr.mode & 0o7777, attr.mtime), (0o711, LONG_AGO));
    // Another file of that name.
    node.unlink("d/f", false).unwrap();
    make_file_as(&mut node, OTHER, "d/f");
    assert_eq!(change_open(&node, open, &mode(0o722)), None);
    assert_eq!(node.fstat(open).unwrap().mode & 0o7777, 0o711);
    // The same, and something waits about the other one.
    assert!(change(&node, "d/f", &mode(0o733)).is_some());
    assert_eq!(change_open(&node, open, &mode(0o722)), None);
    assert_eq!(node.stat("d/f", false).unwrap().mode & 0o7777, 0o733);
    node.close(open);
}

#[test]
fn a_name_that_another_process_changes_is_asked_for() {
    let mut node = node_on_disk();
    make_file_as(&mut node, SESSION, "d/f");
    warm_as(&mut node, OTHER, "d");
    assert!(change(&node, "d/f", &mode(0o700)).is_some());
    assert_eq!(change_as(&node, OTHER, "d/f", &mode(0o711)), None);
    assert!(remove(&node, "d/f"), "who has changed it may remove it");
    assert_eq!(change(&node, "d/f", &mode(0o722)), None);
    assert_eq!(failed(node.stat("d/f", false)), Errno::ENOENT);
}

#[test]
fn a_restart_executes_a_change_that_is_not_committed_and_no_other() {
    let mut node = node_on_disk();
    make_file_as(&mut node, SESSION, "d/f");
    let open = submit_create(&node, "d/new").unwrap();
    assert!(change_open(&node, open, &mode(0o711)).is_some());
    assert!(ring_at(&node, SESSION).withdraw(open));
    assert!(change(&node, "d/f", &mode(0o711)).is_some());
    // Executed, and not committed.
    let mut body = vec![0; 4096];
    let caller = node.next_caller(SESSION);
    node.submit(caller, &Ping {}, &mut body);
    node.restart();
    for path in ["d/f", "d/new"] {
        assert_eq!(node.stat(path, false).unwrap().mode & 0o7777, 0o711, "{path}");
        let set = SetAttr { mode: 0o600, ..set() };
        node.set_attr(Target::Path(walk(path, 0)), SET_MODE, set).unwrap();
    }
    node.restart();
    for path in ["d/f", "d/new"] {
        assert_eq!(node.stat(path, false).unwrap().mode & 0o7777, 0o600, "{path}");
    }
    assert_eq!(node.core().counters().open_files, 0);
}

#[test]
fn a_change_that_means_nothing_does_nothing() {
    let mut node = node_on_disk();
    node.mkdir("d/directory").unwrap();
    let before = node.stat("d/directory", false).unwrap();
    make_file_as(&mut node, SESSION, "d/f");
    assert!(change(&node, "d/f", &mode(0o711)).is_some());
    let ring = ring_at(&node, SESSION);
    let at = ring.count() as usize - 1;
    // What a process that is wrong might write there.
    let record = &ring.records[at % RECORDS];
    let path = u64::from_le_bytes(*b"director");
    record.path[0].store(path, Relaxed);
    record.path[1].store(u64::from(b'y'), Relaxed);
    record.path_bytes.store(9, Relaxed);
    assert_eq!(node.stat("d/directory", false).unwrap(), before);
    assert_eq!(node.region.head.submitted.load(SeqCst), 0);
}
