//! Time told by the processors' counter, which processes read without a system call.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_transport_shm::layout::NodeHead;
use mayfly_types::Timestamp;

const NS: u64 = 1_000_000_000;
/// Binary places of what a cycle takes: nanoseconds are exact for some minutes of cycles.
const RATE_SHIFT: u32 = 40;

/// What the counter was when the node began, and the time then in nanoseconds.
#[derive(Debug)]
pub(crate) struct Cycles {
    began: u64,
    began_ns: u64,
}

/// What the counter says now, what time it is, and how the one has run by the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present {
    cycles: u64,
    pub(crate) now: Timestamp,
    /// Cycles since the node began; 0 where these tell nothing.
    ran: u64,
    /// Nanoseconds that a cycle has taken, shifted.
    rate: u128,
}

impl Cycles {
    pub(crate) fn of(head: &NodeHead) -> Cycles {
        let began = head.began.cycles.load(Relaxed);
        Cycles { began, began_ns: head.began.ns.load(Relaxed) }
    }

    /// The counter says `cycles` at `now`. A clock that was set back to before the node began
    /// makes the counter tell nothing.
    pub(crate) fn present(&self, cycles: u64, now: Timestamp) -> Present {
        let began = i128::from(self.began_ns);
        let end = i128::from(now.seconds) * i128::from(NS) + i128::from(now.nanoseconds);
        let ran_ns = u64::try_from(end - began).unwrap_or_default();
        let ran = if ran_ns == 0 { 0 } else { cycles.saturating_sub(self.began) };
        let rate = (u128::from(ran_ns) << RATE_SHIFT).checked_div(u128::from(ran));
        Present { cycles, now, ran, rate: rate.unwrap_or_default() }
    }
}

impl Present {
    /// The time when the counter said `then`: not before the node began, and not later than now.
    pub(crate) fn time(&self, then: u64) -> Timestamp {
        let ago = self.cycles.saturating_sub(then).min(self.ran);
        // No more than the node has run.
        before(self.now, ((u128::from(ago) * self.rate) >> RATE_SHIFT) as u64)
    }
}

/// The time so many nanoseconds before another one.
fn before(now: Timestamp, ago_ns: u64) -> Timestamp {
    let (seconds, ns) = ((ago_ns / NS) as i64, (ago_ns % NS) as u32);
    let seconds = now.seconds.saturating_sub(seconds);
    match now.nanoseconds.checked_sub(ns) {
        Some(nanoseconds) => Timestamp { seconds, nanoseconds },
        None => Timestamp {
            seconds: seconds.saturating_sub(1),
            nanoseconds: NS as u32 - ns + now.nanoseconds,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 2_000_000_000;

    fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }

    #[test]
    fn the_time_of_a_post_is_found_from_the_counter() {
        let clock = Cycles { began: 7 * SECOND, began_ns: 100 * NS };
        let present = clock.present(17 * SECOND, at(110, 0));
        assert_eq!(present.time(17 * SECOND), at(110, 0));
        assert_eq!(present.time(16 * SECOND + SECOND / 4), at(109, 250_000_000));
        assert_eq!(present.time(0), at(100, 0), "nothing was submitted before the node began");
        assert_eq!(
            present.time(18 * SECOND),
            at(110, 0),
            "nor is anything submitted later than now"
        );
    }

    #[test]
    fn a_second_ends_between_a_post_and_now() {
        let clock = Cycles { began: 0, began_ns: 0 };
        let present = clock.present(17 * SECOND, at(17, 0));
        assert_eq!(present.time(17 * SECOND - 2), at(16, 999_999_999));
        assert_eq!(present.time(16 * SECOND), at(16, 0));
        let present = clock.present(17 * SECOND, at(17, 5));
        assert_eq!(present.time(17 * SECOND - 20), at(16, 999_999_995));
    }

    /// The counter ran for a year, and what was submitted is a second old at most.
    #[test]
    fn a_counter_that_ran_for_long_tells_nanoseconds() {
        let clock = Cycles { began: 0, began_ns: 0 };
        let year = 365 * 24 * 3600;
        let present = clock.present(year * SECOND, at(year as i64, 0));
        assert_eq!(present.time(year * SECOND - SECOND), at(year as i64 - 1, 0));
        assert_eq!(present.time(0), at(0, 0));
    }

    #[test]
    fn a_clock_that_was_set_back_tells_the_present() {
        let clock = Cycles { began: 7 * SECOND, began_ns: 100 * NS };
        assert_eq!(clock.present(9 * SECOND, at(50, 3)).time(8 * SECOND), at(50, 3));
        assert_eq!(clock.present(9 * SECOND, at(100, 0)).time(8 * SECOND), at(100, 0));
        let began = clock.present(7 * SECOND, at(101, 0));
        assert_eq!(began.time(7 * SECOND - 1), at(101, 0), "nothing to tell time by yet");
    }
}
