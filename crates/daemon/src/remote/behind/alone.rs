//! A shard by itself, whose process writes to and reads a file of another node. The test is that
//! node.

use std::collections::VecDeque;

use mayfly_types::{
    Attr, Errno, FileId, FileKind, OpenRef, SessionId, Timestamp,
    limits::{BEHIND_BYTES_MAX, LANES, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{
    Close, Data, Flush, LOCK_POSIX, LOCK_WRITE, Lock, LockRange, Op, Open, Opened, Operation, Read,
    Reader, Request, Stat, Sync, Target, Walk, Wire, Write, Written,
};

use crate::{
    api::{Caller, Completion, Consistency, Progress, Reached},
    message::{Answer, Forward, Message, Question, Resolved, request_in},
    shard::alone::{Alone, encoded, not_involved},
    shards::{numbering::Numbering, slots::ShardId},
};

const HERE: Numbering = Numbering { node: 0, nodes: 2, shards: 1 };
const THERE: ShardId = ShardId(1);
const PROCESS: SessionId = SessionId(3);
const O_RDWR: u32 = 0o2;
const O_DSYNC: u32 = 0o10000;
/// The description at the other node.
const REMOTE: OpenRef = OpenRef { index: 77, generation: 5 };

/// A node with a process, and another one that has a file.
struct Pair {
    here: Alone,
    /// What the file has.
    file: Vec<u8>,
    /// Requests that have arrived there, in their order.
    arrived: VecDeque<Forward>,
    /// Descriptions that were given back there.
    dropped: Vec<OpenRef>,
    answers: Vec<Completion>,
    last: u64,
    /// A file of the other node, as one there is.
    id: FileId,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
enum Now {
    Done(u32, Vec<u8>),
    Waits(u64),
}

impl Pair {
    fn new() -> Pair {
        let here = Alone::with(HERE, Consistency::Session);
        let is_there = |id: &FileId| here.core.place.slots.home(*id) == THERE;
        let mut ids = (0..=u16::MAX).filter_map(|slot| FileId::new(slot, 100));
        let id = ids.find(is_there).expect("the other node has some");
        let mut pair = Pair {
            here,
            file: Vec::new(),
            arrived: VecDeque::new(),
            dropped: Vec::new(),
            answers: Vec::new(),
            last: 100,
            id,
        };
        pair.here.core.session_opened(PROCESS, 1000);
        pair.go_on();
        pair
    }

    fn caller(request_id: u64) -> Caller {
        Caller { session: PROCESS, lane: (request_id % LANES as u64) as u32, request_id }
    }

    /// A description here of the file there.
    fn open(&mut self, flags: u32, remote: OpenRef) -> OpenRef {
        self.last += 1;
        let walk = Walk { start: FileId::ROOT, flags: 0, path: b"file" };
        let request = encoded(&Open { walk, flags, mode: 0, uid: 0, gid: 0 });
        let [atime, mtime, ctime, btime] = [Timestamp::default(); 4];
        let (kind, mode, links, uid, gid) = (FileKind::Regular, 0o600, 1, 0, 0);
        let (id, size_bytes, blocks) = (self.id, 0, 0);
        #[rustfmt::skip]
        let attr = Attr {
            id, kind, mode, links, uid, gid, size_bytes, blocks, atime, mtime, ctime, btime,
        };
        let opened = Opened { open: remote, attr, created: false, mapped: false };
        let caller = Pair::caller(self.last);
        let answer = encoded_reply(&opened);
        let (status, body) = self.here.core.adopt_open(caller, THERE, &request, &answer);
        assert_eq!(status, 0);
        Opened::decode(&mut Reader::new(&body)).expect("a reply").open
    }

    fn ask<'a, O: Operation<'a>>(&mut self, request: &O) -> Now {
        self.last += 1;
        let body = encoded_long(request);
        let request = Request::decode(O::OP, &body).expect("a request");
        let mut reply = vec![0; TRANSFER_BYTES_MAX + 4096];
        let progress = self.here.core.handle(Pair::caller(self.last), request, &mut reply);
        let last = self.last;
        self.go_on();
        match progress {
            Progress::Replied(status, bytes) => Now::Done(status, reply[..bytes].to_vec()),
            Progress::Pending => Now::Waits(last),
        }
    }

    /// Messages arrive, until nothing more is said.
    fn go_on(&mut self) {
        loop {
            let (done, said) = self.here.commit();
            self.answers.extend(done);
            if said.is_empty() {
                return;
            }
            for (to, message) in said {
                match message {
                    Message::Forward(forward) if to == THERE => self.arrived.push_back(*forward),
                    Message::Ask(id, question) => {
                        if let Question::Drop { open, .. } = &question {
                            self.dropped.push(*open);
                        }
                        let answer = match question {
                            Question::Returned => not_involved(),
                            _ => Answer::Done,
                        };
                        self.here.core.deliver(THERE, Message::Answer(id, answer));
                    }
                    message => self.here.core.deliver(to, message),
                }
            }
        }
    }

    /// The other node executes the request that is there as number `which`.
    fn execute(&mut self, which: usize) -> Op {
        let Forward { caller, op, body, .. } = self.arrived.remove(which).expect("a request");
        let request = request_in(op, &body).expect("a request");
        let reply = match request {
            Request::Write(write) => {
                assert_eq!(write.open, REMOTE);
                let (start, bytes) = (write.offset as usize, write.bytes);
                let end = start + bytes.len();
                self.file.resize(self.file.len().max(end), 0);
                self.file[start..end].copy_from_slice(bytes);
                let count = bytes.len() as u32;
                encoded_reply(&Written { object: true, count, end: end as u64 })
            }
            Request::Read(read) => {
                let start = (read.offset as usize).min(self.file.len());
                let end = (start + read.count as usize).min(self.file.len());
                encoded_reply(&Data { object: true, bytes: &self.file[start..end] })
            }
            _ => Vec::new(),
        };
        self.answer(caller, 0, reply);
        op
    }

    fn fail(&mut self, which: usize, errno: Errno) {
        let Forward { caller, .. } = self.arrived.remove(which).expect("a request");
        self.answer(caller, errno.raw() as u32, Vec::new());
    }

    fn answer(&mut self, caller: Caller, status: u32, body: Vec<u8>) {
        let done = Completion::new(caller, status, body.into());
        if caller.session == PROCESS {
            self.answers.push(done);
        } else {
            self.here.core.deliver(THERE, Message::OwnDone(done));
        }
        self.go_on();
    }

    fn execute_all(&mut self) {
        while !self.arrived.is_empty() {
            self.execute(0);
        }
    }

    /// The answer to a request that has waited.
    fn answered(&mut self, now: &Now) -> Option<(u32, Vec<u8>)> {
        let Now::Waits(request_id) = now else { panic!("{now:?} was answered at once") };
        let is_it = |done: &Completion| done.caller.request_id == *request_id;
        let at = self.answers.iter().position(is_it)?;
        let done = self.answers.remove(at);
        Some((done.status, done.body.to_vec()))
    }

    fn write(&mut self, open: OpenRef, offset: u64, bytes: &[u8]) -> Now {
        self.ask(&Write { open, offset, append: false, bytes })
    }

    fn read(&mut self, open: OpenRef, offset: u64, count: u32) -> Now {
        self.ask(&Read { open, offset, count })
    }
}

fn encoded_reply<'a, W: Wire<'a>>(reply: &W) -> Vec<u8> {
    crate::files::state::background::encoded(TRANSFER_BYTES_MAX, reply).expect("there is room")
}

fn encoded_long<'a, O: Operation<'a>>(request: &O) -> Vec<u8> {
    crate::files::state::background::encoded(TRANSFER_BYTES_MAX, request).expect("there is room")
}

/// Asks for something by which a failure is told.
type Tell = dyn Fn(&mut Pair, OpenRef) -> Now;

fn is_taken(now: &Now) -> bool {
    matches!(now, Now::Done(0, _))
}

fn failed(errno: Errno) -> Now {
    Now::Done(errno.raw() as u32, Vec::new())
}

#[test]
fn small_writes_are_answered_here_and_arrive_as_one() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    for number in 0..16 {
        assert!(is_taken(&pair.write(open, number * 8192, &[number as u8; 8192])));
    }
    assert!(pair.arrived.is_empty());
    let close = pair.ask(&Close { open });
    assert_eq!(pair.answered(&close), None, "it waits");
    assert_eq!(pair.arrived.len(), 1);
    assert_eq!(pair.execute(0), Op::Write);
    assert_eq!(pair.answered(&close), Some((0, Vec::new())));
    assert_eq!(pair.file.len(), 16 * 8192);
    assert!((0..16).all(|number| pair.file[number * 8192 + 8191] == number as u8));
    assert_eq!(pair.dropped, [REMOTE]);
}

#[test]
fn whoever_looks_at_the_file_waits_until_all_of_it_is_at_its_home() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    let other = pair.open(O_RDWR, REMOTE);
    let looks: [&dyn Fn(&mut Pair) -> Now; 6] = [
        &|pair| pair.ask(&Stat { target: Target::Open(other) }),
        &|pair| pair.read(other, 0, 10),
        &|pair| pair.write(other, 1, b"later"),
        &|pair| pair.ask(&Sync { target: Target::Open(other), all: false }),
        &|pair| pair.ask(&Flush { open }),
        &|pair| {
            let walk = Walk { start: pair.id, flags: mayfly_wire::WALK_EMPTY, path: b"" };
            pair.ask(&Stat { target: Target::Path(walk) })
        },
    ];
    for look in looks {
        assert!(is_taken(&pair.write(open, 0, b"first")));
        let now = look(&mut pair);
        assert!(matches!(now, Now::Waits(_)), "{now:?}");
        assert_eq!(pair.arrived.len(), 1, "only what was written");
        assert_eq!(pair.execute(0), Op::Write);
        assert_eq!(&pair.file[..5], b"first");
        pair.execute_all();
        pair.ask(&Flush { open: other });
        pair.execute_all();
    }
}

#[test]
fn writes_of_two_descriptions_to_other_bytes_do_not_wait_for_each_other() {
    let mut pair = Pair::new();
    let [one, other] = [pair.open(O_RDWR, REMOTE), pair.open(O_RDWR, REMOTE)];
    assert!(is_taken(&pair.write(one, 0, b"one")));
    assert!(is_taken(&pair.write(other, 3, b"two")));
    let flush = pair.ask(&Flush { open: one });
    pair.execute_all();
    assert!(pair.answered(&flush).is_some_and(|answer| answer.0 == 0));
    assert_eq!(pair.file, b"onetwo");
}

#[test]
fn what_is_behind_of_a_description_is_bounded_while_its_home_stands_still() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    let bytes = [7; 64 * 1024];
    let mut taken = 0;
    let now = loop {
        let now = pair.write(open, taken * bytes.len() as u64, &bytes);
        if !is_taken(&now) {
            break now;
        }
        taken += 1;
    };
    assert_eq!(taken as usize * bytes.len(), BEHIND_BYTES_MAX);
    assert_eq!(pair.answered(&now), None);
    pair.execute(0);
    assert!(pair.answered(&now).is_some_and(|answer| answer.0 == 0), "there is room again");
}

