//! How long to spin before sleeping, learnt from what spinning brought lately.
//!
//! A spin that ends with the answer saves two context switches; one that does not steals the
//! processor from whoever was to give the answer. So the credit grows with each success and shrinks
//! faster with each failure; without credit only every sixteenth wait tries again. With a single
//! processor nobody can answer while we spin, and it is never tried.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

const CREDIT_MAX: i32 = 8;
const PROBE_EVERY: u32 = 16;
/// Cycles of a full spin: some 10 µs at 3 GHz. A request that only touches metadata takes one or
/// two.
const SPIN_CYCLES: u64 = 30_000;

/// The memory of past spins. Racy updates lose a count, no more.
#[derive(Debug)]
pub(crate) struct Spin {
    credit: AtomicI32,
    waits: AtomicU32,
    alone: bool,
}

impl Spin {
    /// For a thread that may run on `processors`.
    pub(crate) fn new(processors: u32) -> Spin {
        Spin { credit: AtomicI32::new(CREDIT_MAX), waits: AtomicU32::new(0), alone: processors < 2 }
    }

    /// Spins until `done` says so, within the budget; true when it did.
    pub(crate) fn until(&self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        if self.alone || !self.worth_trying() {
            return false;
        }
        let start = mayfly_sys::arch::cycles();
        loop {
            for _ in 0..16 {
                if done() {
                    self.credit.store((self.credit.load(Relaxed) + 1).min(CREDIT_MAX), Relaxed);
                    return true;
                }
                mayfly_sys::arch::pause();
            }
            if mayfly_sys::arch::cycles().wrapping_sub(start) > SPIN_CYCLES {
                self.credit.store((self.credit.load(Relaxed) - 3).max(0), Relaxed);
                return false;
            }
        }
    }

    fn worth_trying(&self) -> bool {
        self.credit.load(Relaxed) > 0
            || self.waits.fetch_add(1, Relaxed).is_multiple_of(PROBE_EVERY)
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
            spin.until(|| {
                looks += 1;
                false
            });
            looks > 1
        };
        assert!(tried(&spin));
        let spun = (0..160).filter(|_| tried(&spin)).count();
        assert!((9..20).contains(&spun), "{spun} of 160");
    }

    #[test]
    fn a_single_processor_never_spins() {
        let spin = Spin::new(1);
        let mut looks = 0;
        assert!(!spin.until(|| {
            looks += 1;
            false
        }));
        assert_eq!(looks, 1);
    }
}
