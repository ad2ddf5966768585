//! One lane and two servers, step by step.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use mayfly_transport_shm::{
    layout::{
        LANE_ABANDONED, LANE_ASYNCHRONOUS, LANE_FREE, LANE_REPLY, LANE_REQUEST, LANE_SLEEPER, Lane,
        NodeRegion,
    },
    region::{self, NodeSettings, SessionMapping},
    server::{LaneRef, Reply, Server, Session},
};
use mayfly_types::{SessionId, limits::GIVEN_UP_MAX};
use mayfly_wire::Op;

use crate::serve::tests::hostile::{Client, Scribble};

const AT: LaneRef = LaneRef { session: SessionId(5), lane: 1 };

struct Scene {
    _node_fd: std::os::fd::OwnedFd,
    node: &'static NodeRegion,
    client: Client,
    taker: Server,
    other: Server,
    shared: Arc<Session>,
}

impl Scene {
    fn new() -> Scene {
        let settings = NodeSettings { instance: 1, times: 0, locks: 0, deadline_ms: 1 };
        let (node_fd, node) = region::make_node(&settings).expect("a node region");
        let fd = region::make_session(AT.session, 1).expect("a session region");
        let (mut taker, mut other) = (Server::new(node), Server::new(node));
        let mapping = SessionMapping::map(&fd).expect("mapped");
        let shared = taker.add_session(AT.session, mapping, &mut Vec::new()).expect("a number");
        other.share_session(Arc::clone(&shared));
        Scene { _node_fd: node_fd, node, client: Client::map(&fd), taker, other, shared }
    }

    fn lane(&self) -> &Lane {
        &self.client.head().lanes[AT.lane as usize]
    }

    /// The client makes a request, and has not marked its session yet.
    fn submit(&self, request_id: u64) {
        let header = Some((request_id, 0));
        self.client.act(&Scribble::Submit { lane: AT.lane as usize, length: 0, header });
    }

    /// The client makes a request, and is the only one whose marks the first server finds.
    fn ask_alone(&mut self, request_id: u64) {
        self.submit(request_id);
        self.node.mark(AT.session.0);
        assert!(self.marked());
    }

    /// The client makes a request, and the first server leaves it.
    fn leave(&mut self, request_id: u64) {
        self.submit(request_id);
        let taken = self.taker.take(AT, &mut Vec::new()).expect("taken");
        assert_eq!(taken.request_id, request_id);
        self.taker.leave(AT);
    }

    fn serve(&mut self, request_id: u64) {
        if self.taker.take(AT, &mut Vec::new()).is_some() {
            Scene::store(&mut self.taker, request_id);
            self.taker.publish(AT);
        }
    }

    fn store(server: &mut Server, request_id: u64) {
        let reply =
            Reply { op: Op::Ping, request_id, status: 0, body_bytes: 0, transaction: request_id };
        server.store_reply(AT, &reply);
    }

    fn marked(&mut self) -> bool {
        let mut lanes = Vec::new();
        self.taker.collect(&mut lanes);
        lanes == [AT]
    }
}

#[test]
fn a_lane_that_its_taker_met_too_early_is_marked_again() {
    let mut scene = Scene::new();
    scene.leave(7);
    scene.other.claim(AT, 7).expect("it was left");
    Scene::store(&mut scene.other, 7);
    assert!(!scene.marked());
    // The reply is visible already, and the next request there.
    scene.submit(8);
    assert!(scene.taker.take(AT, &mut Vec::new()).is_none());
    scene.other.publish(AT);
    scene.submit(8);
    assert!(scene.marked());
    scene.leave(8);
    scene.other.claim(AT, 8).expect("it was left");
    assert!(scene.taker.take(AT, &mut Vec::new()).is_none(), "it is being answered");
    scene.other.publish(AT);
    assert_eq!(scene.node.head.pending_summary.load(SeqCst), 0, "nothing was overlooked");
}

/// Both sides write to the marks, which costs as much as the rest of a short request.
#[test]
fn the_one_that_asks_is_heard_without_its_marks_and_others_soon() {
    let mut scene = Scene::new();
    assert_eq!(scene.taker.is_asked_again(), None);
    scene.ask_alone(1);
    scene.serve(1);
    assert_eq!(scene.taker.is_asked_again(), Some(false));
    scene.node.mark(AT.session.0 + 1);
    let unseen = (2..100).take_while(|request_id| {
        scene.submit(*request_id);
        assert_eq!(scene.taker.is_asked_again(), Some(true));
        assert!(scene.marked() || scene.node.head.pending_summary.load(SeqCst) == 0);
        scene.serve(*request_id);
        scene.node.head.pending_summary.load(SeqCst) != 0
    });
    assert!((1..20).contains(&unseen.count()));
}

