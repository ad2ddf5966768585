//! The shared memory of a node, byte by byte (`docs/design/shm.md`).
//!
//! There are two kinds of region. The *node region* is one for each node, mapped by the daemon and
//! by every attached process; it holds the table of open file descriptions, the table of open
//! files, and the words by which processes wake the daemon. A *session region* belongs to one
//! process; it holds its lanes: one request and one reply each. The supervisor holds both through a
//! restart of the daemon.
//!
//! Everything in here can be scribbled on by a process that lost its mind. All fields are atomics,
//! read once, and the daemon keeps its own copy of whatever it must rely on. References into a
//! region live as long as the mapping; a mapping is never unmapped while one is in use.
//!
//! A cache line goes from one processor to another in the time of a hundred instructions, and these
//! transfers are most of what a short request costs. So words that one side writes for each request
//! share no line with what the other side reads meanwhile: what changes rarely, the marks, and the
//! halves of a lane each have lines of their own.

mod rare;

pub use rare::{Began, HOLDS, Hold, MountWords, RingWords, TierWords};

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::{
    file_leases::SessionLeases,
    submission_ring::{RINGS, SubmissionRing, name_table::NameTables},
    tally::{OPS, Tally, Timeline, Waits},
};
use mayfly_types::limits::{
    FILES_OPEN_MAX, LANES, NAME_BYTES_MAX, OPEN_FILES_MAX, REPLY_BYTES_MAX, REQUEST_BYTES_MAX,
    SESSIONS_MAX, SHARDS_MAX, STARTED_WRITES_MAX,
};
use mayfly_wire::Op;

/// First word of either region.
pub const MAGIC: u32 = 0x5346_594d; // "MYFS"
/// Version of the layout; a client of another version does not attach.
pub const LAYOUT_VERSION: u32 = 33;

/// The daemon is polling: a request needs no system call.
pub const DAEMON_AWAKE: u32 = 1;
/// The daemon sleeps, or is about to: count up `daemon_wakes` and wake its futex.
pub const DAEMON_ASLEEP: u32 = 2;
/// No daemon (not yet, or it died): the supervisor is at it.
pub const DAEMON_ABSENT: u32 = 0;
/// The daemon died, and nothing that it held outlives it: there will be no other, and no answer.
pub const DAEMON_LOST: u32 = 3;

/// In [`NodeHead::daemon_processor`]: the thread is being moved to another processor than the
/// clients', and serves as soon as it is there.
pub const ON_THE_WAY: u32 = u32::MAX;

/// In [`NodeHead::processors_readable`]: a value that does not get there by accident, since a
/// process that takes it for true executes an instruction that not every processor has.
pub const PROCESSORS_READABLE: u32 = 0x5043_5354; // "TSCP"

/// Head of the node region.
#[repr(C, align(4096))]
pub struct NodeHead {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`LAYOUT_VERSION`].
    pub version: AtomicU32,
    /// Identity of the instance.
    pub instance: AtomicU64,
    /// Starts of the daemon so far.
    pub daemon_starts: AtomicU32,
    /// `DAEMON_*`; written by the daemon, and by the supervisor while there is none.
    pub daemon_state: AtomicU32,
    /// Version of the slot table.
    pub slot_table_version: AtomicU32,
    /// `Times` of the instance.
    pub times: AtomicU32,
    /// 1 when locks are served.
    pub locks: AtomicU32,
    /// Deadline of a request, milliseconds.
    pub deadline_ms: AtomicU32,
    /// Processor on which the thread that takes requests runs, its number plus one; 0: not known;
    /// or [`ON_THE_WAY`].
    pub daemon_processor: AtomicU32,
    /// [`PROCESSORS_READABLE`] when threads can ask where they run without the kernel.
    pub processors_readable: AtomicU32,
    /// Not 0 while somebody may watch files of the instance with inotify
    /// ([`mayfly_types::mirror`]).
    pub watched: AtomicU32,
    /// Nodes of the instance; 0 before a daemon has said so.
    pub nodes: AtomicU32,
    /// Nanoseconds of 2³² cycles of the processors' counter; 0: not known yet.
    pub cycles_ns: AtomicU64,
    /// Not 0 while transactions over several shards have prepare locks at the shard whose records
    /// processes read: those may show a part of what such a transaction changes.
    pub transactions: AtomicU32,
    /// Shards of each node; 0 before a daemon has said so.
    pub shards: AtomicU32,
    /// What is written above is written rarely, what follows with each request.
    pub tier: TierWords,
    /// Which words of `sessions_pending` are not zero.
    pub pending_summary: AtomicU64,
    /// Sessions with a request that the daemon has not seen, a bit each.
    pub sessions_pending: [AtomicU64; SESSIONS_MAX as usize / 64],
    /// Counted up by whoever wakes the daemon; a futex. It is not the state word, because the
    /// daemon must not fall asleep over a wake-up that came between its last look and its sleep,
    /// and because a client that dies after changing the state, before waking, would leave a
    /// sleeper whom nobody wakes.
    pub daemon_wakes: AtomicU32,
    /// Only the daemon writes what follows, and nobody looks but for people.
    pub padding_after_wakes: [AtomicU32; 13],
    /// How its waiting went.
    pub waiting: Waiting,
    /// When the node began.
    pub began: Began,
    /// Open file descriptions that may write. The daemon counts, the supervisor sets it to 0 before
    /// the next daemon counts anew.
    pub writers: AtomicU32,
    /// What outlives a daemon that has leased names to mounts. What is submitted, behind it, is
    /// looked at by everybody.
    pub mounts: MountWords,
    /// Rings that have records which were not executed and committed, a bit each
    /// ([`crate::submission_ring`]).
    pub submitted: AtomicU64,
    /// More about rings.
    pub rings: RingWords,
}

