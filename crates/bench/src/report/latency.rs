//! Latencies of calls, and what becomes of them over processes and repetitions.
//!
//! A histogram with three significant digits over nanoseconds to minutes (`HdrHistogram`), in
//! constant memory that is there before the clock starts. On the pipe it is a list of values and
//! counts; merged over processes and repetitions it keeps its precision.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Calls that take longer are counted as this long: 20 minutes.
const LONGEST_NS: u64 = 1_200_000_000_000;
const DIGITS: u8 = 3;

/// How long calls took.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

/// What a table shows of them, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the calls took at most this long.
    pub p50_us: f64,
    /// 99 in 100.
    pub p99_us: f64,
    /// 999 in 1000.
    pub p999_us: f64,
    /// All.
    pub max_us: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let empty = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Latencies(empty.expect("the bounds are constants that fit"))
    }
}

impl Latencies {
    /// One call.
    pub(crate) fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    /// How many calls.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// As it goes over the pipe: values and their counts.
    pub(crate) fn pairs(&self) -> Vec<(u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// Adds what came over the pipe.
    pub(crate) fn merge(&mut self, pairs: &[(u64, u64)]) {
        for (nanos, count) in pairs {
            self.0.saturating_record_n(*nanos, *count);
        }
    }

    pub(crate) fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        Quantiles {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_histograms_are_those_of_all_calls() {
        let (mut one, mut other, mut all) =
            (Latencies::default(), Latencies::default(), Latencies::default());
        for nanos in 1..=1000_u64 {
            let half = if nanos % 2 == 0 { &mut one } else { &mut other };
            half.record(nanos * 1000);
            all.record(nanos * 1000);
        }
        let mut merged = Latencies::default();
        merged.merge(&one.pairs());
        merged.merge(&other.pairs());
        assert_eq!(merged.count(), 1000);
        assert_eq!(merged.quantiles(), all.quantiles());
        let quantiles = merged.quantiles();
        assert!((quantiles.p50_us - 500.0).abs() < 1.0, "{quantiles:?}");
        assert!((quantiles.p99_us - 990.0).abs() < 2.0, "{quantiles:?}");
        assert!((quantiles.max_us - 1000.0).abs() < 1.0, "{quantiles:?}");
    }

    #[test]
    fn a_call_of_hours_is_counted_and_not_lost() {
        let mut latencies = Latencies::default();
        latencies.record(LONGEST_NS * 10);
        latencies.record(0);
        assert_eq!(latencies.count(), 2);
    }
}
