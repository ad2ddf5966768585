//! The daemon's side of the lanes.
//!
//! [`Server::collect`] gathers the lanes whose requests nobody has looked at; [`Server::take`]
//! copies a request out of shared memory and checks it; [`Server::store_reply`] writes the reply
//! where it survives the daemon; [`Server::publish`] shows it to the client. Between the last two
//! the transaction commits.
//!
//! **Restarts.** What an earlier daemon stored and did not publish is judged once, by what its
//! store had committed ([`Server::judge`]).
//!
//! **Threads.** Each thread of the daemon has a server of its own. One takes the requests of all
//! sessions; what it cannot answer it leaves ([`Server::leave`]), and whichever thread comes to
//! know the answer claims the lane ([`Server::claim`]), stores the reply and publishes it. Of
//! several answers to one request the first counts, and one that comes when the request is over
//! claims nothing (`under_way`). A thread that takes and answers by itself pays for no more than
//! plain loads and stores.
//!
//! **Clients that give up.** A lane whose client waits no more becomes free when its request is
//! answered, or at once when that was left ([`Server::detach`]). Its request goes on without a
//! lane, and the answer is told apart by its id ([`Server::end_given_up`]).
//!
//! The process at the other end may write anything anywhere at any time. So every word is read
//! once, a length is bounded before it is used, a request is copied before it is decoded, and which
//! requests are under way is kept in the daemon's own memory. Scribbling harms the scribbler's
//! session only.

mod late;
mod session;
mod sleepers;
mod under_way;

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};

use mayfly_sys::{arch::cycles, futex};
use mayfly_types::{
    Errno, SessionId,
    limits::{LANES, REPLY_BYTES_MAX, SESSIONS_MAX},
};
use mayfly_wire::{HEADER_BYTES, Header, Op};

pub use late::Late;
pub use session::Session;

use crate::{
    layout::{
        LANE_ABANDONED, LANE_ASYNCHRONOUS, LANE_FREE, LANE_REPLY, LANE_REQUEST, LANE_SLEEPER, Lane,
        NodeRegion,
    },
    region::SessionMapping,
};
use sleepers::{Places, Sleepers};
use under_way::{Holder, UnderWay};

/// A lane of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneRef {
    /// The session.
    pub session: SessionId,
    /// Its lane, below [`LANES`].
    pub lane: u32,
}

/// A request that was copied out and whose header is sound.
#[derive(Debug, Clone, Copy)]
pub struct Incoming {
    /// The operation.
    pub op: Op,
    /// Id of the request, unique in the session.
    pub request_id: u64,
    /// Version of the slot table that the client used.
    pub slot_table_version: u32,
    /// Processor on which it was made, its number plus one; 0: not known.
    pub processor: u32,
}

/// A reply to be stored.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    /// The operation that is answered.
    pub op: Op,
    /// Id of the request.
    pub request_id: u64,
    /// 0, an error number, or another status of the protocol.
    pub status: u32,
    /// Length of the body, which is in place already, bytes.
    pub body_bytes: usize,
    /// Transaction whose commit makes the reply true; 0 when it needs none.
    pub transaction: u64,
}

/// Number of the next server of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The sessions of the node, as one thread of the daemon sees them.
#[derive(Debug)]
pub struct Server {
    node: &'static NodeRegion,
    number: Holder,
    sessions: Vec<Option<Arc<Session>>>,
    sleepers: Sleepers,
    /// Requests that were given up since [`Server::given_up`] was called, and took this long.
    given_up: Vec<Late>,
    /// Cycles after which an answer is late.
    late_cycles: u64,
    /// The session that was alone in asking when the marks were last taken down.
    sole: Option<SessionId>,
    /// So often it was looked at without a look at the marks.
    in_a_row: u32,
}

/// So often requests of the one session that asks are taken before there is another look at the
/// marks of all.
const IN_A_ROW_MAX: u32 = 8;

impl Server {
    /// For a node region without sessions yet.
    #[must_use]
    pub fn new(node: &'static NodeRegion) -> Server {
        let mut sessions = Vec::new();
        sessions.resize_with(SESSIONS_MAX as usize, || None);
        let (number, sleepers) = (Holder::new(NEXT.fetch_add(1, Relaxed)), Sleepers::new());
        Server {
            node,
            number,
            sessions,
            sleepers,
            given_up: Vec::new(),
            late_cycles: u64::MAX,
            sole: None,
            in_a_row: 0,
        }
    }

