//! What a thread of the daemon does when there is nothing to do: poll for a moment, then sleep.
//!
//! Polling saves whoever asks the wake-up (a bare round trip of 0.12 µs instead of 30), and costs a
//! processor that somebody else may need. So it is kept up only while it finds work, and given up
//! at once when the kernel had to take the processor away from this thread: then there are more
//! runnable threads than processors. An idle daemon sleeps without a time-out.
//!
//! **Together or apart.** A client that runs on this thread's processor cannot ask while we poll
//! there, and the kernel, which sees one of the two run at a time, leaves them where they are. So
//! requests say where they were made. Where all of them came from here, the thread sleeps at once,
//! which costs a switch of threads for each request; after some of those it moves to another
//! processor, where polling can pay. Where it did not, it moves to its clients: to wake a thread of
//! another processor takes several times as long as to wake one of this. But it is the kernel that
//! places whom a reply wakes, so a move may be in vain, and then the next one comes later.
//!
//! **When there are others.** Where the other processors are busy too, a thread that polls is kept
//! waiting for whole slices of the scheduler's, and the clients with it; one that sleeps gets its
//! turn at once. So after such a pause polling, and moving, has a rest, which is longer each time;
//! but not when clients run on several processors, since then it is they who had the processor.
//!
//! A thread that may run on one processor only cannot move to its clients. To sleep there would
//! not spare them the wait, it would add one: polling goes on while clients run elsewhere.
//!
//! The serving thread sleeps on a word of the node region, where clients wake it too; the threads
//! of the other shards have words of their own, and know of no processors.

mod placement;

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{AcqRel, Relaxed, SeqCst},
            fence,
        },
    },
    time::Duration,
};

use mayfly_sys::{
    arch, futex,
    process::{self, preemptions},
};
use mayfly_transport_shm::layout::{
    DAEMON_ASLEEP, DAEMON_AWAKE, NodeRegion, Waiting, wake_sleeper,
};

use placement::{Clients, Placement};

/// Longest poll, in cycles of the counter: some 40 µs at 2 GHz. It covers the pause that a busy
/// client makes between two requests. The counter is read in a third of the time of the clock, and
/// a request may come meanwhile.
const POLL_CYCLES: u64 = 80_000;
/// So long a poll looks at the lanes of the one client that asks only: some 2 µs.
const LINGER_CYCLES: u64 = 5_000;
/// A poll goes on for so many when a client was woken: until it runs, and has asked again, takes
/// 50 µs in a virtual machine whose processors sleep. Where both sides sleep between any two
/// requests, each takes twice as long, and no poll that is shorter ends that.
const ROUSED_CYCLES: u64 = 180_000;
/// What is submitted is looked at once in so many, some 8 µs: each look costs its process cache
/// lines, and nobody waits for it.
const GATHER_CYCLES: u64 = 20_000;
/// Between two polls without a sleep this is long, in cycles: somebody else had the processor. A
/// slice of the scheduler's is six times as long.
const GAP_CYCLES: u64 = 1_000_000;
const CREDIT_MAX: u32 = 8;
/// Without credit one wait in so many polls all the same, to learn whether the times have changed.
const REST_MIN: u32 = 16;
/// As long as such polls are in vain, the next comes after twice as many waits, up to so many.
const REST_IDLE_MAX: u32 = 256;
/// After somebody had the processor it comes after four times as many, up to so many: a slice is
/// 3 ms, and so many waits take a hundred times as long.
const REST_MAX: u32 = 1 << 16;
/// So many polls that paid, with no such pause between them, and the rest is short again.
const GOOD: u32 = 8192;

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
    pub(in crate::serve) fn of_worker() -> Waker {
        Waker { node: None, words: Arc::default() }
    }

    /// The thread will look at everything again.
    pub fn wake(&self) {
        self.poke();
        let (state, wakes) = self.bed();
        wake_sleeper(state, wakes);
    }

    /// Whoever looks next will look at everything; wakes nobody.
    pub(in crate::serve) fn poke(&self) {
        self.words.poked.store(true, SeqCst);
    }

    /// Sleeps until somebody has woken the thread since `wakes` were counted, or for so long.
    pub(in crate::serve) fn sleep(&self, wakes: Wakes, at_most: Option<Duration>) {
        let until_ns = at_most.map(|at_most| {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
            u64::try_from((now + at_most).as_nanos()).unwrap_or(u64::MAX)
        });
        // Whatever the reason for waking, the caller looks at everything.
        let _woken = futex::wait(self.bed().1, wakes.0, until_ns);
    }

    /// What the thread says and sleeps on.
    fn bed(&self) -> (&AtomicU32, &AtomicU32) {
        match self.node {
            Some(node) => (&node.head.daemon_state, &node.head.daemon_wakes),
            None => (&self.words.state, &self.words.wakes),
        }
    }

    /// True when [`Waker::wake`] was called since the last time.
    pub(in crate::serve) fn was_poked(&self) -> bool {
        self.words.poked.load(SeqCst) && self.words.poked.swap(false, AcqRel)
    }

    fn is_submitted(&self) -> bool {
        self.node.is_some_and(is_submitted)
    }

    fn is_poked(&self) -> bool {
        self.words.poked.load(SeqCst)
    }

    /// Whether what ends such a wait is there.
    pub(in crate::serve) fn is_called(&self, what: For) -> bool {
        let requests = match (what, self.node) {
            (For::Requests | For::Answers, Some(node)) => {
                node.head.pending_summary.load(SeqCst) != 0 || is_submitted(node)
            }
            _ => false,
        };
        requests || self.is_poked()
    }
}

