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
//!
//! The frame, and these places as the wrapper meets them, are in [`crate::hook`].
//!
//! A call on one absolute path that is plainly the kernel's is issued here, before anything is
//! dispatched ([`mayfly_interpose::first`]). What it changes until then is undone where it decides
//! nothing, also at an address that faults. Its exit has the same parts: from `made_check` to
//! `made_jump` nothing but registers changes, and a signal that is deferred there makes it start
//! again at `made_check`. It looks at the count that fork copies, beside its other words; where
//! that says what was in the parent, the long way begins with looking for a fork.

use core::mem::offset_of;

use mayfly_image::format::{PAGE_BYTES, SYSCALL_BYTES};
use mayfly_interpose::{Outcome, class};
use mayfly_sys::{Errno, entry, number};

use crate::hook::Frame;
use crate::{action, backend, deferral, fork, late};

/// Nothing is known of the call.
const UNDECIDED: usize = 0;
/// The entry has issued the call, which failed in a way that has to be looked at.
const FAILED: usize = 1;
/// The entry has issued the call, and `result` is what it returned; signals were deferred.
const MADE: usize = 2;

/// From an address so far into its page, seventeen bytes can be read without the next one.
const LAST: usize = PAGE_BYTES - 17;

const _: () = assert!(class::PATH_SECOND == class::PATH_FIRST + 1 && class::PATH_SECOND < 8);
const _: () = assert!(offset_of!(entry::Words, watched) % 8 == 0);
const _: () = assert!(offset_of!(entry::Words, off) == offset_of!(entry::Words, watched) + 4);

