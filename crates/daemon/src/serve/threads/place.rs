//! A loop that another thread may run while its own one sleeps.
//!
//! The loop is behind a lock, which its thread has whenever it does not sleep. Whoever takes its
//! place never waits for the lock: who holds it looks at everything once more before it lets go.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering::SeqCst, fence},
    },
    time::Duration,
};

use crate::serve::{Waker, threads::idle::Wakes};

/// Turns that another thread takes in a row at most: one to act on what has come, one for work that
/// can wait, and the same once more.
pub(super) const TURNS_MAX: u32 = 4;

/// Where the loop is.
pub(super) struct Place<T> {
    /// `None` before it has begun, and when it is over.
    held: Mutex<Option<T>>,
    waker: Waker,
    /// The thread gets up by itself after a while.
    timed: AtomicBool,
}

impl<T> Place<T> {
    pub(super) fn new(waker: Waker) -> Place<T> {
        Place { held: Mutex::new(None), waker, timed: AtomicBool::new(false) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread sleeps without the lock until it is woken, or for so long.
    pub(super) fn sleep<'a>(
        &'a self,
        held: MutexGuard<'a, Option<T>>,
        (wakes, at_most): (Wakes, Option<Duration>),
    ) -> MutexGuard<'a, Option<T>> {
        self.timed.store(at_most.is_some(), SeqCst);
        drop(held);
        self.waker.sleep(wakes, at_most);
        self.lock()
    }

    /// Whether the thread, which sleeps, has to be woken since it would sleep longer than that.
    /// Asked by who has taken its place.
    pub(super) fn oversleeps(&self, at_most: Option<Duration>) -> bool {
        at_most.is_some() && !self.timed.load(SeqCst)
    }

    /// Has `turns` run what the thread would, which sleeps; `turns` says false when somebody has to
    /// go on.
    pub(super) fn stand_in(&self, turns: impl FnOnce(&mut T) -> bool) {
        self.waker.poke();
        fence(SeqCst);
        let mut held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Either it has not looked yet for the last time, or it can be woken.
            Err(TryLockError::WouldBlock) => return self.waker.wake(),
        };
        let Some(of) = held.as_mut() else { return };
        if !turns(of) {
            drop(held);
            self.waker.wake();
        }
    }
}