impl NodeHead {
    /// Rings with records that were not executed and committed, and those that the daemon is about
    /// to tell so of: whoever has published before this look is seen.
    #[must_use]
    pub fn submitted_rings(&self) -> u64 {
        self.unless_settling(&self.submitted)
    }

    /// The same of [`RingWords::replacing`].
    #[must_use]
    pub fn replacing_rings(&self) -> u64 {
        self.unless_settling(&self.rings.replacing)
    }

    /// What the daemon has taken back and is about to say again is in the second word, or by then
    /// in the first one.
    fn unless_settling(&self, word: &AtomicU64) -> u64 {
        let order = core::sync::atomic::Ordering::SeqCst;
        word.load(order) | self.rings.settling.load(order) | word.load(order)
    }

    /// So many cycles of the processors' counter as nanoseconds. As long as nobody knows how fast
    /// it is, two cycles are taken for one.
    #[must_use]
    pub fn nanoseconds(&self, cycles: u64) -> u64 {
        match self.cycles_ns.load(core::sync::atomic::Ordering::Relaxed) {
            0 => cycles / 2,
            rate => ((u128::from(cycles) * u128::from(rate)) >> 32) as u64,
        }
    }
}

/// What became of the waits of the daemon's thread that takes requests, counted since the node
/// began.
#[repr(C)]
pub struct Waiting {
    /// Polls that found something to do.
    pub polls: AtomicU64,
    /// Polls that found nothing.
    pub polls_in_vain: AtomicU64,
    /// Sleeps.
    pub sleeps: AtomicU64,
    /// Moves to another processor than the clients'.
    pub moves: AtomicU64,
}

/// Entry is free.
pub const OPEN_FREE: u32 = 0;
/// Only the process of `session` has descriptors for it.
pub const OPEN_PRIVATE: u32 = 1;
/// That process is giving it a kernel identity right now.
pub const OPEN_SHARING: u32 = 2;
/// Its life time is that of the kernel's open file description of the slot file `ofd/<index>`.
pub const OPEN_SHARED: u32 = 3;
/// Set aside for what a process submits ([`crate::submission_ring`]).
pub const OPEN_PROMISED: u32 = 4;
/// Leased to the process of `session`, which reads no file by it now ([`crate::file_leases`]).
pub const OPEN_LEASED: u32 = 5;
/// A thread of that process is taking it into use, or out of it.
pub const OPEN_LEASED_BUSY: u32 = 6;
/// That process reads the file `id` by it.
pub const OPEN_LEASED_USED: u32 = 7;
/// The daemon is making a description of its own of it.
pub const OPEN_LEASED_RECALLED: u32 = 8;

/// In `OpenEntry::flags`: the offset is that of a file of the mount ([`crate::keeper`]), for good.
pub const OPEN_MOVED: u32 = 1 << 31;
/// The same: what was written is perhaps not at the file's home. The daemon sets and clears it.
pub const OPEN_BEHIND: u32 = 1 << 30;

