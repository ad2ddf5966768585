//! Jobs of the I/O pool that take their time: meanwhile the shard answers others, and whatever
//! happens in between, the file is whole.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use mayfly_daemon::{Caller, Completion, Message, Progress, ShardId};
use mayfly_object::ObjectId;
use mayfly_types::{Errno, OpenRef, SessionId, Timestamp};
use mayfly_wire::{
    Close, Open, Opened, Operation, Read, Reader, Rename, SET_MTIME, SET_SIZE, SetAttr, Stat,
    Target, WALK_FOLLOW, Wire, Write,
};
use support::{Node, O_CREAT, O_RDWR, SESSION, config, failed, set, walk};

const O_TRUNC: u32 = 0o1000;

/// A node whose jobs run when they are told, and a file with an object that is open there.
fn node() -> (Node, OpenRef) {
    let mut node = Node::memory(config()).slowed();
    let open = node.open("f", O_CREAT | O_RDWR).unwrap().0;
    node.write(open, 0, &[1; 10_000]).unwrap();
    (node, open)
}

fn run_all(node: &mut Node) -> Vec<Completion> {
    node.settle_down();
    node.completions()
}

fn statuses(done: &[Completion]) -> Vec<(Caller, u32)> {
    done.iter().map(|done| (done.caller, done.status)).collect()
}

/// Nobody waits for this request any more.
fn give_up(node: &mut Node, caller: Caller) {
    node.core().deliver(ShardId(0), Message::GivenUp(caller));
    node.core().commit().unwrap();
}

fn truncating() -> Open<'static> {
    Open { walk: walk("f", 0), flags: O_RDWR | O_TRUNC, mode: 0, uid: 0, gid: 0 }
}

fn begin_truncating(node: &mut Node) -> Caller {
    let caller = node.next_caller(SESSION);
    assert_eq!(node.submit(caller, &truncating(), &mut [0; 4096]), Progress::Pending);
    assert_eq!(node.completions(), [], "not before the object is cut");
    caller
}

fn opened(done: &Completion) -> Opened {
    assert_eq!(done.status, 0);
    Opened::decode(&mut Reader::new(&done.body.to_vec())).unwrap()
}

#[test]
fn others_are_answered_while_an_open_truncates() {
    let (mut node, open) = node();
    let caller = begin_truncating(&mut node);
    assert_eq!(node.fstat(open).unwrap().size_bytes, 10_000, "the shard answers");
    node.mkdir("d").unwrap();
    node.rename("f", "d/f", 0).unwrap();
    let done = run_all(&mut node);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].caller, caller);
    let opened = opened(&done[0]);
    assert_eq!((opened.attr.size_bytes, opened.created), (0, false));
    assert_eq!(node.fstat(opened.open).unwrap().size_bytes, 0);
    assert_eq!(node.stat("d/f", false).unwrap().size_bytes, 0);
}

#[test]
fn an_open_that_truncates_does_so_once_when_the_daemon_dies_before_or_after_the_cut() {
    for cut in [false, true] {
        let (mut node, open) = node();
        let caller = begin_truncating(&mut node);
        if cut {
            assert!(node.run_job(0, 0));
        }
        node.restart();
        // The cut is made by now.
        let later = Write { open, offset: 0, append: false, bytes: b"later" };
        node.ask_as(SessionId(SESSION.0 + 1), &later, |_| ()).unwrap();
        let again = opened(&node.answer_to(caller, &truncating())).open;
        assert_eq!(node.core().counters().open_files, 2, "the first attempt left nothing open");
        node.close(again);
        node.close(open);
        run_all(&mut node);
        assert_eq!(node.stat("f", false).unwrap().size_bytes, 5, "what was written since stays");
    }
}

#[test]
fn a_truncate_that_comes_again_cuts_no_other_file_that_has_got_the_name() {
    let (mut node, open) = node();
    let new = node.open("new", O_CREAT | O_RDWR).unwrap().0;
    node.write(new, 0, b"complete").unwrap();
    let target = Target::Path(walk("f", WALK_FOLLOW));
    let cut = SetAttr { target, which: SET_SIZE, size_bytes: 5, ..set() };
    let caller = node.next_caller(SESSION);
    assert_eq!(node.submit(caller, &cut, &mut [0; 4096]), Progress::Pending);
    node.core().commit().unwrap();
    node.restart();
    let (from, to) = (walk("new", 0), walk("f", 0));
    let rename = Rename { from, to, flags: 0 };
    node.ask_as(SessionId(SESSION.0 + 1), &rename, |_| ()).unwrap();
    let answered = node.submit(caller, &cut, &mut [0; 4096]);
    assert!(matches!(answered, Progress::Replied(0, _)), "{answered:?}");
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 8, "what is complete stays so");
    assert_eq!(node.fstat(open).unwrap().size_bytes, 5, "the file that had the name is cut");
}

