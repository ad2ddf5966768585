//! Names and attributes that kernels of mounts believe: who may be told, who has to forget before
//! something changes, and who is waited for. The mounts are pretended.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::{Caller, Clock, Completion, Config, Directories};
use mayfly_types::{FileId, SessionId, limits::LEASE_SECONDS};
use mayfly_wire::{
    Lease, Leased, Link, Notices, Open, Ping, Reader, Rename, SET_MODE, SetAttr, SetXattr, Target,
    Unlink, Watch, Wire, Writer,
    notices::{self, LEASED_ATTRIBUTES, LEASED_NAME, LEASED_NOTHING, Name},
};
use support::several::{begin, played};
use support::{
    Node, O_RDWR, SESSION, config, set,
    submitting::{OTHER as WORKER, make_file_as, submit_create_as, warm_as},
    walk,
};

const MOUNT: SessionId = SessionId(7);
const OTHER: SessionId = SessionId(8);

/// A node with two mounts, and a directory with a file and a directory in it.
struct Play {
    node: Node,
    directory: FileId,
}

impl Play {
    fn of(mut node: Node) -> Play {
        for (session, pid) in [(MOUNT, 70), (OTHER, 80)] {
            for core in &mut node.cores {
                core.session_opened(session, pid);
            }
            node.sessions.push((session, pid));
        }
        if node.stat("d", false).is_err() {
            node.mkdir("d").unwrap();
        }
        node.mkdir("d/sub").unwrap();
        let open = node.open("d/file", support::O_CREAT | O_RDWR).unwrap().0;
        node.close(open);
        let directory = node.stat("d", false).unwrap().id;
        let mut play = Play { node, directory };
        for mount in [MOUNT, OTHER] {
            let first = play.watch(mount);
            let news = told(&play.done(first).unwrap());
            assert!(news.0, "it begins anew");
            assert_eq!(play.lease(mount, "sub"), LEASED_NOTHING, "it has not forgotten yet");
            play.watch(mount);
        }
        play
    }

    fn new() -> Play {
        Play::of(Node::memory(Config { directories: Directories::Whole, ..config() }))
    }

    fn watch(&mut self, mount: SessionId) -> Caller {
        begin(&mut self.node, mount, &Watch {})
    }

    fn done(&mut self, caller: Caller) -> Option<Completion> {
        played(&mut self.node, caller)
    }

    fn lease(&mut self, mount: SessionId, name: &str) -> u8 {
        self.lease_in(mount, self.directory, name)
    }

    fn lease_in(&mut self, mount: SessionId, directory: FileId, name: &str) -> u8 {
        let mut packed = vec![0; 1024];
        let mut to = Writer::new(&mut packed);
        Name { directory, file: FileId::NONE, name: name.as_bytes() }.encode(&mut to).unwrap();
        let used = to.used();
        let lease = Lease { names: &packed[..used] };
        let what = |leased: Leased<'_>| (leased.seconds, leased.what.to_vec());
        let (seconds, what) = self.node.ask_as(mount, &lease, what).unwrap();
        assert_eq!((i64::from(seconds), what.len()), (LEASE_SECONDS, 1));
        what[0]
    }

    /// So many seconds pass.
    fn pass(&mut self, seconds: i64) {
        let end = self.node.clock.elapsed().seconds + seconds;
        while self.node.clock.elapsed().seconds < end {
            self.node.ask(&Ping {}, |()| ()).unwrap();
        }
    }

    /// The names that the mount is told to forget when it waits.
    fn news(&mut self, waits: Caller) -> Vec<String> {
        self.done(waits).map_or(Vec::new(), |done| told(&done).1)
    }
}

fn told(done: &Completion) -> (bool, Vec<String>) {
    assert_eq!(done.status, 0);
    let body = done.body.to_vec();
    let news = Notices::decode(&mut Reader::new(&body)).unwrap();
    let names = notices::names(news.names);
    (news.all, names.map(|of| String::from_utf8(of.name.to_vec()).unwrap()).collect())
}

fn chmod(path: &str) -> SetAttr<'_> {
    SetAttr { target: Target::Path(walk(path, 0)), which: SET_MODE, mode: 0o600, ..set() }
}

