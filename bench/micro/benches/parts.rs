//! How long each part takes: `cargo bench -p micro`.
#![allow(missing_docs, reason = "criterion's macros make functions")]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use micro::{lanes::RoundTrip, parts};

fn alone(criterion: &mut Criterion) {
    for part in parts() {
        criterion.bench_function(part.name, |bencher| {
            bencher.iter_custom(|count| {
                let start = Instant::now();
                (part.run)(count);
                start.elapsed()
            });
        });
    }
}

/// Client and server spin on two processors. With one of them busy these figures mean nothing.
fn together(criterion: &mut Criterion) {
    let pair = RoundTrip::new();
    let mut bytes = Vec::new();
    criterion.bench_function("round trip: ping", |bencher| bencher.iter(|| pair.ping()));
    criterion.bench_function("round trip: stat", |bencher| bencher.iter(|| pair.stat()));
    criterion.bench_function("round trip: read of 3,901 bytes", |bencher| {
        bencher.iter(|| pair.read(&mut bytes));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    targets = alone, together
}
criterion_main!(benches);
