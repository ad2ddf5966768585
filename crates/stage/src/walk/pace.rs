//! No more than so many bytes and files a second.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// What has not been used for so long is lost, so that a pause is followed by no burst.
const SAVED: Duration = Duration::from_millis(100);
/// Whoever waits looks so often whether the stage has ended.
const NAP: Duration = Duration::from_millis(50);

/// One limit.
#[derive(Debug)]
struct Meter {
    /// Units a second.
    rate: AtomicU64,
    /// When what was granted so far is used up.
    until: Mutex<Instant>,
}

impl Meter {
    fn new(rate: u64) -> Meter {
        Meter { rate: AtomicU64::new(rate.max(1)), until: Mutex::new(Instant::now()) }
    }

    /// When these units may be used.
    fn book(&self, units: u64, now: Instant) -> Instant {
        let Ok(mut until) = self.until.lock() else { return now };
        let begin = (*until).max(now.checked_sub(SAVED).unwrap_or(now));
        *until = begin + Duration::from_secs_f64(units as f64 / self.rate.load(Relaxed) as f64);
        begin
    }
}

/// Both limits.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bytes: Option<Meter>,
    files: Option<Meter>,
}

impl Pace {
    pub(crate) fn new(bandwidth: Option<u64>, files_per_second: Option<u64>) -> Pace {
        Pace { bytes: bandwidth.map(Meter::new), files: files_per_second.map(Meter::new) }
    }

    /// So many bytes a second from here on, if there is a limit at all.
    pub(crate) fn limit_bytes(&self, rate: u64) {
        if let Some(meter) = &self.bytes {
            meter.rate.store(rate.max(1), Relaxed);
        }
    }

    /// Waits until a file may be begun.
    pub(crate) fn file(&self, is_over: impl Fn() -> bool) {
        wait(self.files.as_ref(), 1, is_over);
    }

    /// Waits until so many bytes may be moved.
    pub(crate) fn bytes(&self, bytes: u64, is_over: impl Fn() -> bool) {
        wait(self.bytes.as_ref(), bytes, is_over);
    }
}

fn wait(meter: Option<&Meter>, units: u64, is_over: impl Fn() -> bool) {
    let Some(meter) = meter else { return };
    let when = meter.book(units, Instant::now());
    while let Some(left) =
        when.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        if is_over() {
            return;
        }
        thread::sleep(left.min(NAP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_booked_takes_its_time_however_many_book() {
        let meter = Meter::new(1000);
        let now = Instant::now();
        let begins: Vec<Instant> = (0..5).map(|_| meter.book(100, now)).collect();
        for pair in begins.windows(2) {
            assert_eq!(pair[1] - pair[0], Duration::from_millis(100));
        }
    }

    #[test]
    fn a_pause_is_followed_by_no_burst() {
        let meter = Meter::new(1000);
        let later = Instant::now() + Duration::from_secs(60);
        meter.book(100, later);
        assert!(meter.book(1, later) >= later);
    }
}