    /// Wakes whom replies were shown to while they slept; true when there was anybody. Whoever is
    /// woken may take the processor at once, so everything else should be shown before. Some are
    /// put off for a moment where that is better for all ([`Server::has_put_off`]).
    pub fn wake_sleepers(&mut self) -> bool {
        if self.sleepers.is_empty() {
            return false;
        }
        let due = self.sleepers.due(cycles());
        for at in &due {
            let lane = self.session(at.session).and_then(|session| session.lane(at.lane));
            if let Some((control, _)) = lane {
                futex::wake(&control.state, 1);
            }
        }
        let any = !due.is_empty();
        self.sleepers.give_back(due);
        any
    }

    /// Whether clients of other processors than this ask: not everybody who sleeps here has to be
    /// woken at once then.
    pub fn beside_others(&mut self, beside_others: bool) {
        self.sleepers.beside_others(beside_others);
    }

    /// Whether somebody waits for being woken, by [`Server::wake_sleepers`] when it is time or by
    /// [`Server::wake_next`] when nobody asks.
    #[must_use]
    pub fn has_put_off(&self) -> bool {
        self.sleepers.has_put_off()
    }

    /// Wakes the next of those who were put off. Whoever is about to sleep has to do so until there
    /// is none.
    pub fn wake_next(&mut self) -> bool {
        self.sleepers.go_on();
        self.wake_sleepers()
    }

    /// Wakes everybody who was put off.
    pub fn wake_all(&mut self) -> bool {
        self.sleepers.end_put_off();
        self.wake_sleepers()
    }

