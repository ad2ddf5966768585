//! Words that change rarely.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// A moment.
#[repr(C)]
pub struct Began {
    /// By the processors' counter.
    pub cycles: AtomicU64,
    /// In nanoseconds since the epoch.
    pub ns: AtomicU64,
}

/// Words about the caching tier, and what keeps others from their line.
#[repr(C)]
pub struct TierWords {
    /// Origins whose directories the instance shows: names may be there that no record has.
    pub origins: AtomicU32,
    /// Files that are changed and not written back to their origins. The daemon counts.
    pub dirty: AtomicU32,
    /// Not 0: what was once seen of an origin is believed for ever. The daemon says so.
    pub for_ever: AtomicU32,
    /// Not 0: what was written is outside before its close returns, and before an exit.
    pub at_close: AtomicU32,
    /// Not 0: what is written is outside before the write returns.
    pub at_write: AtomicU32,
    /// What follows is written with each request.
    pub padding: [AtomicU32; 9],
}

/// Which rings have what, a bit each ([`crate::submission_ring`]).
#[repr(C)]
pub struct RingWords {
    /// Those in which the daemon finds something that it should not put off.
    pub ripe: AtomicU64,
    /// Those that may have records by which bytes change of a file that is there.
    pub replacing: AtomicU64,
    /// Those about which the daemon takes back what the other words say, and may say it again.
    pub settling: AtomicU64,
}

/// What a daemon has to know of the mounts of its node which an earlier one has leased names to.
#[repr(C)]
pub struct MountWords {
    /// The second, by a clock that nobody sets, until which their kernels may believe names.
    pub leases_until: AtomicU32,
    /// So many mounts may have been told some.
    pub known: AtomicU32,
    /// Not 0 once the kernel of a mount has kept pages of a file that is at home here, for a
    /// mapping: until the node ends, content of files is replaced by asking alone.
    pub mapped: AtomicU32,
}

/// What a request waited for that the daemon could not answer at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Hold {
    /// Another node executed it.
    Node,
    /// Other shards of the node, or steps of it at other nodes.
    Shards,
    /// The disk, or what other requests hold.
    Held,
    /// What an origin has.
    Origin,
}

impl Hold {
    /// All, by their number.
    pub const ALL: [(Hold, &'static str); HOLDS] = [
        (Hold::Node, "node"),
        (Hold::Shards, "shards"),
        (Hold::Held, "held"),
        (Hold::Origin, "origin"),
    ];
}

/// What requests may have waited for.
pub const HOLDS: usize = 4;
