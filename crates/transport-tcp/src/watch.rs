//! Looking at the sockets for a moment longer before the network thread sleeps.
//!
//! A node that was answered asks again, and a node that asks is answered soon. So two nodes often
//! take turns. Without this module each message would find the other side asleep. To wake a
//! processor that sleeps takes longer than all else that a request needs. This is worst in a
//! virtual machine: the waker has to ask the host, and the host starts the processor. So when
//! something has come, the thread looks again and again for a while. As long as this pays, nobody
//! has to be woken for a message between nodes.
//!
//! The thread learns from its sleeps, too, whether looks would pay: the length of a sleep says
//! whether looks would have found the message. So a node that is one of many, and asked now and
//! then, does not look at all.
//!
//! Between any two looks it gives way, so that a client or a daemon of the same processor gets its
//! turn at once. If somebody kept the processor meanwhile, there are more runnable threads than
//! processors. Then a thread that sleeps gets its turn sooner than one that looks. So the thread
//! does not look at all for many waits, and for four times as many when it happens again.

use std::time::Duration;

/// It is looked for so long. That has to cover the work of the other side, and that a client is
/// woken in between, which takes 50 µs in a virtual machine whose processors sleep.
const LONGEST_NS: u64 = 150_000;
/// Where everybody sleeps in between, what looks would have met takes so long: the other side and
/// this thread had to be woken.
const SOON_NS: u64 = 250_000;
/// Between two looks somebody else has had the processor for longer than it takes to answer
/// something.
const KEPT_NS: u64 = 400_000;
const CREDIT_MAX: i32 = 8;
/// The price of a look in vain, which takes as long as several that pay.
const VAIN: i32 = 3;
/// The price of a long sleep.
const LATE: i32 = 2;
/// So many waits have to be short before the first one with looks, and after looks in vain.
const REST_MIN: i32 = 16;
/// The same after somebody has kept the processor again and again.
const REST_MAX: i32 = 1 << 14;
/// After such a time so many waits with looks have to pay, and the rest is a quarter as long: one
/// that paid says little.
const GOOD: i32 = 8;

/// What the thread has learned from earlier waits.
#[derive(Debug)]
pub(crate) struct Watch {
    /// It is looked as long as this is above zero.
    credit: i32,
    /// How many waits had to be short after somebody kept the processor for the last time.
    rest: i32,
    /// Looks that paid since the rest became shorter.
    good: i32,
    /// There is one processor: nothing can come while we look.
    alone: bool,
}

impl Watch {
    /// For a thread that may run on so many processors.
    pub(crate) fn new(processors: usize) -> Watch {
        Watch { credit: -REST_MIN, rest: REST_MIN, good: 0, alone: processors < 2 }
    }

    /// Waits with `wait`, which does so for as long as it is told and says whether something came;
    /// first without sleeping, if that is worth it. `now_ns` tells the time.
    pub(crate) fn wait(
        &mut self,
        patience: Option<Duration>,
        mut now_ns: impl FnMut() -> u64,
        mut wait: impl FnMut(Option<Duration>) -> bool,
    ) {
        if self.alone {
            wait(patience);
        } else if self.credit <= 0 {
            let start_ns = now_ns();
            let came = wait(patience);
            self.note_sleep(came && now_ns().saturating_sub(start_ns) <= SOON_NS);
        } else if !self.look(now_ns, || wait(Some(Duration::ZERO))) {
            wait(patience);
        }
    }

    /// Looks until `came` says that there is something; true when it did.
    fn look(&mut self, mut now_ns: impl FnMut() -> u64, mut came: impl FnMut() -> bool) -> bool {
        let start_ns = now_ns();
        let mut last_ns = start_ns;
        loop {
            if came() {
                self.note_success();
                return true;
            }
            let now_ns = now_ns();
            if now_ns.saturating_sub(last_ns) > KEPT_NS {
                self.note_others();
                return false;
            }
            if now_ns.saturating_sub(start_ns) > LONGEST_NS {
                self.note_nothing();
                return false;
            }
            last_ns = now_ns;
            std::thread::yield_now();
        }
    }

    fn note_sleep(&mut self, soon: bool) {
        if soon {
            self.credit += 1;
        } else if self.credit > -REST_MIN {
            self.credit = (self.credit - LATE).max(-REST_MIN);
        }
    }

    fn note_success(&mut self) {
        if self.rest == REST_MIN {
            self.credit = (self.credit + 1).min(CREDIT_MAX);
            return;
        }
        self.good += 1;
        if self.good == GOOD {
            (self.good, self.rest) = (0, (self.rest / 4).max(REST_MIN));
        }
        self.credit = -self.rest;
    }

