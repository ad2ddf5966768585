//! Numbers of repetitions.

/// The one in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Median and span.
pub(crate) fn span(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2} ({least:.2}–{most:.2})", median(values))
}

/// Prints a row of two sides and their ratios.
pub(crate) fn row(name: &str, unit: &str, ours: &[f64], others: &[f64]) {
    let ratios: Vec<f64> = ours.iter().zip(others).map(|(ours, other)| ours / other).collect();
    println!(
        "| {name} | {:.1} {unit} | {:.1} {unit} | {} |",
        median(ours),
        median(others),
        span(&ratios)
    );
}

/// The numbers of the lines `NAME NUMBER` with this name.
pub(crate) fn numbers(text: &str, name: &str) -> Vec<f64> {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().filter_map(of).collect()
}
