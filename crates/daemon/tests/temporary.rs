//! Files without a name (`O_TMPFILE`): what names them, what ends them, and both at once.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::Caller;
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{Link, Request, Target};
use support::{Answer, Node, O_RDWR, SESSION, config, config_of, failed, fsck, walk};

const O_TMPFILE: u32 = 0o20_200_000;
const O_EXCL: u32 = 0o200;

fn temporary(node: &mut Node, directory: &str) -> OpenRef {
    node.open(directory, O_TMPFILE | O_RDWR).unwrap().0
}

fn name(node: &mut Node, open: OpenRef, path: &str) -> Answer<()> {
    node.ask(&Link { from: Target::Open(open), to: walk(path, 0) }, |()| ())
}

fn counts(node: &mut Node) -> (u64, u64, u64) {
    let counters = node.core().counters();
    (counters.files, counters.orphans, counters.objects)
}

#[test]
fn a_file_without_a_name_ends_with_its_last_description() {
    let mut node = Node::memory(config());
    let open = temporary(&mut node, "/");
    node.write(open, 0, &[1; 10_000]).unwrap();
    let attr = node.fstat(open).unwrap();
    assert_eq!((attr.links, attr.size_bytes), (0, 10_000));
    assert_eq!(counts(&mut node), (1, 1, 1));
    node.restart();
    assert_eq!(node.read(open, 9_999, 10).unwrap(), [1]);
    node.close(open);
    node.settle_down();
    assert_eq!(counts(&mut node), (0, 0, 0));
    fsck::check(&mut node);
}

#[test]
fn a_file_without_a_name_that_a_dead_process_left_goes() {
    for daemon_dies in [false, true] {
        let mut node = Node::memory(config());
        let open = temporary(&mut node, "/");
        node.write(open, 0, &[1; 10_000]).unwrap();
        if daemon_dies {
            node.sessions.clear();
            node.restart();
        } else {
            node.core().session_closed(SESSION);
        }
        node.settle_down();
        assert_eq!(counts(&mut node), (0, 0, 0));
    }
}

#[test]
fn its_first_name_makes_it_a_file_like_any_other() {
    let mut node = Node::memory(config());
    node.mkdir("d").unwrap();
    let open = temporary(&mut node, "d");
    node.set_xattr(Target::Open(open), "user.a", b"v", 0).unwrap();
    name(&mut node, open, "d/f").unwrap();
    assert_eq!((node.fstat(open).unwrap().links, counts(&mut node)), (1, (1, 0, 0)));
    node.restart();
    name(&mut node, open, "g").unwrap();
    assert_eq!(node.get_xattr(Target::Path(walk("g", 0)), "user.a").unwrap(), b"v");
    node.close(open);
    node.unlink("g", false).unwrap();
    assert_eq!(node.stat("d/f", false).unwrap().links, 1);
    let open = node.open("d/f", O_RDWR).unwrap().0;
    node.unlink("d/f", false).unwrap();
    assert_eq!(failed(name(&mut node, open, "again")), Errno::ENOENT);
    node.close(open);
    fsck::check(&mut node);
    assert_eq!(counts(&mut node), (0, 0, 0));
}

#[test]
fn one_that_is_for_its_opener_alone_gets_no_name() {
    let mut node = Node::memory(config());
    let open = node.open("/", O_TMPFILE | O_RDWR | O_EXCL).unwrap().0;
    assert_eq!(failed(name(&mut node, open, "f")), Errno::ENOENT);
    node.restart();
    assert_eq!(failed(name(&mut node, open, "f")), Errno::ENOENT);
    assert_eq!(failed(node.open("/", O_TMPFILE)), Errno::EINVAL);
    assert_eq!(failed(node.open("/", (O_TMPFILE & !0o200_000) | O_RDWR)), Errno::EINVAL);
}

#[test]
fn a_repeated_open_leaves_one_file() {
    let mut node = Node::memory(config());
    let caller = node.next_caller(SESSION);
    let request = mayfly_wire::Open {
        walk: walk("/", 0),
        flags: O_TMPFILE | O_RDWR,
        mode: 0o600,
        uid: 0,
        gid: 0,
    };
    node.submit(caller, &request, &mut [0; 4096]);
    node.core().commit().unwrap();
    node.restart();
    assert_eq!(node.answer_to(caller, &request).status, 0);
    assert_eq!(counts(&mut node), (1, 1, 0));
}

fn begin_naming(node: &mut Node, open: OpenRef, path: &str) -> Caller {
    let caller = node.next_caller(SESSION);
    let link = Link { from: Target::Open(open), to: walk(path, 0) };
    node.hand_in(caller, Request::Link(link), &mut [0; 4096]);
    caller
}

/// The process dies while the link that names its file is under way between shards, and perhaps
/// the daemon too. The file has the name, whole, or it is gone.
#[test]
fn a_process_that_dies_while_its_file_is_named_leaves_a_whole_tree() {
    let mut named = [0, 0];
    for seed in 0..300_u64 {
        let daemon_dies = seed % 2;
        let mut node = Node::several(config_of(seed), 3, seed, false);
        node.mkdir("d").unwrap();
        let open = temporary(&mut node, "d");
        let large = seed % 3 == 0;
        node.write(open, 0, &vec![1; if large { 10_000 } else { 10 }]).unwrap();
        let path = format!("d/f{seed}");
        begin_naming(&mut node, open, &path);
        for _ in 0..seed % 11 {
            node.move_on();
        }
        node.sessions.clear();
        if daemon_dies == 1 {
            node.restart();
        } else {
            for core in &mut node.cores {
                core.session_closed(SESSION);
            }
        }
        node.settle_down();
        fsck::check(&mut node);
        node.sessions = vec![(SESSION, support::PID)];
        node.restart();
        match node.stat(&path, false) {
            Ok(attr) => {
                assert_eq!((attr.links, attr.size_bytes), (1, if large { 10_000 } else { 10 }));
                named[daemon_dies as usize] += 1;
            }
            other => assert_eq!(failed(other), Errno::ENOENT),
        }
    }
    assert!(named.iter().all(|named| (10..140).contains(named)), "both were seen: {named:?}");
}

#[test]
fn files_of_several_shards_get_names_on_all_of_them() {
    for seed in 0..30 {
        let mut node = Node::several(config_of(seed), 3, seed, false);
        node.several.deaths = 30;
        node.mkdir("d").unwrap();
        for number in 0..10 {
            let open = temporary(&mut node, if number % 2 == 0 { "d" } else { "/" });
            name(&mut node, open, &format!("d/f{number}")).unwrap();
            if number % 3 == 0 {
                node.unlink(&format!("d/f{number}"), false).unwrap();
            }
            node.close(open);
        }
        node.several.deaths = 0;
        fsck::check(&mut node);
    }
}