#[test]
fn a_write_that_was_begun_is_made_before_others_see_the_file_when_the_daemon_dies() {
    for append in [false, true] {
        let (mut node, open) = node();
        let write = Write { open, offset: 20_000, append, bytes: &[2; 10] };
        let caller = node.next_caller(SESSION);
        assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
        node.core().commit().unwrap();
        assert!(node.run_job(0, 0), "the bytes are there, and nobody is told");
        node.restart();
        let cut = SetAttr { target: Target::Open(open), which: SET_SIZE, size_bytes: 5, ..set() };
        let other = Caller { lane: 1, ..node.next_caller(SESSION) };
        assert_eq!(node.submit(other, &cut, &mut [0; 4096]), Progress::Pending);
        node.settle_down();
        assert_eq!(node.completions(), [], "append {append}: it waits for the write");
        assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
        let mut done = run_all(&mut node);
        done.extend(run_all(&mut node));
        assert_eq!(done.iter().map(|done| done.status).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(done[0].caller, caller, "append {append}");
        assert_eq!(node.fstat(open).unwrap().size_bytes, 5, "append {append}: it is cut off");
    }
}

/// Requests that met what a lost node held went on waiting in the daemon when their processes had
/// given up, and each of them kept a lane: after 16 a process could ask nobody any more.
#[test]
fn a_request_that_waits_for_others_ends_without_a_trace_when_it_is_given_up() {
    let (mut node, open) = node();
    let write = Write { open, offset: 20_000, append: false, bytes: &[2; 10] };
    let caller = node.next_caller(SESSION);
    assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
    node.core().commit().unwrap();
    node.restart();
    let cut = SetAttr { target: Target::Open(open), which: SET_SIZE, size_bytes: 5, ..set() };
    let others: Vec<Caller> =
        (1..4).map(|lane| Caller { lane, ..node.next_caller(SESSION) }).collect();
    for other in &others {
        assert_eq!(node.submit(*other, &cut, &mut [0; 4096]), Progress::Pending);
    }
    give_up(&mut node, others[1]);
    assert_eq!(statuses(&node.core().answers()), [(others[1], Errno::EIO.raw() as u32)]);
    give_up(&mut node, others[1]);
    give_up(&mut node, Caller { request_id: others[2].request_id, ..others[0] });
    assert_eq!(node.core().answers(), [], "nothing else ends");
    give_up(&mut node, others[0]);
    give_up(&mut node, others[2]);
    node.core().answers();
    assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
    assert_eq!(statuses(&run_all(&mut node)), [(caller, 0)]);
    assert_eq!(node.fstat(open).unwrap().size_bytes, 20_010, "nobody has cut it");
}

#[test]
fn a_request_that_is_being_executed_goes_on_when_it_is_given_up() {
    let (mut node, open) = node();
    let caller = begin_truncating(&mut node);
    assert_eq!(node.core().counters().open_files, 2);
    give_up(&mut node, caller);
    assert_eq!(node.core().counters().open_files, 1, "nobody has what it opens");
    assert_eq!(node.core().answers(), []);
    assert_eq!(statuses(&run_all(&mut node)), [(caller, 0)], "it was under way");
    assert_eq!(node.fstat(open).unwrap().size_bytes, 0);
    node.close(open);
}

#[test]
fn what_was_opened_for_a_request_that_was_given_up_is_closed() {
    let (mut node, open) = node();
    let caller = begin_truncating(&mut node);
    let opened = opened(&run_all(&mut node)[0]).open;
    // The answer found nobody.
    give_up(&mut node, caller);
    assert_eq!(failed(node.fstat(opened)), Errno::EBADF);
    assert_eq!(node.core().counters().open_files, 1);
    node.close(open);
}

#[test]
fn nobody_waits_for_a_write_that_was_begun_when_its_process_has_ended() {
    let (mut node, open) = node();
    let write = Write { open, offset: 20_000, append: false, bytes: &[2; 10] };
    let mine = SessionId(SESSION.0 + 1);
    node.sessions.push((mine, 77));
    let caller = node.next_caller(mine);
    assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
    node.core().commit().unwrap();
    node.restart();
    let read = Read { open, offset: 0, count: 10 };
    let other = node.next_caller(SESSION);
    assert_eq!(node.submit(other, &read, &mut [0; 4096]), Progress::Pending);
    node.settle_down();
    assert_eq!(node.completions(), []);
    node.core().session_closed(mine);
    let done = run_all(&mut node);
    assert_eq!(
        done.iter().map(|done| (done.caller, done.status)).collect::<Vec<_>>(),
        [(other, 0)]
    );
}

#[test]
fn a_file_that_goes_while_an_open_truncates_it_leaves_no_object() {
    let (mut node, _) = node();
    begin_truncating(&mut node);
    node.unlink("f", false).unwrap();
    node.core().session_closed(SESSION);
    node.core().commit().unwrap();
    // The removal before the cut, too.
    while node.run_job(0, 1) || node.run_job(0, 0) {}
    run_all(&mut node);
    run_all(&mut node);
    let counters = node.core().counters();
    assert_eq!((counters.open_files, counters.objects, counters.orphans), (0, 0, 0));
    let left = std::fs::read_dir(&node.objects).unwrap();
    assert!(left.flatten().all(|parent| std::fs::read_dir(parent.path()).unwrap().count() == 0));
}

#[test]
fn closing_waits_for_no_disk_and_the_size_is_settled_later() {
    let (mut node, open) = node();
    let caller = node.next_caller(SESSION);
    let closed = node.submit(caller, &Close { open }, &mut []);
    assert_eq!(closed, Progress::Replied(0, 0));
    node.core().commit().unwrap();
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 10_000, "the object tells");
    let open = node.open("f", O_RDWR).unwrap().0;
    run_all(&mut node);
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 10_000);
    let write = Write { open, offset: 10_000, append: false, bytes: &[2; 10] };
    let caller = node.next_caller(SESSION);
    assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
    assert_eq!(run_all(&mut node).len(), 1);
    node.close(open);
    run_all(&mut node);
    node.restart();
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 10_010);
    assert_eq!(failed(node.fstat(open)), mayfly_types::Errno::EBADF);
}

