//! The daemon's side of the lanes.
//!
//! [`Server::collect`] gathers the lanes whose requests nobody has looked at; [`Server::take`]
//! copies a request out of shared memory and checks it; [`Server::store_reply`] writes the reply
//! where it survives the daemon; [`Server::publish`] shows it to the client. Between the last two
//! the transaction commits.
//!
//! The process at the other end may write anything anywhere at any time. So every word is read
//! once, a length is bounded before it is used, a request is copied before it is decoded, and which
//! requests are under way is kept in the daemon's own memory. Scribbling harms the scribbler's
//! session only.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use mayfly_sys::futex;
use mayfly_types::{
    Errno, SessionId,
    limits::{LANES, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, SESSIONS_MAX},
};
use mayfly_wire::{HEADER_BYTES, Header, Op};

use crate::{
    layout::{
        LANE_ABANDONED, LANE_FREE, LANE_REPLY, LANE_REQUEST, LANE_SLEEPER, Lane, LaneBuffers,
        NodeRegion,
    },
    region::SessionMapping,
};

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
    /// Transaction of a reply to this very request that an earlier daemon stored here, if any.
    pub answered_transaction: Option<u64>,
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

#[derive(Debug)]
struct Session {
    mapping: SessionMapping,
    /// Requests that were taken and not published yet.
    under_way: [Option<(u64, Op)>; LANES],
}

impl Session {
    fn lane(&self, lane: u32) -> Option<&Lane> {
        self.mapping.head().lanes.get(lane as usize)
    }

    fn buffers(&self, lane: u32) -> *mut LaneBuffers {
        let lane = lane as usize % LANES;
        // SAFETY: below LANES, so inside the mapping; no reference is made.
        unsafe { (&raw mut (*self.mapping.region()).buffers).cast::<LaneBuffers>().add(lane) }
    }
}

/// All sessions of the node, as the daemon sees them.
#[derive(Debug)]
pub struct Server {
    node: &'static NodeRegion,
    sessions: Vec<Option<Session>>,
}

impl Server {
    /// For a node region without sessions yet.
    #[must_use]
    pub fn new(node: &'static NodeRegion) -> Server {
        let mut sessions = Vec::new();
        sessions.resize_with(SESSIONS_MAX as usize, || None);
        Server { node, sessions }
    }

