//! Signals that arrived while a hook was running.

use core::sync::atomic::AtomicU32;

use crate::entry;

/// Threads whose signals are deferred to the end of a hook. A wait that may be interrupted (a
/// blocking lock) looks at it after its futex returned EINTR.
pub static DEFERRED: &AtomicU32 = &entry::WORDS.deferred;

/// Handlers of the host that run in the middle of a call that a trampoline has let through, or is
/// about to; counted by the signal wrapper, down again when they return. One that is left by
/// longjmp stays counted.
pub static HANDLERS: AtomicU32 = AtomicU32::new(0);