#[test]
fn a_failure_is_told_once_and_then_writes_begin_anew() {
    let mut pair = Pair::new();
    let tell: [&Tell; 3] = [
        &|pair, open| pair.write(open, 0, b"again"),
        &|pair, open| pair.ask(&Sync { target: Target::Open(open), all: false }),
        &|pair, open| pair.ask(&Flush { open }),
    ];
    for tell in tell {
        let open = pair.open(O_RDWR, REMOTE);
        let other = pair.open(O_RDWR, REMOTE);
        assert!(is_taken(&pair.write(open, 0, b"first")));
        let look = pair.ask(&Stat { target: Target::Open(other) });
        pair.fail(0, Errno::ENOSPC);
        pair.execute_all();
        assert!(pair.answered(&look).is_some_and(|answer| answer.0 == 0), "it did not write");
        assert_eq!(tell(&mut pair, open), failed(Errno::ENOSPC));
        assert!(is_taken(&pair.write(open, 0, b"again")));
        let flush = pair.ask(&Flush { open });
        pair.execute_all();
        assert!(pair.answered(&flush).is_some_and(|answer| answer.0 == 0));
        assert_eq!(pair.file, b"again");
    }
}

#[test]
fn a_close_tells_of_a_failure_and_closes_all_the_same() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    assert!(is_taken(&pair.write(open, 0, b"first")));
    let close = pair.ask(&Close { open });
    pair.fail(0, Errno::EIO);
    assert_eq!(pair.answered(&close), Some((Errno::EIO.raw() as u32, Vec::new())));
    assert_eq!(pair.dropped, [REMOTE]);
    assert_eq!(pair.write(open, 0, b"x"), failed(Errno::EBADF));
}

