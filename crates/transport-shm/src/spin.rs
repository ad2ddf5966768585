//! How long to spin before sleeping, learnt from what spinning brought lately.
//!
//! A spin that ends with the answer saves two context switches; one that does not steals the
//! processor from whoever was to give the answer. So the credit grows with each success and shrinks
//! faster with each failure; without credit only every sixteenth wait tries again. Who may run on a
//! single processor, and cannot tell whether the daemon runs there too, never tries: nobody could
//! answer meanwhile.
//!
//! To yield the processor is another attempt with a credit of its own: with many threads to each
//! processor the answer is often there when it is this one's turn again; with one client and the
//! daemon on a processor the kernel goes on with whoever yields.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use mayfly_sys::arch::cycles;

const CREDIT_MAX: i32 = 8;
const PROBE_EVERY: u32 = 16;
/// Cycles of a full spin: some 30 µs at 3 GHz, as long as it takes to sleep and be woken. A request
/// that only touches metadata takes one or two, but some find the daemon's thread or its memory
/// cold; and whoever is woken may be put on the daemon's processor, and stay there.
pub(crate) const REPLY_CYCLES: u64 = 80_000;
/// Cycles of a full spin for a place in a ring, some 70 µs: the daemon frees places when it has
/// executed a quarter of what a ring holds, which takes half as long where nothing disturbs it.
/// Whoever gave up just then would ask, and have to be woken.
pub(crate) const PLACE_CYCLES: u64 = 160_000;
/// Cycles of a wait for a daemon that is being moved: some 100 µs. The kernel takes half as long in
/// a virtual machine, and everything is cold then.
const ARRIVAL_CYCLES: u64 = 260_000;

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
    longest: u64,
    alone: bool,
}

impl Spin {
    /// Spins for so many cycles, unless nobody else can run meanwhile.
    pub(crate) fn new(alone: bool, longest: u64) -> Spin {
        Spin { credit: Credit::new(), longest, alone }
    }

    /// Spins until `done` says so, within the budget that began at `start` cycles; true when it
    /// did.
    pub(crate) fn until(&self, start: u64, mut done: impl FnMut() -> bool) -> bool {
        if self.alone || !self.credit.worth_trying() {
            return false;
        }
        self.credit.note(spin(start, self.longest, &mut done))
    }

    /// Spins until `done` says so, or until a daemon on its way must have come; true when it did.
    pub(crate) fn until_arrival(&self, start: u64, mut done: impl FnMut() -> bool) -> bool {
        !self.alone && spin(start, ARRIVAL_CYCLES, &mut done)
    }
}

/// Who was kept from the processor since `start`, by the daemon perhaps, which then moved away,
/// has not spun yet: its time begins with the first looks.
fn spin(start: u64, longest: u64, done: &mut impl FnMut() -> bool) -> bool {
    let mut begun = None;
    loop {
        for _ in 0..16 {
            if done() {
                return true;
            }
            mayfly_sys::arch::pause();
        }
        let now = cycles();
        let is_late = now.wrapping_sub(start) > longest;
        if now.wrapping_sub(*begun.get_or_insert(if is_late { now } else { start })) > longest {
            return false;
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
        let spin = Spin::new(false, REPLY_CYCLES);
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
    fn a_daemon_on_its_way_is_waited_for_without_credit() {
        let spin = Spin::new(false, REPLY_CYCLES);
        (0..160).for_each(|_| assert!(!spin.until(cycles(), || false)));
        let mut looks = 0;
        assert!(spin.until_arrival(cycles(), || {
            looks += 1;
            looks > 20
        }));
        assert!(
            !Spin::new(true, REPLY_CYCLES).until_arrival(cycles(), || true),
            "it could not arrive"
        );
    }

    /// The daemon ran in between, on this processor, and moved to another one; the thread slept at
    /// once then, and was woken on the daemon's new processor: each such move was in vain.
    #[test]
    fn a_thread_that_was_kept_from_the_processor_spins_all_the_same() {
        let spin = Spin::new(false, REPLY_CYCLES);
        let long_ago = cycles().wrapping_sub(100 * ARRIVAL_CYCLES);
        for looks_needed in [20, 200] {
            let mut looks = 0;
            let mut came = || {
                looks += 1;
                looks > looks_needed
            };
            assert!(spin.until_arrival(long_ago, &mut came));
            looks = 0;
            assert!(spin.until(long_ago, || {
                looks += 1;
                looks > looks_needed
            }));
        }
        assert!(!spin.until(long_ago, || false), "not for ever");
    }

    #[test]
    fn who_is_alone_never_spins() {
        let spin = Spin::new(true, REPLY_CYCLES);
        let mut looks = 0;
        assert!(!spin.until(cycles(), || {
            looks += 1;
            false
        }));
        assert_eq!(looks, 0);
    }
}
