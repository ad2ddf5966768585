//! Signals that arrived while a hook was running.

use core::sync::atomic::AtomicU32;

/// Signals deferred to the end of a hook and not delivered yet, in the whole process. Counted up by
/// the signal wrapper, counted down when a hook's exit lets them through. A wait that may be
/// interrupted (a blocking lock) looks at it after its futex returned EINTR.
pub static DEFERRED: AtomicU32 = AtomicU32::new(0);

/// Handlers of the host that run in the middle of a call that a trampoline has let through, or is
/// about to; counted by the signal wrapper, down again when they return. One that is left by
/// longjmp stays counted.
pub static HANDLERS: AtomicU32 = AtomicU32::new(0);
