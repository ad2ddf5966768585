//! Time, passed in, so that tests decide when a deadline has come.

use std::time::Instant;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some moment; never goes back.
    fn now_ns(&self) -> u64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    start: Instant,
}

impl Default for MonotonicClock {
    fn default() -> Self {
        MonotonicClock { start: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds of so many milliseconds.
pub(crate) const fn ms(count: u64) -> u64 {
    count.saturating_mul(1_000_000)
}
