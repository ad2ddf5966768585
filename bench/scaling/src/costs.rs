//! What things cost: every parameter of the study, and where it comes from.
//!
//! Processor times are those of real daemons, measured with 16 processes at work:
//! `TMPDIR=/dev/shm cargo run --release -p nodes -- costs`. There a serving thread sleeps whenever
//! it can, and the network thread takes turns in its place: what the owner does is nearly all the
//! network thread's.

use mayfly_sim::{
    fabric::{Speed, Topology},
    network::Work,
};

/// Nodes under one leaf switch.
pub const PER_LEAF: u32 = 24;
/// Core switches, each with one link to every leaf: all that 24 nodes can send, a half, a sixth.
pub const CORES: [u32; 3] = [6, 3, 1];
/// A node's network interface, gigabits a second in each direction.
pub const NIC_GIGABITS: f64 = 100.0;
/// A link between a leaf and a core switch, gigabits a second in each direction.
pub const UPLINK_GIGABITS: f64 = 400.0;
/// From the end of sending to the beginning of receiving: switches, interfaces, kernels,
/// nanoseconds. Half a round trip of TCP in one data centre, about.
const ONE_WAY_NS: u64 = 10_000;
/// A process between an answer and its next request, nanoseconds: `client µs` of `mayfly bench`.
const CLIENT_NS: u64 = 2_000;
/// Opening, reading and closing a small file that a process finds in its node's records,
/// nanoseconds: `docs/decisions/2026-11-29-contents-are-kept-under-a-lease.md`.
pub(crate) const OWN_LOOK_NS: u64 = 2_900;
/// Looking at one, nanoseconds: what `-- costs` says of the processes.
pub(crate) const OWN_STAT_NS: u64 = 400;
/// Headers of Ethernet, IP, TCP and of a frame of the transport, bytes.
const OVERHEAD_BYTES: u64 = 66 + 44;

/// Threads of a daemon, each with a processor of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Daemon {
    /// Shards; each has a part of what is dealt out.
    pub shards: u32,
    /// Threads that talk to other nodes; each has a part of the nodes.
    pub network_threads: u32,
    /// So many of them on each host, each with a part of its processes.
    pub of_host: u32,
}

impl Daemon {
    /// As by default on a node with few processors.
    pub const USUAL: Daemon = Daemon::of(1);

    /// With so many of either.
    #[must_use]
    pub const fn of(threads: u32) -> Daemon {
        Daemon { shards: threads, network_threads: threads, of_host: 1 }
    }

    /// So many as by default on each host.
    #[must_use]
    pub const fn beside(of_host: u32) -> Daemon {
        Daemon { of_host, ..Daemon::USUAL }
    }
}

/// Hardware around the daemons.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Core switches.
    pub cores: u32,
    /// From the end of sending to the beginning of receiving, nanoseconds.
    pub one_way_ns: u64,
    /// A process between an answer and its next request, nanoseconds.
    pub client_ns: u64,
    /// The network threads: as long as one kind of operation runs, that kind's.
    pub thread: Speed,
    /// The daemons.
    pub daemon: Daemon,
}

impl Machine {
    /// With this many core switches and such daemons, for operations of this cost.
    #[must_use]
    pub fn new(cores: u32, daemon: Daemon, cost: &Cost) -> Machine {
        let thread = Speed { frame_ns: cost.frame_ns, byte_ns: 0.0 };
        Machine { cores, one_way_ns: ONE_WAY_NS, client_ns: CLIENT_NS, thread, daemon }
    }

    /// For so many nodes. Daemons of one host have an interface each here, and may as well be on
    /// different hosts: what they say to each other takes as long as all else.
    #[must_use]
    pub fn topology(&self, nodes: u32) -> Topology {
        Topology {
            nodes,
            per_leaf: PER_LEAF * self.daemon.of_host,
            cores: self.cores,
            nic: Speed::of_link(NIC_GIGABITS),
            uplink: Speed::of_link(UPLINK_GIGABITS),
            threads: self.daemon.network_threads,
            thread: self.thread,
            overhead_bytes: OVERHEAD_BYTES,
        }
    }
}