/// A change of the file or of the directory, and which of them it is.
fn changes(what: usize, node: &mut Node, by: SessionId) -> (Caller, &'static str) {
    let at = |path| walk(path, 0);
    match what {
        0 => (begin(node, by, &Unlink { walk: at("d/file"), directory: false }), "file"),
        1 => (begin(node, by, &Rename { from: at("d/file"), to: at("d/g"), flags: 0 }), "file"),
        2 => (begin(node, by, &chmod("d/file")), "file"),
        3 => {
            let open = Open { walk: at("d/file"), flags: O_RDWR, mode: 0, uid: 0, gid: 0 };
            (begin(node, by, &open), "file")
        }
        4 => {
            let link = Link { from: Target::Path(at("d/file")), to: at("d/h") };
            (begin(node, by, &link), "file")
        }
        5 => {
            let target = Target::Path(at("d/file"));
            let set = SetXattr { target, name: b"user.a", value: b"b", flags: 0 };
            (begin(node, by, &set), "file")
        }
        6 => (begin(node, by, &Unlink { walk: at("d/sub"), directory: true }), "sub"),
        7 => {
            let rename = Rename { from: at("d/sub"), to: at("moved"), flags: 0 };
            (begin(node, by, &rename), "sub")
        }
        _ => panic!("there is no such change"),
    }
}

#[test]
fn whoever_changes_a_name_or_its_file_waits_until_the_mounts_that_believe_it_have_forgotten() {
    for what in 0..8 {
        let mut play = Play::new();
        let waits = [play.watch(MOUNT), play.watch(OTHER)];
        for mount in [MOUNT, OTHER] {
            assert_eq!(play.lease(mount, "file"), LEASED_ATTRIBUTES);
            assert_eq!(play.lease(mount, "sub"), LEASED_NAME);
        }
        let (change, name) = changes(what, &mut play.node, SESSION);
        assert_eq!(play.news(waits[0]), [name], "change {what}");
        assert_eq!(play.news(waits[1]), [name]);
        assert_eq!(play.done(change), None, "nobody has forgotten");
        assert_eq!(play.lease(MOUNT, name), LEASED_NOTHING, "it is about to change");
        play.watch(MOUNT);
        assert_eq!(play.done(change), None, "one has not");
        play.watch(OTHER);
        assert_eq!(play.done(change).unwrap().status, 0, "change {what}");
    }
}

#[test]
fn a_mount_is_not_told_of_what_it_changes_itself() {
    for what in 0..8 {
        let mut play = Play::new();
        let waits = [play.watch(MOUNT), play.watch(OTHER)];
        play.lease(MOUNT, "file");
        play.lease(MOUNT, "sub");
        let (own, _) = changes(what, &mut play.node, MOUNT);
        assert_eq!(play.done(own).unwrap().status, 0, "change {what}");
        assert_eq!(play.done(waits[0]), None);
        assert_eq!(play.done(waits[1]), None);
    }
}

#[test]
fn what_a_mount_has_moved_it_believes_at_the_new_place() {
    let mut play = Play::new();
    let waits = play.watch(MOUNT);
    play.lease(MOUNT, "sub");
    play.lease(MOUNT, "file");
    for (from, to) in [("d/sub", "moved"), ("d/file", "g")] {
        let rename = Rename { from: walk(from, 0), to: walk(to, 0), flags: 0 };
        play.node.ask_as(MOUNT, &rename, |()| ()).unwrap();
    }
    let removal = Unlink { walk: walk("moved", 0), directory: true };
    let change = begin(&mut play.node, SESSION, &removal);
    assert_eq!((play.done(change), play.news(waits)), (None, vec!["moved".to_owned()]));
    let waits = play.watch(MOUNT);
    assert_eq!(play.done(change).unwrap().status, 0);
    let change = begin(&mut play.node, SESSION, &chmod("g"));
    assert_eq!((play.done(change), play.news(waits)), (None, vec!["g".to_owned()]));
    play.watch(MOUNT);
    assert_eq!(play.done(change).unwrap().status, 0);
}

#[test]
fn a_mount_that_stands_still_is_waited_for_until_its_lease_is_over_and_a_dead_one_not_at_all() {
    let mut play = Play::new();
    for mount in [MOUNT, OTHER] {
        play.lease(mount, "sub");
    }
    let removal = Unlink { walk: walk("d/sub", 0), directory: true };
    let change = begin(&mut play.node, SESSION, &removal);
    assert_eq!(play.done(change), None);
    for core in &mut play.node.cores {
        core.session_closed(MOUNT);
    }
    assert_eq!(play.done(change), None, "the other one stands still");
    play.pass(LEASE_SECONDS - 2);
    assert_eq!(play.done(change), None);
    assert!(play.node.core().due().is_some(), "the daemon looks at its clock");
    play.pass(4);
    assert_eq!(play.done(change).unwrap().status, 0);
}

