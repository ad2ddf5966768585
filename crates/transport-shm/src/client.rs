//! The client's side of the lanes.
//!
//! Life of a lane, each step by the party that holds it:
//!
//! ```text
//! FREE ─claim→ CLAIMED ─submit→ REQUEST ─daemon→ REPLY ─release→ FREE
//!                                  └─deadline→ ABANDONED ─daemon→ FREE
//!                 └─submit→ ASYNCHRONOUS ─daemon→ FREE
//! ```
//!
//! Which thread claims which lane does not matter; threads begin their search at different places,
//! found from the address of their stack, so that they rarely meet. Everything here works in a
//! signal handler that interrupted it: the inner call simply takes another lane.

mod lanes;
mod submission;
mod wait;

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use mayfly_sys::{
    arch::{Moment, Moments},
    process,
};
use mayfly_transport::{Answer, Certain, CopyContent, Looked, Patience, Pending, Transport};
use mayfly_types::{
    Attr, Errno, FileId, OpenRef, Timestamp,
    limits::{LANES, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, SESSIONS_MAX},
};
use mayfly_wire::{
    Escaped, HEADER_BYTES, Header, Link, MakeDirectory, Op, Open, Operation, Reader, Rename,
    STATUS_ESCAPED, SetAttr, Symlink, Unlink, Walk, Wire, Writer,
};

use crate::{
    file_leases::SessionLeases,
    layout::{
        LANE_ASYNCHRONOUS, LANE_REQUEST, Lane, LaneBuffers, NodeRegion, PROCESSORS_READABLE,
        SessionHead, SessionRegion,
    },
    spin::{PLACE_CYCLES, REPLY_CYCLES, Spin, Yield},
    tally::Tally,
};

/// Carries the requests of one session. It lives as long as the process: the mappings are never
/// undone.
#[derive(Debug)]
pub struct ShmTransport {
    node: &'static NodeRegion,
    session: *mut SessionRegion,
    /// Bit of this session in the daemon's summary; not read from the region again.
    id: u32,
    evidence_fd: i32,
    /// For replies.
    spin: Spin,
    /// For places in a full ring.
    spin_for_place: Spin,
    yields: Yield,
    moments: Moments,
    /// A thread is submitting.
    submitting: AtomicBool,
    /// So many records were published when the last one that changes what is there was, modulo
    /// 2³², or was about to be.
    last_change: AtomicU32,
    /// What the rings had when something was last found out beside what waits, all counted.
    beside_at: AtomicU64,
    /// How often that was since.
    besides: AtomicU32,
}

/// A request that was handed over.
#[derive(Debug, Clone, Copy)]
struct Submitted {
    lane: usize,
    id: u64,
    at: Moment,
    /// The daemon slept and was woken.
    woken: bool,
}

// SAFETY: the regions are shared memory whose heads are atomics; a lane's buffers are touched only
// by the thread that claimed the lane.
unsafe impl Send for ShmTransport {}
// SAFETY: as above.
unsafe impl Sync for ShmTransport {}

