//! Figures of several runs: mean, deviation, median, spread; and the rate of one run.

use serde::{Deserialize, Serialize};

use crate::workloads::step::Share;

/// Several figures of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub runs: usize,
    /// Their mean.
    pub mean: f64,
    /// Sample standard deviation; 0 for one run.
    pub deviation: f64,
    /// Their median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of these figures; `None` for no figure.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Summary> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|figure| (figure - mean).powi(2)).sum();
        let deviation = if sorted.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Some(Summary { runs: sorted.len(), mean, deviation, median: median(&sorted), min, max })
    }

    /// The deviation as a part of the mean.
    #[must_use]
    pub fn relative_deviation(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.deviation / self.mean }
    }
}

fn median(sorted: &[f64]) -> f64 {
    let upper = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[upper]
    } else {
        f64::midpoint(sorted[upper - 1], sorted[upper])
    }
}

/// How long a phase took, seconds: from the first start to the last end, so that the slowest
/// process ends it, as in mdtest and IOR. Time that a worker spent on patterns is not the file
/// system's and is taken from that worker's end.
pub(crate) fn elapsed_s(shares: &[Share]) -> f64 {
    let start = shares.iter().map(|share| share.start_ns).min().unwrap_or(0);
    let end = shares.iter().map(|share| share.end_ns.saturating_sub(share.aside_ns)).max();
    // A phase without an operation still took some time; nothing divides by zero.
    end.unwrap_or(0).saturating_sub(start).max(1) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_deviation_and_median_are_those_of_the_textbook() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("figures");
        assert_eq!((summary.mean, summary.median), (5.0, 4.5));
        assert!((summary.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((summary.min, summary.max, summary.runs), (2.0, 9.0, 8));
        assert_eq!(Summary::of(&[3.0]).expect("a figure").deviation, 0.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn the_slowest_process_ends_a_phase_and_patterns_are_not_counted() {
        let share =
            |start_ns, end_ns, aside_ns| Share { start_ns, end_ns, aside_ns, ..Share::default() };
        let shares =
            [share(1_000, 2_000_001_000, 0), share(500_001_000, 3_000_001_000, 500_000_000)];
        assert!((elapsed_s(&shares) - 2.5).abs() < 1e-9);
        assert!(elapsed_s(&[]) > 0.0);
    }
}
