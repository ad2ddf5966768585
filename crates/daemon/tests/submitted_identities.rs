//! Files that were told by the process that submits them, before they are made.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_daemon::Clock as _;
use mayfly_transport_shm::submission_ring::RECORDS;
use mayfly_types::{FileId, OpenRef};
use mayfly_wire::Ping;
use support::{
    Node, SESSION,
    submitting::{OTHER, make_as, node, ring_at, submit_create, submit_create_as, warm_as},
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
