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

/// Adds to a counter by one instruction without a lock. A thread that is interrupted loses nothing;
/// of two that add on two processors at the same moment one may be lost.
#[inline]
pub fn add_unlocked(counter: &core::sync::atomic::AtomicU64, more: u64) {
    // SAFETY: the counter is a word that may be written by any number of threads at any time, and
    // the instruction writes nothing else.
    unsafe {
        asm!(
            "add qword ptr [{counter}], {more}",
            counter = in(reg) counter.as_ptr(), more = in(reg) more,
            options(nostack)
        );
    }
}

/// A hint that this is a spin loop.
#[inline]
pub fn pause() {
    core::hint::spin_loop();
}

/// When and where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// As [`cycles`].
    pub cycles: u64,
    /// Number of the processor plus one; 0: not known. A hint: the thread may be elsewhere by now.
    pub processor: u32,
}

/// How to learn the moment: some processors tell their number with the counter, by RDTSCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    has_processor: bool,
}

impl Moments {
    /// Asks the processor what it can. On a virtual machine that takes as long as several requests.
    #[must_use]
    pub fn find() -> Moments {
        const RDTSCP: u32 = 1 << 27;
        // Every processor with 64-bit mode has that leaf.
        Moments { has_processor: core::arch::x86_64::__cpuid(0x8000_0001).edx & RDTSCP != 0 }
    }

    /// Takes somebody's word for what [`Moments::has_processor`] would say.
    ///
    /// # Safety
    /// `has_processor` only when a processor of this machine has said so.
    #[must_use]
    pub unsafe fn known(has_processor: bool) -> Moments {
        Moments { has_processor }
    }

    /// Is the number of the processor told?
    #[must_use]
    pub fn has_processor(self) -> bool {
        self.has_processor
    }

    /// Now and here.
    #[inline]
    #[must_use]
    pub fn now(self) -> Moment {
        if !self.has_processor {
            return Moment { cycles: cycles(), processor: 0 };
        }
        let mut place = 0;
        // SAFETY: the processor has the instruction; it writes to the word it is given.
        let cycles = unsafe { core::arch::x86_64::__rdtscp(&raw mut place) };
        // Linux keeps the number of the memory node above that of the processor.
        Moment { cycles, processor: (place & 0xfff) + 1 }
    }
}

/// The processor's cycle counter: monotonic enough to bound a spin, never to tell time.
#[inline]
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: rdtsc reads a counter and has no other effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}
