//! What a core promises beyond what a local file system shows: open files that outlive names,
//! sessions and daemons, locks, allowances, capacity, walks that leave the instance.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use mayfly_daemon::{Caller, Progress};
use mayfly_transport_shm::layout::{FILE_OBJECT, FILE_UNLINKED, OPEN_FREE, OPEN_SHARED};
use mayfly_types::{Errno, FileId, FileKind, OpenRef, SessionId, Times, Timestamp};
use mayfly_wire::{
    Cancel, Conflict, GRANT_OBJECT, GRANT_READ, GRANT_WRITE, LOCK_FLOCK, LOCK_OFD, LOCK_POSIX,
    LOCK_READ, LOCK_UNLOCK, LOCK_WRITE, Lock, LockRange, MakeDirectory, Open, PathOf, SET_MODE,
    SET_MTIME, SET_SIZE, SetAttr, Stat, Sync, Target, TestLock, Text, WALK_EMPTY, Walk, Write,
};
use support::{
    Answer, Failed, INLINE_MAX, Node, O_CREAT, O_RDWR, PID, SESSION, config, failed, set, walk,
};

const O_TRUNC: u32 = 0o1000;
const OTHER: SessionId = SessionId(2);
const OTHER_PID: u32 = 4712;

fn node() -> Node {
    Node::memory(config())
}

fn with_two_sessions() -> Node {
    let mut node = node();
    node.core().session_opened(SESSION, PID);
    node.core().session_opened(OTHER, OTHER_PID);
    node.sessions = vec![(SESSION, PID), (OTHER, OTHER_PID)];
    node
}

fn made(node: &mut Node, path: &str) -> OpenRef {
    node.open(path, O_CREAT | O_RDWR).unwrap().0
}

