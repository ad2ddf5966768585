//! Who owns what this process makes.
//!
//! Two system calls for each new file would tell. They are made once instead, as long as no thread
//! has asked for other credentials: the calls that change them are looked at, and from the first of
//! them on the kernel is asked again each time, since on Linux credentials are a thread's. A child
//! of vfork may change its own without that being the parent's: while one may exist the kernel is
//! asked too. A child of fork inherits what is known here together with the credentials.

use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use mayfly_sys::process;

use super::flight;
use crate::Outcome;

/// User and group plus a bit that says so; zero for unknown. Identities have 32 bits, and -1 is
/// none, so the group's highest bit is free only when it is not set: then it is not kept.
static KNOWN: AtomicU64 = AtomicU64::new(0);
static CHANGES: AtomicBool = AtomicBool::new(false);
const IS_KNOWN: u64 = 1 << 63;

/// Effective user and group of the calling thread.
pub(crate) fn get() -> (u32, u32) {
    let known = KNOWN.load(Relaxed);
    if known != 0 && !CHANGES.load(SeqCst) && !flight::is_under_way() {
        return (known as u32, ((known & !IS_KNOWN) >> 32) as u32);
    }
    let (user, group) = process::owner();
    let packed = u64::from(group) << 32 | u64::from(user);
    if packed & IS_KNOWN == 0 && !flight::is_under_way() {
        KNOWN.store(packed | IS_KNOWN, Relaxed);
    }
    (user, group)
}

/// setuid and its like, setns, unshare: the kernel does it, afterwards.
pub(crate) fn change() -> Outcome {
    CHANGES.store(true, SeqCst);
    Outcome::Pass
}
