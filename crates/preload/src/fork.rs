//! fork, clone and clone3: what is a fork is issued from within the hook, others are dispatched.
//!
//! So that what the child finds in its memory agrees with its descriptors, the call is issued while
//! nobody changes either ([`mayfly_interpose::before_fork`]). The child returns from here as the
//! parent does, on its copy of the stack.
//!
//! A signal that was deferred in this hook waits, blocked, for the hook's exit. The child inherits
//! that it is blocked, but neither the signal nor what [`deferral`] noted of it. So all signals are
//! blocked for the length of the call, and the child gets the mask that its parent has outside of
//! the hook.

use mayfly_interpose::{Call, Outcome};
use mayfly_sys::arch::syscall6;

use crate::{backend, deferral, kernel};

/// # Safety
/// As for `interpose::dispatch`.
#[inline(never)]
pub(crate) unsafe fn serve(call: &mut Call) -> Outcome {
    // SAFETY: passed on to the caller.
    if !unsafe { backend::is_fork(call) } {
        // SAFETY: as above.
        return unsafe { backend::dispatch(call) };
    }
    match backend::before_fork(call) {
        Err(errno) => Outcome::Done(errno.as_result()),
        // SAFETY: it is one, and the process is ready for it.
        Ok(_held) => Outcome::Done(unsafe { issue(call) }),
    }
}

/// # Safety
/// The call is a fork, which may be issued now.
unsafe fn issue(call: &Call) -> isize {
    let [a, b, c, d, e, f] = call.args;
    let mask = kernel::set_mask(u64::MAX);
    let waiting = deferral::waiting();
    // SAFETY: the caller's promise: the child has memory of its own, so each returns once.
    let result = unsafe { syscall6(call.number, a, b, c, d, e, f) };
    if result == 0 {
        deferral::notice_fork();
        kernel::set_mask(mask & !waiting);
    } else {
        kernel::set_mask(mask);
    }
    result
}