#[test]
fn times_are_set_in_the_pool_and_stay_when_the_size_is_settled() {
    let (mut node, open) = node();
    let mtime = Timestamp { seconds: 77, nanoseconds: 5 };
    let target = Target::Path(walk("f", WALK_FOLLOW));
    let request = SetAttr { target, which: SET_MTIME, mtime, ..set() };
    let caller = node.next_caller(SESSION);
    assert_eq!(node.submit(caller, &request, &mut [0; 4096]), Progress::Pending);
    node.core().commit().unwrap();
    node.close(open);
    node.mkdir("d").unwrap();
    assert_eq!(run_all(&mut node).len(), 1);
    run_all(&mut node);
    assert_eq!(node.stat("f", false).unwrap().mtime, mtime);
    node.restart();
    assert_eq!(node.stat("f", false).unwrap().mtime, mtime);
}

fn small() -> (Node, OpenRef) {
    let mut node = Node::memory(config()).slowed();
    let open = node.open("f", O_CREAT | O_RDWR).unwrap().0;
    node.write(open, 0, b"small").unwrap();
    (node, open)
}

/// A small file and a request that makes it outgrow its record; the disk is still to be asked.
fn outgrowing() -> (Node, OpenRef, Caller) {
    let (mut node, open) = small();
    let caller = node.next_caller(SESSION);
    begin_write(&mut node, caller, open, &[2; 10_000]);
    (node, open, caller)
}

fn begin_write(node: &mut Node, caller: Caller, open: OpenRef, bytes: &[u8]) {
    let write = Write { open, offset: 5, append: false, bytes };
    assert_eq!(node.submit(caller, &write, &mut [0; 100]), Progress::Pending);
    assert_eq!(node.completions(), []);
}

fn answered_at_once<'a, O: Operation<'a>>(node: &mut Node, request: &O) {
    let caller = node.next_caller(SESSION);
    let progress = node.submit(caller, request, &mut [0; 4096]);
    assert!(matches!(progress, Progress::Replied(0, _)), "{progress:?}");
}

fn objects_of(node: &Node) -> usize {
    let parents = std::fs::read_dir(&node.objects).unwrap().flatten();
    parents.map(|parent| std::fs::read_dir(parent.path()).unwrap().count()).sum()
}

