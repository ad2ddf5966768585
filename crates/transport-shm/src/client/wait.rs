//! Waiting for a reply: spin, sleep, and what ends a sleep.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use mayfly_sys::{arch::Moment, clock, futex, interrupt::DEFERRED};
use mayfly_transport::{Patience, Transport};
use mayfly_types::{Errno, limits::NOTICE_MS};
use mayfly_wire::Cancel;

use super::{ShmTransport, Submitted, replied};
use crate::{
    layout::{DAEMON_ABSENT, LANE_ABANDONED, LANE_REQUEST, LANE_SLEEPER, ON_THE_WAY},
    raw,
    spin::Spin,
};

/// How often a wait without a deadline looks up. A signal that arrives just before the futex call
/// does not end it, and a supervisor that was killed wakes nobody.
pub(super) const POLL_NS: u64 = 100_000_000;
/// A cancel is sent again after this long: the daemon that got the first may have died with it.
const CANCEL_AGAIN_NS: u64 = 1_000_000_000;

/// Threads that yield to each other spare the daemon the waking of each.
const YIELDS: u32 = 2;

const ASLEEP: u32 = LANE_REQUEST | LANE_SLEEPER;

impl ShmTransport {
    pub(super) fn deadline_ns(&self) -> u64 {
        u64::from(self.node.head.deadline_ms.load(Relaxed)) * 1_000_000
    }

    /// Waits for the reply. After an error the lane is no longer ours.
    pub(super) fn wait(&self, submitted: &Submitted, patience: Patience) -> Result<(), Errno> {
        let Submitted { lane, id, .. } = *submitted;
        let control = self.lane(lane);
        if replied(control) || self.spin(submitted) {
            return Ok(());
        }
        if self.yields.until(YIELDS, || {
            raw::yield_now();
            replied(control)
        }) {
            return Ok(());
        }
        control.owner.store(raw::thread_id(), Relaxed);
        let slept = match control.state.compare_exchange(LANE_REQUEST, ASLEEP, AcqRel, Acquire) {
            Ok(_) => match patience {
                Patience::Deadline => self.sleep(lane, self.deadline_ns()),
                Patience::Brief => self.sleep(lane, u64::from(NOTICE_MS) * 1_000_000),
                Patience::Endless => {
                    self.sleep_for_good(lane);
                    Ok(())
                }
                Patience::Interruptible => self.sleep_interruptibly(lane, id),
            },
            Err(_) => Ok(()),
        };
        control.owner.store(0, Relaxed);
        slept
    }

    /// True when it has brought the reply. A daemon that was asleep needs longer to come than a
    /// spin may last, and one that runs on this processor cannot run before we give way.
    fn spin(&self, submitted: &Submitted) -> bool {
        let Submitted { lane, at, woken, .. } = *submitted;
        let control = self.lane(lane);
        !woken && self.spins_until(&self.spin, at, || replied(control))
    }

    /// Spins, since the moment `at`, until the daemon has done something, if it can do that
    /// meanwhile; true when it has.
    pub(super) fn spins_until(&self, spin: &Spin, at: Moment, done: impl FnMut() -> bool) -> bool {
        match self.node.head.daemon_processor.load(Relaxed) {
            ON_THE_WAY => spin.until_arrival(at.cycles, done),
            there if there != 0 && there == at.processor => false,
            _ => spin.until(at.cycles, done),
        }
    }

    fn sleep(&self, lane: usize, deadline_ns: u64) -> Result<(), Errno> {
        let control = self.lane(lane);
        // Reading the clock is a system call here: once for a sleep that ends with the reply.
        let mut now = clock::monotonic_ns();
        let deadline = now + deadline_ns;
        while !replied(control) {
            // Nobody wakes those whose daemon is lost: they look up.
            let look_up = deadline.min(now + POLL_NS);
            let slept = futex::wait(&control.state, ASLEEP, Some(look_up));
            if replied(control) {
                break;
            }
            now = clock::monotonic_ns();
            let over = look_up == deadline || self.node.is_lost();
            if slept == Err(Errno::ETIMEDOUT) && over {
                return self.abandon(lane);
            }
        }
        Ok(())
    }

    fn sleep_for_good(&self, lane: usize) {
        let control = self.lane(lane);
        while !replied(control) {
            // Whatever ends it, the state says whether it is over.
            let _ = futex::wait(&control.state, ASLEEP, None);
        }
    }

    fn sleep_interruptibly(&self, lane: usize, id: u64) -> Result<(), Errno> {
        let control = self.lane(lane);
        let mut vigil = Vigil::default();
        while !replied(control) {
            let slept = futex::wait(&control.state, ASLEEP, Some(clock::monotonic_ns() + POLL_NS));
            if replied(control) {
                break;
            }
            let now = clock::monotonic_ns();
            if vigil.cancel_is_due(slept, now) {
                // On another lane; those reserved from requests like this one make sure there is
                // one.
                self.exchange(&Cancel { request_id: id }, Patience::Deadline, |_| ());
            }
            let absent = self.node.head.daemon_state.load(Relaxed) == DAEMON_ABSENT;
            let lost = slept == Err(Errno::ETIMEDOUT)
                && (self.node.is_lost() || raw::hung_up(self.evidence_fd));
            if lost || vigil.over(absent, now, self.deadline_ns()) {
                return self.abandon(lane);
            }
        }
        Ok(())
    }

    /// Leaves the lane to the daemon, unless the reply has just come. The daemon is told as of a
    /// request: it frees the lane, though it may be at the request for long, and ends what only
    /// waits.
    fn abandon(&self, lane: usize) -> Result<(), Errno> {
        let state = &self.lane(lane).state;
        if state.compare_exchange(ASLEEP, LANE_ABANDONED, AcqRel, Acquire).is_err() {
            return Ok(());
        }
        self.node.mark(self.id);
        self.node.wake_daemon();
        Err(Errno::EIO)
    }
}

/// What a wait without a deadline keeps in mind.
#[derive(Debug, Default)]
struct Vigil {
    /// A deferred signal was there at the last look.
    suspected: bool,
    /// When the wait was first cancelled.
    cancelled_ns: Option<u64>,
    /// When a cancel was last sent.
    sent_ns: u64,
    /// Since when there is no daemon.
    absent_ns: Option<u64>,
}

impl Vigil {
    /// A signal was deferred for this thread, or a cancel went unanswered for too long. The count
    /// of deferred signals is the process's: after EINTR it is surely ours, otherwise it must be
    /// there twice in a row, so that another thread's passing signal does not interrupt us.
    fn cancel_is_due(&mut self, slept: Result<(), Errno>, now: u64) -> bool {
        if self.cancelled_ns.is_some() {
            let again = now - self.sent_ns >= CANCEL_AGAIN_NS;
            self.sent_ns = if again { now } else { self.sent_ns };
            return again;
        }
        let deferred = DEFERRED.load(Relaxed) > 0;
        let due = deferred && (slept == Err(Errno::EINTR) || self.suspected);
        self.suspected = deferred;
        if due {
            self.cancelled_ns = Some(now);
            self.sent_ns = now;
        }
        due
    }

    /// The cancel, or the restart of the daemon, has taken longer than a request may.
    fn over(&mut self, absent: bool, now: u64, deadline_ns: u64) -> bool {
        self.absent_ns = if absent { self.absent_ns.or(Some(now)) } else { None };
        [self.cancelled_ns, self.absent_ns]
            .into_iter()
            .flatten()
            .any(|since| now.saturating_sub(since) > deadline_ns)
    }
}
