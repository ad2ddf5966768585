//! The handler that the kernel knows, in place of the host's.
//!
//! Three places can be interrupted:
//!
//! - **a hook** (this library's code): the signal is put off. It is blocked in the interrupted
//!   context, queued again for the same thread with its siginfo, and noted in [`deferral`]; the
//!   hook's exit lets it in.
//! - **a trampoline**: the host's handler runs at once and sees the address of the library that the
//!   trampoline's instruction stands for, so that unwinders find frame information and libc finds
//!   its cancellation points. Unless the handler changed the address, the thread goes on in the
//!   trampoline; where it was about to make a process, before the filter, since what the hook has
//!   prepared for that may be undone by the handler's own calls.
//! - **anything else**: the host's handler runs.
//!
//! Which handler that is stands in [`handlers`], and what was interrupted in a [`context`].
//!
//! SIGSEGV and SIGBUS have the wrapper even when the host wants the default or ignores them, so
//! that a hook that meets a bad address of the host's answers EFAULT ([`fault`]). When anything
//! else raises them the default is put back and the instruction faults again: the host ends as it
//! would without us.
//!
//! The code itself can be interrupted as well, so it lies in a section of its own
//! (`mayfly_signal`): a signal that arrives in it is an ordinary nested one, with one exception. In
//! the first instructions (up to `mayfly_decided`), which find out what was interrupted, a nested
//! signal must ask the same question about the context below; it is in rdx there. Code that defers
//! is ordinary code of this library, hence "a hook" to a nested signal, which is right.

use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use mayfly_image::format::{FILTER_BYTES, SYSCALL_BYTES};
use mayfly_sys::arch::syscall6;
use mayfly_sys::{fault, interrupt, number};

use crate::hook::{self, Frame};
use crate::{deferral, kernel, patch};

pub(crate) mod context;
pub(crate) mod handlers;

use context::{Context, Registers};
use handlers::SIG_IGN;

/// This library's executable segment, for the wrapper: first address and bytes.
static TEXT: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

global_asm!(
    ".section mayfly_signal, \"ax\", @progbits",
    ".p2align 4",
    ".globl mayfly_wrapper",
    ".hidden mayfly_wrapper",
    ".type mayfly_wrapper, @function",
    "mayfly_wrapper:",
    ".cfi_startproc",
    "mov rax, rdx",
    "lea r9, [rip + mayfly_wrapper]",
    "2: mov r8, [rax + {rip_offset}]",
    "cmp r8, r9",
    "jb 3f",
    "lea r10, [rip + mayfly_decided]",
    "cmp r8, r10",
    "jae 3f",
    "mov rax, [rax + {rdx_offset}]",
    "jmp 2b",
    "3: lea r9, [rip + __start_mayfly_signal]",
    "lea r10, [rip + __stop_mayfly_signal]",
    "sub r10, r9",
    "mov r11, r8",
    "sub r11, r9",
    "cmp r11, r10",
    "jb mayfly_decided",
    "mov r11, r8",
    "sub r11, [rip + {text}]",
    "cmp r11, [rip + {text} + 8]",
    "jae mayfly_decided",
    "lea r9, [rip + mayfly_delivery]",
    "cmp r8, r9",
    "je mayfly_decided",
    "lea r9, [rip + mayfly_made_jump]",
    "cmp r8, r9",
    "je mayfly_decided",
    "lea r9, [rip + mayfly_exit_jump]",
    "cmp r8, r9",
    "jne mayfly_postpone",
    "mayfly_decided:",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r13, 0",
    "push r14",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r14, 0",
    "mov ebx, edi",
    "mov rbp, rsi",
    "mov r12, rdx",
    "call {deliver}",
    "mov r13, rdx",
    "mov r14, [r12 + {rip_offset}]",
    "test rax, rax",
    "je 4f",
    "mov r11, rax",
    "mov edi, ebx",
    "mov rsi, rbp",
    "mov rdx, r12",
    "xor eax, eax",
    "call r11",
    "4: test r13, r13",
    "je 5f",
    "lock dec dword ptr [rip + {handlers}]",
    "cmp [r12 + {rip_offset}], r14",
    "jne 5f",
    "mov [r12 + {rip_offset}], r13",
    "5: pop r14",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r14",
    "pop r13",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r13",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbp",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".size mayfly_wrapper, . - mayfly_wrapper",
    // Where the wrapper returns to when the host gave no restorer of its own.
    ".globl mayfly_restorer",
    ".hidden mayfly_restorer",
    "mayfly_restorer:",
    "mov eax, 15",
    "syscall",
    ".hidden __start_mayfly_signal",
    ".hidden __stop_mayfly_signal",
    ".text",
    // A hook was interrupted. Returns to it without passing the host's restorer, in which a nested
    // signal would not be recognised.
    "mayfly_postpone:",
    "push rdi",
    "push rsi",
    "push rdx",
    "call {postpone}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "test eax, eax",
    "je mayfly_decided",
    "mov rsp, rdx",
    "mov eax, 15",
    "syscall",
    "ud2",
    rip_offset = const context::RIP,
    rdx_offset = const context::RDX,
    text = sym TEXT,
    deliver = sym deliver,
    postpone = sym postpone,
    handlers = sym interrupt::HANDLERS,
);

