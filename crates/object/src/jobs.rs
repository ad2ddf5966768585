//! A bounded pool of threads for what may wait for a disk.
//!
//! A shard submits a job with a token and goes on; the result lands in a queue and the shard is
//! woken. The number of threads is fixed; the number of waiting jobs is bounded by who submits (a
//! request for each lane, and a shard's own background work). Dropping the pool finishes the jobs
//! it has.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

type Job<R> = Box<dyn FnOnce() -> R + Send>;
type Wake = Box<dyn Fn() + Send + Sync>;

struct Queues<R> {
    waiting: VecDeque<(u64, Job<R>)>,
    done: Vec<(u64, R)>,
    stopping: bool,
}

struct Shared<R> {
    queues: Mutex<Queues<R>>,
    submitted: Condvar,
    wake: Wake,
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, Queues<R>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queues = self.lock();
        loop {
            if let Some((token, job)) = queues.waiting.pop_front() {
                drop(queues);
                let result = job();
                self.lock().done.push((token, result));
                (self.wake)();
                queues = self.lock();
            } else if queues.stopping {
                return;
            } else {
                queues = self.submitted.wait(queues).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Instead of a number of threads: jobs wait until [`Jobs::run`] names one. What the simulator
/// draws from its seed is then the order in which disks answer.
pub const BY_HAND: usize = usize::MAX;

/// The pool. With no threads at all a job runs when it is submitted.
pub struct Jobs<R> {
    shared: Arc<Shared<R>>,
    threads: Vec<JoinHandle<()>>,
    by_hand: bool,
    outstanding: usize,
}

impl<R> fmt::Debug for Jobs<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs")
            .field("threads", &self.threads.len())
            .field("outstanding", &self.outstanding)
            .finish_non_exhaustive()
    }
}

impl<R: Send + 'static> Jobs<R> {
    /// A pool of `threads` threads that calls `wake` after each result.
    #[must_use]
    pub fn new(threads: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            queues: Mutex::new(Queues {
                waiting: VecDeque::new(),
                done: Vec::new(),
                stopping: false,
            }),
            submitted: Condvar::new(),
            wake: Box::new(wake),
        });
        let by_hand = threads == BY_HAND;
        let threads = (0..if by_hand { 0 } else { threads })
            .filter_map(|number| {
                let shared = Arc::clone(&shared);
                let builder = std::thread::Builder::new().name(format!("mayfly-io-{number}"));
                // Fewer threads than wished for are enough, none as well.
                builder.spawn(move || shared.work()).ok()
            })
            .collect();
        Jobs { shared, threads, by_hand, outstanding: 0 }
    }

    /// Runs `job` soon; its result comes back with `token`.
    pub fn submit(&mut self, token: u64, job: impl FnOnce() -> R + Send + 'static) {
        if self.threads.is_empty() {
            return self.submit_short(token, job);
        }
        self.outstanding += 1;
        self.shared.lock().waiting.push_back((token, Box::new(job)));
        self.shared.submitted.notify_one();
    }

    /// Runs `job` at once, in this thread: to wake another one, and to be woken by it, would take
    /// longer. Its result comes back as that of any other.
    pub fn submit_short(&mut self, token: u64, job: impl FnOnce() -> R + Send + 'static) {
        self.outstanding += 1;
        if self.by_hand {
            self.shared.lock().waiting.push_back((token, Box::new(job)));
            return;
        }
        let result = job();
        self.shared.lock().done.push((token, result));
        (self.shared.wake)();
    }

    /// Runs one of the jobs that wait, counted from the one that was submitted first; false when
    /// there are not so many. For a pool that is [`BY_HAND`].
    pub fn run(&mut self, which: usize) -> bool {
        let Some((token, job)) = self.shared.lock().waiting.remove(which) else { return false };
        let result = job();
        self.shared.lock().done.push((token, result));
        (self.shared.wake)();
        true
    }

    /// Jobs that no thread has begun.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Results that have come in since the last call.
    pub fn completions(&mut self) -> Vec<(u64, R)> {
        if self.outstanding == 0 {
            return Vec::new();
        }
        let done = std::mem::take(&mut self.shared.lock().done);
        self.outstanding -= done.len();
        done
    }

    /// Jobs whose result was not fetched yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

impl<R> Drop for Jobs<R> {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.submitted.notify_all();
        for thread in self.threads.drain(..) {
            // A job that panicked ended the process already (panics abort).
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    #[test]
    fn jobs_by_hand_run_in_the_order_that_is_told() {
        let mut jobs = Jobs::new(BY_HAND, || {});
        for token in 0..3 {
            jobs.submit(token, move || token);
        }
        assert!(jobs.completions().is_empty(), "nothing runs by itself");
        assert!(jobs.run(1) && !jobs.run(2) && jobs.run(1));
        assert_eq!(jobs.completions(), [(1, 1), (2, 2)]);
        assert_eq!((jobs.waiting(), jobs.outstanding()), (1, 1));
    }

    #[test]
    fn a_short_job_is_done_at_once_and_reported_as_others() {
        let mut jobs = Jobs::new(1, || {});
        let here = std::thread::current().id();
        jobs.submit_short(7, move || std::thread::current().id() == here);
        assert_eq!(jobs.outstanding(), 1);
        assert_eq!(jobs.completions(), [(7, true)]);
        assert_eq!(jobs.outstanding(), 0);
    }

    #[test]
    fn every_job_is_done_once_and_reported_with_its_token() {
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let mut jobs = Jobs::new(2, move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        for token in 0..100 {
            jobs.submit(token, move || token * 2);
        }
        let mut seen = Vec::new();
        while seen.len() < 100 {
            seen.extend(jobs.completions());
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.sort_unstable();
        assert!(
            seen.iter().enumerate().all(|(index, done)| *done == (index as u64, index as u64 * 2))
        );
        assert_eq!(jobs.outstanding(), 0);
        drop(jobs);
        assert_eq!(woken.load(Ordering::Relaxed), 100);
    }
}
