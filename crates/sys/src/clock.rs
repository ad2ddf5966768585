//! The clocks, by system call: the vdso is the host's.

use crate::{arch::syscall3, number};

const REALTIME: usize = 0;
const MONOTONIC: usize = 1;

/// Seconds since the epoch, and nanoseconds. Costs a system call.
#[must_use]
pub fn real() -> (i64, u32) {
    let mut time = [0_i64; 2];
    // SAFETY: the array has the size of a timespec and outlives the call.
    unsafe { syscall3(number::CLOCK_GETTIME, REALTIME, time.as_mut_ptr() as usize, 0) };
    (time[0], time[1] as u32)
}

/// Nanoseconds of the monotonic clock. Costs a system call; not for hot paths.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the array has the size of a timespec and outlives the call.
    unsafe { syscall3(number::CLOCK_GETTIME, MONOTONIC, time.as_mut_ptr() as usize, 0) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
