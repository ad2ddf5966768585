//! What a thread of the daemon does when there is nothing to do: poll for a moment, then sleep.
//!
//! Polling saves whoever asks the wake-up (a bare round trip of 0.12 µs instead of 30), and costs a
//! processor that somebody else may need. So it is kept up only while it finds work, and given up
//! at once when the kernel had to take the processor away from this thread: then there are more
//! runnable threads than processors. An idle daemon sleeps without a time-out.
//!
//! The serving thread sleeps on a word of the node region, where clients wake it too; the threads
//! of the other shards have words of their own.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, SeqCst},
        fence,
    },
};

use mayfly_sys::{arch, futex, process::preemptions};
use mayfly_transport_shm::layout::{DAEMON_ASLEEP, DAEMON_AWAKE, NodeRegion, wake_sleeper};

/// Longest poll, in cycles of the counter: some 40 µs at 2 GHz. It covers the pause that a busy
/// client makes between two requests. The counter is read in a third of the time of the clock, and
/// a request may come meanwhile.
const POLL_CYCLES: u64 = 80_000;
const CREDIT_MAX: u32 = 8;
/// Without credit, one wait in so many polls all the same, to learn whether the times have changed.
const PROBE_EVERY: u32 = 16;

#[derive(Debug, Default)]
struct Words {
    poked: AtomicBool,
    state: AtomicU32,
    wakes: AtomicU32,
}

/// Wakes a shard's thread, from any thread.
#[derive(Debug, Clone)]
pub struct Waker {
    /// For the thread that clients wake too: its words for sleeping are there.
    node: Option<&'static NodeRegion>,
    words: Arc<Words>,
}

impl Waker {
    /// For the serving thread of this node.
    #[must_use]
    pub fn new(node: &'static NodeRegion) -> Waker {
        Waker { node: Some(node), words: Arc::default() }
    }

    /// For the thread of another shard.
    pub(super) fn of_worker() -> Waker {
        Waker { node: None, words: Arc::default() }
    }

    /// The thread will look at everything again.
    pub fn wake(&self) {
        self.words.poked.store(true, SeqCst);
        let (state, wakes) = self.bed();
        wake_sleeper(state, wakes);
    }

    /// What the thread says and sleeps on.
    fn bed(&self) -> (&AtomicU32, &AtomicU32) {
        match self.node {
            Some(node) => (&node.head.daemon_state, &node.head.daemon_wakes),
            None => (&self.words.state, &self.words.wakes),
        }
    }

    /// True when [`Waker::wake`] was called since the last time.
    pub(super) fn was_poked(&self) -> bool {
        self.words.poked.load(SeqCst) && self.words.poked.swap(false, AcqRel)
    }

    fn is_poked(&self) -> bool {
        self.words.poked.load(SeqCst)
    }
}

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Requests of clients, and the waker.
    Requests,
    /// The waker only.
    Waker,
}

/// The waiting of a shard's thread.
#[derive(Debug)]
pub(super) struct Idle {
    waker: Waker,
    credit: u32,
    waits: u32,
    preemptions: i64,
    alone: bool,
}

impl Idle {
    /// Waits for `waker`, and for requests where those wake it too. To be made by the thread that
    /// waits.
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
    pub(super) fn wait(&mut self, what: For) {
        if !self.poll(what) {
            self.sleep(what);
        }
    }

    fn something_to_do(&self, what: For) -> bool {
        let requests = match (what, self.waker.node) {
            (For::Requests, Some(node)) => node.head.pending_summary.load(SeqCst) != 0,
            _ => false,
        };
        requests || self.waker.is_poked()
    }

    fn poll(&mut self, what: For) -> bool {
        if self.something_to_do(what) {
            return true;
        }
        self.waits = self.waits.wrapping_add(1);
        if self.alone || (self.credit == 0 && !self.waits.is_multiple_of(PROBE_EVERY)) {
            return false;
        }
        let start = arch::cycles();
        loop {
            for _ in 0..32 {
                if self.something_to_do(what) {
                    self.credit = (self.credit + 1).min(CREDIT_MAX);
                    return true;
                }
                arch::pause();
            }
            if arch::cycles().wrapping_sub(start) > POLL_CYCLES {
                self.credit = self.credit.saturating_sub(1);
                return false;
            }
        }
    }

    /// The counter is read before the state says ASLEEP, so whoever sees that state changes a
    /// counter that we have read, and the futex does not let us sleep.
    fn sleep(&mut self, what: For) {
        let preemptions = preemptions();
        if preemptions > self.preemptions {
            self.credit = 0;
            self.preemptions = preemptions;
        }
        let (state, counter) = self.waker.bed();
        let wakes = counter.load(SeqCst);
        state.store(DAEMON_ASLEEP, SeqCst);
        fence(SeqCst);
        if !self.something_to_do(what) {
            // Whatever the reason for waking, the caller looks at everything.
            let _woken = futex::wait(counter, wakes, None);
        }
        state.store(DAEMON_AWAKE, SeqCst);
    }
}
