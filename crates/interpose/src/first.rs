//! Whether the entry of a hook may tell by itself that a call is plainly the kernel's.
//!
//! That look is the first half of [`crate::quick`] once more, for absolute paths, in the few lines
//! of code that the entry is (`preload/src/entry.rs`), without a function called and with two
//! registers saved: where the kernel walks a path it displaces what the processor holds of ours,
//! and what it guesses of returns, and each line has to be fetched again. It is turned on by the
//! first such call that [`crate::quick`] has decided. What it does not decide takes the way through
//! [`crate::dispatch`].

use core::sync::atomic::Ordering;

use mayfly_sys::entry::WORDS;

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
