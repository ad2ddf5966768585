//! Files that stay findable from the look at their name to their use.
//!
//! The kernel looks a name up, and then opens the file that it found, by number. The name may be
//! replaced in between. If nobody has the file open, it is lost by then. The kernel is told so
//! (ESTALE), and begins anew, once. Where a name is replaced all the time, one try more may not be
//! enough. So a file that a thread looks up after an ESTALE is held open until the thread has used
//! it.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use mayfly_types::OpenRef;

/// Threads that are looked after at a time; two that meet in one place take it from each other.
pub(crate) const THREADS: usize = 64;
/// The time between ESTALE and the use of the file that was looked up then. On a busy machine both
/// sides wait for their turns in between, some of them for a tenth of a second.
pub(crate) const SOON: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) thread: u32,
    pub(crate) at: Instant,
    pub(crate) held: Option<OpenRef>,
}

/// Threads that were told that a file is lost, and what they have looked up since.
#[derive(Debug)]
pub(crate) struct Held {
    /// How many places are taken. Mostly it is none, and then a request looks at nothing else.
    pub(crate) taken: AtomicUsize,
    pub(crate) places: [Mutex<Option<Lost>>; THREADS],
}

impl Default for Held {
    fn default() -> Self {
        Held { taken: AtomicUsize::new(0), places: [const { Mutex::new(None) }; THREADS] }
    }
}

impl Held {
    pub(crate) fn place(&self, thread: u32) -> MutexGuard<'_, Option<Lost>> {
        self.places[thread as usize % THREADS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == 0
    }

    /// A thread is being told that a file is lost. Returns the file that its place held, to be
    /// closed.
    pub(crate) fn lost(&self, thread: u32) -> Option<OpenRef> {
        let mut place = self.place(thread);
        if place.is_none() {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        place.replace(Lost { thread, at: Instant::now(), held: None })?.held
    }

    /// Was the thread told so a moment ago?
    pub(crate) fn was_lost(&self, thread: u32) -> bool {
        let is_it = |lost: &Lost| lost.thread == thread && lost.at.elapsed() < SOON;
        !self.is_empty() && self.place(thread).as_ref().is_some_and(is_it)
    }

    /// Keeps a file for the thread. Returns the file that is to be closed: the one that it
    /// replaces, or this one when the thread has no place.
    pub(crate) fn hold(&self, thread: u32, open: OpenRef) -> Option<OpenRef> {
        let mut place = self.place(thread);
        match place.as_mut().filter(|lost| lost.thread == thread) {
            Some(lost) => lost.held.replace(open),
            None => Some(open),
        }
    }

    /// The thread has used the file that it looked up. Returns that file, and those that other
    /// threads never came to use; all are to be closed.
    pub(crate) fn used(&self, thread: u32) -> Vec<OpenRef> {
        let over = |lost: &mut Lost| lost.thread == thread || lost.at.elapsed() >= SOON;
        let gone = self
            .places
            .iter()
            .filter_map(|place| place.lock().unwrap_or_else(PoisonError::into_inner).take_if(over));
        gone.inspect(|_| _ = self.taken.fetch_sub(1, Ordering::Relaxed))
            .filter_map(|lost| lost.held)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_lost_a_file_has_the_next_one_held_until_it_is_used() {
        let held = Held::default();
        let open = |index| OpenRef { index, generation: 1 };
        assert!(held.is_empty() && !held.was_lost(3));
        assert_eq!(held.hold(3, open(1)), Some(open(1)), "nobody to hold it for");
        assert_eq!(held.lost(3), None);
        assert!(held.was_lost(3) && !held.was_lost(4) && !held.was_lost(3 + THREADS as u32));
        assert_eq!(held.hold(3, open(2)), None);
        assert_eq!(held.hold(3, open(3)), Some(open(2)), "the next name of the path");
        assert_eq!(held.used(4), []);
        assert_eq!(held.used(3), [open(3)]);
        assert!(held.is_empty() && held.used(3).is_empty());
    }

    #[test]
    fn who_takes_a_place_has_what_was_held_there_closed() {
        let held = Held::default();
        let open = OpenRef { index: 7, generation: 1 };
        held.lost(3);
        held.hold(3, open);
        assert_eq!(held.lost(3 + THREADS as u32), Some(open));
        assert_eq!(held.used(3 + THREADS as u32), []);
        assert!(held.is_empty());
    }
}
