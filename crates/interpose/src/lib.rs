//! From a system call of the host process to the file system and back.
//!
//! `preload` hands every call that its filter does not let through to [`dispatch`]. This crate
//! decides whether the call is ours, serves it through `client`, and keeps the process-wide state
//! that the kernel cannot keep for us: which descriptor numbers stand for open file descriptions of
//! the instance ([`descriptors`]), and which directory the process works in ([`paths::cwd`]).
//!
//! A call is ours by its path ([`paths`]) or by its descriptor. A descriptor of ours is a real
//! kernel descriptor without a use of its own, the *placeholder*: a duplicate of one hidden
//! `O_PATH` descriptor, replaced by an identifiable one before it can leave the process
//! ([`descriptors::identity`]).
//!
//! The host's signal handlers never run while a thread is in here, and threads do not die in here,
//! so short critical sections under [`mayfly_sys::lock::Lock`] are safe; the child of a fork resets
//! them ([`fork`]).
#![no_std]

#[cfg(test)]
extern crate std;

use mayfly_sys::Errno;

mod calls;
pub mod class;
mod descriptors;
pub mod first;
mod paths;
mod process;
mod quick;
mod report;

pub use process::{fork, image};

/// Before the path of the static program that the library is to load, in the environment.
pub const STATIC_PROGRAM: &[u8] = b"MAYFLY_STATIC=";

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Served here: the raw result, as the kernel would return it (negative errno on failure).
    Done(isize),
    /// Not ours: the trampoline issues it unchanged, with the arguments in `Call::args`.
    Pass,
}

/// One system call: number and arguments in the kernel's order (rdi, rsi, rdx, r10, r8, r9).
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// The system-call number (x86-64 table).
    pub number: usize,
    /// The six argument registers.
    pub args: [usize; 6],
}

/// What the process was started with.
#[derive(Debug)]
pub struct Start {
    /// The environment: a null-terminated array of pointers to null-terminated strings.
    pub envp: *const *const u8,
}

/// Reads the environment and the inherited state; true when the process belongs to an instance, so
/// that interposition is worth setting up.
///
/// # Safety
/// Called once, before any call is dispatched; `start.envp` is a valid environment array.
pub unsafe fn start(start: &Start) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { process::inherit::start(start.envp) }.is_ok()
}

/// Base of the descriptor table: one `u32` for each descriptor number below
/// [`class::DESCRIPTORS_MAX`]; zero means "not ours". Read by the filter in the trampolines.
pub fn descriptor_table() -> *const u32 {
    descriptors::table::base()
}

/// While this word is not zero, calls of the watched classes ([`class::PASS_WATCHED`]) are looked
/// at too. Read by the filter in the trampolines.
pub fn watched_word() -> *const u32 {
    descriptors::closed_number::word()
}

/// Is `call` a fork, to be issued by the caller between [`before_fork`] and the drop of what that
/// returned? Other calls that make processes are for [`dispatch`].
///
/// # Safety
/// As [`dispatch`].
pub unsafe fn is_fork(call: &Call) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { fork::is_plain(call) }
}

/// Makes the process ready for a fork.
///
/// # Errors
/// What the fork fails with instead of being issued.
pub fn before_fork(call: &Call) -> Result<fork::Forking, Errno> {
    let held = fork::hold();
    if report::is_on() {
        report::count(call, Outcome::Pass);
    }
    held
}

/// Serves one call.
///
/// # Safety
/// `call` holds the registers of a system call that the host is about to issue; pointers among them
/// are the host's own and as valid as they would be for the kernel.
pub unsafe fn dispatch(call: &mut Call) -> Outcome {
    // SAFETY: passed on to the caller.
    match unsafe { quick::look(call) } {
        Some(outcome) => {
            if report::is_on() {
                report::note(report::Reason::Elsewhere);
            }
            outcome
        }
        // SAFETY: passed on to the caller.
        None => unsafe { dispatch_slowly(call) },
    }
}

/// Serves a call that the short ways do not decide: the text of its path does not tell, or it was
/// issued and its failure has to be looked at. Apart, so that the short way has a small frame.
///
/// # Safety
/// As [`dispatch`].
#[inline(never)]
pub unsafe fn dispatch_slowly(call: &mut Call) -> Outcome {
    descriptors::closed_number::before(call);
    // SAFETY: passed on to the caller.
    let outcome = unsafe { calls::dispatch(call) };
    if outcome == Outcome::Pass {
        descriptors::closed_number::give_up();
    }
    if report::is_on() {
        report::count(call, outcome);
    }
    outcome
}