/// Looks until there is something, or so many cycles after `start`.
fn look_until(start: u64, cycles: u64, is_there: impl Fn() -> bool) -> bool {
    loop {
        for _ in 0..32 {
            if is_there() {
                return true;
            }
            arch::pause();
        }
        if arch::cycles().wrapping_sub(start) > cycles {
            return false;
        }
    }
}

/// Whether there are asynchronous operations to execute.
fn is_submitted(node: &NodeRegion) -> bool {
    node.head.rings.ripe.load(SeqCst) != 0
}

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum For {
    /// Requests of clients, and the waker.
    Requests,
    /// The same, where all that is under way is with other nodes. The network thread hears of it:
    /// to poll would be to keep a processor from that one.
    Answers,
    /// The waker only.
    Waker,
}

/// How often the thread had been woken when it said that it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) struct Wakes(u32);

/// The waiting of a shard's thread.
#[derive(Debug)]
pub(in crate::serve) struct Idle {
    waker: Waker,
    credit: u32,
    /// Waits since the last poll.
    waits: u32,
    /// How many of them there must be where polling has not paid.
    rest: u32,
    /// Polls that paid since there were others.
    good: u32,
    preemptions: i64,
    /// When the last poll began, unless there was a sleep since.
    polled: Option<u64>,
    /// When submissions were last waited for.
    gathered: u64,
    /// No poll can find anything: nobody else runs meanwhile.
    alone: bool,
    /// The thread may run on one processor only, and polls while it knows of clients on others.
    narrow: bool,
    /// A client was woken since the last wait.
    roused: bool,
    /// Clients are on several processors: it is they who have this one in between.
    crowd: bool,
    placement: Placement,
}

impl Idle {
    /// Waits for `waker`, and for requests where those wake it too. To be made by the thread that
    /// waits.
    #[must_use]
    pub(in crate::serve) fn new(waker: Waker) -> Idle {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let placement = Placement::new();
        let narrow = waker.node.is_some() && placement.tells_places() && process::processors() < 2;
        Idle {
            waker,
            credit: CREDIT_MAX,
            waits: 0,
            rest: REST_MIN,
            good: 0,
            preemptions: preemptions(),
            polled: None,
            gathered: 0,
            alone: processors < 2 && !narrow,
            narrow,
            roused: false,
            crowd: false,
            placement,
        }
    }

    /// A request was taken that was made on `processor` (its number plus one, or 0).
    pub(in crate::serve) fn served(&mut self, processor: u32) {
        self.placement.served(processor);
    }

    /// Whether a client was woken since the last wait.
    pub(in crate::serve) fn roused(&mut self, roused: bool) {
        self.roused = roused;
    }

