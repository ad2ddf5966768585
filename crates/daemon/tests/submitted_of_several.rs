//! Processes of a node of several shards submit in whole directories of the shard that they ask.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::SeqCst;

use mayfly_daemon::Directories;
use mayfly_transport_shm::submission_ring::ring_of;
use mayfly_types::{Errno, OpenRef};
use support::{
    SESSION, failed, fsck,
    submitting::{
        THIRD, make_file_as, mkdir_as, node_of_several, remove, ring_at, submit_create, warm,
    },
};

const SHARDS: u32 = 3;

/// A thread of another shard that looked for something to do took the ring's mark for its own.
#[test]
fn another_shard_leaves_what_is_submitted_to_the_first_one() {
    let mut node = node_of_several(SHARDS, 1, Directories::Whole);
    mkdir_as(&mut node, THIRD, "d");
    warm(&mut node, "d");
    let open = submit_create(&node, "d/f").unwrap();
    let bit = 1 << ring_of(SESSION.0);
    node.region.head.rings.ripe.fetch_or(bit, SeqCst);
    for shard in 1..SHARDS as usize {
        node.end_batch(shard);
    }
    let marks =
        [&node.region.head.submitted, &node.region.head.rings.ripe].map(|word| word.load(SeqCst));
    assert_eq!(marks, [bit; 2]);
    assert_eq!(ring_at(&node, SESSION).waiting(), 1);
    assert!(node.stat("d/f", false).is_ok());
    node.close(open);
    fsck::check(&mut node);
}

#[test]
fn what_is_submitted_is_there_after_a_restart_of_all_shards() {
    let mut node = node_of_several(SHARDS, 2, Directories::Whole);
    mkdir_as(&mut node, THIRD, "d");
    warm(&mut node, "d");
    let submitted = (0..20).map(|number| submit_create(&node, &format!("d/f{number}")).unwrap());
    let submitted: Vec<OpenRef> = submitted.collect();
    assert!(remove(&node, "d/warm0"));
    node.restart();
    for (number, open) in submitted.into_iter().enumerate() {
        let id = node.stat(&format!("d/f{number}"), false).unwrap().id;
        assert_eq!(node.fstat(open).unwrap().id, id);
        node.close(open);
    }
    assert_eq!(failed(node.stat("d/warm0", false)), Errno::ENOENT);
    fsck::check(&mut node);
}

/// The name of the directory is another shard's, which tells the first one before it changes: the
/// two are on one node, so that no time limits what is remembered, and nothing but being told ends
/// the delegation.
#[test]
fn nothing_is_submitted_by_a_name_of_another_shard_that_has_changed() {
    let mut node = node_of_several(SHARDS, 3, Directories::Restless);
    let mut delegated = 0;
    for number in 0..60 {
        let [above, way, moved] =
            ["", "/way", "/moved"].map(|behind| format!("above{number}{behind}"));
        let directory = format!("{way}/d");
        for path in [&above, &way, &directory] {
            mkdir_as(&mut node, THIRD, path);
        }
        for file in 0..16 {
            make_file_as(&mut node, SESSION, &format!("{directory}/warm{file}"));
        }
        let path = format!("{directory}/f");
        let Some(open) = submit_create(&node, &path) else { continue };
        delegated += 1;
        node.rename(&way, &moved, 0).unwrap();
        assert_eq!(submit_create(&node, &path), None, "{directory} is somewhere else");
        assert!(node.stat(&format!("{moved}/d/f"), false).is_ok());
        node.close(open);
    }
    assert!(delegated > 0, "nothing was delegated");
    fsck::check(&mut node);
}
