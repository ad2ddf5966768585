//! Which handler the host wants for each signal, as our wrapper stands for it in the kernel.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Highest signal number.
pub(crate) const SIGNALS_MAX: usize = 64;
/// What is sent is ignored.
pub(crate) const SIG_IGN: usize = 1;
/// Interrupted calls are to be issued again.
pub(crate) const SA_RESTART: usize = 0x1000_0000;
/// The disposition is reset when the signal is delivered.
pub(crate) const SA_RESETHAND: usize = 0x8000_0000;
/// A flag of ours: the handler runs with SIGSEGV or SIGBUS blocked.
pub(crate) const BLOCKS_FAULTS: usize = 1 << 62;

/// What the host wants to be called.
struct Entry {
    handler: AtomicUsize,
    flags: AtomicUsize,
}

static TABLE: [Entry; SIGNALS_MAX + 1] =
    [const { Entry { handler: AtomicUsize::new(0), flags: AtomicUsize::new(0) } }; SIGNALS_MAX + 1];

/// Handler and flags of the host for a signal that our wrapper received.
#[inline(always)]
pub(crate) fn wanted(signal: usize) -> (usize, usize) {
    match TABLE.get(signal) {
        Some(entry) => (entry.handler.load(Ordering::Relaxed), entry.flags.load(Ordering::Relaxed)),
        None => (0, 0),
    }
}

/// SIGSEGV or SIGBUS was ignored when the program began.
pub(crate) fn begin_ignored(signal: usize) {
    want(signal, (SIG_IGN, 0));
}

/// Notes handler and flags of the host.
pub(crate) fn want(signal: usize, (handler, flags): (usize, usize)) {
    if let Some(entry) = TABLE.get(signal) {
        entry.handler.store(handler, Ordering::Relaxed);
        entry.flags.store(flags, Ordering::Relaxed);
    }
}
