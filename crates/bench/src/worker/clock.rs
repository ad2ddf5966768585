//! The clock of a phase: one reading for each call, no allocation, no system call.

use anyhow::Result;
use nix::{
    sys::resource::{Usage, UsageWho, getrusage},
    sys::time::TimeValLike,
    time::{ClockId, clock_gettime},
};

use crate::{report::latency::Latencies, workloads::step::Share};

/// What has been timed so far.
#[derive(Default)]
pub(super) struct Clock {
    last_ns: u64,
    latencies: Latencies,
    share: Share,
    before: Option<Usage>,
}

/// The machine's clock: the same in all processes, answered without a system call.
fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

impl Clock {
    pub(super) fn start(&mut self) -> Result<()> {
        self.before = Some(getrusage(UsageWho::RUSAGE_SELF)?);
        self.last_ns = now_ns()?;
        self.share.start_ns = self.last_ns;
        Ok(())
    }

    /// A call is over that began where the last lap or pause ended.
    #[inline]
    pub(super) fn lap(&mut self) -> Result<()> {
        let now = now_ns()?;
        self.latencies.record(now - self.last_ns);
        self.last_ns = now;
        self.share.ops += 1;
        Ok(())
    }

    /// Time from the start to the last reading, nanoseconds.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.last_ns - self.share.start_ns
    }

    /// What happened since the last lap was no operation, but is the file system's time: the open
    /// and the close around transfers.
    #[inline]
    pub(super) fn split(&mut self) -> Result<()> {
        self.last_ns = now_ns()?;
        Ok(())
    }

    /// What happened since the last lap was the worker's own.
    #[inline]
    pub(super) fn aside(&mut self) -> Result<()> {
        let now = now_ns()?;
        self.share.aside_ns += now - self.last_ns;
        self.last_ns = now;
        Ok(())
    }

    /// Somebody else timed a call since the last reading, as so many nanoseconds; the rest was the
    /// worker's own.
    pub(super) fn took(&mut self, ns: u64) -> Result<()> {
        let now = now_ns()?;
        self.latencies.record(ns);
        self.share.aside_ns += (now - self.last_ns).saturating_sub(ns);
        self.last_ns = now;
        self.share.ops += 1;
        Ok(())
    }

    /// Bytes that the last call moved.
    #[inline]
    pub(super) fn moved(&mut self, bytes: u64) {
        self.share.bytes += bytes;
    }

    /// Stops and gives what there is to say.
    pub(super) fn end(mut self) -> Result<Share> {
        self.share.end_ns = now_ns()?;
        let after = getrusage(UsageWho::RUSAGE_SELF)?;
        if let Some(before) = self.before {
            let spent = |end: i64, start: i64| u64::try_from(end - start).unwrap_or(0);
            let user = |usage: &Usage| usage.user_time().num_microseconds();
            let system = |usage: &Usage| usage.system_time().num_microseconds();
            self.share.user_us = spent(user(&after), user(&before));
            self.share.system_us = spent(system(&after), system(&before));
        }
        self.share.latencies = self.latencies.pairs();
        Ok(self.share)
    }
}