#[test]
fn while_a_file_outgrows_its_record_only_who_changes_it_waits() {
    let (mut node, open, first) = outgrowing();
    let (from, to) = (walk("f", 0), walk("g", 0));
    answered_at_once(&mut node, &Rename { from, to, flags: 0 });
    answered_at_once(&mut node, &Stat { target: Target::Open(open) });
    answered_at_once(&mut node, &Read { open, offset: 0, count: 100 });
    let second = node.next_caller(SESSION);
    begin_write(&mut node, second, open, b"!");
    let done: Vec<_> = run_all(&mut node).iter().map(|done| (done.caller, done.status)).collect();
    assert!(
        done.len() == 2 && done.contains(&(first, 0)) && done.contains(&(second, 0)),
        "{done:?}"
    );
    let bytes = node.read(open, 0, 20_000).unwrap();
    assert_eq!((&bytes[..5], bytes.len()), (b"small".as_slice(), 10_005));
    assert!(bytes[6..].iter().all(|byte| *byte == 2), "what comes after it was not undone");
    assert_eq!(objects_of(&node), 1);
}

#[test]
fn an_object_that_was_made_for_nobody_goes() {
    for made in [false, true] {
        let (mut node, ..) = outgrowing();
        if made {
            assert!(node.run_job(0, 0));
            assert_eq!(objects_of(&node), 1);
        }
        node.core().session_closed(SESSION);
        run_all(&mut node);
        run_all(&mut node);
        assert_eq!(objects_of(&node), 0);
        assert_eq!(node.stat("f", false).unwrap().size_bytes, 5);
        assert_eq!(node.core().counters().objects, 0);
    }
}

#[test]
fn an_object_that_a_dead_daemon_had_made_for_nobody_goes() {
    let (mut node, ..) = outgrowing();
    assert!(node.run_job(0, 0));
    node.sessions.clear();
    node.restart();
    run_all(&mut node);
    assert_eq!(objects_of(&node), 0);
    assert_eq!(node.stat("f", false).unwrap().size_bytes, 5);
}

#[test]
fn an_object_that_cannot_be_made_is_said_and_leaves_the_file_as_it_was() {
    let (mut node, open) = small();
    // A directory of the same name is in the way.
    let path = ObjectId { file: node.fstat(open).unwrap().id, generation: 1 }.path();
    std::fs::create_dir_all(node.objects.join(&path)).unwrap();
    let caller = node.next_caller(SESSION);
    begin_write(&mut node, caller, open, &[2; 10_000]);
    let done = run_all(&mut node);
    assert_eq!((done[0].caller, done[0].status), (caller, Errno::EISDIR.raw() as u32));
    assert_eq!(node.read(open, 0, 100).unwrap(), b"small");
    std::fs::remove_dir(node.objects.join(&path)).unwrap();
    node.restart();
    assert_eq!(node.write(open, 5, &[2; 10_000]).unwrap(), 10_005);
}

/// A write that reached the object when the daemon died, and whose process died too.
#[test]
fn what_nobody_acknowledged_is_cut_off_before_the_next_write() {
    let (mut node, open) = node();
    node.close(open);
    run_all(&mut node);
    let id = node.stat("f", false).unwrap().id;
    let path = node.objects.join(ObjectId { file: id, generation: 1 }.path());
    std::fs::File::options().write(true).open(&path).unwrap().set_len(50_000).unwrap();
    let open = node.open("f", O_RDWR).unwrap().0;
    let callers = [node.next_caller(SESSION), node.next_caller(SESSION)];
    for caller in callers {
        begin_write(&mut node, caller, open, &[3; 20_000]);
    }
    assert_eq!(run_all(&mut node).len(), 2);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 20_005);
    assert_eq!(node.fstat(open).unwrap().size_bytes, 20_005);
}

#[test]
fn what_idle_writers_have_set_aside_is_taken_back_when_their_objects_are_not_open() {
    let capacity_bytes = 64 << 20;
    let mut node = Node::memory(mayfly_daemon::Config { capacity_bytes, ..config() }).slowed();
    let mut idlers = Vec::new();
    for number in 0..20 {
        let open = node.open(&format!("idle{number}"), O_CREAT | O_RDWR).unwrap().0;
        node.write(open, 0, &[1; 10_000]).unwrap();
        idlers.push(open);
    }
    let big = node.open("big", O_CREAT | O_RDWR).unwrap().0;
    node.write(big, 0, &vec![1; 60 << 20]).unwrap();
    assert!(node.core().counters().used_bytes <= capacity_bytes);
    for open in idlers {
        node.write(open, 10_000, &[1; 10_000]).unwrap();
        assert_eq!(node.fstat(open).unwrap().size_bytes, 20_000);
    }
}