/// An open file description, made and freed by the daemon. Processes move the offset.
#[repr(C, align(64))]
pub struct OpenEntry {
    /// `OPEN_*`.
    pub state: AtomicU32,
    /// Generation of the entry, counted up when it is freed.
    pub generation: AtomicU32,
    /// Access mode and status flags (`O_*`), [`OPEN_MOVED`], [`OPEN_BEHIND`].
    pub flags: AtomicU32,
    /// Index of the file's entry.
    pub file: AtomicU32,
    /// Session of the process that has it while it is private.
    pub session: AtomicU32,
    /// Thread that moves the offset now (its tid), or 0; a futex.
    pub offset_lock: AtomicU32,
    /// The file offset; the cookie of a listing for a directory.
    pub offset: AtomicU64,
    /// The file.
    pub id: AtomicU64,
    /// `FileKind`.
    pub kind: AtomicU32,
    /// What the daemon needs to find it again after a restart.
    pub reserved: [AtomicU32; 5],
}

/// The file has an object: bytes are read and written there.
pub const FILE_OBJECT: u32 = 1;
/// The last name is gone.
pub const FILE_UNLINKED: u32 = 2;
/// Somebody has had a lock on the file since it was opened.
pub const FILE_LOCKED: u32 = 4;
/// Its bytes are read and written by requests, whether it has an object or not.
pub const FILE_BY_REQUEST: u32 = 8;
/// What is appended goes through the daemon.
pub const FILE_APPEND_BY_REQUEST: u32 = 16;
/// Its chunks are on several nodes; of those on this one leave can be had.
pub const FILE_STRIPED: u32 = 32;
/// Mounts may keep pages of it: whoever has changed bytes or length tells of it (`Op::Tell`).
pub const FILE_MAPPED: u32 = 64;

/// An open file, shared by its open file descriptions. Written by the daemon only.
#[repr(C, align(64))]
pub struct FileEntry {
    /// The file.
    pub id: AtomicU64,
    /// Grants of another generation are void.
    pub grant_generation: AtomicU32,
    /// `FILE_*`.
    pub flags: AtomicU32,
    /// Local writes may reach up to this offset of the object without asking.
    pub allowance_end: AtomicU64,
    /// Open file descriptions of this file.
    pub opens: AtomicU32,
    /// Counted up whenever bytes or length change of a file without an object, before whoever
    /// changed them is told.
    pub content_version: AtomicU32,
    /// Room.
    pub reserved: [AtomicU32; 6],
}

/// Record key of an open file: what a restarted daemon needs to find it again.
#[repr(C, align(64))]
pub struct KeyEntry {
    /// Directory in which the file was created.
    pub directory: AtomicU64,
    /// Length of the name, bytes.
    pub name_bytes: AtomicU32,
    /// Name with which it was created, four bytes to a word, little-endian.
    pub name: [AtomicU32; NAME_BYTES_MAX.div_ceil(4)],
}

/// In [`StartedWrite::done`]: it is under way.
pub const WRITE_STARTED: u32 = 0;
/// The same, to a part of a striped file.
pub const WRITE_STARTED_PART: u32 = u32::MAX;
/// The same, of bytes that the file's home appends to such a part.
pub const WRITE_STARTED_APPEND: u32 = u32::MAX - 1;
/// They are there.
pub const APPENDED: u32 = u32::MAX - 2;
/// The same as [`WRITE_STARTED_PART`], of an append to a striped file at its home.
pub const WRITE_STARTED_AT_HOME: u32 = u32::MAX - 3;

/// A write to an object, from before its first byte is written until it is answered; one for a
/// process of another node until that lane goes on, and one of a file's home until the append is
/// over. The daemon may die before it is done, and before its answer has arrived.
#[repr(C)]
pub struct StartedWrite {
    /// The file; 0: none.
    pub file: AtomicU64,
    /// Who asked for it: the request,
    pub request_id: AtomicU64,
    /// its session,
    pub session: AtomicU32,
    /// and its lane.
    pub lane: AtomicU32,
    /// `WRITE_STARTED*`; [`APPENDED`]; 1: it is done; otherwise it failed, with this error number
    /// plus one.
    pub done: AtomicU32,
    /// Bytes that were written, when it is done, or were appended so far,
    pub count: AtomicU32,
    /// and the offset behind them.
    pub end: AtomicU64,
}

