//! Where trampolines lead: saves the host's registers, dispatches the call, goes back.
//!
//! The exit is written so that a signal can arrive between any two instructions:
//!
//! - up to `exit_check` the thread is in a hook, signals are deferred;
//! - from `exit_check` to `exit_jump` everything only reads the frame, so a signal that is deferred
//!   there makes the exit start again at `exit_check` (the frame is still at rsp), and finds it;
//! - at `exit_jump` all registers are the host's, and the signal wrapper carries out the jump;
//! - deferred signals are let in by one system call whose return address, `delivery`, the wrapper
//!   recognises: it replaces the interrupted context by the host's, taken from the frame at rsp.

use mayfly_image::format::{FILTER_BYTES, SYSCALL_BYTES};
use mayfly_interpose::{Call, Outcome};
use mayfly_sys::number;

use crate::{action, backend, deferral, late};

/// The host's registers while a hook runs. What a callee preserves is not in it.
#[repr(C, align(16))]
pub(crate) struct Frame {
    /// rax, the call's number; rdi, rsi, rdx, r10, r8, r9.
    call: Call,
    /// Where to go on: the trampoline's `syscall`, or behind it.
    resume: usize,
    /// The host's stack pointer.
    stack: usize,
    /// Signals to let in at the exit.
    unblock: u64,
    /// The count of deferrals when the exit last looked.
    seen: u64,
    /// rax when going on.
    result: usize,
    /// One when the call was served here.
    done: usize,
    padding: usize,
    /// xmm0–15.
    vectors: [[u64; 2]; 16],
}

const _: () = assert!(size_of::<Frame>() == 368);
const _: () = assert!(core::mem::offset_of!(Frame, call.number) == 0);
const _: () = assert!(core::mem::offset_of!(Frame, call.args) == 8);
const _: () = assert!(core::mem::offset_of!(Frame, resume) == 56);
const _: () = assert!(core::mem::offset_of!(Frame, stack) == 64);
const _: () = assert!(core::mem::offset_of!(Frame, unblock) == 72);
const _: () = assert!(core::mem::offset_of!(Frame, seen) == 80);
const _: () = assert!(core::mem::offset_of!(Frame, result) == 88);
const _: () = assert!(core::mem::offset_of!(Frame, vectors) == 112);

core::arch::global_asm!(
    ".text",
    ".p2align 4",
    // Found from other parts of the library, not from outside.
    ".irp name, entry, exit_check, exit_jump, exit_again, exit_again_end, delivery",
    ".globl mayfly_\\name",
    ".hidden mayfly_\\name",
    ".endr",
    ".type mayfly_entry, @function",
    "mayfly_entry:",
    ".cfi_startproc",
    // Unwinding ends here: above is the host, at an address that only the trampoline knows.
    ".cfi_undefined rip",
    "mov r11, rsp",
    // 128 bytes below the host's stack pointer are its own (red zone).
    "lea rsp, [rsp - (128 + 368)]",
    "and rsp, -16",
    "mov [rsp], rax",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], r10",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov [rsp + 56], rcx",
    "mov [rsp + 64], r11",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps [rsp + 112 + 16 * \\n], xmm\\n",
    ".endr",
    "mov rdi, rsp",
    "call {dispatch}",
    "mayfly_exit_check:",
    "cmp dword ptr [rip + {words}], 0",
    "jne mayfly_exit_slow",
    "mayfly_exit_restore:",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps xmm\\n, [rsp + 112 + 16 * \\n]",
    ".endr",
    "mov rax, [rsp + 88]",
    "mov rdi, [rsp + 8]",
    "mov rsi, [rsp + 16]",
    "mov rdx, [rsp + 24]",
    "mov r10, [rsp + 32]",
    "mov r8, [rsp + 40]",
    "mov r9, [rsp + 48]",
    "mov rcx, [rsp + 56]",
    "mov rsp, [rsp + 64]",
    "mayfly_exit_jump:",
    "jmp rcx",
    "mayfly_exit_slow:",
    "mov rax, [rip + {words} + {sequence}]",
    "mov [rsp + 80], rax",
    "mov rdi, rsp",
    "call {release}",
    "test eax, eax",
    "jne 2f",
    // A signal deferred while `release` looked has changed the count; one deferred from here on
    // restarts at exit_check.
    "mayfly_exit_again:",
    "mov rax, [rip + {words} + {sequence}]",
    "cmp rax, [rsp + 80]",
    "jne mayfly_exit_slow",
    "jmp mayfly_exit_restore",
    "mayfly_exit_again_end:",
    "2: mov eax, 14",
    "mov edi, 1",
    "lea rsi, [rsp + 72]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mayfly_delivery:",
    "jmp mayfly_exit_check",
    ".cfi_endproc",
    ".size mayfly_entry, . - mayfly_entry",
    dispatch = sym dispatch,
    release = sym release,
    words = sym deferral::WORDS,
    sequence = const deferral::SEQUENCE,
);