// SAFETY: defined above; only the addresses are used.
unsafe extern "C" {
    fn mayfly_wrapper();
    fn mayfly_restorer();
}

/// Address of the handler for the kernel.
#[inline(always)]
pub(crate) fn wrapper() -> usize {
    mayfly_wrapper as *const () as usize
}

/// Tells the wrapper where this library's code is, and puts it where faults of hooks arrive.
pub(crate) fn set_up(text: core::ops::Range<usize>) {
    TEXT[0].store(text.start, Ordering::Relaxed);
    TEXT[1].store(text.end - text.start, Ordering::Relaxed);
    guard_defaults();
}

/// What the wrapper does next.
#[repr(C)]
struct Delivery {
    /// The host's handler, or zero.
    handler: usize,
    /// The address to go on at if the handler leaves the one it saw; zero for that one.
    put_back: usize,
}

/// Gives the interrupted context the host's view and says whom to call.
///
/// # Safety
/// `context` is the kernel's for the handler that is running; called by the wrapper only.
#[unsafe(link_section = "mayfly_signal")]
unsafe extern "C" fn deliver(signal: usize, info: *const u8, context: *mut Context) -> Delivery {
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    let (handler, flags) = handlers::wanted(signal & 0xff);
    let rip = context.registers.rip;
    if rip == hook::mayfly_delivery as *const () as usize {
        let frame = core::ptr::with_exposed_provenance::<Frame>(context.registers.rsp);
        // SAFETY: at this address the stack pointer leads to the hook's frame.
        unsafe { (*frame).write_to(context, flags & handlers::SA_RESTART != 0) };
        context.mask &= !deferral::take();
    } else if rip == hook::mayfly_exit_jump as *const () as usize
        || rip == hook::mayfly_made_jump as *const () as usize
    {
        context.registers.rip = context.registers.rcx;
    }
    if flags & handlers::BLOCKS_FAULTS != 0 {
        fault::may_be_blocked();
    }
    if flags & handlers::SA_RESETHAND != 0 {
        kernel::set_action(signal & 0xff, Some(&kernel::Action::default()), None);
    }
    let put_back = context.registers.rip;
    if handler <= SIG_IGN {
        // SAFETY: the caller's promise.
        unsafe { do_without(signal & 0xff, handler, info) };
        return Delivery { handler: 0, put_back: 0 };
    }
    match patch::original_address(put_back, context.registers.rcx) {
        Some(original) => {
            // SAFETY: in a trampoline, which does not end with that address.
            let prepared = unsafe { is_prepared(&context.registers) };
            context.registers.rip = original;
            interrupt::HANDLERS.fetch_add(1, Ordering::Relaxed);
            let back = if prepared { FILTER_BYTES } else { 0 };
            Delivery { handler, put_back: put_back - back }
        }
        None => Delivery { handler, put_back: 0 },
    }
}

/// Whether the thread is at a trampoline's `syscall`, for which a hook has prepared the process: to
/// make another one, for the first time or because the kernel was interrupted.
///
/// # Safety
/// The address is in a trampoline, and not its last byte.
#[inline(always)]
unsafe fn is_prepared(registers: &Registers) -> bool {
    let instruction = core::ptr::with_exposed_provenance::<[u8; SYSCALL_BYTES]>(registers.rip);
    let makes = registers.rax == number::VFORK
        || registers.rax == number::CLONE
        || registers.rax == number::CLONE3;
    // SAFETY: the caller's promise.
    makes && unsafe { instruction.read() } == SYSCALL
}

