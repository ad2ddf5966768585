//! A hook as others meet it: the frame that it has on the host's stack, and the places in the code
//! of [`crate::entry`] at which a signal may find a thread.

use core::mem::offset_of;

use mayfly_image::format::{FILTER_BYTES, SYSCALL_BYTES};
use mayfly_interpose::Call;

use crate::signal::context::Context;

/// The host's registers while a hook runs. What a callee preserves is not in it.
#[repr(C, align(16))]
pub(crate) struct Frame {
    /// rax, the call's number; rdi, rsi, rdx, r10, r8, r9.
    pub(crate) call: Call,
    /// Where to go on: the trampoline's `syscall`, or behind it.
    pub(crate) resume: usize,
    /// The host's stack pointer.
    pub(crate) stack: usize,
    /// Signals to let in at the exit.
    pub(crate) unblock: u64,
    /// The count of deferrals when the exit last looked.
    pub(crate) seen: u64,
    /// rax when going on.
    pub(crate) result: usize,
    /// One when the call was served here.
    pub(crate) done: usize,
    /// How far the entry has come by itself.
    pub(crate) stage: usize,
    /// xmm0–15.
    vectors: [[u64; 2]; 16],
}

const _: () = assert!(size_of::<Frame>() == 368);
const _: () = assert!(offset_of!(Frame, call.number) == 0);
const _: () = assert!(offset_of!(Frame, call.args) == 8);
const _: () = assert!(offset_of!(Frame, resume) == 56);
const _: () = assert!(offset_of!(Frame, stack) == 64);
const _: () = assert!(offset_of!(Frame, unblock) == 72);
const _: () = assert!(offset_of!(Frame, seen) == 80);
const _: () = assert!(offset_of!(Frame, result) == 88);
const _: () = assert!(offset_of!(Frame, stage) == 104);
const _: () = assert!(offset_of!(Frame, vectors) == 112);

impl Frame {
    /// The host's context at the end of this hook, written over the hook's own. `restart` says that
    /// the signal's action wants interrupted calls to be issued again.
    ///
    /// # Safety
    /// `context` was interrupted at `mayfly_delivery`, with this frame at its stack pointer.
    #[inline(always)]
    pub(crate) unsafe fn write_to(&self, context: &mut Context, restart: bool) {
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

// SAFETY: the symbols are defined in the entry's code; only their addresses are used, except
// `mayfly_entry`, which is jumped to by trampolines.
unsafe extern "C" {
    pub(crate) fn mayfly_entry();
    pub(crate) fn mayfly_exit_check();
    pub(crate) fn mayfly_exit_jump();
    fn mayfly_exit_again();
    fn mayfly_exit_again_end();
    fn mayfly_look();
    fn mayfly_look_end();
    fn mayfly_undecided();
    fn mayfly_made_check();
    pub(crate) fn mayfly_made_jump();
    pub(crate) fn mayfly_delivery();
}

fn lies_between(rip: usize, start: unsafe extern "C" fn(), end: unsafe extern "C" fn()) -> bool {
    (start as usize..end as usize).contains(&rip)
}

/// Where an exit interrupted at `rip` has to start again after a signal was deferred.
pub(crate) fn check_again(rip: usize) -> Option<usize> {
    if lies_between(rip, mayfly_exit_check, mayfly_exit_jump)
        || lies_between(rip, mayfly_exit_again, mayfly_exit_again_end)
    {
        Some(mayfly_exit_check as *const () as usize)
    } else if lies_between(rip, mayfly_made_check, mayfly_made_jump) {
        Some(mayfly_made_check as *const () as usize)
    } else {
        None
    }
}

/// Where a thread goes on that met a bad address at `rip`, when that is in the entry's own look: as
/// if nothing had been decided.
pub(crate) fn landing(rip: usize) -> Option<usize> {
    lies_between(rip, mayfly_look, mayfly_look_end)
        .then_some(mayfly_undecided as *const () as usize)
}