fn opened_by(node: &mut Node, session: SessionId, path: &str) -> OpenRef {
    let request =
        Open { walk: walk(path, 0), flags: O_CREAT | O_RDWR, mode: 0o644, uid: 0, gid: 0 };
    node.ask_as(session, &request, |reply: mayfly_wire::OpenReply<'_>| reply.opened.open).unwrap()
}

fn share(node: &Node, open: OpenRef) {
    node.region.opens[open.index as usize].state.store(OPEN_SHARED, Relaxed);
}

fn idle(node: &mut Node) {
    node.settle_down();
}

fn objects(node: &Node) -> usize {
    let Ok(root) = std::fs::read_dir(&node.objects) else { return 0 };
    root.map(|directory| std::fs::read_dir(directory.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn an_unlinked_file_lives_until_its_last_description_ends() {
    let mut node = node();
    let open = made(&mut node, "f");
    node.write(open, 0, &[5; 10_000]).unwrap();
    node.unlink("f", false).unwrap();
    assert_eq!(failed(node.stat("f", false)), Errno::ENOENT);
    node.restart();
    node.write(open, 10_000, b"more").unwrap();
    assert_eq!(node.read(open, 9_999, 100).unwrap(), b"\x05more");
    let attr = node.fstat(open).unwrap();
    assert_eq!((attr.links, attr.size_bytes), (0, 10_004));
    assert_eq!(node.core().counters().orphans, 1);
    let file = node.region.opens[open.index as usize].file.load(Relaxed);
    let flags = node.region.files[file as usize].flags.load(Relaxed);
    assert_eq!(flags, FILE_OBJECT | FILE_UNLINKED);
    node.close(open);
    idle(&mut node);
    assert_eq!((node.core().counters().orphans, objects(&node)), (0, 0));
}

fn identity(node: &Node, open: OpenRef) -> FileId {
    FileId(node.region.opens[open.index as usize].id.load(Relaxed))
}

fn open_itself(node: &mut Node, id: FileId, path: &str, flags: u32) -> Answer<OpenRef> {
    let walk = Walk { start: id, flags: WALK_EMPTY, path: path.as_bytes() };
    let request = Open { walk, flags, mode: 0, uid: 0, gid: 0 };
    node.ask(&request, |reply: mayfly_wire::OpenReply<'_>| reply.opened.open)
}

#[test]
fn an_open_file_is_opened_again_by_its_identity_whatever_became_of_its_name() {
    let mut node = node();
    let mut stay = |name: &str| {
        let open = made(&mut node, name);
        node.write(open, 0, name.as_bytes()).unwrap();
        open
    };
    let (fused, moved, removed) = (stay("fused"), stay("moved"), stay("removed"));
    node.rename("moved", "elsewhere", 0).unwrap();
    node.unlink("removed", false).unwrap();
    for (open, content) in [(fused, "fused"), (moved, "moved"), (removed, "removed")] {
        let id = identity(&node, open);
        let again = open_itself(&mut node, id, "", O_RDWR).unwrap();
        assert_ne!(again, open, "a description of its own");
        node.close(open);
        assert_eq!(node.read(again, 0, 100).unwrap(), content.as_bytes());
        assert_eq!(failed(open_itself(&mut node, id, ".", 0)), Errno::ENOTDIR);
        let directory = 0o200_000;
        assert_eq!(failed(open_itself(&mut node, id, "", directory)), Errno::ENOTDIR);
        open_itself(&mut node, id, "", O_CREAT | O_TRUNC | 1).unwrap();
        assert_eq!(node.fstat(again).unwrap().size_bytes, 0);
    }
    node.restart();
    assert_eq!(node.core().counters().orphans, 1);
}

#[test]
fn a_removed_working_directory_is_an_empty_one_without_links() {
    let mut node = node();
    node.mkdir("d").unwrap();
    let id = node.stat("d", false).unwrap().id;
    node.unlink("d", true).unwrap();
    let stat = |node: &mut Node| {
        let walk = Walk { start: id, flags: 0, path: b"." };
        node.ask(&Stat { target: Target::Path(walk) }, |attr| attr).unwrap()
    };
    let attr = stat(&mut node);
    assert_eq!((attr.id, attr.kind, attr.links, attr.mode), (id, FileKind::Directory, 0, 0o755));
    let open = open_itself(&mut node, id, ".", 0).unwrap();
    assert_eq!(node.list(open, 1000).unwrap(), []);
    assert_eq!(node.fstat(open).unwrap().links, 0);
    assert_eq!(failed(open_itself(&mut node, id, "new", O_CREAT | O_RDWR)), Errno::ENOENT);
    assert_eq!(node.stat(".", false).unwrap().links, 2);
    let walk = Walk { start: id, flags: 0, path: b".." };
    let above = node.ask(&Stat { target: Target::Path(walk) }, |attr| attr.id).unwrap();
    assert_eq!(above, FileId::ROOT);
    let mode = SetAttr { target: Target::Directory(id), which: SET_MODE, mode: 0o700, ..set() };
    node.ask(&mode, |_| ()).unwrap();
    node.restart();
    assert_eq!(node.fstat(open).unwrap().mode, 0o700);
    assert_eq!(node.core().counters().orphans, 1);
    node.close(open);
    node.ask(&mode, |_| ()).unwrap();
    assert_eq!(stat(&mut node).mode, 0o700, "also when it is not open any more");
    let counters = node.core().counters();
    assert_eq!((counters.orphans, counters.directories), (0, 1));
}

#[test]
fn leave_to_look_at_an_object_leaves_nobody_who_writes_it() {
    let mut node = node();
    let open = made(&mut node, "program");
    let program = std::fs::read("/bin/true").unwrap();
    node.write(open, 0, &program).unwrap();
    node.ask(&Write { open, offset: 0, append: false, bytes: &program[..4] }, |_| ()).unwrap();
    node.close(open);
    let open = node.open("program", 0).unwrap().0;
    assert_eq!(node.fstat(open).unwrap().size_bytes, program.len() as u64);
    let path = node.grant(open, GRANT_READ | GRANT_OBJECT, 0).unwrap();
    let run = std::process::Command::new(node.objects.join(path)).status();
    assert!(run.unwrap().success());
}

#[test]
fn orphans_of_a_session_that_died_with_the_daemon_are_removed_at_its_start() {
    let mut node = node();
    let open = made(&mut node, "f");
    node.write(open, 0, &[5; 10_000]).unwrap();
    node.unlink("f", false).unwrap();
    node.sessions.clear();
    node.restart();
    idle(&mut node);
    let counters = node.core().counters();
    assert_eq!((counters.orphans, counters.open_files, counters.objects), (0, 0, 0));
    assert_eq!(objects(&node), 0);
}

#[test]
fn a_private_description_ends_with_its_session_and_a_shared_one_with_the_kernels() {
    let mut node = node();
    let private = made(&mut node, "a");
    let shared = made(&mut node, "b");
    share(&node, shared);
    node.sessions.clear();
    node.core().session_closed(SESSION);
    assert_eq!(node.region.opens[private.index as usize].state.load(Relaxed), OPEN_FREE);
    node.restart();
    assert_eq!(node.core().counters().open_files, 1);
    node.core().session_opened(OTHER, OTHER_PID);
    assert!(node.fstat(shared).is_ok(), "another process goes on with it");
    assert_eq!(failed(node.fstat(private)), Errno::EBADF);
    node.core().open_released(shared.index);
    assert_eq!(failed(node.fstat(shared)), Errno::EBADF);
}

#[test]
fn a_scribbled_table_does_not_survive_a_restart_nor_stop_it() {
    let mut node = node();
    let good = made(&mut node, "good");
    let bad: Vec<OpenRef> = (0..4).map(|number| made(&mut node, &format!("bad{number}"))).collect();
    let entry = |open: OpenRef| &node.region.opens[open.index as usize];
    entry(bad[0]).file.store(u32::MAX, Relaxed);
    entry(bad[1]).id.store(u64::MAX, Relaxed);
    entry(bad[2]).kind.store(77, Relaxed);
    let file = entry(bad[3]).file.load(Relaxed);
    node.region.keys[file as usize].name_bytes.store(9999, Relaxed);
    node.restart();
    assert!(node.fstat(good).is_ok());
    for open in bad {
        assert_eq!(failed(node.fstat(open)), Errno::EBADF);
    }
    assert_eq!(node.core().counters().open_files, 1);
}

#[test]
fn an_open_that_is_repeated_after_a_restart_leaves_one_description() {
    let mut node = node();
    made(&mut node, "f");
    let caller = Caller { session: SESSION, lane: 3, request_id: 900 };
    let request = Open { walk: walk("f", 0), flags: O_RDWR, mode: 0, uid: 0, gid: 0 };
    let mut body = vec![0; 4096];
    for _ in 0..2 {
        assert!(matches!(node.submit(caller, &request, &mut body), Progress::Replied(0, _)));
        node.core().commit().unwrap();
        node.restart();
    }
    assert!(matches!(node.submit(caller, &request, &mut body), Progress::Replied(0, _)));
    assert_eq!(node.core().counters().open_files, 2);
}

#[test]
fn what_was_not_committed_never_happened() {
    let mut node = Node::on_disk(config());
    node.mkdir("kept").unwrap();
    let caller = node.next_caller(SESSION);
    let request =
        Open { walk: walk("kept/f", 0), flags: O_CREAT | O_RDWR, mode: 0o600, uid: 0, gid: 0 };
    let mut body = vec![0; 4096];
    assert!(matches!(node.submit(caller, &request, &mut body), Progress::Replied(0, _)));
    assert!(node.core().batch_transaction() > node.core().committed_transaction());
    node.restart();
    assert_eq!(failed(node.stat("kept/f", false)), Errno::ENOENT);
    let counters = node.core().counters();
    assert_eq!((counters.files, counters.open_files), (0, 0));
    assert!(node.stat("kept", false).is_ok());
}

#[test]
fn small_files_make_no_object_and_become_small_again() {
    let mut node = node();
    let open = made(&mut node, "f");
    node.write(open, 0, &[1; 4096]).unwrap();
    assert_eq!(objects(&node), 0);
    assert_eq!(node.grant(open, GRANT_WRITE, INLINE_MAX).unwrap(), "");
    node.write(open, 4096, b"x").unwrap();
    assert_eq!(objects(&node), 1);
    node.close(open);
    let attr = node.stat("f", false).unwrap();
    assert_eq!(attr.size_bytes, 4097);
    let open = node.open("f", O_RDWR | O_TRUNC).unwrap().0;
    idle(&mut node);
    assert_eq!(objects(&node), 0);
    node.write(open, 0, b"abc").unwrap();
    let path = node.grant(open, GRANT_READ | GRANT_OBJECT, 0).unwrap();
    assert_eq!(std::fs::read(node.objects.join(&path)).unwrap(), b"abc");
    assert!(path.ends_with(".2"), "a new object has a new generation");
}

#[test]
fn bytes_that_were_never_acknowledged_do_not_show_behind_a_hole() {
    let mut node = node();
    let open = made(&mut node, "f");
    node.write(open, 0, &[1; 5000]).unwrap();
    let path = node.grant(open, GRANT_READ, 0).unwrap();
    node.close(open);
    std::fs::write(node.objects.join(&path), [7; 9000]).unwrap();
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 5000);
    let open = node.open("f", O_RDWR).unwrap().0;
    node.write(open, 20_000, b"end").unwrap();
    assert_eq!(node.read(open, 5000, 4000).unwrap(), vec![0; 4000]);
}

#[test]
fn an_old_time_set_after_writing_stays() {
    let mut node = node();
    let open = made(&mut node, "f");
    node.write(open, 0, &[1; 5000]).unwrap();
    let old = Timestamp { seconds: 1_000_000, nanoseconds: 3 };
    let change = SetAttr { mtime: old, ..set() };
    let attr = node.set_attr(Target::Open(open), SET_MTIME, change).unwrap();
    assert_eq!(attr.mtime, old);
    assert_eq!(node.fstat(open).unwrap().mtime, old);
    node.close(open);
    assert_eq!(node.stat("f", false).unwrap().mtime, old);
    let open = node.open("f", O_RDWR).unwrap().0;
    node.grant(open, GRANT_WRITE, 1).unwrap();
    assert_eq!(node.fstat(open).unwrap().mtime, old, "leave to write changes nothing yet");
}

#[test]
fn without_times_every_file_reports_its_creation() {
    let mut node = Node::memory(mayfly_daemon::Config { times: Times::None, ..config() });
    let open = made(&mut node, "f");
    let attr = node.fstat(open).unwrap();
    node.write(open, 0, &[1; 5000]).unwrap();
    let after = node.fstat(open).unwrap();
    assert_eq!((after.mtime, after.ctime), (attr.btime, attr.btime));
}

#[test]
fn walks_that_leave_the_instance_say_where_to() {
    let mut node = node();
    node.mkdir("d").unwrap();
    node.symlink("/etc/hosts", "d/out").unwrap();
    node.symlink("/mnt/mayfly/d", "in").unwrap();
    node.symlink("/usr", "usr").unwrap();
    let escaped = |answer: Result<_, Failed>| match answer {
        Err(Failed::Escaped(path)) => String::from_utf8(path).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(escaped(node.stat("d/out", true)), "/etc/hosts");
    assert_eq!(escaped(node.stat("usr/lib/x", false)), "/usr/lib/x");
    assert_eq!(escaped(node.stat("d/../../up/", true)), "/mnt/up/");
    assert_eq!(escaped(node.stat("..", true)), "/mnt");
    assert!(node.stat("d/out", false).is_ok());
    assert_eq!(escaped(node.stat("in/out", true)), "/etc/hosts");
    assert!(node.stat("in/../in/.", true).is_ok());
}

#[test]
fn links_in_a_circle_end_and_forty_links_do_not() {
    let mut node = node();
    node.mkdir("d0").unwrap();
    for number in 1..=41 {
        node.symlink(&format!("d{}", number - 1), &format!("d{number}")).unwrap();
    }
    assert!(node.stat("d40", true).is_ok());
    assert_eq!(failed(node.stat("d41", true)), Errno::ELOOP);
    node.symlink("b", "a").unwrap();
    node.symlink("a", "b").unwrap();
    assert_eq!(failed(node.stat("a/x", true)), Errno::ELOOP);
}

/// The beginning of a path is remembered from one request to the next, as far as it led through
/// directories.
#[test]
fn a_path_that_was_just_walked_leads_where_its_names_lead_now() {
    let mut node = node();
    let found = |node: &mut Node, path: &str| node.stat(path, false).map(|attr| attr.id);
    let none = |errno| Err(Failed::Errno(errno));
    node.mkdir("a").unwrap();
    node.mkdir("a/b").unwrap();
    made(&mut node, "a/b/file");
    let first = found(&mut node, "a/b/file").unwrap();
    node.rename("a", "c", 0).unwrap();
    assert_eq!(found(&mut node, "a/b/file"), none(Errno::ENOENT), "above");
    assert_eq!(found(&mut node, "c/b/file"), Ok(first));
    node.symlink("c", "a").unwrap();
    assert_eq!(found(&mut node, "a/b/file"), Ok(first));
    node.unlink("a", false).unwrap();
    assert_eq!(found(&mut node, "a/b/file"), none(Errno::ENOENT), "by a link");
    assert_eq!(found(&mut node, "c/b/../b/file"), Ok(first));
    node.rename("c/b", "d", 0).unwrap();
    assert_eq!(found(&mut node, "c/b/file"), none(Errno::ENOENT), "the last one");
    node.mkdir("c/b").unwrap();
    made(&mut node, "c/b/file");
    assert_ne!(found(&mut node, "c/b/file"), Ok(first), "another one of the same name");
    node.unlink("c/b/file", false).unwrap();
    node.unlink("c/b", true).unwrap();
    assert_eq!(failed(node.open("c/b/file", O_CREAT | O_RDWR)), Errno::ENOENT);
    made(&mut node, "c/b");
    assert_eq!(found(&mut node, "c/b/file"), none(Errno::ENOTDIR));
}

#[test]
fn the_path_of_a_directory_follows_its_renames() {
    let mut node = node();
    for path in ["a", "a/b", "z"] {
        node.mkdir(path).unwrap();
    }
    let id = node.stat("a/b", false).unwrap().id;
    let path_of = |node: &mut Node| {
        let take = |text: Text<'_>| String::from_utf8(text.bytes.to_vec()).unwrap();
        node.ask(&PathOf { file: id }, take)
    };
    assert_eq!(path_of(&mut node).unwrap(), "/a/b");
    node.rename("a", "z/y", 0).unwrap();
    assert_eq!(path_of(&mut node).unwrap(), "/z/y/b");
    let up = mayfly_wire::Walk { start: id, flags: 0, path: b"../.." };
    let stat = mayfly_wire::Stat { target: Target::Path(up) };
    let z = node.stat("z", false).unwrap().id;
    assert_eq!(node.ask(&stat, |attr: mayfly_types::Attr| attr.id).unwrap(), z);
    node.unlink("z/y/b", true).unwrap();
    assert_eq!(failed(path_of(&mut node)), Errno::ENOENT);
}

#[test]
fn a_listing_shows_what_was_there_all_the_time_once() {
    let mut node = node();
    node.mkdir("d").unwrap();
    for number in 0..500 {
        let open = made(&mut node, &format!("d/stays{number}"));
        node.close(open);
    }
    let directory = node.open("d", 0).unwrap().0;
    let mut cookie = 0;
    let mut seen = Vec::new();
    for round in 0.. {
        let open = made(&mut node, &format!("d/comes{round}"));
        node.close(open);
        if round % 7 == 0 {
            node.restart();
        }
        let list = mayfly_wire::List { open: directory, cookie, bytes_max: 1000 };
        let (names, next) = node
            .ask(&list, |listing: mayfly_wire::Listing<'_>| {
                let entries: Vec<_> =
                    mayfly_wire::listing::entries(listing.entries).map(Result::unwrap).collect();
                let names: Vec<Vec<u8>> = entries.iter().map(|entry| entry.name.to_vec()).collect();
                (names, entries.last().map(|entry| entry.next_cookie))
            })
            .unwrap();
        seen.extend(names);
        match next {
            Some(next) => cookie = next,
            None => break,
        }
    }
    let stays: Vec<_> = seen.iter().filter(|name| name.starts_with(b"stays")).collect();
    let different: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(stays.len(), 500);
    assert_eq!(different.len(), seen.len());
}

fn range(owner: u32, kind: u32, start: u64, end: u64) -> LockRange {
    LockRange { owner, kind, start, end }
}

fn lock(
    node: &mut Node,
    session: SessionId,
    open: OpenRef,
    range: LockRange,
) -> Result<(), Failed> {
    node.ask_as(session, &Lock { open, range, wait: false }, |()| ())
}

fn wait_for(node: &mut Node, session: SessionId, open: OpenRef, range: LockRange) -> Caller {
    let caller = node.next_caller(session);
    let progress = node.submit(caller, &Lock { open, range, wait: true }, &mut [0; 64]);
    assert_eq!(progress, Progress::Pending);
    assert!(node.completions().is_empty());
    caller
}

#[test]
fn locks_outlive_the_daemon_and_end_with_their_session() {
    let mut node = with_two_sessions();
    let mine = opened_by(&mut node, SESSION, "f");
    let theirs = opened_by(&mut node, OTHER, "f");
    lock(&mut node, SESSION, mine, range(LOCK_POSIX, LOCK_WRITE, 0, 10)).unwrap();
    lock(&mut node, SESSION, mine, range(LOCK_FLOCK, LOCK_WRITE, 0, u64::MAX)).unwrap();
    node.restart();
    let wanted = range(LOCK_POSIX, LOCK_READ, 5, 20);
    assert_eq!(failed(lock(&mut node, OTHER, theirs, wanted)), Errno::EAGAIN);
    let test = TestLock { open: theirs, range: wanted };
    let conflict = node.ask_as(OTHER, &test, |conflict: Conflict| conflict).unwrap();
    assert_eq!((conflict.pid, conflict.range.start, conflict.range.end), (PID as i32, 0, 10));
    let first = wait_for(&mut node, OTHER, theirs, wanted);
    let second = wait_for(&mut node, OTHER, theirs, range(LOCK_FLOCK, LOCK_READ, 0, 1));
    node.core().session_closed(SESSION);
    let mut granted: Vec<_> =
        node.completions().into_iter().map(|done| (done.caller, done.status)).collect();
    granted.sort_by_key(|done| done.0.request_id);
    assert_eq!(granted, [(first, 0), (second, 0)]);
}

#[test]
fn posix_locks_pass_to_the_session_that_follows_an_exec() {
    let mut node = with_two_sessions();
    let mine = opened_by(&mut node, SESSION, "f");
    let theirs = opened_by(&mut node, OTHER, "f");
    share(&node, mine);
    lock(&mut node, SESSION, mine, range(LOCK_POSIX, LOCK_WRITE, 0, 10)).unwrap();
    node.core().session_opened(SessionId(3), PID);
    node.core().session_closed(SESSION);
    let wanted = range(LOCK_POSIX, LOCK_WRITE, 0, 1);
    assert_eq!(failed(lock(&mut node, OTHER, theirs, wanted)), Errno::EAGAIN);
    lock(&mut node, SessionId(3), mine, range(LOCK_POSIX, LOCK_UNLOCK, 0, u64::MAX)).unwrap();
    lock(&mut node, OTHER, theirs, wanted).unwrap();
}

#[test]
fn closing_any_description_of_a_file_gives_up_the_processs_posix_locks_on_it() {
    let mut node = with_two_sessions();
    let (one, two) = (opened_by(&mut node, SESSION, "f"), opened_by(&mut node, SESSION, "f"));
    let theirs = opened_by(&mut node, OTHER, "f");
    lock(&mut node, SESSION, one, range(LOCK_POSIX, LOCK_WRITE, 0, 10)).unwrap();
    lock(&mut node, SESSION, one, range(LOCK_OFD, LOCK_READ, 20, 30)).unwrap();
    node.close(two);
    lock(&mut node, OTHER, theirs, range(LOCK_POSIX, LOCK_WRITE, 0, 10)).unwrap();
    let ofd = range(LOCK_OFD, LOCK_WRITE, 20, 21);
    assert_eq!(failed(lock(&mut node, OTHER, theirs, ofd)), Errno::EAGAIN);
    node.close(one);
    lock(&mut node, OTHER, theirs, ofd).unwrap();
}

#[test]
fn a_cancelled_wait_is_answered_with_eintr() {
    let mut node = with_two_sessions();
    let mine = opened_by(&mut node, SESSION, "f");
    let theirs = opened_by(&mut node, OTHER, "f");
    lock(&mut node, SESSION, mine, range(LOCK_FLOCK, LOCK_WRITE, 0, 1)).unwrap();
    let caller = wait_for(&mut node, OTHER, theirs, range(LOCK_FLOCK, LOCK_WRITE, 0, 1));
    node.ask_as(OTHER, &Cancel { request_id: caller.request_id }, |()| ()).unwrap();
    let done = node.completions();
    assert_eq!((done[0].caller, done[0].status), (caller, Errno::EINTR.raw() as u32));
    node.close(mine);
    assert!(node.completions().is_empty());
}

#[test]
fn a_waiter_is_told_only_when_its_lock_is_committed() {
    let mut node = with_two_sessions();
    let mine = opened_by(&mut node, SESSION, "f");
    let theirs = opened_by(&mut node, OTHER, "f");
    lock(&mut node, SESSION, mine, range(LOCK_FLOCK, LOCK_WRITE, 0, 1)).unwrap();
    wait_for(&mut node, OTHER, theirs, range(LOCK_FLOCK, LOCK_WRITE, 0, 1));
    let caller = node.next_caller(SESSION);
    let unlock = Lock { open: mine, range: range(LOCK_FLOCK, LOCK_UNLOCK, 0, 1), wait: false };
    assert_eq!(node.submit(caller, &unlock, &mut []), Progress::Replied(0, 0));
    assert_eq!(node.core().completions().count(), 0);
    assert_eq!(node.completions().len(), 1);
}

#[test]
fn without_locks_every_request_for_one_is_refused() {
    let mut node = Node::memory(mayfly_daemon::Config { locks: false, ..config() });
    node.core().session_opened(SESSION, PID);
    let open = made(&mut node, "f");
    let wanted = range(LOCK_FLOCK, LOCK_WRITE, 0, 1);
    assert_eq!(failed(lock(&mut node, SESSION, open, wanted)), Errno::ENOLCK);
}

#[test]
fn fsync_waits_for_the_disk_only_when_the_instance_promises_it() {
    let durability = mayfly_types::Durability::Sync;
    let mut node = Node::on_disk(mayfly_daemon::Config { durability, io_threads: 1, ..config() });
    let open = made(&mut node, "f");
    node.write(open, 0, &[1; 10_000]).unwrap();
    let caller = node.next_caller(SESSION);
    let sync = Sync { target: Target::Open(open), all: false };
    assert_eq!(node.submit(caller, &sync, &mut []), Progress::Pending);
    let done = loop {
        if let Some(done) = node.completions().pop() {
            break done;
        }
        std::thread::yield_now();
    };
    assert_eq!((done.caller, done.status), (caller, 0));
}

#[test]
fn impossible_offsets_and_sizes_are_refused() {
    let mut node = node();
    let open = made(&mut node, "f");
    let write = |offset| Write { open, offset, append: false, bytes: b"x" };
    assert_eq!(failed(node.ask(&write(1 << 63), |_| ())), Errno::EINVAL);
    assert_eq!(failed(node.ask(&write(i64::MAX as u64), |_| ())), Errno::EFBIG);
    let target = || Target::Open(open);
    let size = |size_bytes| SetAttr { size_bytes, ..set() };
    assert_eq!(failed(node.set_attr(target(), SET_SIZE, size(1 << 63))), Errno::EINVAL);
    assert_eq!(failed(node.set_attr(target(), SET_SIZE, size(i64::MAX as u64))), Errno::EFBIG);
    let stale = OpenRef { index: open.index, generation: open.generation + 1 };
    assert_eq!(failed(node.fstat(stale)), Errno::EBADF);
    assert_eq!(failed(node.fstat(OpenRef { index: u32::MAX, generation: 0 })), Errno::EBADF);
}

/// tmpfs has no bound there; with that of files, `mkdir` failed after 65,000 of them.
#[test]
fn a_directory_has_more_than_65_000_directories() {
    let mut node = node();
    node.mkdir("d").unwrap();
    for number in 0..65_100 {
        let path = format!("d/{number}");
        let request = MakeDirectory { walk: walk(&path, 0), mode: 0o755, uid: 0, gid: 0 };
        let caller = node.next_caller(SESSION);
        assert_eq!(node.submit(caller, &request, &mut []), Progress::Replied(0, 0));
    }
    assert_eq!(node.stat("d", true).unwrap().links, 65_102);
}
