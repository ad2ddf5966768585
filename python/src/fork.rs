//! Finding out that this process is the child of a fork.
//!
//! A page that the kernel wipes in children holds a mark: looking at it costs nothing, and no way
//! to fork goes past it. The first thread that finds it wiped lets go of what is the parent's.

use std::{
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use mayfly_sys::{Errno, memory, process};

use crate::{descriptors, session};

/// What the kernel leaves of the mark in a child.
const WIPED: u32 = 0;
const SETTLED: u32 = 1;
/// A thread is letting go of what is the parent's.
const SETTLING: u32 = 2;

static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Forks between the process that loaded this and the present one, plus one.
static EPOCH: AtomicU32 = AtomicU32::new(1);

/// Makes the page. Once: a second interpreter of the process finds it.
pub(crate) fn set_up() -> Result<(), Errno> {
    if !MARK.load(Acquire).is_null() {
        return Ok(());
    }
    let page = memory::map_anonymous(memory::PAGE_BYTES)?;
    memory::wipe_on_fork(page, memory::PAGE_BYTES)?;
    let mark = page.cast::<AtomicU32>();
    // SAFETY: the page is fresh and zeroed, which is a valid atomic, and is never given back.
    unsafe { mark.as_ref() }.store(SETTLED, Relaxed);
    MARK.store(mark.as_ptr(), Release);
    Ok(())
}

/// To be called first in every call: the epoch of this process, which differs from that of its
/// parent.
pub(crate) fn notice() -> u32 {
    // SAFETY: null before `set_up`, then a page that lives as long as the process.
    if let Some(mark) = unsafe { MARK.load(Acquire).as_ref() }
        && mark.load(Acquire) != SETTLED
    {
        settle(mark);
    }
    EPOCH.load(Acquire)
}

#[cold]
fn settle(mark: &AtomicU32) {
    if mark.compare_exchange(WIPED, SETTLING, AcqRel, Acquire).is_ok() {
        session::forget_all();
        descriptors::close_all();
        EPOCH.fetch_add(1, AcqRel);
        mark.store(SETTLED, Release);
    }
    while mark.load(Acquire) == SETTLING {
        process::give_way();
    }
}