impl ShmTransport {
    /// What the daemon leases this session.
    #[must_use]
    pub fn file_leases(&self) -> Option<&'static SessionLeases> {
        self.node.file_leases.get(self.id as usize)
    }

    /// What this session does is counted there.
    #[must_use]
    pub fn tally(&self) -> Option<&'static Tally> {
        self.node.tallies.get(self.id as usize)
    }

    /// The reply to a request that was sent at `cycles` is there.
    fn count_wait(&self, op: Op, cycles: u64) {
        if let Some(tally) = self.tally() {
            let took = self.moments.now().cycles.saturating_sub(cycles);
            tally.waited(op as usize, self.node.head.nanoseconds(took));
        }
    }

    /// For a mapped session region that stays mapped for good.
    pub(crate) fn new(
        node: &'static NodeRegion,
        session: *mut SessionRegion,
        evidence_fd: i32,
    ) -> ShmTransport {
        // SAFETY: the region is mapped, as large as its type and made of atomics; see `head`.
        let id = unsafe { &(*session).head }.session.load(Relaxed) % SESSIONS_MAX;
        // SAFETY: who made the region asked a processor of this machine, and no other value than
        // that one is taken for the answer.
        let moments = unsafe {
            Moments::known(node.head.processors_readable.load(Relaxed) == PROCESSORS_READABLE)
        };
        // A process that may run on one processor only is not alone when it can tell whether the
        // daemon runs on another one.
        let alone = !moments.has_processor() && process::processors() < 2;
        ShmTransport {
            node,
            session,
            id,
            evidence_fd,
            spin: Spin::new(alone, REPLY_CYCLES),
            spin_for_place: Spin::new(alone, PLACE_CYCLES),
            yields: Yield::new(),
            moments,
            submitting: AtomicBool::new(false),
            last_change: AtomicU32::new(0),
            beside_at: AtomicU64::new(0),
            besides: AtomicU32::new(0),
        }
    }

    fn head(&self) -> &SessionHead {
        // SAFETY: the region is mapped for good and its head consists of atomics. The reference
        // does not cover the buffers, to which others write.
        unsafe { &(*self.session).head }
    }

    fn lane(&self, lane: usize) -> &Lane {
        &self.head().lanes[lane]
    }

    fn buffers(&self, lane: usize) -> *mut LaneBuffers {
        debug_assert!(lane < LANES);
        // SAFETY: `lane` is below LANES, so the place is inside the mapping. No reference is made.
        unsafe { (&raw mut (*self.session).buffers).cast::<LaneBuffers>().add(lane) }
    }

    /// Reply of a lane in state REPLY.
    fn reply_bytes(&self, lane: usize) -> &[u8] {
        let count = self.lane(lane).reply_bytes.load(Relaxed) as usize;
        let buffers = self.buffers(lane);
        // SAFETY: the daemon does not write to a lane after it published the reply, and the thread
        // holds the lane; the length is bounded by the buffer.
        unsafe {
            core::slice::from_raw_parts(
                (&raw const (*buffers).reply).cast(),
                count.min(REPLY_BYTES_MAX),
            )
        }
    }

    /// Writes body and header; the length of both.
    fn encode<'a, O: Operation<'a>>(
        &self,
        lane: usize,
        id: u64,
        at: Moment,
        request: &O,
    ) -> Result<usize, Errno> {
        let buffers = self.buffers(lane);
        // SAFETY: the thread holds the lane, so no other thread of this process touches the buffer;
        // the daemon reads it (and copies it out) only between submission and reply.
        let buffer = unsafe {
            core::slice::from_raw_parts_mut((&raw mut (*buffers).request).cast(), REQUEST_BYTES_MAX)
        };
        let (header, body) = buffer.split_at_mut(HEADER_BYTES);
        let mut to = Writer::new(body);
        request.encode(&mut to).map_err(|_| Errno::EINVAL)?;
        let used = to.used();
        self.header(O::OP, id, at, used).encode(header).map_err(|_| Errno::EINVAL)?;
        Ok(HEADER_BYTES + used)
    }

    fn header(&self, op: Op, request_id: u64, at: Moment, body_bytes: usize) -> Header {
        Header {
            reply: false,
            op,
            request_id,
            // Reading the clock costs as much as the request, and reading the counter next to
            // nothing. When it is over the lane's state says.
            submitted_cycles: at.cycles,
            slot_table_version: self.node.head.slot_table_version.load(Relaxed),
            body_bytes: body_bytes as u32,
            status: 0,
            body_checksum: 0,
        }
    }

    /// Hands a complete request, made at `at`, to the daemon, the lane in `state`.
    fn submit(&self, lane: usize, id: u64, at: Moment, bytes: usize, state: u32) -> Submitted {
        let control = self.lane(lane);
        control.request_id.store(id, Relaxed);
        control.request_bytes.store(bytes as u32, Relaxed);
        control.processor.store(at.processor, Relaxed);
        control.state.store(state, Release);
        self.node.mark(self.id);
        Submitted { lane, id, at, woken: self.node.wake_daemon() }
    }

    fn answer<'r, R: Wire<'r>>(&'r self, lane: usize, op: Op) -> Answer<'r, R> {
        let bytes = self.reply_bytes(lane);
        let id = self.lane(lane).request_id.load(Relaxed);
        let Ok(header) = Header::decode(bytes) else { return Answer::Failed(Errno::EIO) };
        let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes as usize) else {
            return Answer::Failed(Errno::EIO);
        };
        if !header.reply || header.op != op || header.request_id != id {
            return Answer::Failed(Errno::EIO);
        }
        let mut from = Reader::new(body);
        match header.status {
            0 => R::decode(&mut from).map_or(Answer::Failed(Errno::EIO), Answer::Done),
            STATUS_ESCAPED => Escaped::decode(&mut from)
                .map_or(Answer::Failed(Errno::EIO), |escaped| Answer::Escaped(escaped.path)),
            status => Answer::Failed(Errno::from_raw(status as i32).unwrap_or(Errno::EIO)),
        }
    }
}