    /// Polls for a moment. `None` when there may be something to do; otherwise everybody knows that
    /// the thread sleeps, which it has to do ([`Waker::sleep`]), and to [`Idle::rise`] then.
    ///
    /// `again` says whether the one client that asks has asked again, if it is one only. Its marks
    /// from the last time may still stand then, and are looked at when it has not for a moment.
    pub(in crate::serve) fn lie_down(
        &mut self,
        what: For,
        again: impl Fn() -> Option<bool>,
    ) -> Option<Wakes> {
        let called = || {
            again().map_or_else(
                || self.waker.is_called(what),
                |asked| asked || self.waker.is_poked() || self.waker.is_submitted(),
            )
        };
        if called() || self.poll(what, &again) || self.waker.is_called(what) {
            return None;
        }
        let preemptions = preemptions();
        if preemptions > self.preemptions {
            self.preemptions = preemptions;
            self.credit = if self.narrow { self.credit } else { 0 };
        }
        self.polled = None;
        self.count(|waiting| &waiting.sleeps);
        let wakes = Wakes(self.waker.bed().1.load(SeqCst));
        if self.is_over(what) { Some(wakes) } else { None }
    }

    /// Says that the thread sleeps, and is true, unless there may be something to do.
    ///
    /// A thread reads the counter before it says that it sleeps. A thread that sees it asleep
    /// changes the counter after that read. So the futex does not let the first one sleep.
    pub(in crate::serve) fn is_over(&self, what: For) -> bool {
        self.waker.bed().0.store(DAEMON_ASLEEP, SeqCst);
        fence(SeqCst);
        let called = self.waker.is_called(what);
        if called {
            self.rise();
        }
        !called
    }

    /// Says that the thread sleeps, and has to be woken.
    pub(in crate::serve) fn give_up_place(&self) {
        self.waker.bed().0.store(DAEMON_ASLEEP, SeqCst);
    }

    /// Says that the thread that calls it looks after everything.
    pub(in crate::serve) fn rise(&self) {
        self.waker.bed().0.store(DAEMON_AWAKE, SeqCst);
        if let Some(node) = self.waker.node {
            self.placement.show(&node.head.daemon_processor);
        }
    }

    fn count(&self, counter: impl Fn(&Waiting) -> &AtomicU64) {
        if let Some(node) = self.waker.node {
            // Nobody else writes there.
            let counter = counter(&node.head.waiting);
            counter.store(counter.load(Relaxed) + 1, Relaxed);
        }
    }

    fn may_poll(&mut self, what: For) -> bool {
        if self.alone || what == For::Answers {
            return false;
        }
        let Some(node) = self.waker.node else { return self.credit > 0 || self.is_rested() };
        let place = &node.head.daemon_processor;
        let clients = self.look_around(node);
        let pays = self.credit > 0 || self.is_rested();
        match clients {
            Clients::Here => pays && self.step_aside(),
            Clients::Anywhere if self.narrow => pays && self.placement.knows_of_others(),
            Clients::There(there) if !pays => {
                let moved = self.placement.step_over(there, place);
                self.note_move(moved);
                false
            }
            _ => pays,
        }
    }

    fn look_around(&mut self, node: &'static NodeRegion) -> Clients {
        let clients = self.placement.look(&node.head.daemon_processor);
        self.crowd = clients == Clients::Anywhere;
        clients
    }

    /// Moves away where most requests are made here, even if there is no end of them: a crowd of
    /// clients leaves no time to wait, and the other processors have less to do.
    pub(in crate::serve) fn leave_crowd(&mut self) {
        if !self.alone && !self.narrow && self.placement.leans_here() {
            let _moved = self.waker.node.is_some_and(|node| self.go_aside(node));
        }
    }

    /// Away from the clients, when they have been here long enough; true when there is somewhere
    /// else.
    fn step_aside(&mut self) -> bool {
        let long_enough = self.placement.may_step_aside();
        self.waker.node.filter(|_| long_enough).is_some_and(|node| self.go_aside(node))
    }

    fn go_aside(&mut self, node: &'static NodeRegion) -> bool {
        let moved = self.placement.step_aside(&node.head.daemon_processor);
        self.waits = 0;
        self.credit = if moved { CREDIT_MAX } else { 0 };
        self.note_move(moved);
        moved
    }

    fn note_move(&self, moved: bool) {
        if moved {
            self.count(|waiting| &waiting.moves);
        }
    }

    fn is_rested(&mut self) -> bool {
        self.waits += 1;
        self.waits >= if self.goes_on() { REST_MIN } else { self.rest }
    }

    /// Polling goes on after somebody else had the processor: that is a client, or there is no
    /// other processor to go to.
    fn goes_on(&self) -> bool {
        self.crowd || self.narrow
    }

