//! The files that threads have looked up last.
//!
//! A stat is two requests: a look at the name, and one at the attributes of its file. Others may
//! put another file there in between. The kernel is told so, and begins anew once. Where a name is
//! replaced all the time, once is not enough: the stat would fail although the name always had a
//! file. So the second request may get the attributes that the first one of the same thread found.
//! It does when it comes soon and the file cannot be found any more.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Threads that are remembered; two that meet in one place forget each other.
const THREADS: usize = 64;
/// Between the two requests of a stat.
const SOON: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
struct Noted<T> {
    thread: u32,
    node: u64,
    what: T,
    at: Instant,
}

/// For each thread, the node that it asked about last.
#[derive(Debug)]
pub(crate) struct Recent<T>([Mutex<Option<Noted<T>>>; THREADS]);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent([const { Mutex::new(None) }; THREADS])
    }
}

impl<T: Copy> Recent<T> {
    fn place(&self, thread: u32) -> MutexGuard<'_, Option<Noted<T>>> {
        self.0[thread as usize % THREADS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread is being answered.
    pub(crate) fn remember(&self, thread: u32, node: u64, what: T) {
        *self.place(thread) = Some(Noted { thread, node, what, at: Instant::now() });
    }

    /// The answer that it got about the node a moment ago.
    pub(crate) fn found(&self, thread: u32, node: u64) -> Option<T> {
        let noted = (*self.place(thread))?;
        let same = noted.thread == thread && noted.node == node && noted.at.elapsed() < SOON;
        same.then_some(noted.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_what_it_looked_up_last_and_nobody_else_does() {
        let recent = Recent::default();
        recent.remember(3, 7, "first");
        assert_eq!(recent.found(3, 7), Some("first"));
        assert!(recent.found(3, 8).is_none() && recent.found(3 + THREADS as u32, 7).is_none());
        recent.remember(3, 8, "second");
        assert!(recent.found(3, 7).is_none());
    }
}
