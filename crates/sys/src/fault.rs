//! Routines that read or write memory of the host and survive a bad address (x86-64).
//!
//! They lie together, push nothing and are leaves, so a signal handler that finds the interrupted
//! instruction among them may let the thread go on at [`landing`], where they return a failure to
//! their caller. Without such a handler a bad address faults as anywhere else. A thread that has
//! the signal blocked would be ended by the kernel without the handler, so where that may be, it is
//! let in meanwhile.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{arch::syscall6, number};

core::arch::global_asm!(
    ".pushsection .text.mayfly_fault, \"ax\", @progbits",
    ".irp name, start, copy, scan, end, landing",
    ".globl mayfly_fault_\\name",
    ".hidden mayfly_fault_\\name",
    ".endr",
    ".p2align 4",
    "mayfly_fault_start:",
    // rdi to, rsi from, rdx bytes; rax: zero, or -1 after a fault.
    ".type mayfly_fault_copy, @function",
    "mayfly_fault_copy:",
    ".cfi_startproc",
    "mov rcx, rdx",
    "cmp rdx, 384",
    "jae 4f",
    "shr rcx, 3",
    "je 2f",
    "1: mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "dec rcx",
    "jne 1b",
    "2: and edx, 7",
    "je 5f",
    "3: movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec edx",
    "jne 3b",
    "jmp 5f",
    "4: rep movsb",
    "5: xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    // rdi text, rsi limit; rax: length, at least the limit when no zero was met, -1 after a fault;
    // rdx: whether two slashes, or a slash and a dot, stand side by side.
    //
    // Reads aligned words, so never beyond the page of the zero.
    ".type mayfly_fault_scan, @function",
    "mayfly_fault_scan:",
    ".cfi_startproc",
    "pxor xmm0, xmm0",
    "mov eax, 0x2f2f2f2f",
    "movd xmm1, eax",
    "pshufd xmm1, xmm1, 0",
    "mov eax, 0x2e2e2e2e",
    "movd xmm2, eax",
    "pshufd xmm2, xmm2, 0",
    "xor edx, edx",
    "xor r10d, r10d",
    "mov r8, rdi",
    "mov ecx, edi",
    "and ecx, 15",
    "and rdi, -16",
    "mov eax, -1",
    "shl eax, cl",
    "movd xmm6, eax",
    "2: movdqa xmm3, [rdi]",
    "movdqa xmm4, xmm3",
    "pcmpeqb xmm4, xmm0",
    "movdqa xmm5, xmm3",
    "pcmpeqb xmm5, xmm1",
    "pcmpeqb xmm3, xmm2",
    "por xmm3, xmm5",
    "pmovmskb eax, xmm4",
    "pmovmskb r9d, xmm5",
    "pmovmskb r11d, xmm3",
    // Nothing in front of the text counts.
    "movd ecx, xmm6",
    "and eax, ecx",
    "and r9d, ecx",
    "lea ecx, [r9 * 2 + r10]",
    "and ecx, r11d",
    "mov r10d, r9d",
    "shr r10d, 15",
    "test eax, eax",
    "jne 3f",
    "or edx, ecx",
    "pcmpeqd xmm6, xmm6",
    "add rdi, 16",
    "mov rax, rdi",
    "sub rax, r8",
    "cmp rax, rsi",
    "jb 2b",
    "ret",
    // Nothing behind the zero counts.
    "3: mov r9d, eax",
    "dec r9d",
    "mov r11d, eax",
    "not r11d",
    "and r9d, r11d",
    "and ecx, r9d",
    "or edx, ecx",
    "bsf eax, eax",
    "add rax, rdi",
    "sub rax, r8",
    "ret",
    ".cfi_endproc",
    "mayfly_fault_end:",
    "mayfly_fault_landing:",
    ".cfi_startproc",
    "mov rax, -1",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

/// What is known of a zero-terminated string of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Scanned {
    /// Bytes before the zero; at least the limit when there is none in front of it; [`FAULT`].
    pub(crate) length: usize,
    /// Not zero: two slashes, or a slash and a dot, stand side by side.
    pub(crate) odd: usize,
}

/// The length that says that the address was bad.
pub(crate) const FAULT: usize = usize::MAX;