/// What was measured of one kind of operation, microseconds of processor time of each thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operation {
    /// Its name in the tables.
    pub name: &'static str,
    /// Requests of the process: creating has one more, to close.
    pub requests: f64,
    /// The asking node's front thread.
    pub ask_us: f64,
    /// The owning node's front thread.
    pub serve_us: f64,
    /// The threads of the owner's other shards.
    pub shards_us: f64,
    /// A front thread whose own processes ask for what the node has itself.
    pub own_us: f64,
    /// Both network threads together, with the turns that they take.
    pub network_us: f64,
    /// The owner's I/O pool.
    pub pool_us: f64,
}

/// Costs of one kind of operation, for each request, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// To pass a request on, or to take the reply to one.
    pub pass_ns: f64,
    /// To do what another node asks for.
    pub serve_ns: f64,
    /// The same where a shard beside the first one does it.
    pub shard_ns: f64,
    /// To do what an own process asks for.
    pub own_ns: f64,
    /// The network thread's, for a frame that it sends or receives.
    pub frame_ns: f64,
    /// A thread's of the I/O pool, for a job.
    pub pool_ns: u64,
    /// The disk's, for a job, after the one before.
    pub disk_ns: u64,
}

impl Operation {
    /// For each request of it.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let each_ns = 1000.0 / self.requests;
        Cost {
            pass_ns: self.ask_us * each_ns / 2.0,
            serve_ns: self.serve_us * each_ns,
            // The first shard has as much as each of the others.
            shard_ns: self.shards_us * each_ns * MEASURED_SHARDS / (MEASURED_SHARDS - 1.0),
            own_ns: self.own_us * each_ns,
            // A request and a reply, each sent by one network thread and received by another.
            frame_ns: self.network_us * each_ns / 4.0,
            pool_ns: (self.pool_us * each_ns) as u64,
            disk_ns: 0,
        }
    }
}

/// Shards of the daemons whose [`Operation::shards_us`] was measured.
const MEASURED_SHARDS: f64 = 4.0;

impl Cost {
    /// Of a turn of a shard beside the first one.
    #[must_use]
    pub fn of_shards_turn(&self, work: &Work) -> u64 {
        (work.replies_out as f64 * self.shard_ns).round() as u64
    }

    /// Of a turn in which `asked` requests of own processes were taken.
    #[must_use]
    pub fn of_turn(&self, asked: u64, work: &Work) -> u64 {
        let passed = work.requests_out + work.replies_in;
        // What was not passed on was done here.
        let own = asked.saturating_sub(work.requests_out);
        let ns = passed as f64 * self.pass_ns
            + work.requests_in as f64 * self.serve_ns
            + own as f64 * self.own_ns;
        ns.round() as u64
    }

    /// With a disk that moves so many bytes a second, where a job moves `bytes`.
    #[must_use]
    pub fn with_disk(self, bytes: u64, bytes_per_second: f64) -> Cost {
        Cost { disk_ns: (bytes as f64 / bytes_per_second * 1e9) as u64, ..self }
    }
}

/// `create`, with the close that nobody waits for.
pub const CREATE: Operation = Operation {
    name: "create",
    requests: 2.0,
    ask_us: 14.48,
    serve_us: 0.00,
    shards_us: 0.0,
    own_us: 3.57,
    network_us: 10.83 + 13.53,
    pool_us: 0.0,
};
/// `stat` of a path.
pub const STAT: Operation = Operation {
    name: "stat",
    requests: 1.0,
    ask_us: 9.67,
    serve_us: 0.00,
    shards_us: 0.0,
    own_us: 2.07,
    network_us: 7.81 + 9.21,
    pool_us: 0.0,
};
/// `unlink` of an empty file.
pub const REMOVE: Operation = Operation {
    name: "remove",
    requests: 1.0,
    ask_us: 10.05,
    serve_us: 0.00,
    shards_us: 0.0,
    own_us: 2.43,
    network_us: 7.68 + 8.82,
    pool_us: 0.0,
};
/// [`CREATE`], [`STAT`] and [`REMOVE`] where daemons have four shards: three parts of four are done
/// by the others' threads.
pub const DEALT: [Operation; 3] = [
    Operation {
        name: "create, 4 shards",
        requests: 2.0,
        ask_us: 11.09,
        serve_us: 0.00,
        shards_us: 9.51,
        own_us: 4.02,
        network_us: 10.23 + 8.58,
        pool_us: 0.0,
    },
    Operation {
        name: "stat, 4 shards",
        requests: 1.0,
        ask_us: 8.06,
        serve_us: 0.00,
        shards_us: 7.17,
        own_us: 2.77,
        network_us: 7.19 + 6.74,
        pool_us: 0.0,
    },
    Operation {
        name: "remove, 4 shards",
        requests: 1.0,
        ask_us: 9.39,
        serve_us: 0.00,
        shards_us: 7.17,
        own_us: 2.44,
        network_us: 7.62 + 6.74,
        pool_us: 0.0,
    },
];
/// `create` in a directory of the own node, with the close; most of them are submitted.
pub const OWN_CREATE: Operation =
    Operation { name: "create, own directory", requests: 2.0, own_us: 0.97, ..ASKS_NOBODY };
