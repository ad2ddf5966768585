//! What a node's processes did, when.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Relaxed},
};

use super::{Done, Kind, LONG_PERIODS, LONG_SHIFT, SHORT_PERIODS, SHORT_SHIFT};

/// What was done in a period, by the samples.
#[repr(C)]
pub struct Period {
    /// The period's number plus one; 0: none.
    pub number: AtomicU64,
    /// Operations.
    pub operations: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
}

/// What a node's processes did, when.
#[repr(C)]
pub struct Timeline {
    /// The latest periods.
    pub short: [Period; SHORT_PERIODS],
    /// Longer ones of a longer time.
    pub long: [Period; LONG_PERIODS],
}

impl Timeline {
    pub(super) fn add(&self, at: u64, operations: u64, done: &Done<'_>) {
        let bytes = done.bytes as u64 * operations;
        let (read, written) = match done.kind {
            Kind::Read => (bytes, 0),
            Kind::Write => (0, bytes),
            _ => (0, 0),
        };
        let lines = [(&self.short[..], SHORT_SHIFT), (&self.long[..], LONG_SHIFT)];
        for (periods, shift) in lines {
            let number = at >> shift;
            let period = &periods[number as usize % periods.len()];
            period.renew(number + 1);
            period.operations.fetch_add(operations, Relaxed);
            period.read_bytes.fetch_add(read, Relaxed);
            period.written_bytes.fetch_add(written, Relaxed);
        }
    }
}

impl Period {
    /// Empties the place for its next period. Who comes first does; what comes at that very moment
    /// may be lost.
    fn renew(&self, number: u64) {
        let before = self.number.load(Relaxed);
        let ours = before < number
            && self.number.compare_exchange(before, number, AcqRel, Relaxed).is_ok();
        if ours && before != 0 {
            for counter in [&self.operations, &self.read_bytes, &self.written_bytes] {
                counter.store(0, Relaxed);
            }
        }
    }
}
