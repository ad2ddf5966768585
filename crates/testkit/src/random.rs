//! Reproducible choices for the suites that disturb an instance.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A xorshift generator. Its seed is `MAYFLY_TEST_SEED`, or new each time and then printed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for `purpose`, which the printed seed names.
    pub fn for_suite(purpose: &str) -> Self {
        let given = std::env::var("MAYFLY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(clock_nanoseconds);
        eprintln!("{purpose}: MAYFLY_TEST_SEED={seed}");
        Self(seed | 1)
    }

    /// The next number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// A time from `low_ms` to `high_ms`.
    pub fn pause(&mut self, low_ms: u64, high_ms: u64) -> Duration {
        Duration::from_millis(low_ms + self.below(high_ms - low_ms + 1))
    }
}

fn clock_nanoseconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ now.as_secs()
}
