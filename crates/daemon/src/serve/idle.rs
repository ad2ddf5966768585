//! What the serving loop does when there is nothing to do: poll for a moment, then sleep.
//!
//! Polling saves a client the wake-up (a bare round trip of 0.12 µs instead of 30), and costs a
//! processor that somebody else may need. So it is kept up only while it finds work, and given up
//! at once when the kernel had to take the processor away from this thread: then there are more
//! runnable threads than processors. An idle daemon sleeps without a time-out.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, SeqCst},
            fence,
        },
    },
    time::{Duration, Instant},
};

use mayfly_sys::{arch, futex, process::preemptions};
use mayfly_transport_shm::layout::{DAEMON_ASLEEP, DAEMON_AWAKE, NodeRegion};

/// Longest poll. It covers the pause that a busy client makes between two requests.
const POLL: Duration = Duration::from_micros(40);
const CREDIT_MAX: u32 = 8;
/// Without credit, one wait in so many polls all the same, to learn whether the times have changed.
const PROBE_EVERY: u32 = 16;

/// Wakes the serving loop, from any thread.
#[derive(Debug, Clone)]
pub struct Waker {
    node: &'static NodeRegion,
    poked: Arc<AtomicBool>,
}

impl Waker {
    /// For the loop of this node.
    #[must_use]
    pub fn new(node: &'static NodeRegion) -> Waker {
        Waker { node, poked: Arc::new(AtomicBool::new(false)) }
    }

    /// The loop will look at everything again.
    pub fn wake(&self) {
        self.poked.store(true, SeqCst);
        self.node.wake_daemon();
    }

    /// True when [`Waker::wake`] was called since the last time.
    pub(super) fn was_poked(&self) -> bool {
        self.poked.load(SeqCst) && self.poked.swap(false, AcqRel)
    }

    fn is_poked(&self) -> bool {
        self.poked.load(SeqCst)
    }
}

/// The waiting of the serving loop.
#[derive(Debug)]
pub(super) struct Idle {
    waker: Waker,
    credit: u32,
    waits: u32,
    preemptions: i64,
    alone: bool,
}

impl Idle {
    /// Waits for requests and for `waker`.
    #[must_use]
    pub(super) fn new(waker: Waker) -> Idle {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Idle {
            waker,
            credit: CREDIT_MAX,
            waits: 0,
            preemptions: preemptions(),
            alone: processors < 2,
        }
    }

    /// Returns when there may be something to do.
    pub(super) fn wait(&mut self) {
        if !self.poll() {
            self.sleep();
        }
    }

    fn something_to_do(&self) -> bool {
        self.waker.node.head.pending_summary.load(SeqCst) != 0 || self.waker.is_poked()
    }

    fn poll(&mut self) -> bool {
        if self.something_to_do() {
            return true;
        }
        self.waits = self.waits.wrapping_add(1);
        if self.alone || (self.credit == 0 && !self.waits.is_multiple_of(PROBE_EVERY)) {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..32 {
                if self.something_to_do() {
                    self.credit = (self.credit + 1).min(CREDIT_MAX);
                    return true;
                }
                arch::pause();
            }
            if start.elapsed() > POLL {
                self.credit = self.credit.saturating_sub(1);
                return false;
            }
        }
    }

    /// The counter is read before the state says ASLEEP, so whoever sees that state changes a
    /// counter that we have read, and the futex does not let us sleep.
    fn sleep(&mut self) {
        let preemptions = preemptions();
        if preemptions > self.preemptions {
            self.credit = 0;
            self.preemptions = preemptions;
        }
        let head = &self.waker.node.head;
        let wakes = head.daemon_wakes.load(SeqCst);
        head.daemon_state.store(DAEMON_ASLEEP, SeqCst);
        fence(SeqCst);
        if !self.something_to_do() {
            // Whatever the reason for waking, the caller looks at everything.
            let _woken = futex::wait(&head.daemon_wakes, wakes, None);
        }
        head.daemon_state.store(DAEMON_AWAKE, SeqCst);
    }
}