#[test]
fn what_a_killed_process_has_written_arrives_and_then_its_description_ends() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    assert!(is_taken(&pair.write(open, 0, b"acknowledged")));
    pair.here.core.session_closed(PROCESS);
    pair.go_on();
    assert!(pair.dropped.is_empty());
    let id = 1;
    let proxied = vec![crate::message::Description {
        open: REMOTE,
        session: PROCESS,
        lane: 0,
        request_id: id,
    }];
    let unheld = pair.here.core.answer_unheld(THERE, &proxied);
    assert_eq!(unheld, Answer::Unheld(Vec::new()), "it is still used");
    pair.execute_all();
    assert_eq!(pair.file, b"acknowledged");
    assert_eq!(pair.dropped, [REMOTE]);
}

#[test]
fn who_wrote_is_told_when_a_killed_daemon_has_lost_it() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    let quiet = pair.open(O_RDWR, REMOTE);
    assert!(is_taken(&pair.write(open, 0, b"lost")));
    pair.here.survive(&[(PROCESS, 1000)]);
    pair.go_on();
    pair.arrived.clear();
    assert!(is_taken(&pair.ask(&Flush { open: quiet })));
    assert_eq!(pair.ask(&Flush { open }), failed(Errno::EIO));
    assert!(is_taken(&pair.ask(&Flush { open })));
}

