//! x86-64: the system-call instruction. Everything that depends on the processor in this crate.

use core::arch::asm;

/// Issues system call `number` with up to six arguments; returns the kernel's raw result.
///
/// # Safety
/// The arguments must be what the kernel expects for this call; pointers must be valid for what the
/// call does with them, and the call must not change the thread's stack or control flow.
#[inline]
pub unsafe fn syscall6(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; rcx and r11 are what `syscall` overwrites.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// As [`syscall6`] with three arguments.
///
/// # Safety
/// As [`syscall6`].
#[inline]
pub unsafe fn syscall3(number: usize, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: passed on to the caller.
    unsafe { syscall6(number, a, b, c, 0, 0, 0) }
}

/// A hint that this is a spin loop.
#[inline]
pub fn pause() {
    core::hint::spin_loop();
}

/// The processor's cycle counter: monotonic enough to bound a spin, never to tell time.
#[inline]
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: rdtsc reads a counter and has no other effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}