    fn note_nothing(&mut self) {
        self.good = 0;
        self.credit -= VAIN;
        if self.credit <= 0 {
            self.credit = -self.rest;
        }
    }

    fn note_others(&mut self) {
        self.rest = (self.rest * 4).min(REST_MAX);
        (self.credit, self.good) = (-self.rest, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON_ENOUGH_NS: u64 = 50_000;
    const LATE_NS: u64 = 5_000_000;

    /// How many of so many waits began with looks. A message comes `after_ns` after the wait began;
    /// from one look to the next it takes `step_ns`.
    fn looks_of(step_ns: u64, watch: &mut Watch, waits: i32, after_ns: u64) -> i32 {
        let (now_ns, mut count) = (std::cell::Cell::new(0), 0);
        for _ in 0..waits {
            let comes_ns = now_ns.get() + after_ns;
            let mut looked = false;
            let clock = || {
                now_ns.set(now_ns.get() + step_ns);
                now_ns.get()
            };
            watch.wait(None, clock, |patience| {
                looked |= patience.is_some();
                if patience.is_none() {
                    now_ns.set(now_ns.get().max(comes_ns));
                }
                now_ns.get() >= comes_ns
            });
            count += i32::from(looked);
        }
        count
    }

    fn looks(watch: &mut Watch, waits: i32, after_ns: u64) -> i32 {
        looks_of(1_000, watch, waits, after_ns)
    }

    #[test]
    fn where_everything_comes_soon_every_wait_begins_with_looks() {
        let mut watch = Watch::new(2);
        assert_eq!(looks(&mut watch, REST_MIN + 1, SOON_ENOUGH_NS), 0, "that is learned first");
        assert_eq!(looks(&mut watch, 1000, SOON_ENOUGH_NS), 1000);
    }

    #[test]
    fn where_everything_comes_late_nobody_looks() {
        assert_eq!(looks(&mut Watch::new(2), 1000, LATE_NS), 0);
    }

    #[test]
    fn where_every_second_wait_is_long_nobody_looks() {
        let mut watch = Watch::new(2);
        for _ in 0..1000 {
            assert_eq!(looks(&mut watch, 1, SOON_ENOUGH_NS), 0);
            assert_eq!(looks(&mut watch, 1, LATE_NS), 0);
        }
    }

    #[test]
    fn looks_in_vain_end_soon_and_come_back_after_short_waits() {
        let mut watch = Watch::new(2);
        looks(&mut watch, 1000, SOON_ENOUGH_NS);
        assert_eq!(looks(&mut watch, 1000, LATE_NS), 3, "8, 5 and 2 are above zero");
        assert_eq!(looks(&mut watch, REST_MIN + 1, SOON_ENOUGH_NS), 0);
        assert_eq!(looks(&mut watch, 1000, SOON_ENOUGH_NS), 1000);
    }

    /// Nothing is met, and every sleep says that it would have been.
    #[test]
    fn for_what_comes_just_after_the_last_look_it_is_looked_now_and_then() {
        let mut watch = Watch::new(2);
        let period = REST_MIN + 2;
        assert_eq!(looks(&mut watch, 100 * period, (LONGEST_NS + SOON_NS) / 2), 100);
    }

    /// The thread that had the processor would be disturbed again, and keep it again.
    #[test]
    fn who_is_kept_from_the_processor_rests_longer_each_time() {
        let mut watch = Watch::new(2);
        for rest in [1, 4, 16, 64].map(|times| times * REST_MIN) {
            assert_eq!(looks(&mut watch, rest + 1, 0), 0, "not even for what is there");
            assert_eq!(looks_of(2 * KEPT_NS, &mut watch, 1, LATE_NS), 1);
        }
    }

    #[test]
    fn who_was_kept_has_to_see_several_times_that_nobody_is_there() {
        let mut watch = Watch::new(2);
        watch.note_others();
        let rests = 4 * REST_MIN + 2;
        assert_eq!(looks(&mut watch, GOOD * rests, SOON_ENOUGH_NS), GOOD, "now and then");
        assert_eq!(looks(&mut watch, REST_MIN + 1, SOON_ENOUGH_NS), 0);
        assert_eq!(looks(&mut watch, 1000, SOON_ENOUGH_NS), 1000);
    }

    #[test]
    fn a_single_processor_is_left_to_the_others() {
        assert_eq!(looks(&mut Watch::new(1), 100, SOON_ENOUGH_NS), 0);
    }
}
