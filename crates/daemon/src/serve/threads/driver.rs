//! What the thread of every shard does: execute, store the answers, commit, show, send.
//!
//! A batch is whatever was executed since the last commit. Its answers are stored in their lanes
//! with the number of its transaction, then it is committed, then its answers are shown, and only
//! then its messages are sent: what another shard learns of a batch is as true as what a client
//! learns.

use std::time::Duration;

use mayfly_sys::arch::cycles;
use mayfly_transport_shm::{
    layout::{Done, NodeRegion, count},
    server::{LaneRef, Reply, Server},
};
use mayfly_types::{Errno, SessionId};
use mayfly_wire::Op;

use crate::{
    Message, ShardId,
    serve::{
        Caller, Completion, Reached, Service,
        slow::{Course, Slow, Waited},
        threads::peers::{Call, Peers, ToShard},
    },
    shards::numbering::{OWN_SESSION, origin},
};

/// Requests of one transaction at most, so that the first does not wait long for the last.
pub(in crate::serve) const BATCH_MAX: usize = 128;

/// A reply that is stored and waits for its transaction.
#[derive(Debug, Clone, Copy)]
struct Stored {
    at: LaneRef,
    op: Op,
    request_id: u64,
    transaction: u64,
    course: Course,
}

/// Copies as much of `bytes` as there is room for, and says how much.
fn fill(room: &mut [u8], bytes: &[u8]) -> usize {
    let count = bytes.len().min(room.len());
    room[..count].copy_from_slice(&bytes[..count]);
    count
}

/// This shard has executed a request that was given up.
fn hand_given_up(peers: &Peers, caller: Caller) {
    let me = peers.me();
    let from = peers.numbering().shard(me);
    peers.hand(me, ToShard::Message { from, message: Message::GivenUp(caller) });
}

/// A shard with its hands on the lanes and on the other shards.
#[derive(Debug)]
pub(in crate::serve) struct Driver<S> {
    pub(in crate::serve) service: S,
    pub(in crate::serve) server: Server,
    pub(in crate::serve) peers: Peers,
    pub(in crate::serve) slow: Slow,
    stored: Vec<Stored>,
    /// Answers for other nodes, which go out when the batch is committed.
    for_others: Vec<Completion>,
    delivered: usize,
    /// How other shards hear of messages.
    pub(in crate::serve) call: Call,
    /// A client was woken since somebody asked.
    woke: bool,
    failed: Option<Errno>,
}

impl<S: Service> Driver<S> {
    pub(in crate::serve) fn new(service: S, server: Server, peers: Peers) -> Driver<S> {
        let (stored, for_others) = (Vec::new(), Vec::new());
        let slow = Slow::new(server.node());
        Driver {
            service,
            server,
            peers,
            slow,
            stored,
            for_others,
            delivered: 0,
            call: Call::Wake,
            woke: false,
            failed: None,
        }
    }

    /// Tells requests that take longer.
    pub(in crate::serve) fn report_slow(&mut self, after: Option<Duration>) {
        if let Some(after) = after {
            self.server.report_late(self.slow.tell(after));
        }
    }

    /// A process attached.
    pub(in crate::serve) fn open_session(&mut self, session: SessionId, pid: u32) {
        self.slow.session_opened(session, pid);
        self.service.session_opened(session, pid);
    }