    /// The node region.
    #[must_use]
    pub fn node(&self) -> &'static NodeRegion {
        self.node
    }

    /// Adds a session, whose requests this server takes from now on. The lanes that have a request
    /// already (of a client quicker than the supervisor, or from before a restart) go to `lanes`.
    /// Returns what other servers need for answering; `None` when there is no such number.
    pub fn add_session(
        &mut self,
        session: SessionId,
        mapping: SessionMapping,
        lanes: &mut Vec<LaneRef>,
    ) -> Option<Arc<Session>> {
        let place = self.sessions.get_mut(session.0 as usize)?;
        let shared = Arc::new(Session::new(session, mapping, self.number));
        shared.finish_wakes();
        *place = Some(Arc::clone(&shared));
        lanes.extend((0..LANES as u32).map(|lane| LaneRef { session, lane }));
        Some(shared)
    }

    /// Adds a session whose requests another server takes.
    pub fn share_session(&mut self, session: Arc<Session>) {
        if let Some(place) = self.sessions.get_mut(session.number().0 as usize) {
            *place = Some(session);
        }
    }

    /// Forgets a session; it is unmapped when all servers have.
    pub fn remove_session(&mut self, session: SessionId) {
        if let Some(place) = self.sessions.get_mut(session.0 as usize) {
            *place = None;
        }
    }

    /// True when a client has said that it has a request.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.node.head.pending_summary.load(SeqCst) != 0
    }

    /// Appends the lanes that wait, of the sessions that clients have marked since the last time,
    /// whether they have been taken already or not. Of a session that is not known yet all lanes
    /// are looked at when it is added.
    ///
    /// Where one session alone asks, its lanes are looked at first, and its marks stay where they
    /// are for a while: each side's turn at a line that both write costs as much as the rest of a
    /// short request.
    pub fn collect(&mut self, lanes: &mut Vec<LaneRef>) {
        if let Some(session) = self.sole.filter(|_| self.in_a_row < IN_A_ROW_MAX) {
            let fresh = self.session(session).map_or(0, Session::fresh);
            lanes.extend(bits(fresh).map(|lane| LaneRef { session, lane }));
            self.in_a_row += 1;
            if fresh != 0 {
                return;
            }
        }
        self.in_a_row = 0;
        if !self.has_requests() {
            return;
        }
        let head = &self.node.head;
        let mut marked = (0, None);
        for word in bits(head.pending_summary.swap(0, SeqCst)) {
            for bit in bits(head.sessions_pending[word as usize].swap(0, SeqCst)) {
                let session = SessionId(word * 64 + bit);
                marked = (marked.0 + 1, Some(session));
                let Some(known) = self.session(session) else { continue };
                lanes.extend(bits(known.waiting()).map(|lane| LaneRef { session, lane }));
            }
        }
        self.sole = marked.1.filter(|_| marked.0 == 1);
    }

    /// What is left in the lanes of this session is not taken any more: its process has ended.
    pub fn give_up(&mut self, session: SessionId) {
        self.sole = self.sole.filter(|sole| *sole != session);
    }

    /// Whether the session that is alone in asking has asked again; `None` without such a one.
    #[must_use]
    pub fn is_asked_again(&self) -> Option<bool> {
        let sole = self.session(self.sole?)?;
        Some(sole.fresh() != 0)
    }

    /// Judges what an earlier daemon stored in a lane: shows the reply if `is_committed` says of
    /// its transaction that it is true, and otherwise takes it back, so that the request is
    /// executed. To be called for all lanes before anything is committed, as a new transaction may
    /// have the number of one that was lost.
    pub fn judge(&mut self, at: LaneRef, is_committed: impl FnOnce(u64) -> bool) {
        let Some(session) = self.session(at.session) else { return };
        let Some((control, _)) = session.lane(at.lane) else { return };
        let answered = control.answered_id.load(Acquire);
        let waits = control.state.load(Acquire) & !LANE_SLEEPER == LANE_REQUEST;
        if session.taker != self.number || !waits || answered != control.request_id.load(Relaxed) {
            return;
        }
        let transaction = control.answered_transaction.load(Relaxed);
        if transaction != 0 && is_committed(transaction) {
            show(session, control);
        } else {
            control.answered_id.store(0, Release);
        }
    }

    fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(session.0 as usize)?.as_deref()
    }

    /// The lane, when this server holds it.
    fn held(&self, at: LaneRef) -> Option<(&Session, &Lane, &UnderWay)> {
        let session = self.session(at.session)?;
        let (control, under_way) = session.lane(at.lane)?;
        under_way.is_held_by(self.number).then_some((session, control, under_way))
    }

    /// Copies the body of the lane's request into `body` (its earlier content is discarded) and
    /// holds the lane. `None`: there is nothing to do here; a request that cannot be understood
    /// has been answered, if there is somebody to answer.
    pub fn take(&mut self, at: LaneRef, body: &mut Vec<u8>) -> Option<Incoming> {
        let session = self.session(at.session)?;
        let (control, under_way) = session.lane(at.lane)?;
        // A request that was taken and not answered yet is met whenever its session is looked at.
        if session.taker != self.number
            || under_way.is_at(control.request_id.load(Relaxed))
            || !under_way.is_idle()
        {
            return None;
        }
        match control.state.load(Acquire) & !LANE_SLEEPER {
            LANE_REQUEST | LANE_ASYNCHRONOUS => {}
            LANE_ABANDONED => {
                let late = session.given_up_untaken(at, self.late_cycles);
                session.free(control);
                self.given_up.extend(late);
                return None;
            }
            _ => return None,
        }
        let Some(header) = session.copy_request(at.lane, body) else {
            // The operation is anybody's guess.
            let request_id = control.request_id.load(Relaxed);
            under_way.hold(self.number, request_id, Op::Ping, 0);
            self.refuse(at, request_id);
            return None;
        };
        under_way.hold(self.number, header.request_id, header.op, header.submitted_cycles);
        Some(Incoming {
            op: header.op,
            request_id: header.request_id,
            slot_table_version: header.slot_table_version,
            processor: control.processor.load(Relaxed),
        })
    }

    /// Answers EPROTO to what is no request.
    fn refuse(&mut self, at: LaneRef, request_id: u64) {
        let status = Errno::EPROTO.raw() as u32;
        let reply = Reply { op: Op::Ping, request_id, status, body_bytes: 0, transaction: 0 };
        self.store_reply(at, &reply);
        self.publish(at);
    }

    /// Leaves a request that was taken to whoever claims it.
    pub fn leave(&mut self, at: LaneRef) {
        if let Some((_, _, under_way)) = self.held(at) {
            under_way.leave(self.number, cycles());
        }
    }

    /// Takes the lane from a request that was left and that its client has given up; the request's
    /// id. The client may use the lane again, and nobody can claim it for that request any more.
    pub fn detach(&mut self, at: LaneRef) -> Option<u64> {
        let session = self.session(at.session).filter(|session| session.taker == self.number)?;
        let (control, under_way) = session.lane(at.lane)?;
        let gives_up = control.state.load(Relaxed) == LANE_ABANDONED;
        let late = gives_up.then(|| session.late(at, under_way, self.late_cycles)).flatten();
        let request_id = session.detach(at.lane)?;
        self.given_up.extend(late);
        Some(request_id)
    }

    /// The answer to a request is known whose lane could not be claimed; true when the lane was
    /// taken from it.
    pub fn end_given_up(&mut self, session: SessionId, request_id: u64) -> bool {
        self.session(session).is_some_and(|session| session.end_given_up(request_id))
    }

    /// Holds the lane of a request that was left, for answering it; its operation, and when its
    /// client made it, by the processors' counter (0: not told; it may be anything). `None` when it
    /// is over, or somebody else answers it.
    pub fn claim(&mut self, at: LaneRef, request_id: u64) -> Option<(Op, u64)> {
        let (_, under_way) = self.session(at.session)?.lane(at.lane)?;
        under_way.claim(self.number, request_id)
    }

    /// Room for the body of the reply of a lane that is held. Write to it; what is read back from
    /// it may be anything.
    pub fn reply_body(&mut self, at: LaneRef) -> Option<&mut [u8]> {
        let (session, ..) = self.held(at)?;
        let buffers = session.buffers(at.lane);
        // SAFETY: in bounds, and mapped as long as the session, which stays in the table from which
        // the slice borrows mutably through `self`. No other thread makes such a slice: this server
        // holds the lane, and every way to end that borrows `self` mutably. The client's process
        // has no business writing here before the reply is published; if it does, bytes differ,
        // which no code relies on.
        let reply = unsafe {
            std::slice::from_raw_parts_mut(
                (&raw mut (*buffers).reply).cast::<u8>(),
                REPLY_BYTES_MAX,
            )
        };
        Some(&mut reply[HEADER_BYTES..])
    }

    /// Completes the reply, whose body is in place, of a lane that is held. It is not visible to
    /// the client yet, but survives a restart of the daemon.
    pub fn store_reply(&mut self, at: LaneRef, reply: &Reply) {
        let Some((session, control, _)) = self.held(at) else { return };
        let body_bytes = reply.body_bytes.min(REPLY_BYTES_MAX - HEADER_BYTES);
        let header = Header {
            reply: true,
            op: reply.op,
            request_id: reply.request_id,
            submitted_cycles: 0,
            slot_table_version: self.node.head.slot_table_version.load(Relaxed),
            body_bytes: body_bytes as u32,
            status: reply.status,
            body_checksum: 0,
        };
        let mut bytes = [0; HEADER_BYTES];
        let encoded = header.encode(&mut bytes);
        debug_assert!(encoded.is_ok(), "the buffer has the header's length");
        let buffers = session.buffers(at.lane);
        // An answered id that says less than the truth is repaired by executing again; one that
        // says more is not. So it is taken back first and set last.
        control.answered_id.store(0, Release);
        // SAFETY: the header fits the front of the reply buffer, which is mapped.
        unsafe {
            (&raw mut (*buffers).reply)
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), HEADER_BYTES);
        }
        control.reply_bytes.store((HEADER_BYTES + body_bytes) as u32, Relaxed);
        control.answered_transaction.store(reply.transaction, Relaxed);
        control.answered_id.store(reply.request_id, Release);
    }

    /// Shows the stored reply to the client, which [`Server::wake_sleepers`] has to wake if it
    /// sleeps. When it has given up, the lane becomes free instead. The lane is not held any more.
    /// The request, if it took long.
    pub fn publish(&mut self, at: LaneRef) -> Option<Late> {
        let (session, control, under_way) = self.held(at)?;
        // Who waits for long sleeps, or has given up. The client may use the lane when it is shown.
        let waits = control.state.load(Relaxed);
        let waits = waits & LANE_SLEEPER != 0 || waits == LANE_ABANDONED;
        let late = waits.then(|| session.late(at, under_way, self.late_cycles)).flatten();
        let sleeps = show(session, control);
        if session.taker == self.number {
            under_way.end_of_taker();
        } else if under_way.end() {
            session.mark(self.node);
        }
        if !sleeps {
            return late;
        }
        // Other threads than the one that takes requests do not look again for who is put off.
        let taken_here = session.taker == self.number;
        let here = if taken_here { self.node.head.daemon_processor.load(Relaxed) } else { 0 };
        let made = control.processor.load(Relaxed);
        self.sleepers.add(at, Places { made, here }, cycles());
        late
    }

    /// From now on requests that take longer than so many cycles are told of.
    pub fn report_late(&mut self, cycles: u64) {
        self.late_cycles = cycles;
    }

    /// Requests that took longer, and were given up without an answer since the last time.
    pub fn given_up(&mut self) -> Vec<Late> {
        std::mem::take(&mut self.given_up)
    }
}

/// Whether somebody sleeps who waits for it.
fn show(session: &Session, control: &Lane) -> bool {
    let mut seen = control.state.load(Relaxed);
    loop {
        let next = match seen & !LANE_SLEEPER {
            LANE_REQUEST => LANE_REPLY,
            LANE_ABANDONED | LANE_ASYNCHRONOUS => LANE_FREE,
            _ => return false,
        };
        match control.state.compare_exchange_weak(seen, next, AcqRel, Relaxed) {
            Ok(_) => break,
            Err(other) => seen = other,
        }
    }
    if matches!(seen, LANE_ABANDONED | LANE_ASYNCHRONOUS) {
        session.wake_lane_waiters();
        return false;
    }
    seen & LANE_SLEEPER != 0
}

/// Positions of the bits set.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros();
        word &= word - 1;
        Some(bit)
    })
}