    fn poll(&mut self, what: For, again: &impl Fn() -> Option<bool>) -> bool {
        if !self.may_poll(what) {
            return false;
        }
        self.waits = 0;
        let start = arch::cycles();
        let last = self.polled.replace(start);
        if !self.goes_on() && last.is_some_and(|last| start.wrapping_sub(last) > GAP_CYCLES) {
            self.look_for_others();
        }
        let paid = self.linger(start, again)
            || self.watch(what, start, POLL_CYCLES)
            || self.roused && self.await_roused(what);
        if paid {
            self.note_success();
        } else {
            self.note_failure();
        }
        paid
    }

    /// So many asynchronous operations were executed, the last of them submitted on
    /// `processor`, and nothing else was asked for. Their process can run while this thread does.
    pub(in crate::serve) fn served_submitted(&mut self, processor: u32, count: u32) {
        if self.alone || self.waker.node.is_none() {
            return;
        }
        if self.placement.crowds_out(processor, count) {
            let _moved = self.step_aside();
        }
    }

    /// Whether clients of other processors than this one asked, as far as that was looked at.
    pub(in crate::serve) fn knows_of_others(&self) -> bool {
        !self.alone && self.placement.knows_of_others()
    }

    /// Looks for a moment whether there is something to do, while clients wait for being woken.
    pub(in crate::serve) fn is_asked_soon(&mut self, again: impl Fn() -> Option<bool>) -> bool {
        if let Some(node) = self.waker.node {
            let _clients = self.look_around(node);
        }
        let asked = || again() == Some(true) || self.waker.is_called(For::Requests);
        look_until(arch::cycles(), LINGER_CYCLES, asked)
    }

    /// Waits for more where nothing but submissions has come, from a client that this keeps from
    /// nothing. `again` as in [`Idle::lie_down`].
    pub(in crate::serve) fn gather(&mut self, again: impl Fn() -> Option<bool>) {
        let Some(node) = self.waker.node else { return };
        if self.alone || self.credit == 0 || !self.placement.is_elsewhere() {
            return;
        }
        let asked = || {
            self.waker.is_poked()
                || again().unwrap_or_else(|| node.head.pending_summary.load(SeqCst) != 0)
        };
        if arch::cycles().wrapping_sub(self.gathered) < GATHER_CYCLES {
            let _asked = look_until(self.gathered, GATHER_CYCLES, asked);
        }
        self.gathered = arch::cycles();
    }

    /// Until the one client has asked again, which takes some hundred cycles.
    fn linger(&self, start: u64, again: &impl Fn() -> Option<bool>) -> bool {
        loop {
            for _ in 0..16 {
                match again() {
                    None => return false,
                    Some(true) => return true,
                    Some(false) if self.waker.is_poked() || self.waker.is_submitted() => {
                        return true;
                    }
                    Some(false) => arch::pause(),
                }
            }
            if arch::cycles().wrapping_sub(start) > LINGER_CYCLES {
                return false;
            }
        }
    }

    /// Until something comes, or so many cycles after `start`.
    fn watch(&self, what: For, start: u64, cycles: u64) -> bool {
        look_until(start, cycles, || self.waker.is_called(what))
    }

    /// Goes on for a client that was woken. The kernel may have put it behind this thread.
    fn await_roused(&mut self, what: For) -> bool {
        std::thread::yield_now();
        // Nobody has taken the processor away.
        self.preemptions = preemptions();
        self.watch(what, arch::cycles(), ROUSED_CYCLES)
    }

    fn note_success(&mut self) {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
        self.good += 1;
        self.placement.poll_paid();
        if self.good == GOOD {
            (self.good, self.rest) = (0, REST_MIN);
        }
        self.count(|waiting| &waiting.polls);
    }

    fn note_failure(&mut self) {
        if self.credit == 0 {
            self.rest = self.rest.max((self.rest * 2).min(REST_IDLE_MAX));
        }
        self.credit = self.credit.saturating_sub(1);
        self.count(|waiting| &waiting.polls_in_vain);
    }

    /// There was a long pause. If somebody else had the processor, there are more runnable threads
    /// than processors.
    fn look_for_others(&mut self) {
        let preemptions = preemptions();
        if preemptions > self.preemptions {
            self.preemptions = preemptions;
            (self.credit, self.good) = (0, 0);
            self.rest = (self.rest * 4).min(REST_MAX);
        }
    }
}