/// Puts the signal off to the end of the hook; zero when it must be delivered now.
///
/// # Safety
/// As for [`deliver`]; the interrupted context is inside a hook.
unsafe extern "C" fn postpone(signal: usize, info: *const u8, context: *mut Context) -> u32 {
    let signal = signal & 0xff;
    // SAFETY: SA_SIGINFO is always set, so the kernel wrote a siginfo; its code is the third word.
    let code = unsafe { info.cast::<i32>().add(2).read() };
    if is_fault(signal, code) {
        // SAFETY: the caller's promise.
        return u32::from(goes_on(signal, unsafe { &mut (*context).registers }));
    }
    deferral::notice_fork();
    let (pid, tid) = (kernel::process_id() as usize, kernel::thread_id());
    if !deferral::add(tid, signal) {
        return 0;
    }
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    context.mask |= 1 << (signal - 1);
    // SAFETY: the siginfo is the kernel's own.
    let queued = unsafe {
        syscall6(number::RT_TGSIGQUEUEINFO, pid, tid as usize, signal, info as usize, 0, 0)
    };
    if queued != 0 {
        // No room to queue (RLIMIT_SIGPENDING): the signal itself must not be lost.
        // SAFETY: no pointers.
        unsafe { syscall6(number::TGKILL, pid, tid as usize, signal, 0, 0, 0) };
    }
    if let Some(again) = hook::check_again(context.registers.rip) {
        context.registers.rip = again;
    } else if begins_waiting(&context.registers) {
        context.registers.rax = EINTR.wrapping_neg();
        context.registers.rip += SYSCALL_BYTES;
    }
    1
}

/// Lets a routine that met a bad address of the host return a failure; false when the fault has
/// another reason.
fn goes_on(signal: usize, registers: &mut context::Registers) -> bool {
    let landing = |rip| fault::landing(rip).or_else(|| hook::landing(rip));
    let landing = if is_guarded(signal) { landing(registers.rip) } else { None };
    if let Some(landing) = landing {
        registers.rip = landing;
    }
    landing.is_some()
}

/// SIGBUS and SIGSEGV.
pub(crate) const GUARDED: [usize; 2] = [7, 11];

/// Whether the kernel gets our wrapper for this signal even when the host has no handler: what a
/// bad address raises.
pub(crate) fn is_guarded(signal: usize) -> bool {
    GUARDED.contains(&signal)
}

/// What the kernel gets for a guarded signal in place of the default.
pub(crate) fn guard() -> kernel::Action {
    const SA_SIGINFO_RESTORER: usize = 0x0400_0004;
    kernel::Action {
        handler: wrapper(),
        flags: SA_SIGINFO_RESTORER,
        restorer: mayfly_restorer as *const () as usize,
        mask: 0,
    }
}

/// Guards the signals for which the host has no handler.
fn guard_defaults() {
    for signal in GUARDED {
        let mut now = kernel::Action::default();
        if kernel::set_action(signal, None, Some(&mut now)) == 0 && now.handler <= SIG_IGN {
            if now.handler == SIG_IGN {
                handlers::begin_ignored(signal);
            }
            kernel::set_action(signal, Some(&guard()), None);
        }
    }
    if kernel::blocked() & fault::FAULTS != 0 {
        fault::may_be_blocked();
    }
}

/// The host has no handler: what somebody sent is ignored, or sent again with the default in place.
/// A fault happens again when the thread goes on, with the default, since the kernel ignores none.
///
/// # Safety
/// `info` is the kernel's, for the handler that is running.
#[inline(always)]
unsafe fn do_without(signal: usize, handler: usize, info: *const u8) {
    // SAFETY: SA_SIGINFO is set, so the kernel wrote a siginfo; its code is the third word.
    let code = unsafe { info.cast::<i32>().add(2).read() };
    if code <= 0 && handler == SIG_IGN {
        return;
    }
    kernel::set_action(signal, Some(&kernel::Action::default()), None);
    if code <= 0 {
        let (pid, tid) = (kernel::process_id() as usize, kernel::thread_id() as usize);
        // SAFETY: the siginfo is the kernel's own.
        unsafe { syscall6(number::RT_TGSIGQUEUEINFO, pid, tid, signal, info as usize, 0, 0) };
    }
}

const EINTR: usize = 4;
const SYSCALL: [u8; SYSCALL_BYTES] = [0x0f, 0x05];

/// Whether the thread is about to wait on a futex, for the first time or because the kernel
/// restarts the call after this handler. The hook must hear of the signal instead: it is blocked
/// from now on and would not interrupt the wait.
fn begins_waiting(registers: &Registers) -> bool {
    const COMMAND: usize = 0x7f;
    const FUTEX_WAIT: usize = 0;
    const FUTEX_WAIT_BITSET: usize = 9;
    let waits = matches!(registers.rsi & COMMAND, FUTEX_WAIT | FUTEX_WAIT_BITSET);
    let instruction = core::ptr::with_exposed_provenance::<[u8; SYSCALL_BYTES]>(registers.rip);
    // SAFETY: the interrupted address is in this library's code, and not in its last byte.
    registers.rax == number::FUTEX && waits && unsafe { instruction.read() } == SYSCALL
}

/// Whether the interrupted instruction itself raised the signal, so that it would raise it again.
fn is_fault(signal: usize, code: i32) -> bool {
    const FAULTS: u64 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 31;
    code > 0 && signal < 64 && FAULTS >> signal & 1 == 1
}