#[test]
fn what_was_left_is_not_asked_again() {
    let mut scene = Scene::new();
    scene.ask_alone(7);
    assert!(scene.taker.take(AT, &mut Vec::new()).is_some());
    assert_eq!(scene.taker.is_asked_again(), Some(false));
    scene.taker.leave(AT);
    assert_eq!(scene.taker.is_asked_again(), Some(false));
    assert!(!scene.marked());
}

/// A daemon that has heard of a process's end, and waits for another node to forget it, must not
/// look at what the process left in its lanes again and again.
#[test]
fn what_a_dead_process_left_is_not_asked_again() {
    let mut scene = Scene::new();
    scene.ask_alone(7);
    assert_eq!(scene.taker.is_asked_again(), Some(true));
    scene.taker.give_up(AT.session);
    assert_eq!(scene.taker.is_asked_again(), None);
    assert!(!scene.marked());
}

#[test]
fn a_late_answer_changes_nothing_of_the_next_request() {
    let mut scene = Scene::new();
    scene.leave(7);
    scene.lane().state.store(LANE_ABANDONED, SeqCst);
    scene.taker.claim(AT, 7).expect("it was left");
    scene.taker.publish(AT);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_FREE);
    scene.leave(8);
    assert_eq!(scene.other.claim(AT, 7), None);
    Scene::store(&mut scene.other, 7);
    scene.other.publish(AT);
    assert_eq!(scene.lane().answered_id.load(SeqCst), 0);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_REQUEST);
    scene.other.claim(AT, 8).expect("it was left");
    Scene::store(&mut scene.other, 8);
    scene.other.publish(AT);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_REPLY);
}

#[test]
fn a_lane_that_was_given_up_is_free_at_once_and_its_request_is_answered_to_nobody() {
    let mut scene = Scene::new();
    scene.leave(7);
    assert_eq!(scene.taker.detach(AT), None, "somebody waits");
    scene.lane().state.store(LANE_ABANDONED, SeqCst);
    scene.node.mark(AT.session.0);
    assert!(scene.marked(), "the daemon looks at it");
    assert!(scene.taker.take(AT, &mut Vec::new()).is_none());
    assert_eq!(scene.other.detach(AT), None, "it is the taker's");
    assert_eq!(scene.taker.detach(AT), Some(7));
    assert_eq!(scene.lane().state.load(SeqCst), LANE_FREE);
    assert_eq!(scene.taker.detach(AT), None);
    scene.leave(8);
    assert_eq!(scene.other.claim(AT, 7), None);
    assert!(scene.other.end_given_up(AT.session, 7));
    assert!(!scene.other.end_given_up(AT.session, 7), "its answer has come");
    assert!(!scene.other.end_given_up(AT.session, 8));
    scene.other.claim(AT, 8).expect("it was left");
    Scene::store(&mut scene.other, 8);
    scene.other.publish(AT);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_REPLY);
    assert_eq!(scene.lane().answered_id.load(SeqCst), 8);
}

#[test]
fn a_lane_that_is_being_answered_when_it_is_given_up_is_freed_by_the_answer() {
    let mut scene = Scene::new();
    scene.leave(7);
    scene.other.claim(AT, 7).expect("it was left");
    scene.lane().state.store(LANE_ABANDONED, SeqCst);
    assert_eq!(scene.taker.detach(AT), None);
    Scene::store(&mut scene.other, 7);
    scene.other.publish(AT);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_FREE);
    assert!(!scene.taker.end_given_up(AT.session, 7));
}

/// A process that does nothing but give up would have the daemon keep what it asked for.
#[test]
fn of_requests_that_were_given_up_only_so_many_are_without_a_lane() {
    let mut scene = Scene::new();
    let most = GIVEN_UP_MAX as u64;
    for request_id in 1..=most + 1 {
        scene.leave(request_id);
        scene.lane().state.store(LANE_ABANDONED, SeqCst);
        let detached = scene.taker.detach(AT);
        assert_eq!(detached, (request_id <= most).then_some(request_id));
    }
    assert_eq!(scene.lane().state.load(SeqCst), LANE_ABANDONED);
    assert!(scene.other.end_given_up(AT.session, 3));
    assert_eq!(scene.taker.detach(AT), Some(most + 1));
}

