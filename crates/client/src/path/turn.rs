//! Whose turn it is at a place of memory that threads of a process share.
//!
//! A reader looks at the turn before and after it reads. When it is odd or has changed, what was
//! read is of no use. So nobody waits, not even a signal handler that interrupts its own thread's
//! writing. A child that was forked while another thread wrote does without that place.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Odd while somebody writes, and another number after each time.
#[derive(Debug, Default)]
pub(super) struct Turn(pub(super) AtomicU64);

impl Turn {
    /// What `read` has found, unless somebody has written meanwhile.
    #[inline]
    pub(super) fn read<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let turn = self.0.load(Acquire);
        if !turn.is_multiple_of(2) {
            return None;
        }
        let found = read();
        // All reads are done before the turn is looked at again.
        fence(Acquire);
        (self.0.load(Relaxed) == turn).then_some(found)
    }

    /// Has `write` write, unless somebody else does.
    #[inline]
    pub(super) fn write(&self, write: impl FnOnce()) {
        let turn = self.0.load(Relaxed);
        let odd = turn.wrapping_add(1);
        if !turn.is_multiple_of(2) || self.0.compare_exchange(turn, odd, Relaxed, Relaxed).is_err()
        {
            return;
        }
        // The odd turn is seen before anything that is written under it.
        fence(Release);
        write();
        self.0.store(odd.wrapping_add(1), Release);
    }
}