core::arch::global_asm!(
    ".text",
    ".p2align 6",
    // Found from other parts of the library, not from outside.
    ".irp name, entry, look, look_end, undecided, made_check, made_jump, delivery",
    ".globl mayfly_\\name",
    ".hidden mayfly_\\name",
    ".endr",
    ".irp name, exit_check, exit_jump, exit_again, exit_again_end",
    ".globl mayfly_\\name",
    ".hidden mayfly_\\name",
    ".endr",
    ".type mayfly_entry, @function",
    "mayfly_entry:",
    ".cfi_startproc",
    // Unwinding ends here: above is the host, at an address that only the trampoline knows.
    ".cfi_undefined rip",
    // Is it a call on one absolute path that is plainly the kernel's? r11 is its class: no calls on
    // descriptors, which leave an address of a word there, look like those on paths.
    "sub r11d, {path_first}",
    "cmp r11d, 1",
    "ja mayfly_whole",
    // 128 bytes below the host's stack pointer are its own (red zone).
    "lea rsp, [rsp - (128 + 64)]",
    "mov [rsp], rax",
    "mov [rsp + 8], rcx",
    "movups [rsp + 16], xmm0",
    "movups [rsp + 32], xmm1",
    "mov rcx, rdi",
    "cmove rcx, rsi",
    "mayfly_look:",
    "mov eax, ecx",
    "and eax, 4095",
    "cmp eax, {last}",
    "ja mayfly_undecided",
    "mov r11, [rcx]",
    "cmp r11b, 0x2f",
    "jne mayfly_undecided",
    "cmp r11, [rip + {first} + {head}]",
    "je mayfly_undecided",
    "cmp qword ptr [rip + {first} + {blocked}], 0",
    "jne mayfly_undecided",
    "shr r11, 8",
    "cmp r11d, {dev}",
    "je mayfly_undecided",
    "shr r11, 8",
    "cmp r11d, {proc}",
    "je mayfly_undecided",
    // Two slashes, or a slash and a dot, side by side: not plain. Sixteen neighbours at a time, as
    // long as none of them may lie in another page.
    "2: movdqu xmm1, [rcx]",
    "pxor xmm0, xmm0",
    "pcmpeqb xmm0, xmm1",
    "pcmpeqb xmm1, [rip + {first} + {slashes}]",
    "pmovmskb eax, xmm0",
    "movdqu xmm0, [rcx + 1]",
    "por xmm0, [rip + {first} + {ones}]",
    "pcmpeqb xmm0, [rip + {first} + {slashes}]",
    "pand xmm0, xmm1",
    "pmovmskb r11d, xmm0",
    "test eax, eax",
    "je 3f",
    // Nothing behind the zero counts.
    "lea ecx, [rax - 1]",
    "not eax",
    "and ecx, eax",
    "test r11d, ecx",
    "jne mayfly_undecided",
    "mov rax, [rsp]",
    "mayfly_look_end:",
    "syscall",
    "cmp rax, {eloop}",
    "je 5f",
    "mayfly_made_check:",
    "cmp dword ptr [rip + {first} + {deferred}], 0",
    "jne mayfly_made",
    "mov rcx, [rsp + 8]",
    "add rcx, {syscall_bytes}",
    "movups xmm0, [rsp + 16]",
    "movups xmm1, [rsp + 32]",
    "lea rsp, [rsp + (128 + 64)]",
    "mayfly_made_jump:",
    "jmp rcx",
    "3: test r11d, r11d",
    "jne mayfly_undecided",
    "add rcx, 16",
    "mov eax, ecx",
    "and eax, 4095",
    "cmp eax, {last}",
    "jbe 2b",
    "jmp mayfly_undecided",
    "mayfly_made:",
    "mov [rsp + 48], rax",
    "mov dword ptr [rsp + 56], {made}",
    "jmp 4f",
    "5:",
    "mov dword ptr [rsp + 56], {failed}",
    "jmp 4f",
    "mayfly_undecided:",
    "mov dword ptr [rsp + 56], {undecided}",
    "4: mov rax, [rsp]",
    "mov rcx, [rsp + 8]",
    "movups xmm0, [rsp + 16]",
    "movups xmm1, [rsp + 32]",
    "lea rsp, [rsp + 48]",
    "jmp mayfly_save",
    "mayfly_whole:",
    "lea rsp, [rsp - (128 + 16)]",
    "mov dword ptr [rsp + 8], {undecided}",
    // The stack pointer is 144 bytes below the host's. There: the result, if there is one, and how
    // far the call has come.
    "mayfly_save:",
    "mov r11, rsp",
    "lea rsp, [rsp - 368]",
    "and rsp, -16",
    "mov [rsp], rax",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], r10",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov [rsp + 56], rcx",
    "mov rax, [r11]",
    "mov [rsp + 88], rax",
    "mov eax, [r11 + 8]",
    "mov [rsp + 104], rax",
    "lea r11, [r11 + (128 + 16)]",
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
    path_first = const class::PATH_FIRST,
    last = const LAST,
    first = sym entry::WORDS,
    head = const offset_of!(entry::Words, head),
    blocked = const offset_of!(entry::Words, watched),
    slashes = const offset_of!(entry::Words, slashes),
    ones = const offset_of!(entry::Words, ones),
    deferred = const offset_of!(entry::Words, deferred),
    dev = const u32::from_le_bytes(*b"dev/"),
    proc = const u32::from_le_bytes(*b"roc/"),
    eloop = const Errno::ELOOP.as_result(),
    syscall_bytes = const SYSCALL_BYTES,
    undecided = const UNDECIDED,
    made = const MADE,
    failed = const FAILED,
);

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
        match (frame.stage, frame.call.number) {
            (MADE, _) => Outcome::Done(frame.result.cast_signed()),
            (FAILED, _) => backend::dispatch_slowly(&mut frame.call),
            (_, number::RT_SIGACTION) => action::serve(&frame.call),
            (_, number::RT_SIGPROCMASK) => action::look_at_mask(&frame.call),
            (_, number::EXECVE | number::EXECVEAT) => {
                let ignoring = action::before_exec();
                let outcome = backend::dispatch(&mut frame.call);
                if matches!(outcome, Outcome::Pass) {
                    core::mem::forget(ignoring);
                }
                outcome
            }
            (_, number::MMAP) => late::map(&mut frame.call),
            (_, number::FORK | number::CLONE | number::CLONE3) => fork::serve(&mut frame.call),
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
