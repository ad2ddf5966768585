//! rt_sigaction of the host.
//!
//! The kernel gets our wrapper in place of the host's handler; a table says which handler the
//! wrapper stands for ([`handlers`](crate::signal::handlers)). SIG_DFL and SIG_IGN go to the kernel
//! as they are and leave the table alone, so the kernel alone decides *whether* the wrapper is
//! installed, and the table only *whom it calls*. That is what a child of vfork needs: it resets
//! its own dispositions while its memory is still its parent's. Should it install a function, it
//! gets it without the wrapper.
//!
//! SIGSEGV and SIGBUS are guarded even when the host wants the default or ignores them
//! ([`signal`]): the kernel then has the wrapper, and the table SIG_DFL or SIG_IGN. What is ignored
//! stays so in a program that is executed, so the kernel is told before that ([`before_exec`]).
//!
//! Two threads that change the same signal at once may end with one's handler and the other's mask.

use mayfly_interpose::{Call, Outcome};
use mayfly_sys::arch::syscall6;
use mayfly_sys::{fault, number, user};

use crate::kernel::{self, Action, SIGSET_BYTES};
use crate::signal::handlers::{BLOCKS_FAULTS, SA_RESETHAND, SIG_IGN, SIGNALS_MAX, want, wanted};
use crate::{deferral, signal};

const SA_SIGINFO: usize = 4;
/// Flags that the kernel sees differently from what the host said.
const CHANGED: usize = SA_SIGINFO | SA_RESETHAND;

/// The kernel ignores what the host ignores, as long as the result lives: what was ignored before
/// an exec is afterwards.
pub(crate) fn before_exec() -> Ignoring {
    let ignored = signal::GUARDED.map(|signal| {
        let mut now = Action::default();
        // A child of vfork may have another action than the table, which is its parent's.
        wanted(signal).0 == SIG_IGN
            && kernel::set_action(signal, None, Some(&mut now)) == 0
            && now.handler == signal::wrapper()
    });
    each(ignored, &Action { handler: SIG_IGN, ..Action::default() });
    Ignoring(ignored)
}

/// What was changed for an exec, which has failed when this is dropped.
pub(crate) struct Ignoring([bool; 2]);

impl Drop for Ignoring {
    fn drop(&mut self) {
        each(self.0, &signal::guard());
    }
}

fn each(which: [bool; 2], action: &Action) {
    for (signal, _) in signal::GUARDED.into_iter().zip(which).filter(|(_, is_it)| *is_it) {
        kernel::set_action(signal, Some(action), None);
    }
}

/// Looks at what the host's rt_sigprocmask blocks.
///
/// # Safety
/// `call` holds the arguments of one that the host is about to issue.
pub(crate) unsafe fn look_at_mask(call: &Call) -> Outcome {
    const SIG_UNBLOCK: usize = 1;
    /// What C libraries block around their own work.
    const EVERYTHING: u64 = u64::MAX;
    let [how, new, ..] = call.args;
    if new != 0 && how & 0xffff_ffff != SIG_UNBLOCK {
        let mut mask = [0; size_of::<u64>()];
        // SAFETY: the host passed it to the kernel for reading.
        if unsafe { user::copy_in(new as *const u8, &mut mask) }.is_ok() {
            let mask = u64::from_le_bytes(mask);
            if mask & fault::FAULTS != 0 && mask != EVERYTHING {
                fault::may_be_blocked();
            }
        }
    }
    Outcome::Pass
}

/// Serves the host's rt_sigaction.
///
/// # Safety
/// `call` holds the arguments of an rt_sigaction that the host is about to issue.
#[inline(never)]
pub(crate) unsafe fn serve(call: &Call) -> Outcome {
    let [signal, new, old, size, ..] = call.args;
    let signal = signal & 0xffff_ffff;
    if size != SIGSET_BYTES || !(1..=SIGNALS_MAX).contains(&signal) {
        return Outcome::Pass;
    }
    let previous = wanted(signal);
    let mut in_kernel = Action::default();
    let result = if new == 0 {
        kernel::set_action(signal, None, Some(&mut in_kernel))
    } else {
        // SAFETY: a call on an impossible signal, which reads the argument and does nothing else.
        if unsafe { probe(new) } == -EFAULT {
            return Outcome::Done(-EFAULT);
        }
        // SAFETY: the kernel has just read it.
        let host = unsafe { core::ptr::with_exposed_provenance::<Action>(new).read_unaligned() };
        install(signal, &host, previous, &mut in_kernel)
    };
    if result == 0 && old != 0 {
        // SAFETY: the host's own argument.
        return Outcome::Done(unsafe { report(signal, &in_kernel, previous, old) });
    }
    Outcome::Done(result)
}

const EFAULT: isize = 14;

/// Lets the kernel read a `struct sigaction`: -EFAULT when it cannot.
unsafe fn probe(new: usize) -> isize {
    // SAFETY: the signal number is out of range, so nothing is changed; `new` is only read.
    unsafe { syscall6(number::RT_SIGACTION, SIGNALS_MAX + 1, new, 0, SIGSET_BYTES, 0, 0) }
}

fn install(signal: usize, host: &Action, previous: (usize, usize), old: &mut Action) -> isize {
    let borrowed = deferral::in_borrowed_memory();
    if host.handler <= SIG_IGN && signal::is_guarded(signal) && !borrowed {
        let result = kernel::set_action(signal, Some(&signal::guard()), Some(old));
        want(signal, (host.handler, 0));
        return result;
    }
    if host.handler <= SIG_IGN || borrowed {
        return kernel::set_action(signal, Some(host), Some(old));
    }
    let wrapped = Action {
        handler: signal::wrapper(),
        // The wrapper needs the siginfo to queue a signal again, and resets the disposition itself:
        // the first delivery may only be a deferral.
        flags: (host.flags | SA_SIGINFO) & !SA_RESETHAND,
        ..*host
    };
    let blocks = host.mask & fault::FAULTS != 0 || signal::is_guarded(signal);
    let own = if blocks { BLOCKS_FAULTS } else { 0 };
    want(signal, (host.handler, host.flags & !BLOCKS_FAULTS | own));
    let result = kernel::set_action(signal, Some(&wrapped), Some(old));
    if result != 0 {
        want(signal, previous);
    }
    result
}

/// Writes the old action, as the host knows it, to `old`.
unsafe fn report(signal: usize, kernel: &Action, previous: (usize, usize), old: usize) -> isize {
    // SAFETY: the kernel checks that it may write there.
    let writable = unsafe { syscall6(number::RT_SIGACTION, signal, 0, old, SIGSET_BYTES, 0, 0) };
    if writable != 0 {
        return writable;
    }
    let mut host = *kernel;
    if kernel.handler == signal::wrapper() && previous.0 <= SIG_IGN {
        host = Action { handler: previous.0, ..Action::default() };
    } else if kernel.handler == signal::wrapper() {
        host.handler = previous.0;
        host.flags = (kernel.flags & !CHANGED) | (previous.1 & CHANGED);
    }
    // SAFETY: the kernel has just written there.
    unsafe { core::ptr::with_exposed_provenance_mut::<Action>(old).write_unaligned(host) };
    0
}
