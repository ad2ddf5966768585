//! What is counted, and whether it is; below whatever counts.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use mayfly_sys::file;

use crate::descriptors::hidden;

/// Why a call ended as it did.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    /// Served, or issued from here because its failure would have needed a second look.
    Ours,
    /// The same, with an error.
    Failed,
    /// The text of the path told that it is the kernel's.
    Elsewhere,
    /// A longer look told that it is the kernel's, or both must know of it.
    Passed,
}

const REASONS: usize = 4;
pub(super) const NAMES: [&[u8]; REASONS] =
    [b"answered here", b"failed here", b"elsewhere by its path", b"passed"];
const ERRNOS: usize = 134;

static ON: AtomicBool = AtomicBool::new(false);
pub(super) static COUNTS: [AtomicU64; REASONS] = [const { AtomicU64::new(0) }; REASONS];
pub(super) static ERRORS: [AtomicU64; ERRNOS] = [const { AtomicU64::new(0) }; ERRNOS];

/// Libraries without an image.
pub(super) static UNSERVED: AtomicU32 = AtomicU32::new(0);

/// Another descriptor of standard error: many programs close theirs before they end.
pub(super) static STANDARD_ERROR: AtomicI32 = AtomicI32::new(-1);

/// Counts from now on.
pub(crate) fn turn_on() {
    ON.store(true, Ordering::Relaxed);
    if let Ok(copy) = file::control(2, file::F_DUPFD_CLOEXEC, 3)
        && let Ok(copy) = hidden::conceal(copy as i32)
    {
        STANDARD_ERROR.store(copy, Ordering::Relaxed);
    }
}

/// For the child of a fork.
pub(crate) fn reset() {
    STANDARD_ERROR.store(-1, Ordering::Relaxed);
    for count in COUNTS.iter().chain(&ERRORS) {
        count.store(0, Ordering::Relaxed);
    }
}

/// Is anything counted?
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Counts a reason.
pub(crate) fn note(reason: Reason) {
    if let Some(count) = COUNTS.get(reason as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
