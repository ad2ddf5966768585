//! Lanes of a process that gives requests up, uses their lanes again and writes what it likes in
//! between, beside what the daemon is to make of it: which requests it has taken, which of them
//! have lost their lanes, and what it may answer.
//!
//! Whatever comes, every request that was taken is answered once or has its lane taken from it,
//! nobody else's lane changes, and when the process is sane again it has all of its lanes.

use std::{
    collections::{HashMap, HashSet},
    sync::{OnceLock, atomic::Ordering::SeqCst},
};

use mayfly_transport_shm::{
    layout::{
        LANE_ABANDONED, LANE_ASYNCHRONOUS, LANE_FREE, LANE_REPLY, LANE_REQUEST, LANE_SLEEPER,
        NodeRegion,
    },
    region::{self, NodeSettings, SessionMapping},
    server::{LaneRef, Reply, Server},
};
use mayfly_types::{SessionId, limits::LANES};
use mayfly_wire::{HEADER_BYTES, Op};

use crate::{input::Input, process::Process};

const MAD: SessionId = SessionId(6);
const SANE: SessionId = SessionId(7);
/// The lane in which the sane process waits, and its request.
const WAITING: LaneRef = LaneRef { session: SANE, lane: 3 };
const WAITING_ID: u64 = 77;
/// Requests of this one are made when the mad process has become sane.
const SANE_AGAIN_ID: u64 = 1 << 40;
/// So often the daemon looks at most until it finds a request that is marked. It leaves marks where
/// they are for some rounds while one process asks alone.
const ROUNDS_MAX: usize = 16;
/// The words of a session, bytes.
const HEAD_BYTES: usize = 4096;

/// One for the whole run: it is mapped for good.
fn node() -> &'static NodeRegion {
    static NODE: OnceLock<&NodeRegion> = OnceLock::new();
    NODE.get_or_init(|| {
        let settings = NodeSettings { instance: 1, times: 0, locks: 0, deadline_ms: 1 };
        region::make_node(&settings).expect("there is memory").1
    })
}

/// The daemon's two threads, and what they have to do.
struct Daemon {
    taker: Server,
    other: Server,
    /// Requests that were taken and left.
    left: HashMap<LaneRef, (u64, Op)>,
    /// Those whose lanes were taken from them. A mad process uses an id twice.
    given_up: Vec<(LaneRef, u64)>,
    without_lane: HashSet<u64>,
    body: Vec<u8>,
}

impl Daemon {
    fn start(processes: [&Process; 2]) -> Daemon {
        let (mut taker, mut other) = (Server::new(node()), Server::new(node()));
        for (session, process) in [MAD, SANE].into_iter().zip(processes) {
            let mapping = SessionMapping::map(&process.0).expect("it is a session's");
            let shared = taker.add_session(session, mapping, &mut Vec::new());
            other.share_session(shared.expect("there is such a number"));
        }
        let (left, given_up, without_lane) = Default::default();
        let mut daemon = Daemon { taker, other, left, given_up, without_lane, body: Vec::new() };
        daemon.look(|_| true);
        daemon
    }

    /// Looks at all that is marked, and leaves or answers it.
    fn look(&mut self, leaves: impl Fn(LaneRef) -> bool) -> Vec<u64> {
        let (mut lanes, mut taken) = (Vec::new(), Vec::new());
        self.taker.collect(&mut lanes);
        for at in lanes {
            let incoming = self.taker.take(at, &mut self.body);
            let Some(incoming) = incoming else { continue };
            assert!(!self.left.contains_key(&at), "nothing is taken twice");
            assert_ne!(incoming.request_id, 0);
            taken.push(incoming.request_id);
            if leaves(at) {
                self.taker.leave(at);
                self.left.insert(at, (incoming.request_id, incoming.op));
            } else {
                reply(&mut self.taker, at, incoming.request_id, incoming.op);
            }
        }
        self.taker.wake_sleepers();
        taken
    }

    /// Some thread has come to know the answer to what was left in a lane.
    fn answer(&mut self, at: LaneRef, by_taker: bool) {
        let thread = if by_taker { &mut self.taker } else { &mut self.other };
        let Some((request_id, op)) = self.left.remove(&at) else {
            assert!(thread.reply_body(at).is_none(), "nobody holds it");
            return;
        };
        assert_eq!(thread.claim(at, request_id ^ 1), None, "it is another request's answer");
        assert_eq!(thread.claim(at, request_id).map(|(op, _)| op), Some(op));
        reply(thread, at, request_id, op);
    }

    fn detach(&mut self, at: LaneRef) {
        let Some(request_id) = self.taker.detach(at) else { return };
        let (left, _) = self.left.remove(&at).expect("only what was left loses its lane");
        assert_eq!(left, request_id);
        self.given_up.push((at, request_id));
        self.without_lane.insert(request_id);
    }

    /// The answer to a request is known that has no lane any more.
    fn answer_late(&mut self) {
        let Some((at, request_id)) = self.given_up.pop() else { return };
        if self.left.get(&at).is_some_and(|(left, _)| *left == request_id) {
            // The same id in the same lane: nobody can tell.
            return self.answer(at, false);
        }
        assert_eq!(self.other.claim(at, request_id), None);
        let known = self.without_lane.remove(&request_id);
        assert_eq!(self.other.end_given_up(MAD, request_id), known);
    }
}