// SAFETY: defined above; what they need of their arguments stands there.
unsafe extern "C" {
    safe fn mayfly_fault_start();
    safe fn mayfly_fault_end();
    safe fn mayfly_fault_landing();
    fn mayfly_fault_copy(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn mayfly_fault_scan(text: *const u8, limit: usize) -> Scanned;
}

/// The address at which a thread goes on that faulted at `rip`, when that is in these routines.
#[inline(always)]
#[must_use]
pub fn landing(rip: usize) -> Option<usize> {
    let routines = mayfly_fault_start as *const () as usize..mayfly_fault_end as *const () as usize;
    routines.contains(&rip).then_some(mayfly_fault_landing as *const () as usize)
}

/// Some thread of the host may have SIGSEGV or SIGBUS blocked: a bad address would end it.
static BLOCKED: AtomicBool = AtomicBool::new(false);

/// The two signals, as bits of a mask.
pub const FAULTS: u64 = 1 << (11 - 1) | 1 << (7 - 1);

/// From now on this thread's mask is looked at before memory of the host is touched.
#[inline(always)]
pub fn may_be_blocked() {
    BLOCKED.store(true, Ordering::Relaxed);
}

/// Where the scope stands on its thread's stack in which the two signals are let in; 0 for none.
static SCOPE: AtomicUsize = AtomicUsize::new(0);
/// What is called in a scope lies so far below it on the stack at most, and no other thread's stack
/// does.
const SCOPE_BYTES: usize = 8192;

/// The two signals can reach this thread until it is dropped, for a call that touches the host's
/// memory many times.
#[derive(Debug)]
pub struct Scope {
    _open: Option<Open>,
    place: usize,
}

/// Begins a scope at the caller's place on the stack.
#[inline(never)]
#[must_use]
pub fn scope() -> Scope {
    let mark = 0_u8;
    let place = (&raw const mark).addr();
    let open = Open::now();
    SCOPE.store(place, Ordering::Relaxed);
    Scope { _open: open, place }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Another thread's began meanwhile: that one stays.
        let _ = SCOPE.compare_exchange(self.place, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whoever began the scope is gone: a process that ran in this memory.
pub fn forget_scope() {
    SCOPE.store(0, Ordering::Relaxed);
}

/// Is the caller called in a scope?
#[inline(never)]
fn is_in_scope() -> bool {
    let mark = 0_u8;
    let here = (&raw const mark).addr();
    // A call that is made in the scope may stand above where that was begun, by its frame.
    SCOPE.load(Ordering::Relaxed).wrapping_add(SCOPE_BYTES / 8).wrapping_sub(here) < SCOPE_BYTES
}

/// The two signals can reach this thread until it is dropped.
#[derive(Debug)]
struct Open(u64);

impl Open {
    #[inline(always)]
    fn now() -> Option<Open> {
        if BLOCKED.load(Ordering::Relaxed) && !is_in_scope() { Open::made() } else { None }
    }

    #[cold]
    fn made() -> Option<Open> {
        let mut before = 0;
        change_mask(SIG_UNBLOCK, FAULTS, &mut before);
        let blocked = before & FAULTS;
        // One that has nothing to block again would ask the kernel to when it is dropped.
        (blocked != 0).then(|| Open(blocked))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        change_mask(SIG_BLOCK, self.0, &mut 0);
    }
}

const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;

fn change_mask(how: usize, mask: u64, before: &mut u64) {
    const MASK_BYTES: usize = size_of::<u64>();
    let (mask, before) = (&raw const mask as usize, &raw mut *before as usize);
    // SAFETY: both masks outlive the call.
    unsafe { syscall6(number::RT_SIGPROCMASK, how, mask, before, MASK_BYTES, 0, 0) };
}

/// Copies; false when an address was bad, and some of it may have been copied then.
///
/// # Safety
/// The two do not overlap. What is mapped of them may be read and written.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> bool {
    let _open = Open::now();
    // SAFETY: passed on to the caller.
    unsafe { mayfly_fault_copy(to, from, bytes) == 0 }
}

/// Looks for the end of a string, up to about `limit`.
///
/// # Safety
/// `text` is what the host takes for a string; what is mapped of it may be read.
pub(crate) unsafe fn scan(text: *const u8, limit: usize) -> Scanned {
    let _open = Open::now();
    // SAFETY: passed on to the caller.
    unsafe { mayfly_fault_scan(text, limit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(text: &[u8]) -> bool {
        text.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
    }

    #[test]
    fn a_scan_finds_end_and_oddities_at_every_alignment() {
        let texts: [&[u8]; 9] = [
            b"",
            b"/",
            b"/usr/bin/env",
            b"/usr//bin",
            b"/usr/./a-long-name-that-fills-a-word",
            b"abcdefghijklmno//",
            b"abcdefghijklmno/.",
            b"a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t",
            b"./a.b/..",
        ];
        for text in texts {
            for shift in 0..40 {
                let mut room = [b'/'; 160];
                room[shift..shift + text.len()].copy_from_slice(text);
                room[shift + text.len()] = 0;
                // SAFETY: the string ends inside the array.
                let found = unsafe { scan(room.as_ptr().add(shift), 4096) };
                assert_eq!(found.length, text.len(), "{shift}");
                assert_eq!(found.odd != 0, naive(text), "{shift} {text:?}");
            }
        }
    }

    #[test]
    fn a_scan_ends_near_its_limit() {
        let room = [b'a'; 256];
        // SAFETY: the array is longer than the limit and what an aligned word adds.
        let found = unsafe { scan(room.as_ptr(), 100) };
        assert!((100..116).contains(&found.length));
    }

    #[test]
    fn copies_of_every_length_are_exact() {
        let from: [u8; 1000] = core::array::from_fn(|at| at as u8 | 1);
        for bytes in (0..40).chain([383, 384, 385, 1000]) {
            let mut to = [0; 1000];
            // SAFETY: both arrays have that many bytes.
            assert!(unsafe { copy(to.as_mut_ptr(), from.as_ptr(), bytes) });
            assert!(to[..bytes] == from[..bytes] && to[bytes..].iter().all(|byte| *byte == 0));
        }
    }
}
