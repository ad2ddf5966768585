//! A loop that another thread may run while its own one sleeps.
//!
//! The loop is behind a lock, which its thread has whenever it does not sleep. Whoever takes its
//! place never waits for the lock: who holds it looks at everything once more before it lets go.

use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{Ordering::SeqCst, fence},
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
}

impl<T> Place<T> {
    pub(super) fn new(waker: Waker) -> Place<T> {
        Place { held: Mutex::new(None), waker }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread sleeps without the lock until it is woken.
    pub(super) fn sleep<'a>(
        &'a self,
        held: MutexGuard<'a, Option<T>>,
        wakes: Wakes,
    ) -> MutexGuard<'a, Option<T>> {
        drop(held);
        self.waker.sleep(wakes);
        self.lock()
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
