//! Calls that drive a [`crate::Shard`], and their results.

use mayfly_meta::record::Policy;
use mayfly_transport_tcp::Body;
use mayfly_types::{Durability, Errno, SessionId, Times, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{Roles, striping::layouts::Pool};

/// Who asks: the reply goes back to this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Caller {
    /// The process.
    pub session: SessionId,
    /// Which of its lanes.
    pub lane: u32,
    /// Unique in the session; the same when the request is repeated.
    pub request_id: u64,
}

impl Caller {
    /// Whether it is a later request of the same lane. A lane has one request at a time, and their
    /// numbers grow: the other one was answered, or its process has given it up.
    #[must_use]
    pub(crate) fn is_behind(self, other: Caller) -> bool {
        let lane = |of: Caller| (of.session, of.lane);
        lane(self) == lane(other) && self.request_id > other.request_id
    }
}

/// Whether another node can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// Not any more.
    No,
    /// The daemon that could be before, or the first one.
    Yes,
    /// Another daemon than before: what its predecessor asked for is not answered any more.
    Restarted,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Answered: status of the reply and length of its body. To be sent when the batch is
    /// committed.
    Replied(u32, usize),
    /// The answer comes as a [`Completion`].
    Pending,
}

/// The answer to a request that was [`Progress::Pending`]. Everything in it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Who asked.
    pub caller: Caller,
    /// Status of the reply.
    pub status: u32,
    /// Its body.
    pub body: Body,
    /// It has waited for something outside the instance.
    pub waited_outside: bool,
}

impl Completion {
    /// One that has waited for nothing outside.
    #[must_use]
    pub fn new(caller: Caller, status: u32, body: Body) -> Completion {
        Completion { caller, status, body, waited_outside: false }
    }

    /// The request failed.
    pub(crate) fn failed(caller: Caller, errno: Errno) -> Completion {
        Completion::new(caller, errno.raw() as u32, Body::default())
    }
}

/// The present.
pub trait Clock: Send {
    /// Time since the epoch, for time stamps. Somebody may set the clock.
    fn now(&self) -> Timestamp;

    /// Time since some moment, for leases. Nobody sets it, and it goes on while the machine sleeps.
    fn elapsed(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
    }

    fn elapsed(&self) -> Timestamp {
        let now = clock_gettime(ClockId::Boottime);
        Timestamp { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
    }
}

/// How long nodes believe what others have told them.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTimes {
    /// Names and files of other nodes, seconds; at most half of a request's deadline.
    pub seconds: i64,
    /// Attributes of a file that has not changed for so long are told to other nodes, which may
    /// keep them, milliseconds.
    pub at_rest_ms: i64,
    /// What of other nodes' files is believed beyond that.
    pub consistency: Consistency,
}

/// When a process sees what others have done to the bytes of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Consistency {
    /// At once.
    #[default]
    Strict,
    /// On its own node at once. On another one, what was closed or synced before it opens the file.
    Session,
}

/// Options of an instance as one shard needs them.
#[derive(Debug, Clone)]
pub struct Config {
    /// Identity of the instance.
    pub instance: u64,
    /// Absolute path of the mount point, without a trailing slash.
    pub mount: Vec<u8>,
    /// Space for objects and metadata together, bytes.
    pub capacity_bytes: u64,
    /// A file that would be longer is refused space at its home as if that were full, so that it
    /// goes on at other nodes. Without a bound but in tests.
    pub home_bytes_max: u64,
    /// Size of a chunk, bytes; a power of two.
    pub chunk_bytes: u64,
    /// How the chunks of new files are dealt out.
    pub policy: Policy,
    /// To how many servers; all of them if there are not so many.
    pub width: u16,
    /// Number of their pool, when that is the policy.
    pub pool: u32,
    /// Subsets of the servers that directories may choose.
    pub pools: Vec<Pool>,
    /// Which nodes own slots, and which are servers.
    pub roles: Roles,
    /// Whether directories are whole at first.
    pub directories: Directories,
    /// Time stamps that are kept.
    pub times: Times,
    /// Which failures acknowledged changes survive.
    pub durability: Durability,
    /// False: every lock request is answered with ENOLCK.
    pub locks: bool,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Dentries of directories and symbolic links that are remembered.
    pub cached_dentries_max: usize,
    /// How long other nodes are believed.
    pub leases: LeaseTimes,
    /// Threads for what may wait for a disk; with none everything is done on the spot,
    /// and with [`mayfly_object::BY_HAND`] when it is told.
    pub io_threads: usize,
    /// Processors that the daemon may use.
    pub processors: usize,
}

/// Where the names of new directories are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Directories {
    /// At one shard each, until processes of several nodes make names in them.
    #[default]
    Whole,
    /// Dealt out by their hashes over all shards, from their beginning.
    Spread,
    /// Seats are anywhere, and most directories are spread as soon as there are names in them. For
    /// tests, which meet everything that moves so.
    Restless,
}

/// What outlived the daemon's predecessor besides the shared memory.
#[derive(Debug, Clone, Default)]
pub struct Survivors {
    /// Sessions whose process lives, with its pid.
    pub sessions: Vec<(SessionId, u32)>,
}
