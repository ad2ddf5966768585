//! Looking at the sockets for a moment longer before the network thread sleeps.
//!
//! Whoever has been answered asks again, and whoever has asked is answered soon. Where two nodes
//! take turns in this way each message finds the other side asleep otherwise, and to wake a
//! processor that sleeps takes longer than all else that a request needs, most of all in a virtual
//! machine: the waker has to ask the host, and the host starts the processor. So when something has
//! come the thread looks again and again for a while. As long as that pays nobody has to be woken
//! for a message between nodes.
//!
//! Between any two looks it gives way, so that a client or a daemon of the same processor gets its
//! turn at once. When somebody kept the processor meanwhile, there are more runnable threads than
//! processors, and whoever sleeps gets his turn sooner than whoever looks. So the thread sleeps at
//! once for many times then, and for four times as many after the next time. Where nothing comes it
//! soon looks only now and then.

/// It is looked for so long. That has to cover the work of the other side, and that a client is
/// woken in between, which takes 50 µs in a virtual machine whose processors sleep.
const LONGEST_NS: u64 = 150_000;
/// Between two looks somebody else has had the processor for longer than it takes to answer
/// something.
const KEPT_NS: u64 = 400_000;
const CREDIT_MAX: u32 = 8;
/// Without credit one wait in so many begins with a look all the same, to learn whether the times
/// have changed.
const REST_MIN: u32 = 16;
/// As long as such looks are in vain, the next one comes after twice as many, up to so many.
const REST_IDLE_MAX: u32 = 256;
/// The same after somebody has kept the processor again and again.
const REST_MAX: u32 = 1 << 14;
/// So many of such looks that paid, and the rest is a quarter as long: one that paid says little.
const GOOD: u32 = 8;

/// What is remembered of earlier looks.
#[derive(Debug)]
pub(crate) struct Watch {
    credit: u32,
    /// Waits since the last look.
    waits: u32,
    /// How many of them there must be without credit.
    rest: u32,
    /// Looks that paid since one did not, or since the rest became shorter.
    good: u32,
    /// There is one processor: nothing can come while we look.
    alone: bool,
}

impl Watch {
    /// For a thread that may run on so many processors.
    pub(crate) fn new(processors: usize) -> Watch {
        let (credit, rest, alone) = (CREDIT_MAX, REST_MIN, processors < 2);
        Watch { credit, waits: 0, rest, good: 0, alone }
    }

    /// Looks until `came` says that there is something; true when it did. `now_ns` tells the time.
    pub(crate) fn until(
        &mut self,
        mut now_ns: impl FnMut() -> u64,
        mut came: impl FnMut() -> bool,
    ) -> bool {
        if self.alone || !self.is_worth_it() {
            return false;
        }
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

    fn is_worth_it(&mut self) -> bool {
        self.waits += 1;
        let worth = self.credit > 0 || self.waits >= self.rest;
        if worth {
            self.waits = 0;
        }
        worth
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
    }

    fn note_nothing(&mut self) {
        if self.credit == 0 {
            self.rest = self.rest.max((self.rest * 2).min(REST_IDLE_MAX));
            self.good = 0;
        }
        self.credit = self.credit.saturating_sub(1);
    }

    fn note_others(&mut self) {
        (self.credit, self.good) = (0, 0);
        self.rest = (self.rest * 4).min(REST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many waits began with a look, where a look takes so long.
    fn looks_of(ns: u64, watch: &mut Watch, waits: u32, came: bool) -> u32 {
        let (mut count, mut now_ns) = (0, 0);
        for _ in 0..waits {
            let mut looked = false;
            let clock = || {
                now_ns += ns;
                now_ns
            };
            let paid = watch.until(clock, || {
                looked = true;
                came
            });
            assert_eq!(paid, looked && came);
            count += u32::from(looked);
        }
        count
    }

    fn looks(watch: &mut Watch, waits: u32, came: bool) -> u32 {
        looks_of(1000, watch, waits, came)
    }

    #[test]
    fn as_long_as_it_pays_every_wait_begins_with_a_look() {
        let mut watch = Watch::new(2);
        assert_eq!(looks(&mut watch, 1000, true), 1000);
        let (mut now_ns, mut left) = (0, LONGEST_NS / 1000);
        let clock = || {
            now_ns += 1000;
            now_ns
        };
        assert!(watch.until(clock, || {
            left -= 1;
            left == 0
        }));
    }

    #[test]
    fn where_nothing_comes_it_looks_only_now_and_then() {
        let mut watch = Watch::new(2);
        assert_eq!(looks(&mut watch, CREDIT_MAX, false), CREDIT_MAX);
        assert_eq!(looks(&mut watch, (1 + 2 + 4) * REST_MIN, false), 3);
        looks(&mut watch, 100 * REST_IDLE_MAX, false);
        assert_eq!(looks(&mut watch, 10 * REST_IDLE_MAX, false), 10);
        let until_now_and_then = GOOD * (REST_IDLE_MAX + REST_IDLE_MAX / 4);
        looks(&mut watch, until_now_and_then + REST_IDLE_MAX, true);
        assert_eq!(looks(&mut watch, 1000, true), 1000, "and learns");
    }

    /// Whoever had the processor would be disturbed again, and keep it again.
    #[test]
    fn who_is_kept_from_the_processor_rests_longer_each_time() {
        let mut watch = Watch::new(2);
        for rest in [0, 4 * REST_MIN - 1, 16 * REST_MIN - 1, 64 * REST_MIN - 1] {
            assert_eq!(looks(&mut watch, rest, true), 0, "not even for what is there");
            assert_eq!(looks_of(2 * KEPT_NS, &mut watch, 1, false), 1);
        }
    }

    #[test]
    fn who_was_kept_has_to_see_several_times_that_nobody_is_there() {
        let mut watch = Watch::new(2);
        watch.note_others();
        let until_now_and_then = GOOD * 4 * REST_MIN;
        assert_eq!(looks(&mut watch, until_now_and_then, true), GOOD);
        assert_eq!(looks(&mut watch, 2 * REST_MIN, true), REST_MIN + 1);
    }

    #[test]
    fn a_single_processor_is_left_to_the_others() {
        assert_eq!(looks(&mut Watch::new(1), 100, true), 0);
    }
}