/// The node region.
#[repr(C)]
pub struct NodeRegion {
    /// Head.
    pub head: NodeHead,
    /// Open file descriptions.
    pub opens: [OpenEntry; OPEN_FILES_MAX as usize],
    /// Open files.
    pub files: [FileEntry; FILES_OPEN_MAX as usize],
    /// Their record keys.
    pub keys: [KeyEntry; FILES_OPEN_MAX as usize],
    /// The submission rings, for asynchronous operations.
    pub submission_rings: [SubmissionRing; RINGS],
    /// The names of the directories that are delegated.
    pub name_tables: NameTables,
    /// Descriptions that are leased, by session.
    pub file_leases: [SessionLeases; SESSIONS_MAX as usize],
    /// Writes that were begun, by shard. Only the daemon looks.
    pub started_writes: [[StartedWrite; STARTED_WRITES_MAX]; SHARDS_MAX as usize],
    /// What was done, by shard.
    pub done: [Done; SHARDS_MAX as usize],
    /// What went to other nodes and came from them.
    pub traffic: [Traffic; TRAFFIC_NODES],
    /// When it was done.
    pub timeline: Timeline,
    /// What was done by processes whose session's number another one has.
    pub past: Tally,
    /// What was done, by session.
    pub tallies: [Tally; SESSIONS_MAX as usize],
}

/// Operations that are counted each for itself.
pub const KINDS: usize = OPS;
/// Error numbers that are counted each for itself: one more than the kernel's greatest.
pub const ERRORS: usize = 134;
/// Kinds of submitted records ([`crate::submission_ring`]) that are counted: a file, a directory,
/// the removal of a name, and that of a directory, a change of attributes, a move of a name, a
/// second name of a file.
pub const RECORD_KINDS: usize = 7;

/// What a shard has done, counted since the node began: a restart of the daemon counts on. Only the
/// shard's thread writes; whoever wants to know adds up.
#[repr(C, align(64))]
pub struct Done {
    /// Answers to processes of this node, by operation.
    pub answers: [AtomicU64; KINDS],
    /// Those among them that refuse, by operation.
    pub refusals: [AtomicU64; KINDS],
    /// The same, by error number.
    pub errors: [AtomicU64; ERRORS],
    /// Executed records of the submission rings, by kind.
    pub records: [AtomicU64; RECORD_KINDS],
    /// Answers to other nodes.
    pub for_others: AtomicU64,
    /// Bytes that were read by requests.
    pub read_bytes: AtomicU64,
    /// How long processes waited for answers that were not there at once, by [`Hold`] and
    /// operation.
    pub held: [[Waits; KINDS]; HOLDS],
}

/// Nodes whose traffic is counted each for itself; that of those with higher numbers is counted as
/// the last one's.
pub const TRAFFIC_NODES: usize = 1024;

/// What a node has sent to another one, and got from it, since it began.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Traffic {
    /// Requests of this node.
    pub requests: AtomicU64,
    /// Answers to them.
    pub answers: AtomicU64,
    /// Requests of the other node.
    pub heard: AtomicU64,
    /// Bytes of requests and answers that were sent, without what frames them.
    pub sent_bytes: AtomicU64,
    /// The same of what has come.
    pub received_bytes: AtomicU64,
    /// Requests that were not answered in time.
    pub late: AtomicU64,
    /// Requests whose connection was lost, each time; most are sent again.
    pub lost: AtomicU64,
    /// Connections that were made.
    pub connections: AtomicU64,
}

