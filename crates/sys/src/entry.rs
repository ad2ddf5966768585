//! What the entry of a hook reads: one cache line for all that it looks at.
//!
//! It stands here, below everything, since those that set its words are in several crates: signals
//! that are deferred ([`crate::interrupt`]), descriptors that are kept and paths that the entry
//! decides by itself (`interpose`).

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The words, one cache line: where the kernel walks a path it displaces what the processor holds
/// of ours, and each line has to be fetched again.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Words {
    /// Sixteen slashes.
    pub slashes: [u8; 16],
    /// The bit in which a slash and a dot differ, sixteen times.
    pub ones: [u8; 16],
    /// The number that is watched: the entry decides nothing while it is not zero.
    pub watched: AtomicU32,
    /// The entry decides nothing while this is not zero.
    pub off: AtomicU32,
    /// The first eight bytes of the mount point.
    pub head: AtomicU64,
    /// Threads that have signals deferred to the end of a hook and not delivered yet, in the whole
    /// process. Counted up by the signal wrapper, down when a hook's exit lets them through. In a
    /// child of fork it may be what it was in the parent, until its first hook.
    pub deferred: AtomicU32,
}

const _: () = assert!(size_of::<Words>() == 64);
// As operands of the entry's instructions they have to be aligned.
const _: () = assert!(offset_of!(Words, slashes) % 16 == 0 && offset_of!(Words, ones) % 16 == 0);

/// The one copy.
pub static WORDS: Words = Words {
    slashes: [b'/'; 16],
    ones: [b'/' ^ b'.'; 16],
    watched: AtomicU32::new(0),
    off: AtomicU32::new(1),
    head: AtomicU64::new(0),
    deferred: AtomicU32::new(0),
};