#[test]
fn a_name_that_was_recalled_is_not_leased_for_a_moment() {
    let mut play = Play::new();
    play.lease(MOUNT, "file");
    let change = begin(&mut play.node, SESSION, &chmod("d/file"));
    play.watch(MOUNT);
    play.watch(MOUNT);
    assert_eq!(play.done(change).unwrap().status, 0);
    assert_eq!(play.lease(MOUNT, "file"), LEASED_NOTHING);
    play.pass(3);
    assert_eq!(play.lease(MOUNT, "file"), LEASED_ATTRIBUTES);
}

#[test]
fn attributes_are_leased_of_files_at_rest_only_and_absent_names_never() {
    let mut play = Play::new();
    let open = play.node.open("d/file", O_RDWR).unwrap().0;
    assert_eq!(play.lease(MOUNT, "file"), LEASED_NAME, "somebody may write to it");
    play.node.close(open);
    assert_eq!(play.lease(MOUNT, "file"), LEASED_ATTRIBUTES);
    assert_eq!(play.lease(MOUNT, "absent"), LEASED_NOTHING);
    play.pass(8);
    play.node.link("d/file", "d/second").unwrap();
    assert_eq!(play.lease(MOUNT, "file"), LEASED_NAME, "it has another name");
}

#[test]
fn a_name_is_leased_or_its_directory_delegated_but_never_both() {
    let mut node = support::submitting::node_on_disk();
    for _ in 0..3000 {
        node.ask(&Ping {}, |()| ()).unwrap();
    }
    let mut play = Play::of(node);
    let name = "warm-0";
    make_file_as(&mut play.node, WORKER, &format!("d/{name}"));
    warm_as(&mut play.node, WORKER, "d");
    assert!(submit_create_as(&play.node, WORKER, "d/new").is_some(), "it is delegated");
    assert_ne!(play.lease(MOUNT, name), LEASED_NOTHING);
    assert!(submit_create_as(&play.node, WORKER, "d/newer").is_none(), "it was recalled");
    warm_as(&mut play.node, WORKER, "d");
    assert!(submit_create_as(&play.node, WORKER, "d/newest").is_none(), "a name is leased");
    play.pass(LEASE_SECONDS + 2);
    // Whoever was refused is looked at again after twice as many.
    for _ in 0..4 {
        warm_as(&mut play.node, WORKER, "d");
    }
    assert!(submit_create_as(&play.node, WORKER, "d/late").is_some(), "the lease is over");
}

#[test]
fn after_a_restart_nothing_changes_before_the_mounts_have_forgotten_or_their_leases_are_over() {
    for waits_for_time in [false, true] {
        let config = Config { directories: Directories::Whole, ..config() };
        let mut play = Play::of(Node::on_disk(config));
        for mount in [MOUNT, OTHER] {
            play.lease(mount, "file");
        }
        play.node.restart();
        let change = begin(&mut play.node, SESSION, &chmod("d/file"));
        assert_eq!(play.done(change), None);
        play.node.stat("d/file", false).unwrap();
        if waits_for_time {
            play.pass(LEASE_SECONDS + 2);
        } else {
            for mount in [MOUNT, OTHER] {
                let first = play.watch(mount);
                assert!(told(&play.done(first).unwrap()).0, "anything may have changed");
                assert_eq!(play.done(change), None);
                play.watch(mount);
            }
        }
        assert_eq!(play.done(change).unwrap().status, 0);
    }
}

#[test]
fn with_several_shards_names_of_the_first_one_are_leased_and_recalled() {
    for seed in 0..4 {
        let config = Config { directories: Directories::Whole, ..config() };
        let mut play = Play::of(Node::several(config, 3, seed, false));
        for (what, name) in [(2, "file"), (6, "sub")] {
            let waits = play.watch(MOUNT);
            assert_ne!(play.lease(MOUNT, name), LEASED_NOTHING);
            let change = changes(what, &mut play.node, SESSION).0;
            assert_eq!((play.news(waits), play.done(change)), (vec![name.to_owned()], None));
            play.watch(MOUNT);
            assert_eq!(play.done(change).unwrap().status, 0);
        }
    }
}

/// That these tests find a daemon which forgets to tell.
#[cfg(feature = "planted")]
#[test]
fn a_mount_that_is_not_told_believes_what_was() {
    mayfly_daemon::plant(Some(mayfly_daemon::Planted::MountNotTold));
    for what in 0..8 {
        let mut play = Play::new();
        let waits = play.watch(MOUNT);
        play.lease(MOUNT, "file");
        play.lease(MOUNT, "sub");
        let (change, _) = changes(what, &mut play.node, SESSION);
        assert_eq!(play.done(change).unwrap().status, 0, "nobody is waited for");
        assert!(play.news(waits).is_empty(), "nor told");
    }
    mayfly_daemon::plant(None);
}
