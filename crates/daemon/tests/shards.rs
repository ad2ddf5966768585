//! Several shards and several clients at once.
//!
//! Requests of many clients meet over a few names while messages travel in any order and the daemon
//! dies now and then. Every request is answered, and in the end what the shards have stored fits
//! together: each name has its file, each file its names, no directory is lost or in a circle, and
//! nothing is left of any operation.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_daemon::Caller;
use mayfly_transport_shm::layout::OPEN_SHARED;
use mayfly_types::{Errno, FileId};
use mayfly_wire::{
    Link, MakeDirectory, Open, RemoveXattr, Rename, Request, SetXattr, Stat, Symlink, Target,
    Unlink, Walk,
};
use proptest::prelude::*;
use support::{
    Node, SESSION, config, config_of,
    crowd::{Crowd, Sent, sent},
    fsck,
    submitting::make_as,
    walk,
};

const CLIENTS: u32 = 5;

#[derive(Debug, Clone)]
enum Do {
    Mkdir(String),
    Create(String),
    Symlink(String, String),
    Link(String, String),
    Unlink(String, bool),
    Rename(String, String, u32),
    Stat(String),
    SetXattr(String),
    RemoveXattr(String),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-d]", 1..4).prop_map(|parts| parts.join("/"))
}

fn what() -> impl Strategy<Value = Do> {
    prop_oneof![
        5 => path().prop_map(Do::Mkdir),
        3 => path().prop_map(Do::Create),
        1 => (path(), path()).prop_map(|(target, at)| Do::Symlink(target, at)),
        2 => (path(), path()).prop_map(|(from, to)| Do::Link(from, to)),
        3 => (path(), any::<bool>()).prop_map(|(path, directory)| Do::Unlink(path, directory)),
        8 => (path(), path(), prop_oneof![5 => Just(0_u32), 1 => Just(1), 1 => Just(2)])
            .prop_map(|(from, to, flags)| Do::Rename(from, to, flags)),
        2 => path().prop_map(Do::Stat),
        2 => path().prop_map(Do::SetXattr),
        1 => path().prop_map(Do::RemoveXattr),
    ]
}

fn request(what: &Do) -> Sent {
    let create = support::O_CREAT | 0o10_000_000;
    match what {
        Do::Mkdir(path) => {
            sent(&MakeDirectory { walk: walk(path, 0), mode: 0o755, uid: 0, gid: 0 })
        }
        // What is opened is closed with the session.
        Do::Create(path) => {
            sent(&Open { walk: walk(path, 0), flags: create & 0o777, mode: 0o644, uid: 0, gid: 0 })
        }
        Do::Symlink(target, at) => {
            sent(&Symlink { target: target.as_bytes(), at: walk(at, 0), uid: 0, gid: 0 })
        }
        Do::Link(from, to) => sent(&Link { from: Target::Path(walk(from, 0)), to: walk(to, 0) }),
        Do::Unlink(path, directory) => sent(&Unlink { walk: walk(path, 0), directory: *directory }),
        Do::Rename(from, to, flags) => {
            sent(&Rename { from: walk(from, 0), to: walk(to, 0), flags: *flags })
        }
        Do::SetXattr(path) => {
            let target = Target::Path(walk(path, 0));
            sent(&SetXattr { target, name: b"user.a", value: b"v", flags: 0 })
        }
        Do::RemoveXattr(path) => {
            sent(&RemoveXattr { target: Target::Path(walk(path, 0)), name: b"user.a" })
        }
        Do::Stat(path) => sent(&Stat { target: Target::Path(walk(path, 0)) }),
    }
}

fn crowd_of(shards: u32, seed: u64, deaths: usize) -> Crowd {
    Crowd::new(Node::several(config_of(seed), shards, seed, false), CLIENTS, deaths)
}

fn play(plan: &[(u32, Do, usize)], shards: u32, seed: u64, deaths: usize) {
    let mut crowd = crowd_of(shards, seed, deaths);
    crowd.play(plan, |crowd, client, what| crowd.begin(client, request(what)));
    fsck::check(&mut crowd.leave());
}

fn plan() -> impl Strategy<Value = Vec<(u32, Do, usize)>> {
    prop::collection::vec((1..=CLIENTS, what(), 0..6_usize), 1..80)
}