// SAFETY: the symbols are defined above; only their addresses are used, except `mayfly_entry`,
// which is jumped to by trampolines.
unsafe extern "C" {
    pub(crate) fn mayfly_entry();
    pub(crate) fn mayfly_exit_check();
    pub(crate) fn mayfly_exit_jump();
    fn mayfly_exit_again();
    fn mayfly_exit_again_end();
    pub(crate) fn mayfly_delivery();
}

/// Whether an exit interrupted at `rip` has to start again after a signal was deferred.
pub(crate) fn must_check_again(rip: usize) -> bool {
    let address = |place: unsafe extern "C" fn()| place as usize;
    (address(mayfly_exit_check)..address(mayfly_exit_jump)).contains(&rip)
        || (address(mayfly_exit_again)..address(mayfly_exit_again_end)).contains(&rip)
}

/// Serves the call in `frame`, or prepares it to be issued. Runs on the host's stack, of which even
/// the deepest hook takes less than 5 KiB.
unsafe extern "C" fn dispatch(frame: *mut Frame) {
    deferral::notice_fork();
    // SAFETY: the caller is `mayfly_entry`, which filled the frame on its stack; nobody else has
    // it.
    let frame = unsafe { &mut *frame };
    frame.unblock = 0;
    // SAFETY: the host's own arguments, in the registers of a call that it is about to issue.
    let outcome = unsafe {
        match frame.call.number {
            number::RT_SIGACTION => action::serve(&frame.call),
            number::MMAP => late::map(&mut frame.call),
            _ => backend::dispatch(&mut frame.call),
        }
    };
    match outcome {
        Outcome::Done(result) => {
            frame.result = result.cast_unsigned();
            frame.resume += SYSCALL_BYTES;
            frame.done = 1;
        }
        Outcome::Pass => {
            frame.result = frame.call.number;
            frame.done = 0;
        }
    }
}

/// Takes the calling thread's deferred signals; whether there are any to let in.
unsafe extern "C" fn release(frame: *mut Frame) -> u32 {
    // SAFETY: the caller is the exit path, with its frame.
    let frame = unsafe { &mut *frame };
    frame.unblock = deferral::take();
    u32::from(frame.unblock != 0)
}

impl Frame {
    /// The host's context at the end of this hook, written over the hook's own. `restart` says that
    /// the signal's action wants interrupted calls to be issued again.
    ///
    /// # Safety
    /// `context` was interrupted at `mayfly_delivery`, with this frame at its stack pointer.
    #[inline(always)]
    pub(crate) unsafe fn write_to(&self, context: &mut crate::context::Context, restart: bool) {
        const EINTR: usize = 4;
        let again = restart && self.done == 1 && self.result == EINTR.wrapping_neg();
        let registers = &mut context.registers;
        let [rdi, rsi, rdx, r10, r8, r9] = self.call.args;
        (registers.rdi, registers.rsi, registers.rdx) = (rdi, rsi, rdx);
        (registers.r10, registers.r8, registers.r9) = (r10, r8, r9);
        registers.rcx = self.resume;
        registers.rsp = self.stack;
        registers.rax = if again { self.call.number } else { self.result };
        registers.rip = if again {
            self.resume.wrapping_sub(SYSCALL_BYTES + FILTER_BYTES)
        } else {
            self.resume
        };
        // SAFETY: the caller's promise.
        unsafe { context.set_vectors(&self.vectors) };
    }
}
