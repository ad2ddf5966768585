//! What mounts are told of changes of files of which they keep pages, who waits for them, and locks
//! that move to them.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::{Caller, Completion};
use mayfly_types::{
    Errno, OpenRef, SessionId,
    limits::{NOTICE_MS, NOTICES_MAX},
};
use mayfly_wire::{
    LOCK_FLOCK, LOCK_OFD, LOCK_READ, LOCK_UNLOCK, LOCK_WRITE, Lock, LockRange, Map, MoveLock,
    Notices, Open, OpenReply, Ping, Reader, SET_SIZE, Target, Tell, WALK_FOLLOW, Watch, Wire,
    notices::{Notice, changes},
};
use support::several::{begin, played};
use support::{Node, O_CREAT, O_RDWR, SESSION, config, config_of, failed, set, walk};

const MOUNT: SessionId = SessionId(7);
const OTHER: SessionId = SessionId(8);

/// A node of so many shards, two mounts that keep pages of one file, and a process that has it
/// open.
struct Play {
    node: Node,
    file: OpenRef,
}

fn told(done: &Completion) -> (bool, Vec<Notice>) {
    assert_eq!(done.status, 0);
    let body = done.body.to_vec();
    let news = Notices::decode(&mut Reader::new(&body)).unwrap();
    (news.all, changes(news.changes).collect())
}

impl Play {
    fn new(shards: u32, seed: u64) -> Play {
        let mut node = Node::several(config_of(seed), shards, seed, false);
        for (session, pid) in [(MOUNT, 70), (OTHER, 80)] {
            for core in &mut node.cores {
                core.session_opened(session, pid);
            }
            node.sessions.push((session, pid));
            let first = begin(&mut node, session, &Watch {});
            assert_eq!(told(&played(&mut node, first).unwrap()), (true, vec![]), "begins anew");
        }
        let file = node.open("f", O_CREAT | O_RDWR).unwrap().0;
        Play { node, file }
    }

    fn map(&mut self) {
        let request = Open { walk: walk("f", 0), flags: O_RDWR, mode: 0, uid: 0, gid: 0 };
        let opened = |reply: OpenReply<'_>| reply.opened.open;
        let open = self.node.ask_as(MOUNT, &request, opened).unwrap();
        self.node.ask_as(MOUNT, &Map { open }, |()| ()).unwrap();
    }

    fn watch(&mut self, mount: SessionId) -> Caller {
        begin(&mut self.node, mount, &Watch {})
    }

    fn tell(&mut self, by: SessionId, start: u64, end: u64) -> Caller {
        begin(&mut self.node, by, &Tell { open: self.file, start, end })
    }

    fn done(&mut self, caller: Caller) -> Option<Completion> {
        played(&mut self.node, caller)
    }
}

#[test]
fn who_tells_of_a_change_is_answered_when_every_other_mount_has_dealt_with_it() {
    for (shards, seed) in [(1, 1), (3, 2), (3, 3), (3, 4)] {
        let mut play = Play::new(shards, seed);
        play.map();
        let (one, two) = (play.watch(MOUNT), play.watch(OTHER));
        assert_eq!(play.done(one), None, "there is nothing to say");
        let tell = play.tell(SESSION, 5, 9);
        let (all, changes) = told(&play.done(one).unwrap());
        assert_eq!((all, changes.len(), changes[0].start, changes[0].end), (false, 1, 5, 9));
        assert_eq!(told(&play.done(two).unwrap()).1, changes);
        assert_eq!(play.done(tell), None, "nobody has dealt with it");
        play.watch(MOUNT);
        assert_eq!(play.done(tell), None, "one has not");
        // Its own changes a mount does not hear of, and does not wait for.
        let own = play.tell(OTHER, 1, 2);
        play.watch(OTHER);
        assert_eq!(play.done(tell).unwrap().status, 0);
        assert_eq!(play.done(own), None);
        play.watch(MOUNT);
        assert_eq!(play.done(own).unwrap().status, 0);
    }
}

#[test]
fn what_nobody_has_mapped_is_told_to_nobody() {
    let mut play = Play::new(1, 1);
    let watch = play.watch(MOUNT);
    let tell = play.tell(SESSION, 0, 1);
    assert_eq!(play.done(tell).unwrap().status, 0);
    assert_eq!(play.done(watch), None);
}