#[test]
fn a_submitted_request_is_executed_and_frees_its_lane() {
    let mut scene = Scene::new();
    let header = Some((7, 0));
    scene.client.act(&Scribble::Submit { lane: AT.lane as usize, length: 0, header });
    scene.lane().state.store(LANE_ASYNCHRONOUS, SeqCst);
    let taken = scene.taker.take(AT, &mut Vec::new()).expect("taken");
    assert_eq!(taken.request_id, 7);
    Scene::store(&mut scene.taker, 7);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_ASYNCHRONOUS, "until it is done");
    scene.taker.publish(AT);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_FREE);
    scene.leave(8);
}

#[test]
fn an_answer_to_an_ended_session_reaches_no_session_of_the_same_number() {
    let mut scene = Scene::new();
    scene.leave(7);
    scene.other.claim(AT, 7).expect("it was left");
    scene.taker.remove_session(AT.session);
    // Its memory stays as long as somebody may write there.
    Scene::store(&mut scene.other, 7);
    assert_eq!(scene.lane().answered_id.load(SeqCst), 7);
    scene.other.remove_session(AT.session);
    assert_eq!(Arc::strong_count(&scene.shared), 1);
    let fd = region::make_session(AT.session, 1).expect("a session region");
    let mapping = SessionMapping::map(&fd).expect("mapped");
    let next = scene.taker.add_session(AT.session, mapping, &mut Vec::new()).expect("a number");
    scene.other.share_session(next);
    scene.other.publish(AT);
    assert_eq!(scene.other.claim(AT, 7), None);
    assert_eq!(scene.lane().state.load(SeqCst), LANE_REQUEST);
}

#[test]
fn sessions_of_one_number_number_their_requests_differently() {
    let first = |fd| Client::map(&fd).head().last_request_id.load(SeqCst);
    let ids: Vec<u64> = (0..3)
        .map(|_| first(region::make_session(AT.session, 1).expect("a session region")))
        .collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
}

/// Requests of [`Scene::submit`] are of the beginning of time.
#[test]
fn who_has_slept_for_long_is_told_of_and_who_spins_or_waits_for_a_lock_is_not() {
    let mut scene = Scene::new();
    let mut answered = |cycles, op: Op, sleeps: bool| {
        scene.taker.report_late(cycles);
        let at = Op::ALL.iter().position(|other| *other == op).expect("an operation") as u64;
        let request_id = at + Op::ALL.len() as u64;
        scene.submit(request_id);
        scene.taker.take(AT, &mut Vec::new()).expect("taken");
        if sleeps {
            scene.lane().state.fetch_or(LANE_SLEEPER, SeqCst);
        }
        Scene::store(&mut scene.taker, request_id);
        scene.taker.publish(AT)
    };
    let late = answered(1, Op::Stat, true).expect("it took long");
    assert_eq!((late.at, late.op, late.left), (AT, Op::Stat, 0));
    assert!(late.submitted < late.shown);
    assert!(answered(1, Op::Stat, false).is_none(), "nobody sleeps");
    assert!(answered(u64::MAX, Op::Stat, true).is_none(), "nobody wants to know");
    assert!(answered(u64::MAX - 1, Op::Stat, true).is_none(), "it is not so long ago");
    assert!(answered(1, Op::Lock, true).is_none(), "it takes as long as it takes");
}

#[test]
fn who_gives_up_is_told_of_whether_anybody_took_the_request_or_not() {
    let mut scene = Scene::new();
    scene.taker.report_late(1);
    let abandon = Scribble::Abandon { lane: AT.lane as usize };
    // The number of a request tells its operation, over and over: these are stat and open.
    let first = Op::ALL.len() as u64;
    scene.submit(first + 1);
    scene.client.act(&abandon);
    assert!(scene.taker.take(AT, &mut Vec::new()).is_none());
    assert_eq!(scene.taker.given_up().len(), 1);
    scene.leave(first + 2);
    scene.client.act(&abandon);
    assert_eq!(scene.taker.detach(AT), Some(first + 2));
    let late = scene.taker.given_up();
    assert!(late.len() == 1 && late[0].left > 0, "{late:?}");
}