/// Counts what has one writer.
pub fn count(counter: &AtomicU64, more: u64) {
    use core::sync::atomic::Ordering::Relaxed;
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Done {
    /// Counts an answer: `status` is an error number, or something that is none.
    pub fn answered(&self, op: Op, status: u32, body_bytes: usize) {
        let is_read = op == Op::Read;
        let op = (op as usize).min(KINDS - 1);
        count(&self.answers[op], 1);
        if status == 0 {
            if is_read {
                count(&self.read_bytes, body_bytes as u64);
            }
        } else if let Some(errors) = self.errors.get(status as usize) {
            count(&self.refusals[op], 1);
            count(errors, 1);
        }
    }

    /// Counts an answer that was not there at once, and so long after the request was made.
    pub fn answered_after(&self, hold: Hold, op: Op, ns: u64) {
        self.held[hold as usize][(op as usize).min(KINDS - 1)].add(ns);
    }
}

impl NodeRegion {
    /// Will no request be answered any more?
    pub fn is_lost(&self) -> bool {
        self.head.daemon_state.load(core::sync::atomic::Ordering::Relaxed) == DAEMON_LOST
    }

    /// Says that the daemon died with everything. What processes were granted is void, so they ask
    /// for it again and learn so.
    pub fn lose(&self) {
        use core::sync::atomic::Ordering::{Release, SeqCst};
        self.head.daemon_state.store(DAEMON_LOST, SeqCst);
        // An entry that was never used has no page behind it and is left so.
        for file in self.files.iter().filter(|file| file.id.load(SeqCst) != 0) {
            file.grant_generation.fetch_add(1, Release);
            file.content_version.fetch_add(1, Release);
        }
    }

    /// Marks a session that has a request in one of its lanes.
    ///
    /// From the leaf to the root: the daemon takes the marks from the root to the leaf, so that a
    /// bit it sees always leads to the request. A summary that is set already needs no second
    /// write: whoever set it has yet to be seen, by a daemon that will then see this session too.
    /// The session's bit is set without a look at it first, which would move the line twice.
    pub fn mark(&self, session: u32) {
        use core::sync::atomic::Ordering::SeqCst;
        let (word, bit) = (session / 64, session % 64);
        if let Some(sessions) = self.head.sessions_pending.get(word as usize) {
            sessions.fetch_or(1 << bit, SeqCst);
            if self.head.pending_summary.load(SeqCst) & (1 << word) == 0 {
                self.head.pending_summary.fetch_or(1 << word, SeqCst);
            }
        }
    }

    /// Wakes the daemon if it sleeps; true when it did. The caller has published before what the
    /// daemon is to find, by a sequentially consistent access.
    pub fn wake_daemon(&self) -> bool {
        wake_sleeper(&self.head.daemon_state, &self.head.daemon_wakes)
    }
}

/// Wakes a thread that says in `state` whether it sleeps on `wakes`; true when it did. The sleeper
/// stores ASLEEP before it looks for the last time, and we look at its state after publishing. Both
/// must be sequentially consistent accesses, the caller's publishing too: then either it sees the
/// work, or we see it asleep. On x86-64 that is for free where publishing is a locked instruction.
pub fn wake_sleeper(state: &AtomicU32, wakes: &AtomicU32) -> bool {
    use core::sync::atomic::Ordering::SeqCst;
    let asleep = state.load(SeqCst) == DAEMON_ASLEEP;
    if asleep {
        wakes.fetch_add(1, SeqCst);
        mayfly_sys::futex::wake(wakes, 1);
    }
    asleep
}

impl core::fmt::Debug for NodeRegion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let instance = self.head.instance.load(core::sync::atomic::Ordering::Relaxed);
        f.debug_struct("NodeRegion").field("instance", &instance).finish_non_exhaustive()
    }
}

/// Nobody uses the lane.
pub const LANE_FREE: u32 = 0;
/// A thread writes its request.
pub const LANE_CLAIMED: u32 = 1;
/// The request is complete; the daemon's turn.
pub const LANE_REQUEST: u32 = 2;
/// The reply is complete; the thread's turn.
pub const LANE_REPLY: u32 = 3;
/// The thread gave up at its deadline; the daemon may still write here, and frees the lane when it
/// is done with it.
pub const LANE_ABANDONED: u32 = 4;
/// The request is complete and nobody waits for its reply; the daemon frees the lane when it is
/// done with it.
pub const LANE_ASYNCHRONOUS: u32 = 5;
/// Or-ed to [`LANE_REQUEST`]: the thread sleeps on the state word and wants a futex wake.
pub const LANE_SLEEPER: u32 = 0x100;

/// Control words of a lane.
#[repr(C, align(128))]
pub struct Lane {
    /// `LANE_*`; a futex.
    pub state: AtomicU32,
    /// Thread that sleeps on it (tid), or 0: for people who look. Nothing depends on it, so that
    /// the fast path needs no system call to learn its tid.
    pub owner: AtomicU32,
    /// Length of the request, header included, bytes.
    pub request_bytes: AtomicU32,
    /// Processor on which it was made, its number plus one; 0: not known.
    pub processor: AtomicU32,
    /// Id of the request, unique in the session.
    pub request_id: AtomicU64,
    /// What is written above is the client's, and the state, at which it looks while it waits; what
    /// follows is the daemon's.
    pub padding: [AtomicU64; 5],
    /// Length of the reply, header included, bytes.
    pub reply_bytes: AtomicU32,
    /// Id of the request that the reply buffer answers, stored before its transaction commits.
    pub answered_id: AtomicU64,
    /// Transaction whose commit makes that reply true; 0 when it needs none.
    pub answered_transaction: AtomicU64,
}

