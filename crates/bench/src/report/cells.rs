//! Figures as they stand in a table: three digits say enough.

use super::statistics::Summary;

/// A figure with at most three digits and a unit of thousands: `987`, `12.3k`, `4.56M`.
pub(super) fn short(figure: f64) -> String {
    const UNITS: [&str; 4] = ["", "k", "M", "G"];
    let (mut value, mut unit) = (figure, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if value >= 99.5 => 0,
        _ if value >= 9.95 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", UNITS[unit])
}

/// Mean and deviation: `12.3k ±4%`.
pub(super) fn spread(summary: &Summary) -> String {
    format!("{} ±{:.0}%", short(summary.mean), summary.relative_deviation() * 100.0)
}

/// Median, least and most: `1.52 (1.40–1.61)`.
pub(super) fn ratio(summary: &Summary) -> String {
    format!("{:.2} ({:.2}–{:.2})", summary.median, summary.min, summary.max)
}

/// MiB, rounded.
pub(super) fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.0, 1.234, 12.34, 123.4, 999.6, 12_345.0, 1_234_567.0].map(short);
        assert_eq!(shown, ["0.00", "1.23", "12.3", "123", "1.00k", "12.3k", "1.23M"]);
    }
}