    pub(in crate::serve) fn node(&self) -> &'static NodeRegion {
        self.server.node()
    }

    /// Where this shard counts.
    fn done(&self) -> &'static Done {
        &self.node().done[self.peers.me() as usize]
    }

    /// Why nothing more can be committed.
    pub(in crate::serve) fn failed(&self) -> Option<Errno> {
        self.failed
    }

    /// Takes in a message; a long row of them is more than one batch.
    pub(in crate::serve) fn deliver(&mut self, from: ShardId, message: Message) {
        self.service.deliver(from, message);
        // The next message may commit before its own answer is known.
        self.store_answers();
        self.delivered += 1;
        if self.delivered >= BATCH_MAX {
            self.end_batch();
        }
    }

    /// A session's process image is gone.
    pub(in crate::serve) fn close_session(&mut self, session: SessionId) {
        self.store_answers();
        self.slow.session_closed(session);
        self.service.session_closed(session);
    }

    /// Of another node's sessions, and processes, only these are there.
    pub(in crate::serve) fn end_strangers(&mut self, node: u32, living: &[(SessionId, u32)]) {
        self.store_answers();
        self.service.end_strangers(node, living);
    }

    /// Another node can be reached no more, or again.
    pub(in crate::serve) fn node_reached(&mut self, node: u32, reached: Reached) {
        self.store_answers();
        self.service.node_reached(node, reached);
    }

    /// A shared open file description was closed for the last time.
    pub(in crate::serve) fn release(&mut self, index: u32) {
        self.store_answers();
        self.service.open_released(index);
    }

    /// Stores the reply whose body is in its place.
    pub(in crate::serve) fn store(
        &mut self,
        at: LaneRef,
        op: Op,
        request_id: u64,
        status: u32,
        body_bytes: usize,
    ) {
        self.store_of(Course::default(), at, op, request_id, (status, body_bytes));
    }

    fn store_of(
        &mut self,
        course: Course,
        at: LaneRef,
        op: Op,
        request_id: u64,
        (status, body_bytes): (u32, usize),
    ) {
        self.done().answered(op, status, body_bytes);
        let transaction = self.service.batch_transaction();
        let reply = Reply { op, request_id, status, body_bytes, transaction };
        self.server.store_reply(at, &reply);
        self.stored.push(Stored { at, op, request_id, transaction, course });
    }

    /// Stores the reply to a request that was left, here or by another thread, and waited for what
    /// `waited` says.
    pub(in crate::serve) fn answer(&mut self, completion: Completion, waited: Waited) {
        let Caller { session, lane, request_id } = completion.caller;
        if origin(session).is_some() {
            self.for_others.push(completion);
            return;
        }
        if session == OWN_SESSION {
            return self.hand_own(completion);
        }
        let at = LaneRef { session, lane };
        let Some((op, submitted)) = self.server.claim(at, request_id) else {
            return self.come_late(&completion);
        };
        let Some(reply) = self.server.reply_body(at) else { return };
        let (head, rest) = completion.body.pieces();
        let count = fill(&mut *reply, head);
        let count = count + fill(&mut reply[count..], rest);
        let course = Course { waited: Some(waited), answered: cycles() };
        if submitted != 0 {
            let ns = self.node().head.nanoseconds(course.answered.saturating_sub(submitted));
            self.done().answered_after(waited.hold(), op, ns);
        }
        self.store_of(course, at, op, request_id, (completion.status, count));
    }

    /// The node's first shard has asked for it, on nobody's behalf.
    fn hand_own(&mut self, completion: Completion) {
        let peers = &self.peers;
        let (from, message) = (peers.numbering().shard(peers.me()), Message::OwnDone(completion));
        match peers.me() {
            0 => self.service.deliver(from, message),
            _ => peers.hand(0, ToShard::Message { from, message }),
        }
    }

    /// Nobody waits for an answer: its session has ended, or has given the request up. What that
    /// has opened goes.
    fn come_late(&mut self, completion: &Completion) {
        let Caller { session, request_id, .. } = completion.caller;
        if self.server.end_given_up(session, request_id) && completion.status == 0 {
            hand_given_up(&self.peers, completion.caller);
        }
    }

    /// To be called before whatever may commit: a long end of a session does, in between.
    fn store_answers(&mut self) {
        for answer in self.service.answers() {
            let waited = if answer.waited_outside { Waited::Origin } else { Waited::Shards };
            self.answer(answer, waited);
        }
    }

    /// Ends the batch. Pending requests that the commit completed, or somebody else, are answered
    /// after it; what becomes of them rests on nothing that is still open.
    pub(in crate::serve) fn finish(&mut self) {
        self.end_batch();
        for completion in self.service.completions() {
            let waited = if completion.waited_outside { Waited::Origin } else { Waited::Disk };
            self.answer(completion, waited);
        }
        self.end_batch();
    }

    fn end_batch(&mut self) {
        self.delivered = 0;
        self.store_answers();
        self.commit();
        if self.failed.is_none() {
            self.answer_others();
            self.peers.send(self.service.outbox(), self.call);
            self.peers.tell_written(self.service.written());
        }
    }

    /// Commits and shows every stored reply.
    fn commit(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if self.service.batch_transaction() != 0
            && let Err(errno) = self.service.commit()
        {
            self.fail_stored();
            self.failed = Some(errno);
        }
        for stored in self.stored.drain(..) {
            if let Some(late) = self.server.publish(stored.at) {
                self.slow.answered(&late, stored.course);
            }
        }
        self.woke |= self.server.wake_sleepers();
    }

    /// Wakes the next of the clients that are to be woken later.
    pub(in crate::serve) fn wake_next(&mut self) {
        self.woke |= self.server.wake_next();
    }

    /// Wakes all of them.
    pub(in crate::serve) fn wake_all(&mut self) {
        self.woke |= self.server.wake_all();
    }

    /// Whether a client was woken since the last call.
    pub(in crate::serve) fn has_woken(&mut self) -> bool {
        std::mem::take(&mut self.woke)
    }

    fn answer_others(&mut self) {
        let Some(net) = self.peers.net().filter(|_| !self.for_others.is_empty()) else { return };
        count(&self.done().for_others, self.for_others.len() as u64);
        for done in self.for_others.drain(..) {
            if !net.answer(&done) {
                hand_given_up(&self.peers, done.caller);
            }
        }
        // All of a batch go out together: each by itself would wake its receiver.
        net.flush();
    }

    /// The commit failed: nothing that rests on it happened. The caller cannot be told the
    /// difference between that and "nobody knows", so it is EIO.
    fn fail_stored(&mut self) {
        for stored in self.stored.iter().filter(|stored| stored.transaction != 0) {
            let Stored { at, op, request_id, .. } = *stored;
            let status = Errno::EIO.raw() as u32;
            let reply = Reply { op, request_id, status, body_bytes: 0, transaction: 0 };
            self.server.store_reply(at, &reply);
        }
    }
}