impl Transport for ShmTransport {
    fn exchange<'a, O: Operation<'a>, T>(
        &self,
        request: &O,
        patience: Patience,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        if self.node.is_lost() {
            return take(Answer::Failed(Errno::EIO));
        }
        let lane = match self.claim(patience) {
            Ok(lane) => lane,
            Err(errno) => return take(Answer::Failed(errno)),
        };
        let id = self.head().last_request_id.fetch_add(1, Relaxed) + 1;
        let at = self.moments.now();
        let bytes = match self.encode(lane, id, at, request) {
            Ok(bytes) => bytes,
            Err(errno) => {
                self.release(lane);
                return take(Answer::Failed(errno));
            }
        };
        let submitted = self.submit(lane, id, at, bytes, LANE_REQUEST);
        if let Err(errno) = self.wait(&submitted, patience) {
            return take(Answer::Failed(errno));
        }
        self.count_wait(O::OP, submitted.at.cycles);
        let taken = take(self.answer::<O::Reply<'_>>(lane, O::OP));
        self.release(lane);
        taken
    }

    fn begin<'a, O: Operation<'a>>(&self, request: &O) -> Option<Pending> {
        if self.node.is_lost() {
            return None;
        }
        let lane = self.try_claim(Patience::Deadline)?;
        let id = self.head().last_request_id.fetch_add(1, Relaxed) + 1;
        let at = self.moments.now();
        let bytes = self.encode(lane, id, at, request).inspect_err(|_| self.release(lane)).ok()?;
        self.submit(lane, id, at, bytes, LANE_REQUEST);
        Some(Pending { lane, id, at: at.cycles })
    }

    fn finish<'a, O: Operation<'a>, T>(
        &self,
        pending: Pending,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        let Pending { lane, id, at } = pending;
        // Some time has passed since it was sent: where the daemon was does not matter any more.
        let submitted = Submitted { lane, id, at: self.moments.now(), woken: true };
        if let Err(errno) = self.wait(&submitted, Patience::Deadline) {
            return take(Answer::Failed(errno));
        }
        self.count_wait(O::OP, at);
        let taken = take(self.answer::<O::Reply<'_>>(lane, O::OP));
        self.release(lane);
        taken
    }

    fn send_unawaited<'a, O: Operation<'a>>(&self, request: &O) -> Result<(), Errno> {
        if self.node.is_lost() {
            return Err(Errno::EIO);
        }
        let lane = self.claim(Patience::Deadline)?;
        let id = self.head().last_request_id.fetch_add(1, Relaxed) + 1;
        let at = self.moments.now();
        let bytes = self.encode(lane, id, at, request).inspect_err(|_| self.release(lane))?;
        self.submit(lane, id, at, bytes, LANE_ASYNCHRONOUS);
        Ok(())
    }

    fn submit_create(&self, open: &Open<'_>) -> Option<OpenRef> {
        self.submit_create_in_ring(open)
    }

    fn submit_replacement(
        &self,
        open: &Open<'_>,
        copy: &mut CopyContent<'_>,
    ) -> Option<(OpenRef, FileId)> {
        self.submit_replacement_in_ring(open, copy)
    }

    fn submit_length(&self, walk: &Walk<'_>, bytes: usize, copy: &mut CopyContent<'_>) -> bool {
        self.submit_length_in_ring(walk, bytes, copy)
    }

    fn cut_submitted(&self, open: OpenRef, bytes: usize) -> bool {
        self.cut_in_ring(open, bytes)
    }

    fn read_submitted(&self, open: OpenRef, take: &mut dyn FnMut(u32, &[u8])) -> bool {
        self.read_in_ring(open, take)
    }

    fn replaces(&self, file: FileId) -> bool {
        self.replaces_in_rings(file)
    }

    fn look_at_replaced(
        &self,
        open: OpenRef,
        now: Timestamp,
        attr_of: &mut dyn FnMut(FileId, &[u8]) -> Option<Attr>,
    ) -> Option<(Attr, Option<(usize, Timestamp)>)> {
        self.look_at_replaced_in_ring(open, now, attr_of)
    }

    fn submit_removal(&self, unlink: &Unlink<'_>) -> bool {
        self.submit_removal_in_ring(unlink)
    }

    fn submit_directory(&self, make: &MakeDirectory<'_>) -> bool {
        self.submit_directory_in_ring(make)
    }

    fn submit_symlink(&self, symlink: &Symlink<'_>) -> bool {
        self.submit_symlink_in_ring(symlink)
    }

    fn submit_content(
        &self,
        open: OpenRef,
        at: u64,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<Result<u64, Errno>> {
        self.add_in_ring(open, at, bytes, fill)
    }

    fn submit_object(
        &self,
        open: OpenRef,
        range: (u64, u64),
        make: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        self.make_object_in_ring(open, range, make)
    }

    fn submitted_object_end(&self, open: OpenRef) -> Option<u64> {
        let (_, submissions) = self.ring();
        let is_own = submissions.session.load(Relaxed) == self.id && !self.node.is_lost();
        is_own.then(|| submissions.object_end(open)).flatten()
    }

    fn submit_changes(
        &self,
        set: &SetAttr<'_>,
        certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
        time_object: &mut dyn FnMut(OpenRef) -> bool,
    ) -> bool {
        self.submit_changes_in_ring(set, None, certain, time_object)
    }

    fn submit_changes_known(
        &self,
        set: &SetAttr<'_>,
        walk: &Walk<'_>,
        certain: &mut dyn FnMut(FileId, &[u8]) -> Certain,
    ) -> bool {
        self.submit_changes_in_ring(set, Some(walk), certain, &mut |_| false)
    }

    fn submit_rename(
        &self,
        rename: &Rename<'_>,
        is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        self.submit_move_in_ring(rename, is_certain)
    }

    fn submit_link(
        &self,
        link: &Link<'_>,
        is_certain: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> bool {
        self.submit_link_in_ring(link, is_certain)
    }

    fn look_at_submitted(
        &self,
        open: OpenRef,
        now: Timestamp,
        gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<Looked> {
        self.look_in_ring(open, now, gives_group)
    }

    fn look_at_name(
        &self,
        walk: &Walk<'_>,
        now: &mut dyn FnMut() -> Timestamp,
        gives_group: &mut dyn FnMut(FileId, &[u8]) -> bool,
    ) -> Option<(FileId, Timestamp, Looked)> {
        self.look_at_name_in_ring(walk, now, gives_group)
    }

    fn submits_additions_alone(&self) -> bool {
        self.has_additions_alone()
    }

    fn is_there(&self, walk: &Walk<'_>) -> Option<bool> {
        self.is_there_in_table(walk)
    }

    fn is_quicker_beside(&self) -> bool {
        self.is_quicker_beside_rings()
    }

    fn waits(&self, directory: FileId, path: Option<&[u8]>) -> bool {
        self.waits_in_rings(directory, path)
    }

    fn removes_directories(&self) -> bool {
        self.removes_directories_in_rings()
    }

    fn withdraw(&self, open: OpenRef) -> bool {
        self.withdraw_from_ring(open)
    }
}

/// True when the reply to a submitted request is complete.
fn replied(lane: &Lane) -> bool {
    lane.state.load(Acquire) == crate::layout::LANE_REPLY
}
