//! fork, vfork, clone: before the call, and in the child.
//!
//! Before the call every description gets a kernel identity. A child with memory of its own finds
//! out at its next call, by a page that the kernel wiped: it resets the locks, which other threads
//! of the parent may have held, closes its copies of the hidden descriptors, and attaches anew when
//! it needs to.
//!
//! The kernel copies the descriptors and the memory, with our table in it, one after the other,
//! while other threads of the parent run. So a call whose child goes on where the parent does is
//! issued from within the hook, while no number of ours gets, loses or changes its meaning
//! ([`hold`]): the child's table says of each number what the child's descriptor is, and every
//! description in it has its identity. Others are issued by the trampoline ([`before`]): vfork,
//! whose child has our very table and looks at its descriptors themselves, and a child with a
//! stack of its own, whose table may differ from its descriptors by what other threads did
//! meanwhile.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use mayfly_sys::{Errno, file, lock::Held, memory, number, user};

use super::{flight, run_directory, session};
use crate::{
    Call, Outcome,
    calls::{locks, serve::argument},
    descriptors::{
        closed_number, hidden, identity,
        table::{self, Meaning},
    },
    paths::cwd,
    report::counters,
};

const CLONE_VM: u64 = 0x100;
const CLONE_FILES: u64 = 0x400;
const CLONE_VFORK: u64 = 0x4000;
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
    counters::reset();
    hidden::reset();
    identity::reset();
    locks::forget();
    session::forget();
    for (descriptor, meaning) in table::each(0, u32::MAX) {
        if meaning == Meaning::Hidden && !run_directory::is_held(descriptor) {
            table::unhide(descriptor);
            file::close(descriptor);
        }
    }
    identity::forget_placeholder();
}

/// What a call that makes a process or a thread asks for.
struct Asked {
    flags: u64,
    /// The child has a stack of its own, so it does not go on where the parent does.
    has_stack: bool,
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn asked(call: &Call) -> Option<Asked> {
    /// Of `struct clone_args`, in 64-bit words.
    const STACK: usize = 5;
    Some(match call.number {
        number::FORK => Asked { flags: 0, has_stack: false },
        number::VFORK => Asked { flags: CLONE_VM | CLONE_VFORK, has_stack: false },
        number::CLONE => {
            Asked { flags: argument(call, 0) as u64, has_stack: argument(call, 1) != 0 }
        }
        number::CLONE3 => {
            let words = argument(call, 0) as *const u64;
            // SAFETY: the structure that the host passes to the kernel.
            unsafe {
                let has_stack = user::read(words.wrapping_add(STACK)).ok()? != 0;
                Asked { flags: user::read(words).ok()?, has_stack }
            }
        }
        _ => return None,
    })
}

/// Is it a fork: a child with memory and descriptors of its own, which goes on where its parent
/// does, and which the parent does not wait for?
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn is_plain(call: &Call) -> bool {
    const OTHERS: u64 = CLONE_VM | CLONE_FILES | CLONE_VFORK | CLONE_THREAD;
    // SAFETY: passed on to the caller.
    unsafe { asked(call) }.is_some_and(|asked| asked.flags & OTHERS == 0 && !asked.has_stack)
}

/// The numbers of this process mean what they do until this is dropped, by the parent and by the
/// child, and each that is ours carries its description's identity.
#[derive(Debug)]
pub struct Forking {
    /// Given up in this order: as they were taken, the other way round.
    _held: Option<[Held<'static>; 3]>,
}

/// Makes the process ready for a fork that is issued before the result is dropped.
///
/// # Errors
/// EAGAIN, ENOMEM: what fork may fail with.
pub(crate) fn hold() -> Result<Forking, Errno> {
    notice();
    flight::settle();
    cwd::settle();
    closed_number::give_up();
    if flight::child().is_some() {
        // Its descriptors have their identity already, and the table is its parent's.
        return Ok(Forking { _held: None });
    }
    let new = identity::hold_new();
    identity::share_for_child().map_err(errno_of_fork)?;
    let attaching = session::hold_attaching();
    Ok(Forking { _held: Some([identity::hold_numbers(), attaching, new]) })
}

fn errno_of_fork(errno: Errno) -> Errno {
    if errno == Errno::ENOMEM { errno } else { Errno::EAGAIN }
}

/// vfork, clone, clone3: gives descriptors their identity; the trampoline issues the call.
///
/// # Safety
/// As [`crate::dispatch`].
pub(crate) unsafe fn before(call: &Call) -> Outcome {
    // SAFETY: passed on to the caller.
    let Some(Asked { flags, .. }) = (unsafe { asked(call) }) else { return Outcome::Pass };
    if flags & (CLONE_THREAD | CLONE_FILES) != 0 {
        closed_number::turn_off();
    }
    if flags & CLONE_THREAD != 0 || flags & (CLONE_VM | CLONE_FILES) == CLONE_VM | CLONE_FILES {
        return Outcome::Pass;
    }
    if flight::child().is_some() {
        // Its descriptors have their identity already.
        return Outcome::Pass;
    }
    cwd::settle();
    if let Err(errno) = identity::share_for_child() {
        return Outcome::Done(errno_of_fork(errno).as_result());
    }
    if flags & CLONE_VM != 0
        && let Err(errno) = flight::depart()
    {
        return Outcome::Done(errno.as_result());
    }
    Outcome::Pass
}
