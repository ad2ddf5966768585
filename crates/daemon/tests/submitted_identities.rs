//! Files that were told by the process that submits them, before they are made.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_daemon::Clock as _;
use mayfly_transport_shm::submission_ring::{Changes, RECORDS};
use mayfly_types::{FileId, OpenRef};
use mayfly_wire::{Ping, SET_MODE, SET_MTIME, SET_UID};
use support::{
    Node, SESSION,
    submitting::{
        OTHER, add, change_open_as, look_at_name_as, make_as, move_as, node, ring_at,
        submit_create, submit_create_as, warm_as,
    },
};

/// The file that a promised description will be of.
fn promised_file(node: &Node, open: OpenRef) -> FileId {
    FileId(node.region.opens[open.index as usize].id.load(Relaxed))
}

#[test]
fn a_file_has_the_identity_that_was_promised_and_the_time_of_the_look_at_it() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    let id = promised_file(&node, open);
    node.stat("d", false).unwrap();
    let other = submit_create(&node, "d/g").unwrap();
    let look = node.clock.now();
    let told = ring_at(&node, SESSION).look(other, look, |_, _| true).unwrap();
    assert_eq!((told.mode, told.uid, told.gid, told.bytes), (0o640, 3, 4, 0));
    let id_of_other = promised_file(&node, other);
    assert_ne!(id, id_of_other);
    assert_eq!(node.stat("d/f", false).unwrap().id, id);
    let attr = node.stat("d/g", false).unwrap();
    assert_eq!((attr.id, attr.mtime, attr.ctime, attr.btime), (id_of_other, look, look, look));
    let (asked, _) = make_as(&mut node, SESSION, "d/asked").unwrap();
    let asked = node.fstat(asked).unwrap().id;
    assert!(![id, id_of_other].contains(&asked));
}

/// What `rsync` looks at, which has set the mode, written and closed.
#[test]
fn a_file_that_was_closed_is_looked_at_by_its_name() {
    let mut node = node();
    let open = submit_create(&node, "d/f").unwrap();
    let changes = Changes { which: SET_MODE, mode: 0o751, ..Changes::default() };
    assert!(change_open_as(&node, SESSION, open, &changes).is_some());
    assert!(add(&node, open, b"text"));
    let (id, look) = (promised_file(&node, open), node.clock.now());
    let told = |path: &str, session| look_at_name_as(&node, session, path, look);
    assert_eq!(told("d/none", SESSION), None);
    assert_eq!(told("d/f", OTHER), None, "it is somebody else's");
    assert!(ring_at(&node, SESSION).withdraw(open));
    let (file, time, looked) = told("d/f", SESSION).unwrap();
    assert_eq!((file, time), (id, look));
    assert_eq!((looked.mode, looked.uid, looked.gid, looked.bytes), (0o751, 3, 4, 4));
    assert_eq!(told("d/f", SESSION), None, "its time is told");
    let attr = node.stat("d/f", false).unwrap();
    assert_eq!((attr.id, attr.mode & 0o7777, attr.size_bytes), (id, 0o751, 4));
    assert_eq!([attr.atime, attr.mtime, attr.ctime, attr.btime], [look; 4]);
    // Times that were set, bits that go with the owner, and what is not the file's name any more.
    for (path, which) in [("d/times", SET_MTIME), ("d/owner", SET_UID), ("d/moved", SET_MODE)] {
        let open = submit_create(&node, path).unwrap();
        let bits = Changes { which, mode: 0o4751, uid: 5, ..Changes::default() };
        assert!(change_open_as(&node, SESSION, open, &bits).is_some());
        let told = |path: &str| look_at_name_as(&node, SESSION, path, look);
        match which {
            SET_MTIME => assert_eq!(told(path), None),
            SET_UID => assert_eq!(told(path).map(|(.., looked)| looked.uid), Some(5)),
            _ => {
                assert!(move_as(&node, SESSION, (path, "d/there"), true));
                assert_eq!((told(path), told("d/there")), (None, None));
            }
        }
    }
}

/// The daemon dies before it has noted that it promised them.
#[test]
fn identities_that_were_promised_are_kept_through_a_restart_and_given_to_nobody_else() {
    let mut node = node();
    warm_as(&mut node, OTHER, "d");
    for number in 0..RECORDS / 2 {
        submit_create_as(&node, OTHER, &format!("d/before{number}")).unwrap();
    }
    node.ask(&Ping {}, |()| ()).unwrap();
    let mut told = Vec::new();
    for number in 0..RECORDS {
        for session in [SESSION, OTHER] {
            let path = format!("d/f{number}.{}", session.0);
            let open = submit_create_as(&node, session, &path).unwrap();
            told.push((path, promised_file(&node, open)));
        }
    }
    node.restart();
    let mut ids: Vec<FileId> = Vec::new();
    for (path, id) in &told {
        assert_eq!(node.stat(path, false).unwrap().id, *id, "{path}");
        ids.push(*id);
    }
    for number in 0..RECORDS {
        let (open, _) = make_as(&mut node, SESSION, &format!("d/after{number}")).unwrap();
        ids.push(node.fstat(open).unwrap().id);
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}
