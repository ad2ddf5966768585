//! Which threads have signals waiting for the end of a hook.
//!
//! A thread that defers a signal enters itself and the signal here; its own hook exit takes the
//! entry out again. Nobody else touches it, so there is no lock: a slot is claimed with one
//! compare-exchange, and a nested deferral that claims a second slot for the same thread does no
//! harm.
//!
//! The page is wiped on fork, since the child has one thread and none of its parent's signals
//! ([`crate::fork`]), and shared with the child of vfork, whose thread id differs.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mayfly_sys::interrupt::DEFERRED;
use mayfly_sys::number;

use crate::kernel;

/// Threads that can have deferred signals at one time. When all are taken, a signal is delivered at
/// once.
const THREADS_MAX: usize = 256;

/// Byte offset in [`Words`] of the counter of deferrals.
pub(crate) const SEQUENCE: usize = 8;

/// A page of its own, because fork wipes whole pages.
#[repr(C, align(4096))]
pub(crate) struct Words {
    /// Claimed slots. The hook's exit does nothing about signals while it is zero.
    live: AtomicU32,
    /// Zero in a child of fork that has not noticed yet.
    mark: AtomicU32,
    /// Counts deferrals: a hook's exit that finds it changed looks again.
    sequence: AtomicU64,
    threads: [AtomicU32; THREADS_MAX],
    masks: [AtomicU64; THREADS_MAX],
}

const _: () = assert!(core::mem::offset_of!(Words, live) == 0);
const _: () = assert!(core::mem::offset_of!(Words, sequence) == SEQUENCE);
const _: () = assert!(size_of::<Words>() == 4096);

/// The one table.
pub(crate) static WORDS: Words = Words {
    live: AtomicU32::new(0),
    mark: AtomicU32::new(0),
    sequence: AtomicU64::new(0),
    threads: [const { AtomicU32::new(0) }; THREADS_MAX],
    masks: [const { AtomicU64::new(0) }; THREADS_MAX],
};

/// The process whose memory this is; a child of vfork sees somebody else's.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Has the page wiped on fork.
pub(crate) fn set_up() {
    const MADV_WIPEONFORK: usize = 18;
    let page = core::ptr::from_ref(&WORDS) as usize;
    // SAFETY: the page is this library's own anonymous memory. Kernels before 4.14 refuse; then a
    // child may start with stale entries, which cost it a look at each hook.
    unsafe { mayfly_sys::arch::syscall3(number::MADVISE, page, 4096, MADV_WIPEONFORK) };
    notice_fork();
}

/// To be called at the beginning of every hook: in a child of fork, starts over.
#[inline]
pub(crate) fn notice_fork() {
    if WORDS.mark.load(Ordering::Relaxed) == 0 {
        WORDS.mark.store(1, Ordering::Relaxed);
        OWNER.store(kernel::process_id(), Ordering::Relaxed);
        forget_deferred();
    }
}

/// Brings the count that everybody looks at, which fork copies, in line with the page that it
/// wipes. A signal deferred between the two looks changes both: then they are taken again.
#[inline(never)]
fn forget_deferred() {
    let live = |_| Some(WORDS.live.load(Ordering::Relaxed));
    // It always says what to store.
    let _ = DEFERRED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, live);
}

/// Whether the caller runs in memory borrowed from its parent (a child of vfork).
pub(crate) fn in_borrowed_memory() -> bool {
    OWNER.load(Ordering::Relaxed) != kernel::process_id()
}

/// Notes that thread `tid` deferred `signal`; false when there is no slot.
pub(crate) fn add(tid: u32, signal: usize) -> bool {
    let free = |slot: &&AtomicU32| {
        slot.load(Ordering::Relaxed) == 0
            && slot.compare_exchange(0, tid, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    let own = |slot: &AtomicU32| slot.load(Ordering::Relaxed) == tid;
    let index = match WORDS.threads.iter().position(own) {
        Some(index) => index,
        None => {
            let Some(index) = WORDS.threads.iter().position(|slot| free(&slot)) else {
                return false;
            };
            WORDS.live.fetch_add(1, Ordering::Relaxed);
            DEFERRED.fetch_add(1, Ordering::Relaxed);
            index
        }
    };
    if let Some(mask) = WORDS.masks.get(index) {
        mask.fetch_or(1 << (signal - 1), Ordering::Relaxed);
    }
    WORDS.sequence.fetch_add(1, Ordering::Relaxed);
    true
}

/// The signals that the calling thread deferred, as a mask. They stay.
pub(crate) fn waiting() -> u64 {
    if WORDS.live.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    let tid = kernel::thread_id();
    let slots = WORDS.threads.iter().zip(&WORDS.masks);
    let own = slots.filter(|(thread, _)| thread.load(Ordering::Relaxed) == tid);
    own.fold(0, |all, (_, mask)| all | mask.load(Ordering::Relaxed))
}

/// Takes out the signals that the calling thread deferred, as a mask.
#[inline(always)]
pub(crate) fn take() -> u64 {
    if WORDS.live.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    let tid = kernel::thread_id();
    let mut taken = 0;
    for (thread, mask) in WORDS.threads.iter().zip(&WORDS.masks) {
        if thread.load(Ordering::Relaxed) == tid {
            taken |= mask.swap(0, Ordering::Relaxed);
            thread.store(0, Ordering::Relaxed);
            WORDS.live.fetch_sub(1, Ordering::Relaxed);
            DEFERRED.fetch_sub(1, Ordering::Relaxed);
        }
    }
    taken
}

/// Deferrals so far, in this process.
#[cfg(feature = "selftest")]
pub(crate) fn count() -> u64 {
    WORDS.sequence.load(Ordering::Relaxed)
}
