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
    /// What follows is written with each request.
    pub padding: [AtomicU32; 11],
}
