//! Futexes on shared memory.

use core::sync::atomic::AtomicU32;

use crate::{Errno, arch::syscall6, number, result};

const FUTEX_WAIT_BITSET: usize = 9;
const FUTEX_WAKE: usize = 1;
const ANY: usize = 0xffff_ffff;

/// Sleeps while `*word == expected`, until a wake-up or until `deadline_ns` of the monotonic clock.
///
/// # Errors
/// EAGAIN when the word differs already, EINTR, ETIMEDOUT.
pub fn wait(word: &AtomicU32, expected: u32, deadline_ns: Option<u64>) -> Result<(), Errno> {
    let until = deadline_ns.map(|ns| [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64]);
    let until_pointer = until.as_ref().map_or(core::ptr::null(), |time| time.as_ptr());
    // SAFETY: the word and the time specification outlive the call, which writes to neither.
    let raw = unsafe {
        syscall6(
            number::FUTEX,
            core::ptr::from_ref(word) as usize,
            FUTEX_WAIT_BITSET,
            expected as usize,
            until_pointer as usize,
            0,
            ANY,
        )
    };
    result(raw).map(|_| ())
}

/// Wakes up to `count` sleepers.
pub fn wake(word: &AtomicU32, count: u32) {
    // SAFETY: waking has no effect on memory.
    unsafe {
        syscall6(
            number::FUTEX,
            core::ptr::from_ref(word) as usize,
            FUTEX_WAKE,
            count as usize,
            0,
            0,
            0,
        );
    }
}
