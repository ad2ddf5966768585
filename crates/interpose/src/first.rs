//! What the entry of a hook needs to tell by itself that a call is plainly the kernel's.
//!
//! That look is the first half of [`crate::quick`] once more, for absolute paths, in the few lines
//! of code that the entry is (`preload/src/entry.rs`), without a function called and with two
//! registers saved: where the kernel walks a path it displaces what the processor holds of ours,
//! and what it guesses of returns, and each line has to be fetched again. It is turned on by the
//! first such call that [`crate::quick`] has decided. What it does not decide takes the way through
//! [`crate::dispatch`].

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the entry reads: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Words {
    /// The watched word ([`crate::watched_word`]): nothing is decided while it is not zero.
    pub watched: AtomicU32,
    /// Nothing is decided while this is not zero.
    pub off: AtomicU32,
    /// The first eight bytes of the mount point.
    pub head: AtomicU64,
    /// Sixteen slashes.
    pub slashes: [u8; 16],
    /// The bit in which a slash and a dot differ, sixteen times.
    pub ones: [u8; 16],
}

const _: () = assert!(size_of::<Words>() == 64);
// As operands of the entry's instructions they have to be aligned.
const _: () = assert!(offset_of!(Words, slashes) % 16 == 0 && offset_of!(Words, ones) % 16 == 0);

/// The one copy.
pub static WORDS: Words = Words {
    watched: AtomicU32::new(0),
    off: AtomicU32::new(1),
    head: AtomicU64::new(0),
    slashes: [b'/'; 16],
    ones: [b'/' ^ b'.'; 16],
};

/// From now on the entry decides, for a mount point of at least eight bytes, of which these are the
/// first, that is a link to itself: the only failure to be looked at is ELOOP.
pub fn turn_on(head: u64) {
    WORDS.head.store(head, Ordering::Relaxed);
    WORDS.off.store(0, Ordering::Release);
}

/// Is it turned on?
#[inline]
pub(crate) fn is_on() -> bool {
    WORDS.off.load(Ordering::Relaxed) == 0
}