/// A write went to the home at once, as it was to a striped file. Its node's daemon was killed, and
/// the next one, who did not know of the stripes, took the same write to send it on later. That
/// failed for want of space, and the bytes were there all the same (the simulator's seed 221 with
/// `--session --bytes --outgrowing`).
#[test]
fn a_write_that_comes_again_to_another_daemon_is_not_made_twice() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    pair.here.survive(&[(PROCESS, 1000)]);
    pair.go_on();
    pair.arrived.clear();
    assert!(!is_taken(&pair.write(open, 0, b"again")));
    let caller = pair.arrived[0].caller;
    assert_eq!(caller.session, PROCESS, "its home knows it again");
}

#[test]
fn what_may_not_wait_is_sent_at_once() {
    let mut pair = Pair::new();
    let synced = pair.open(O_RDWR | O_DSYNC, REMOTE);
    assert!(!is_taken(&pair.write(synced, 0, b"first")));
    let open = pair.open(O_RDWR, REMOTE);
    assert!(!is_taken(&pair.ask(&Write { open, offset: 0, append: true, bytes: b"end" })));
    let long = vec![0; TRANSFER_BYTES_MAX];
    assert!(!is_taken(&pair.write(open, 0, &long)));
    assert!(is_taken(&pair.write(open, 0, b"first")));
    let range = LockRange { owner: LOCK_POSIX, kind: LOCK_WRITE, start: 0, end: 9 };
    let locks = pair.ask(&Lock { open, range, wait: false });
    pair.execute_all();
    assert!(pair.answered(&locks).is_some());
    assert!(!is_taken(&pair.write(open, 0, b"others look")));
    pair.execute_all();
    pair.here.core.node_reached(1, Reached::No);
    let other = pair.open(O_RDWR, REMOTE);
    assert!(!is_taken(&pair.write(other, 0, b"nobody is there")));
}

#[test]
fn who_reads_on_is_answered_here() {
    let mut pair = Pair::new();
    pair.file = (0..1 << 20).map(|at| (at / 4096) as u8).collect();
    let open = pair.open(O_RDWR, REMOTE);
    let first = pair.read(open, 0, 4096);
    pair.execute_all();
    assert!(pair.answered(&first).is_some());
    let mut asked = 0;
    for number in 1..256_u64 {
        let now = pair.read(open, number * 4096, 4096);
        asked += pair.arrived.len();
        pair.execute_all();
        let body = match &now {
            Now::Done(0, body) => body.clone(),
            Now::Done(..) => panic!("{now:?}"),
            Now::Waits(_) => pair.answered(&now).expect("it is answered").1,
        };
        let data = Data::decode(&mut Reader::new(&body)).expect("a reply");
        assert_eq!((data.bytes.len(), data.bytes[0]), (4096, number as u8));
    }
    assert!(asked < 10, "{asked}");
    // Bytes that this node writes are seen.
    let before = pair.read(open, 0, 4096);
    pair.execute_all();
    assert!(pair.answered(&before).is_some());
    assert!(is_taken(&pair.write(open, 4096, &[99; 4096])));
    let after = pair.read(open, 4096, 4096);
    pair.execute_all();
    let body = pair.answered(&after).expect("it is answered").1;
    assert_eq!(Data::decode(&mut Reader::new(&body)).expect("a reply").bytes, [99; 4096]);
}

/// Such requests once went from this node to that one and back without end (the simulator's seed
/// 210 with `--session`).
#[test]
fn a_request_that_another_node_sends_on_waits_here_for_what_is_to_be_there_before() {
    let mut pair = Pair::new();
    let open = pair.open(O_RDWR, REMOTE);
    assert!(is_taken(&pair.write(open, 0, b"first")));
    let walk = Walk { start: FileId::ROOT, flags: 0, path: b"elsewhere" };
    let looks = encoded(&Stat { target: Target::Path(walk) });
    let removes = encoded(&mayfly_wire::Unlink { walk, directory: false });
    for (number, op, body) in [(1, Op::Stat, looks), (2, Op::Unlink, removes)] {
        let (caller, place) = (Pair::caller(number), Resolved::default());
        let forward = Forward { caller, op, body: body.into(), place };
        pair.here.core.deliver(HERE.front(), Message::SendOn(THERE, Box::new(forward)));
        pair.go_on();
    }
    let ops = |pair: &Pair| pair.arrived.iter().map(|forward| forward.op).collect::<Vec<Op>>();
    assert_eq!(ops(&pair), [Op::Write, Op::Unlink], "who only removes a name does not wait");
    pair.execute(0);
    assert_eq!(ops(&pair), [Op::Unlink, Op::Stat]);
}