/// Head of a session region.
#[repr(C, align(4096))]
pub struct SessionHead {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`LAYOUT_VERSION`].
    pub version: AtomicU32,
    /// The session.
    pub session: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// Last request id handed out.
    pub last_request_id: AtomicU64,
    /// The lanes.
    pub lanes: [Lane; LANES],
    /// Counted up when a lane becomes free while threads wait for one; a futex.
    pub lanes_freed: AtomicU32,
    /// Threads that wait for a lane.
    pub lane_waiters: AtomicU32,
}

/// Request and reply buffer of a lane.
#[repr(C, align(4096))]
pub struct LaneBuffers {
    /// Written by the process, header first.
    pub request: [u8; REQUEST_BYTES_MAX],
    /// Written by the daemon, header first.
    pub reply: [u8; REPLY_BYTES_MAX],
}

/// A session region.
#[repr(C)]
pub struct SessionRegion {
    /// Head.
    pub head: SessionHead,
    /// Buffers of the lanes; accessed through raw pointers only, since the peer writes to them.
    pub buffers: [LaneBuffers; LANES],
}

const _: () = assert!(size_of::<NodeHead>() == 4096);
const _: () = assert!(size_of::<OpenEntry>() == 64);
const _: () = assert!(size_of::<FileEntry>() == 64);
const _: () = assert!(core::mem::offset_of!(FileEntry, content_version) == 28);
const _: () = assert!(size_of::<KeyEntry>() == 320);
const _: () = assert!(size_of::<Lane>() == 128);
const _: () = assert!(size_of::<SessionHead>() == 4096);
const _: () = assert!(LANES <= 64);

/// Lanes that a request which may wait for ever (a blocking lock) must leave to the others, so that
/// an unlock always finds one.
pub const LANES_RESERVED: usize = 4;
const _: () = assert!(LANES_RESERVED < LANES);

// The offsets that `docs/design/shm.md` states.
const _: () = assert!(core::mem::offset_of!(NodeHead, daemon_state) == 20);
const _: () = assert!(core::mem::offset_of!(NodeHead, pending_summary) == 128);
const _: () = assert!(core::mem::offset_of!(NodeHead, daemon_processor) == 40);
const _: () = assert!(core::mem::offset_of!(NodeHead, daemon_wakes) == 648);
const _: () = assert!(core::mem::offset_of!(NodeHead, waiting) == 704);
const _: () = assert!(core::mem::offset_of!(NodeRegion, opens) == 4096);
const _: () = assert!(core::mem::offset_of!(NodeRegion, files) == 4_198_400);
const _: () = assert!(core::mem::offset_of!(NodeRegion, keys) == 8_392_704);
const _: () = assert!(core::mem::offset_of!(SessionHead, lanes) == 128);
const _: () = assert!(core::mem::offset_of!(SessionHead, lanes_freed) == 2176);
const _: () = assert!(core::mem::offset_of!(Lane, request_id) == 16);
const _: () = assert!(core::mem::offset_of!(Lane, reply_bytes) == 64);
const _: () = assert!(core::mem::offset_of!(Lane, answered_id) == 72);
const _: () = assert!(core::mem::offset_of!(Lane, answered_transaction) == 80);
const _: () = assert!(size_of::<LaneBuffers>() == 1_056_768);
const _: () = assert!(size_of::<SessionRegion>() == 4096 + LANES * 1_056_768);
const _: () =
    assert!(core::mem::offset_of!(NodeRegion, submission_rings) == 8_392_704 + 65_536 * 320);
const _: () = assert!(core::mem::offset_of!(NodeRegion, name_tables) == 29_364_224 + 64 * 577_536);
const _: () =
    assert!(core::mem::offset_of!(NodeRegion, file_leases) == 66_326_528 + 36_864 + 512 * 131_072);
const _: () =
    assert!(core::mem::offset_of!(NodeRegion, started_writes) == 133_472_256 + 4096 * 896);
const _: () = assert!(size_of::<StartedWrite>() == 40);
const _: () = assert!(core::mem::offset_of!(NodeHead, submitted) == 768);
const _: () = assert!(core::mem::offset_of!(NodeHead, rings) == 776);