fn reply(thread: &mut Server, at: LaneRef, request_id: u64, op: Op) {
    thread.reply_body(at).expect("it is held")[0] = 1;
    let reply = Reply { op, request_id, status: 0, body_bytes: 1, transaction: 0 };
    thread.store_reply(at, &reply);
    thread.publish(at);
    assert!(thread.reply_body(at).is_none());
    assert_eq!(thread.claim(at, request_id), None, "it is answered once");
}

pub(crate) fn run(bytes: &[u8]) {
    let mad = Process::new(MAD);
    let sane = Process::new(SANE);
    sane.submit(WAITING.lane as usize, Op::Stat, WAITING_ID, b"");
    node().mark(SANE.0);
    let mut daemon = Daemon::start([&mad, &sane]);
    assert!(daemon.left.contains_key(&WAITING));
    let mut input = Input::new(bytes);
    while !input.is_over() {
        let what = input.u8();
        let lane = usize::from(what >> 4) % LANES;
        let at = LaneRef { session: MAD, lane: lane as u32 };
        match what % 16 {
            0 => mad.write(usize::from(input.u16()) % HEAD_BYTES, &input.u32().to_le_bytes()),
            1 => mad.words(lane, input.u64(), input.u32(), u32::from(input.u8() % 8)),
            2 | 3 => {
                let (op, request_id) = (usize::from(input.u8()), u64::from(input.u8()));
                mad.submit(lane, Op::ALL[op % Op::ALL.len()], request_id, b"body");
            }
            4 => mad.state(lane, LANE_ABANDONED),
            5 => mad.state(lane, LANE_ABANDONED | LANE_SLEEPER),
            6 => mad.state(lane, LANE_ASYNCHRONOUS),
            7 => mad.state(lane, u32::from(input.u8() % 8)),
            8 => node().mark(MAD.0),
            9 => node().head.sessions_pending[usize::from(input.u8()) % 64].store(1, SeqCst),
            10 => daemon.answer(at, what & 16 == 0),
            11 | 12 => daemon.detach(at),
            13 => daemon.answer_late(),
            14 if lane == 0 => daemon = start_again(daemon, [&mad, &sane]),
            _ => {
                node().mark(MAD.0);
                daemon.look(|at| at.session == SANE || !at.lane.is_multiple_of(4));
            }
        }
    }
    finish(&mut daemon, &mad, &sane);
}

/// The daemon dies, and the next one judges what was stored.
fn start_again(daemon: Daemon, processes: [&Process; 2]) -> Daemon {
    drop(daemon);
    let mut taker = Server::new(node());
    for (session, process) in [MAD, SANE].into_iter().zip(processes) {
        let mapping = SessionMapping::map(&process.0).expect("it is a session's");
        taker.add_session(session, mapping, &mut Vec::new());
        for lane in 0..LANES as u32 + 1 {
            taker.judge(LaneRef { session, lane }, |transaction| transaction % 2 == 1);
        }
        node().mark(session.0);
    }
    drop(taker);
    Daemon::start(processes)
}

/// All that was taken is answered, and both processes go on as if nothing had been.
fn finish(daemon: &mut Daemon, mad: &Process, sane: &Process) {
    for lane in (0..LANES as u32).filter(|lane| *lane != WAITING.lane) {
        assert_eq!(sane.state_of(lane as usize), LANE_FREE, "lane {lane} is nobody else's");
    }
    assert_eq!(sane.state_of(WAITING.lane as usize), LANE_REQUEST);
    daemon.answer(WAITING, false);
    assert_eq!(sane.state_of(WAITING.lane as usize), LANE_REPLY);
    while !daemon.given_up.is_empty() {
        daemon.answer_late();
    }
    let left: Vec<LaneRef> = daemon.left.keys().copied().collect();
    left.into_iter().for_each(|at| daemon.answer(at, false));
    for lane in 0..LANES {
        mad.state(lane, LANE_FREE);
    }
    for lane in 0..LANES {
        let request_id = SANE_AGAIN_ID + lane as u64;
        mad.submit(lane, Op::Stat, request_id, b"");
        node().mark(MAD.0);
        let found = (0..ROUNDS_MAX).any(|_| daemon.look(|_| false) == [request_id]);
        assert!(found, "lane {lane} is lost");
        assert_eq!(mad.state_of(lane), LANE_REPLY);
        assert_eq!(mad.answered(lane), (request_id, HEADER_BYTES as u32 + 1));
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let look = 15;
    vec![
        vec![0x12, 1, 9, look, 0x14, 0x1b, 0x12, 1, 10, look, 13, 0x1a],
        vec![0x12, 1, 9, 0x22, 1, 9, look, 0x15, 0x1b, 0x14, 0x2b, 13, 13],
        vec![0x32, 5, 3, look, 0x34, 14, look, 0x3b, 0x32, 5, 3, look, 13, 0x3a],
        vec![0x16, 0x56, look, 0x1a, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 2, look],
    ]
}