/// `stat` there: a process does it alone ([`OWN_STAT_NS`]).
pub const OWN_STAT: Operation = Operation { name: "stat, own directory", ..ASKS_NOBODY };
/// `unlink` there.
pub const OWN_REMOVE: Operation =
    Operation { name: "remove, own directory", own_us: 1.08, ..ASKS_NOBODY };
/// A small file of a dataset at another node: open, with which its content comes, and close. The
/// second look costs what the first one does, so this is both.
pub const LOOK: Operation = Operation {
    name: "read of 3 KiB, dataset",
    requests: 2.0,
    ask_us: 25.61,
    serve_us: 0.00,
    shards_us: 0.0,
    // As by request; processes of its node open such files by themselves.
    own_us: 4.14,
    network_us: 19.44 + 25.52,
    pool_us: 0.0,
};
/// The same by the records of the own node: a process does it alone ([`OWN_LOOK_NS`]).
pub const KEPT_LOOK: Operation =
    Operation { name: "read of 3 KiB, kept by the own node", ..ASKS_NOBODY };
const ASKS_NOBODY: Operation = Operation {
    name: "",
    requests: 1.0,
    ask_us: 0.0,
    serve_us: 0.0,
    shards_us: 0.0,
    own_us: 0.0,
    network_us: 0.0,
    pool_us: 0.0,
};
/// A write of 8 KiB into a file that has an object.
pub const WRITE_8K: Operation = Operation {
    name: "write of 8 KiB",
    requests: 1.0,
    ask_us: 11.63,
    serve_us: 0.00,
    shards_us: 0.0,
    own_us: 0.14,
    network_us: 10.06 + 14.94,
    pool_us: 0.0,
};
/// A read of them.
pub const READ_8K: Operation = Operation {
    name: "read of 8 KiB",
    requests: 1.0,
    ask_us: 10.98,
    serve_us: 0.00,
    shards_us: 0.0,
    own_us: 0.11,
    network_us: 10.80 + 12.73,
    pool_us: 0.0,
};
/// What one request of the long ones moves, bytes.
pub const LONG_REQUEST_BYTES: u32 = 512 << 10;
/// A write of 1 MiB, in two requests.
pub const WRITE_1M: Operation = Operation {
    name: "write of 1 MiB",
    requests: 2.0,
    ask_us: 149.28,
    serve_us: 0.00,
    shards_us: 0.0,
    own_us: 9.77,
    network_us: 334.10 + 519.61,
    pool_us: 0.0,
};
/// A read of it.
pub const READ_1M: Operation = Operation {
    name: "read of 1 MiB",
    requests: 2.0,
    ask_us: 21.26,
    serve_us: 0.00,
    shards_us: 0.0,
    own_us: 7.62,
    network_us: 477.75 + 582.74,
    pool_us: 0.0,
};
/// All of them, for the document.
pub const MEASURED: [Operation; 11] = [
    CREATE, STAT, REMOVE, OWN_CREATE, OWN_STAT, OWN_REMOVE, LOOK, WRITE_8K, READ_8K, WRITE_1M,
    READ_1M,
];

/// What a start is made of. The node's part was measured (processor time of supervisor and daemon
/// of `mayfly start --nodes local:32`, 7.4 to 8.7 ms); launchers are somebody else's, and what
/// passing on a line costs is assumed.
pub const START: crate::startup::Parts =
    crate::startup::Parts { spawn_s: 0.002, launch_s: 0.3, node_s: 0.009, line_s: 20e-6 };
