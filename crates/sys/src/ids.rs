//! Which process and which thread this is.

use crate::{arch::syscall3, number};

/// The process.
#[must_use]
pub fn process_id() -> u32 {
    // SAFETY: touches no memory.
    unsafe { syscall3(number::GETPID, 0, 0, 0) as u32 }
}

/// The thread.
#[must_use]
pub fn thread_id() -> u32 {
    // SAFETY: touches no memory.
    unsafe { syscall3(number::GETTID, 0, 0, 0) as u32 }
}