/// What ends without a request changes the numbers of a shard without a commit, and they were those
/// of its last one.
#[test]
fn a_description_that_another_shard_has_freed_is_not_counted_any_more() {
    let mut node = Node::several(config(), 2, 1, false);
    let opens: Vec<_> = (0..8)
        .map(|number| make_as(&mut node, SESSION, &format!("f{number}")).unwrap().0)
        .collect();
    for open in &opens {
        node.region.opens[open.index as usize].state.store(OPEN_SHARED, Relaxed);
    }
    for core in &mut node.cores {
        opens.iter().for_each(|open| core.open_released(open.index));
        core.completions().for_each(drop);
    }
    for core in &node.cores {
        assert_eq!(core.counters().open_files, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn many_clients_leave_a_whole_tree(
        plan in plan(),
        shards in prop_oneof![Just(2_u32), Just(3), Just(5)],
        seed in any::<u64>(),
    ) {
        play(&plan, shards, seed, 0);
    }

    #[test]
    fn many_clients_and_a_daemon_that_dies_leave_a_whole_tree(
        plan in plan(),
        shards in prop_oneof![Just(2_u32), Just(3), Just(5)],
        seed in any::<u64>(),
    ) {
        play(&plan, shards, seed, 25);
    }
}

/// Renames over one name from everywhere, while somebody looks at it all the time.
#[test]
fn a_name_that_is_replaced_never_disappears() {
    for seed in 0..40 {
        let mut crowd = crowd_of(3, seed, 0);
        for name in ["t", "d/t"] {
            drop(crowd.node.mkdir("d"));
            let open = crowd.node.open(name, support::O_CREAT).unwrap().0;
            crowd.node.close(open);
        }
        for round in 0..30_u32 {
            for client in 2..=CLIENTS {
                if crowd.is_busy(client) {
                    continue;
                }
                let fresh = format!("f{client}");
                let target = if round % 2 == 0 { "t" } else { "d/t" };
                let what = if round % 3 == 0 {
                    Do::Create(fresh)
                } else {
                    Do::Rename(fresh, target.to_owned(), 0)
                };
                crowd.begin(client, request(&what));
            }
            for name in ["t", "d/t"] {
                crowd.begin(1, request(&Do::Stat(name.to_owned())));
                while crowd.is_busy(1) {
                    crowd.wait_for(1);
                }
            }
        }
        crowd.finish();
        let looks: Vec<_> = crowd.statuses.iter().filter(|(client, _)| *client == 1).collect();
        assert!(looks.len() >= 60);
        assert!(looks.iter().all(|(_, status)| *status == 0), "seed {seed}: {looks:?}");
    }
}

/// Each of two moves is right by itself, and both together would cut a circle off the tree.
#[test]
fn directories_that_are_moved_into_each_other_make_no_circle() {
    for seed in 0..300 {
        let mut crowd = crowd_of(5, seed, 0);
        for path in ["a", "b", "a/c", "b/c"] {
            crowd.node.mkdir(path).unwrap();
        }
        crowd.begin(1, request(&Do::Rename("a".to_owned(), "b/c/x".to_owned(), 0)));
        crowd.begin(2, request(&Do::Rename("b".to_owned(), "a/c/y".to_owned(), 0)));
        crowd.finish();
        let moved = crowd.statuses.iter().filter(|(_, status)| *status == 0).count();
        assert_eq!(moved, 1, "seed {seed}: {:?}", crowd.statuses);
        fsck::check(&mut crowd.node);
    }
}

/// A shard that is about to become a member of a directory is asked whether it has entries of it,
/// and has none yet; it must not make one later.
#[test]
fn a_directory_that_is_removed_gets_no_entry_any_more() {
    let mut removed = 0;
    for seed in 0..150 {
        let mut crowd = crowd_of(4, seed, 0);
        crowd.node.mkdir("d").unwrap();
        crowd.begin(1, request(&Do::Mkdir(format!("d/x{seed}"))));

        for _ in 0..seed % 7 {
            crowd.step();
        }
        crowd.begin(3, request(&Do::Unlink("d".to_owned(), true)));
        crowd.finish();
        let status = |client| {
            let found = crowd.statuses.iter().find(|(who, _)| *who == client);
            found.map(|(_, status)| *status).unwrap()
        };
        let (made, gone) = (status(1) == 0, status(3) == 0);
        assert_ne!(made, gone, "seed {seed}: one of both");
        removed += u32::from(gone);
        fsck::check(&mut crowd.node);
    }
    assert!((1..150).contains(&removed), "both were seen: {removed}");
}

/// A shard's cache of a directory must not outlive the directory's name.
#[test]
fn what_other_shards_remember_is_forgotten_before_a_rename_is_acknowledged() {
    for seed in 0..40 {
        let mut node = Node::several(config_of(seed), 5, seed, false);
        node.mkdir("a").unwrap();
        node.mkdir("a/b").unwrap();
        for name in ["x", "y", "z", "u", "v", "w"] {
            let open = node.open(&format!("a/b/{name}"), support::O_CREAT).unwrap().0;
            node.close(open);
        }
        node.rename("a", "c", 0).unwrap();
        for name in ["x", "y", "z", "u", "v", "w"] {
            let gone = support::failed(node.stat(&format!("a/b/{name}"), true));
            assert_eq!(gone, Errno::ENOENT);
            node.stat(&format!("c/b/{name}"), true).unwrap();
        }
        node.symlink("c/b", "l").unwrap();
        for name in ["x", "y", "z"] {
            node.stat(&format!("l/{name}"), true).unwrap();
        }
        node.unlink("l", false).unwrap();
        node.symlink("c", "l").unwrap();
        for name in ["x", "y", "z"] {
            node.stat(&format!("l/b/{name}"), true).unwrap();
        }
    }
}

/// A link is counted at the file's home and its name made at another shard, and the other way round
/// with a removal. Whoever looks in between must not see the one without the other.
#[test]
fn the_number_of_links_is_told_with_the_name_that_it_counts() {
    let removal = Unlink { walk: walk("b", 0), directory: false };
    for seed in 0..50 {
        let mut node = Node::several(config_of(seed), 5, seed, false);
        let open = node.open("a", support::O_CREAT).unwrap().0;
        node.close(open);
        let link = Link { from: Target::Path(walk("a", 0)), to: walk("b", 0) };
        begin(&mut node, &sent(&link));
        for _ in 0..4 {
            let links = node.stat("a", true).unwrap().links;
            let named = node.stat("b", true).is_ok();
            assert!(named || links == 1, "seed {seed}: {links} names, and the second is not there");
        }
        while node.move_on() {}
        begin(&mut node, &sent(&removal));
        for _ in 0..4 {
            let named = node.stat("b", true).is_ok();
            let links = node.stat("a", true).unwrap().links;
            assert!(named || links == 1, "seed {seed}: {links} names, and the second has gone");
        }
        while node.move_on() {}
        assert_eq!(node.stat("a", true).unwrap().links, 1);
        fsck::check(&mut node);
    }
}

/// Hands in a request whose answer nobody waits for.
fn begin(node: &mut Node, sent: &Sent) {
    let caller = Caller { lane: 1, ..node.next_caller(SESSION) };
    let mut body = vec![0; 200_000];
    node.hand_in(caller, Request::decode(sent.op, &sent.body).unwrap(), &mut body);
}

/// Entries of one directory are spread, and the directory looks like any other.
#[test]
fn a_wide_directory_lies_on_all_shards_and_counts_as_one() {
    let mut node = Node::several(config(), 3, 7, false);
    node.mkdir("wide").unwrap();
    for number in 0..300 {
        node.mkdir(&format!("wide/{number}")).unwrap();
    }
    let stat = node.stat("wide", true).unwrap();
    assert_eq!(stat.links, 302);
    let open = node.open("wide", 0).unwrap().0;
    let mut names = node.list(open, 700).unwrap();
    names.sort_by(|one, other| one.0.cmp(&other.0));
    names.dedup();
    assert_eq!(names.len(), 302);
    node.close(open);
    assert_eq!(support::failed(node.unlink("wide", true)), Errno::ENOTEMPTY);
    for number in 0..300 {
        node.unlink(&format!("wide/{number}"), true).unwrap();
    }
    node.unlink("wide", true).unwrap();
    fsck::check(&mut node);
}

/// Questions that a whole listing costs, with `entries` in a directory of 16 shards.
fn questions_of_a_listing(entries: usize, page_bytes: u32) -> usize {
    let mut node = Node::several(config(), 16, 5, false);
    node.mkdir("wide").unwrap();
    for number in 0..entries {
        node.mkdir(&format!("wide/{number}")).unwrap();
    }
    let open = node.open("wide", 0).unwrap().0;
    let before = node.several.asked;
    let names = node.list(open, page_bytes).unwrap();
    assert_eq!(names.len(), entries + 2);
    let asked = node.several.asked - before;
    node.close(open);
    asked
}

/// Each member was asked twice, one after the other, and one request is a network away.
#[test]
fn a_listing_asks_each_member_once_when_there_is_room_for_all() {
    // The last one is asked again whether that was all.
    let asked = questions_of_a_listing(100, 32 * 1024);
    assert!(asked <= 16, "{asked} questions to 15 members");
}

#[test]
fn a_listing_asks_no_more_members_than_there_is_room_for() {
    // Some forty pages, and each of the members ends within one.
    let asked = questions_of_a_listing(1600, 1000);
    assert!(asked <= 90, "{asked} questions");
}

#[test]
fn a_walk_starts_where_it_is_told_on_any_shard() {
    let mut node = Node::several(config(), 5, 3, false);
    for path in ["p", "p/q", "p/q/r"] {
        node.mkdir(path).unwrap();
    }
    let id = node.stat("p/q", true).unwrap().id;
    let from = |path: &'static [u8], start: FileId| Walk { start, flags: 0, path };
    let up = node.ask(&Stat { target: Target::Path(from(b"..", id)) }, |attr| attr.id).unwrap();
    assert_eq!(up, node.stat("p", true).unwrap().id);
    let down = node.ask(&Stat { target: Target::Path(from(b"r/../r", id)) }, |attr| attr.id);
    assert_eq!(down.unwrap(), node.stat("p/q/r", true).unwrap().id);
}
