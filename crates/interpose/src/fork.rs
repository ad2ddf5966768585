//! fork, vfork, clone: before the call, and in the child.
//!
//! The trampoline issues the call; parent and child go on in the host's code at once. Before it,
//! every description gets a kernel identity. A child with memory of its own finds out at its next
//! call, by a page that the kernel wiped: it resets the locks, which other threads of the parent
//! may have held, closes its copies of the hidden descriptors, and attaches anew when it needs to.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use mayfly_sys::{Errno, file, memory, number, user};

use crate::{
    Call, Outcome, flight, hidden, identity, kept, locks, report,
    serve::argument,
    session,
    table::{self, Meaning},
};

const CLONE_VM: u64 = 0x100;
const CLONE_FILES: u64 = 0x400;
const CLONE_THREAD: u64 = 0x1_0000;

/// Holds 1 in the process that set it, 0 in a child of fork that has not noticed yet.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the page that fork wipes.
///
/// # Errors
/// ENOMEM; EINVAL on kernels before 4.14.
pub(crate) fn set_up() -> Result<(), Errno> {
    let page: NonNull<AtomicU32> = memory::map_anonymous(memory::PAGE_BYTES)?.cast();
    memory::wipe_on_fork(page.cast(), memory::PAGE_BYTES)?;
    // SAFETY: the page is fresh and zeroed, which is a valid atomic.
    unsafe { page.as_ref() }.store(1, Ordering::Relaxed);
    MARK.store(page.as_ptr(), Ordering::Release);
    flight::own();
    Ok(())
}

/// To be called first in every dispatched call.
#[inline]
pub(crate) fn notice() {
    // SAFETY: null before `set_up`, then a page that lives as long as the process.
    if let Some(mark) = unsafe { MARK.load(Ordering::Relaxed).as_ref() }
        && mark.load(Ordering::Relaxed) == 0
    {
        mark.store(1, Ordering::Relaxed);
        start_over();
    }
}

/// This is a new process with a copy of its parent's memory and one thread.
#[inline(never)]
fn start_over() {
    flight::own();
    report::reset();
    hidden::reset();
    identity::reset();
    locks::forget();
    session::forget();
    for (descriptor, meaning) in table::each(0, u32::MAX) {
        if meaning == Meaning::Hidden {
            table::unhide(descriptor);
            file::close(descriptor);
        }
    }
    identity::forget_placeholder();
}

/// fork, vfork, clone, clone3: gives descriptors their identity; the trampoline issues the call.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn before(call: &Call) -> Outcome {
    let flags = match call.number {
        number::FORK => 0,
        number::VFORK => CLONE_VM,
        number::CLONE => argument(call, 0) as u64,
        // SAFETY: the first field of `struct clone_args`, which the host passes to the kernel.
        _ => match unsafe { user::read(argument(call, 0) as *const u64) } {
            Ok(flags) => flags,
            Err(_) => return Outcome::Pass,
        },
    };
    if flags & (CLONE_THREAD | CLONE_FILES) != 0 {
        kept::turn_off();
    }
    if flags & CLONE_THREAD != 0 || flags & (CLONE_VM | CLONE_FILES) == CLONE_VM | CLONE_FILES {
        return Outcome::Pass;
    }
    if flight::child().is_some() {
        // Its descriptors have their identity already.
        return Outcome::Pass;
    }
    if let Err(errno) = identity::share_all() {
        return Outcome::Done(
            if errno == Errno::ENOMEM { errno } else { Errno::EAGAIN }.as_result(),
        );
    }
    if flags & CLONE_VM != 0
        && let Err(errno) = flight::depart()
    {
        return Outcome::Done(errno.as_result());
    }
    Outcome::Pass
}