#[test]
fn nobody_waits_for_a_mount_that_is_gone_or_takes_too_long() {
    for shards in [1, 3] {
        let mut play = Play::new(shards, 1);
        play.map();
        play.watch(MOUNT);
        play.watch(OTHER);
        let first = play.tell(SESSION, 0, 1);
        assert_eq!(play.done(first), None);
        for core in &mut play.node.cores {
            core.session_closed(MOUNT);
        }
        assert_eq!(play.done(first), None, "the other one lives");
        for _ in 0..=NOTICE_MS {
            play.node.ask(&Ping {}, |()| ()).unwrap();
        }
        let second = play.tell(SESSION, 1, 2);
        assert_eq!(play.done(first).unwrap().status, 0, "it has had its time");
        assert_eq!(play.done(second).unwrap().status, 0, "nor is it waited for any more");
        let watch = play.watch(OTHER);
        assert_eq!(told(&play.done(watch).unwrap()), (true, vec![]), "it has missed something");
        let watch = play.watch(OTHER);
        let third = play.tell(SESSION, 2, 3);
        assert_eq!(told(&play.done(watch).unwrap()).1.len(), 1, "it is a mount like any other");
        assert_eq!(play.done(third), None);
    }
}

#[test]
fn a_mount_with_more_to_hear_than_there_is_room_for_hears_that_anything_may_have_changed() {
    let mut play = Play::new(1, 1);
    play.map();
    let told_of = |count: usize, play: &mut Play| -> Vec<Caller> {
        (0..count as u64).map(|at| play.tell(OTHER, at, at + 1)).collect()
    };
    let tells = told_of(100, &mut play);
    let watch = play.watch(MOUNT);
    let (all, changes) = told(&play.done(watch).unwrap());
    assert_eq!((all, changes.len()), (false, 100));
    assert_eq!(play.done(tells[99]), None);
    let more = told_of(NOTICES_MAX + 1, &mut play);
    let watch = play.watch(MOUNT);
    assert!(told(&play.done(watch).unwrap()).0);
    play.watch(MOUNT);
    assert!(tells.into_iter().chain(more).all(|tell| play.done(tell).is_some()));
}

#[test]
fn after_a_restart_mounts_hear_that_anything_may_have_changed_and_the_file_is_still_mapped() {
    let mut play = Play::new(3, 5);
    play.map();
    let lost = play.tell(SESSION, 0, 1);
    assert_eq!(play.done(lost), None);
    play.node.restart();
    let watch = play.watch(MOUNT);
    assert_eq!(told(&play.done(watch).unwrap()), (true, vec![]));
    let tell = play.tell(SESSION, 0, 1);
    assert_eq!(play.done(tell), None, "the mount is waited for");
    let watch = play.watch(MOUNT);
    assert_eq!(told(&play.done(watch).unwrap()).1.len(), 1);
    play.watch(MOUNT);
    assert_eq!(play.done(tell).unwrap().status, 0);
}

#[test]
fn who_cuts_a_mapped_file_by_its_name_is_told_to_open_it() {
    let mut play = Play::new(1, 1);
    let target = Target::Path(walk("f", WALK_FOLLOW));
    assert_eq!(play.node.set_attr(target, SET_SIZE, set()).unwrap().size_bytes, 0);
    play.map();
    assert_eq!(failed(play.node.set_attr(target, SET_SIZE, set())), Errno::ESTALE);
    play.node.set_attr(Target::Open(play.file), SET_SIZE, set()).unwrap();
}

#[test]
fn a_lock_of_flock_moves_to_another_description_unless_there_are_others() {
    let node = &mut Node::several(config(), 3, 1, false);
    let mut opens = (0..4).map(|_| node.open("f", O_CREAT | O_RDWR).unwrap().0).collect::<Vec<_>>();
    let (other, [from, to, third]) = (opens.pop().unwrap(), [opens[0], opens[1], opens[2]]);
    let elsewhere = node.open("g", O_CREAT | O_RDWR).unwrap().0;
    let lock = |node: &mut Node, open, owner, kind| {
        let range = LockRange { owner, kind, start: 0, end: u64::MAX };
        node.ask(&Lock { open, range, wait: false }, |()| ())
    };
    let hand_on = |node: &mut Node, open, to| node.ask(&MoveLock { open, to }, |()| ());
    lock(node, from, LOCK_FLOCK, LOCK_WRITE).unwrap();
    assert_eq!(failed(hand_on(node, from, elsewhere)), Errno::EINVAL);
    hand_on(node, from, to).unwrap();
    node.restart();
    assert_eq!(failed(lock(node, from, LOCK_FLOCK, LOCK_READ)), Errno::EAGAIN);
    lock(node, to, LOCK_FLOCK, LOCK_READ).unwrap();
    hand_on(node, from, third).unwrap();
    lock(node, from, LOCK_FLOCK, LOCK_READ).unwrap();
    node.close(to);
    lock(node, from, LOCK_FLOCK, LOCK_WRITE).unwrap();
    lock(node, other, LOCK_OFD, LOCK_READ).unwrap();
    assert_eq!(failed(hand_on(node, from, third)), Errno::EBUSY);
    lock(node, other, LOCK_OFD, LOCK_UNLOCK).unwrap();
    hand_on(node, from, third).unwrap();
    node.close(from);
    assert_eq!(failed(lock(node, other, LOCK_FLOCK, LOCK_READ)), Errno::EAGAIN);
}
