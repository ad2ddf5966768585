//! A lock for the threads of one process, two words' worth of states on a futex.
//!
//! Taken for short sections inside hooks, where neither a signal handler nor the death of the
//! thread can come between. A fork copies it in whatever state it is; the child calls
//! [`Lock::reset`] before it takes any.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{arch, futex};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const SPINS: u32 = 100;

/// The lock.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Lock {
    /// A free lock.
    #[must_use]
    pub const fn new() -> Self {
        Lock(AtomicU32::new(FREE))
    }

    /// Waits for the lock.
    pub fn hold(&self) -> Held<'_> {
        for _ in 0..SPINS {
            if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Held(self);
            }
            arch::pause();
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            // A wake-up, a changed word or a signal all mean the same: look again.
            let _ = futex::wait(&self.0, CONTENDED, None);
        }
        Held(self)
    }

    /// Frees the lock whoever holds it: for the child of a fork, which has no other thread.
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// The lock is held until this is dropped.
#[derive(Debug)]
pub struct Held<'l>(&'l Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake(&self.0.0, 1);
        }
    }
}
