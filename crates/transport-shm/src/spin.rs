//! How long to spin before sleeping, learnt from what spinning brought lately.
//!
//! A spin that ends with the answer saves two context switches; one that does not steals the
//! processor from whoever was to give the answer. So the credit grows with each success and shrinks
//! faster with each failure; without credit only every sixteenth wait tries again. With a single
//! processor nobody can answer while we spin, and it is never tried.
//!
//! To yield the processor is another attempt with a credit of its own: with many threads to each
//! processor the answer is often there when it is this one's turn again; with one client and the
//! daemon on a processor the kernel goes on with whoever yields.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use mayfly_sys::arch::cycles;

const CREDIT_MAX: i32 = 8;
const PROBE_EVERY: u32 = 16;
/// Cycles of a full spin: some 10 µs at 3 GHz. A request that only touches metadata takes one or
/// two.
const SPIN_CYCLES: u64 = 30_000;

/// The memory of past attempts. Racy updates lose a count, no more.
#[derive(Debug)]
struct Credit {
    left: AtomicI32,
    waits: AtomicU32,
}

impl Credit {
    fn new() -> Credit {
        Credit { left: AtomicI32::new(CREDIT_MAX), waits: AtomicU32::new(0) }
    }

    fn worth_trying(&self) -> bool {
        self.left.load(Relaxed) > 0 || self.waits.fetch_add(1, Relaxed).is_multiple_of(PROBE_EVERY)
    }

    /// Takes note of how it went, and passes that on.
    fn note(&self, paid: bool) -> bool {
        let left = self.left.load(Relaxed);
        self.left.store(if paid { (left + 1).min(CREDIT_MAX) } else { (left - 3).max(0) }, Relaxed);
        paid
    }
}

/// Looking again and again.
#[derive(Debug)]
pub(crate) struct Spin {
    credit: Credit,
    alone: bool,
}

impl Spin {
    /// For a thread that may run on `processors`.
    pub(crate) fn new(processors: u32) -> Spin {
        Spin { credit: Credit::new(), alone: processors < 2 }
    }

    /// Spins until `done` says so, within the budget that began at `start` cycles; true when it
    /// did.
    pub(crate) fn until(&self, start: u64, mut done: impl FnMut() -> bool) -> bool {
        if self.alone || !self.credit.worth_trying() {
            return false;
        }
        loop {
            for _ in 0..16 {
                if done() {
                    return self.credit.note(true);
                }
                mayfly_sys::arch::pause();
            }
            if cycles().wrapping_sub(start) > SPIN_CYCLES {
                return self.credit.note(false);
            }
        }
    }
}

/// Giving way a few times.
#[derive(Debug)]
pub(crate) struct Yield(Credit);

impl Yield {
    pub(crate) fn new() -> Yield {
        Yield(Credit::new())
    }

    /// Tries up to `times`; true when one of them said so.
    pub(crate) fn until(&self, times: u32, mut done: impl FnMut() -> bool) -> bool {
        self.0.worth_trying() && self.0.note((0..times).any(|_| done()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_that_fail_are_given_up_and_tried_again_now_and_then() {
        let spin = Spin::new(2);
        let tried = |spin: &Spin| {
            let mut looks = 0;
            spin.until(cycles(), || {
                looks += 1;
                false
            });
            looks > 0
        };
        assert!(tried(&spin));
        let spun = (0..160).filter(|_| tried(&spin)).count();
        assert!((9..20).contains(&spun), "{spun} of 160");
    }

    #[test]
    fn a_single_processor_never_spins() {
        let spin = Spin::new(1);
        let mut looks = 0;
        assert!(!spin.until(cycles(), || {
            looks += 1;
            false
        }));
        assert_eq!(looks, 0);
    }
}