    /// The node region.
    #[must_use]
    pub fn node(&self) -> &'static NodeRegion {
        self.node
    }

    /// Adds a session; the lanes that have a request already (of a client quicker than the
    /// supervisor, or from before a restart) go to `lanes`.
    pub fn add_session(
        &mut self,
        session: SessionId,
        mapping: SessionMapping,
        lanes: &mut Vec<LaneRef>,
    ) {
        let Some(place) = self.sessions.get_mut(session.0 as usize) else { return };
        finish_wakes(&mapping);
        *place = Some(Session { mapping, under_way: [None; LANES] });
        lanes.extend((0..LANES as u32).map(|lane| LaneRef { session, lane }));
    }

    /// Forgets a session and unmaps it.
    pub fn remove_session(&mut self, session: SessionId) {
        if let Some(place) = self.sessions.get_mut(session.0 as usize) {
            *place = None;
        }
    }

    /// Sessions known.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.iter().flatten().count()
    }

    /// True when a client has said that it has a request.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.node.head.pending_summary.load(SeqCst) != 0
    }

    /// Appends the lanes that clients have marked since the last time. A session that is not known
    /// yet keeps its marks.
    pub fn collect(&mut self, lanes: &mut Vec<LaneRef>) {
        if !self.has_requests() {
            return;
        }
        let head = &self.node.head;
        for word in bits(head.pending_summary.swap(0, SeqCst)) {
            for bit in bits(head.sessions_pending[word as usize].swap(0, SeqCst)) {
                let session = SessionId(word * 64 + bit);
                let Some(known) = self.sessions.get(session.0 as usize).and_then(Option::as_ref)
                else {
                    continue;
                };
                let marked = known.mapping.head().lanes_pending.swap(0, SeqCst);
                let marked = bits(marked).filter(|lane| *lane < LANES as u32);
                lanes.extend(marked.map(|lane| LaneRef { session, lane }));
            }
        }
    }

    fn session(&self, at: LaneRef) -> Option<&Session> {
        self.sessions.get(at.session.0 as usize)?.as_ref()
    }

    /// Copies the body of the lane's request into `body` (its earlier content is discarded).
    /// `None`: there is nothing to do here. An error: the lane's request cannot be understood; it
    /// has been answered, if there is somebody to answer.
    pub fn take(&mut self, at: LaneRef, body: &mut Vec<u8>) -> Option<Incoming> {
        let session = self.sessions.get_mut(at.session.0 as usize)?.as_mut()?;
        if session.under_way.get(at.lane as usize)?.is_some() {
            return None;
        }
        let control = session.lane(at.lane)?;
        match control.state.load(Acquire) & !LANE_SLEEPER {
            LANE_REQUEST => {}
            LANE_ABANDONED => {
                free(control);
                wake_lane_waiters(&session.mapping);
                return None;
            }
            _ => return None,
        }
        let length = control.request_bytes.load(Relaxed) as usize;
        let answered = control.answered_id.load(Acquire);
        let transaction = control.answered_transaction.load(Relaxed);
        let header = copy_request(session, at.lane, length, body);
        let Some(header) = header else {
            self.refuse(at);
            return None;
        };
        session.under_way[at.lane as usize] = Some((header.request_id, header.op));
        Some(Incoming {
            op: header.op,
            request_id: header.request_id,
            slot_table_version: header.slot_table_version,
            answered_transaction: (answered == header.request_id).then_some(transaction),
        })
    }

    /// Answers EPROTO to what is no request; the operation is anybody's guess.
    fn refuse(&mut self, at: LaneRef) {
        let request_id =
            self.session(at).and_then(|s| Some(s.lane(at.lane)?.request_id.load(Relaxed)));
        let status = Errno::EPROTO.raw() as u32;
        let request_id = request_id.unwrap_or(0);
        self.store_reply(
            at,
            &Reply { op: Op::Ping, request_id, status, body_bytes: 0, transaction: 0 },
        );
        self.publish(at);
    }

    /// Room for the body of the lane's reply. Write to it; what is read back from it may be
    /// anything.
    pub fn reply_body(&mut self, at: LaneRef) -> Option<&mut [u8]> {
        let session = self.session(at)?;
        let buffers = session.buffers(at.lane);
        // SAFETY: in bounds, and mapped as long as the session, from which the slice borrows
        // mutably through `self`. The client's process has no business writing here before the
        // reply is published; if it does, bytes differ, which no code relies on.
        let reply = unsafe {
            std::slice::from_raw_parts_mut(
                (&raw mut (*buffers).reply).cast::<u8>(),
                REPLY_BYTES_MAX,
            )
        };
        Some(&mut reply[HEADER_BYTES..])
    }

    /// Completes the reply whose body is in place. It is not visible to the client yet, but
    /// survives a restart of the daemon.
    pub fn store_reply(&mut self, at: LaneRef, reply: &Reply) {
        let Some(session) = self.session(at) else { return };
        let Some(control) = session.lane(at.lane) else { return };
        let body_bytes = reply.body_bytes.min(REPLY_BYTES_MAX - HEADER_BYTES);
        let header = Header {
            reply: true,
            op: reply.op,
            request_id: reply.request_id,
            deadline_ns: 0,
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

    /// Shows the stored reply to the client, and wakes it if it sleeps. When it has given up, the
    /// lane becomes free instead.
    pub fn publish(&mut self, at: LaneRef) {
        let Some(session) = self.sessions.get_mut(at.session.0 as usize).and_then(Option::as_mut)
        else {
            return;
        };
        if let Some(under_way) = session.under_way.get_mut(at.lane as usize) {
            *under_way = None;
        }
        let Some(control) = session.lane(at.lane) else { return };
        let mut seen = control.state.load(Relaxed);
        loop {
            let next = match seen & !LANE_SLEEPER {
                LANE_REQUEST => LANE_REPLY,
                LANE_ABANDONED => LANE_FREE,
                _ => return,
            };
            match control.state.compare_exchange_weak(seen, next, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        if seen == LANE_ABANDONED {
            wake_lane_waiters(&session.mapping);
        } else if seen & LANE_SLEEPER != 0 {
            futex::wake(&control.state, 1);
        }
    }

    /// The operation of request `request_id`, when it was taken from this lane and is not published
    /// yet.
    #[must_use]
    pub fn under_way(&self, at: LaneRef, request_id: u64) -> Option<Op> {
        let (id, op) = (*self.session(at)?.under_way.get(at.lane as usize)?)?;
        (id == request_id).then_some(op)
    }
}

/// An earlier daemon may have died between a change and the wake-up that belongs to it.
fn finish_wakes(mapping: &SessionMapping) {
    let head = mapping.head();
    let answered = |lane: &&Lane| lane.state.load(SeqCst) == LANE_REPLY;
    for lane in head.lanes.iter().filter(answered) {
        futex::wake(&lane.state, 1);
    }
    wake_lane_waiters(mapping);
}

fn free(lane: &Lane) {
    // Only the daemon moves a lane out of this state.
    lane.state.store(LANE_FREE, SeqCst);
}

fn wake_lane_waiters(mapping: &SessionMapping) {
    let head = mapping.head();
    std::sync::atomic::fence(SeqCst);
    if head.lane_waiters.load(SeqCst) > 0 {
        head.lanes_freed.fetch_add(1, SeqCst);
        futex::wake(&head.lanes_freed, i32::MAX as u32);
    }
}

/// Copies header and body out of shared memory and checks them against each other.
fn copy_request(session: &Session, lane: u32, length: usize, body: &mut Vec<u8>) -> Option<Header> {
    body.clear();
    let body_bytes = length.checked_sub(HEADER_BYTES)?;
    if length > REQUEST_BYTES_MAX {
        return None;
    }
    let mut bytes = [0; HEADER_BYTES];
    body.reserve(body_bytes);
    let request = {
        let buffers = session.buffers(lane);
        // SAFETY: stays inside the lane's buffers; no reference is made.
        unsafe { (&raw const (*buffers).request).cast::<u8>() }
    };
    // SAFETY: source in bounds since `length` is; the targets are the daemon's own and large
    // enough. The client may write meanwhile, then the copy holds a mixture, and any bytes are
    // valid as `u8`.
    unsafe {
        request.copy_to_nonoverlapping(bytes.as_mut_ptr(), HEADER_BYTES);
        request.add(HEADER_BYTES).copy_to_nonoverlapping(body.as_mut_ptr(), body_bytes);
        body.set_len(body_bytes);
    }
    let header = Header::decode(&bytes).ok()?;
    let sound = !header.reply && header.body_bytes as usize == body_bytes && header.request_id != 0;
    sound.then_some(header)
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
