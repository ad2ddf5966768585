//! vfork: a child that runs in our memory.
//!
//! Between vfork and exec the child has its own descriptor table and its own working directory in
//! the kernel but shares our memory, so nothing it does may change our tables. While such a flight
//! lasts (posix_spawn and vfork suspend the thread that started it, so the next call of that thread
//! ends it), every dispatched call asks for its process id: another one than the owner's means the
//! child.
//!
//! The child sees descriptors through the kernel: all descriptions were shared before it was
//! started, so a descriptor's link in procfs tells what it is, and dup, close and fcntl pass. What
//! the child needs beyond that stands in its [`Child`] record: its working directory and a client
//! of its own whose hidden descriptors are the child's. Records are cleared when the last flight
//! has ended.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use mayfly_sys::{Errno, fault, lock::Lock, process, scratch::Scratch, text};

use super::lanes::{self, Session};
use crate::descriptors::table;

const FLIGHTS_MAX: usize = 64;
/// No chdir yet: the directory is the parent's.
const INHERITED: u64 = u64::MAX;

/// The process that owns this memory.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Flights under way.
static FLIGHTS: AtomicU32 = AtomicU32::new(0);
/// Nothing of ours was open when those under way began, and nothing was opened in one.
static BARE: AtomicBool = AtomicBool::new(false);
/// Threads that started one.
static PARENTS: [AtomicU32; FLIGHTS_MAX] = [const { AtomicU32::new(0) }; FLIGHTS_MAX];
static CHILDREN: [Child; FLIGHTS_MAX] = [const { Child::new() }; FLIGHTS_MAX];
static CLEARING: Lock = Lock::new();

/// What a child of vfork keeps apart from its parent.
pub(crate) struct Child {
    process: AtomicU32,
    directory: AtomicU64,
    session: AtomicPtr<Session>,
    scratch: AtomicUsize,
    scratch_bytes: AtomicUsize,
}

impl Child {
    const fn new() -> Child {
        Child {
            process: AtomicU32::new(0),
            directory: AtomicU64::new(INHERITED),
            session: AtomicPtr::new(core::ptr::null_mut()),
            scratch: AtomicUsize::new(0),
            scratch_bytes: AtomicUsize::new(0),
        }
    }

    /// The directory the child changed to, if it did (0: the kernel's).
    pub(crate) fn directory(&self) -> Option<u64> {
        let directory = self.directory.load(Ordering::Relaxed);
        (directory != INHERITED).then_some(directory)
    }

    /// The child changed its directory.
    pub(crate) fn set_directory(&self, directory: u64) {
        self.directory.store(directory, Ordering::Relaxed);
    }

    /// The child's own client.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn session(
        &self,
        make: impl FnOnce() -> Result<&'static Session, Errno>,
    ) -> Result<&'static Session, Errno> {
        // SAFETY: null, or a client that is only given up when all flights have ended.
        if let Some(session) = unsafe { self.session.load(Ordering::Acquire).as_ref() } {
            return Ok(session);
        }
        let session = make()?;
        self.session.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
        Ok(session)
    }

    /// Keeps a buffer until the child has become another program.
    pub(crate) fn keep(&self, scratch: Scratch) {
        let (start, bytes) = scratch.into_parts();
        let bytes = self.scratch_bytes.swap(bytes, Ordering::Relaxed);
        give_back(self.scratch.swap(start.as_ptr() as usize, Ordering::Relaxed), bytes);
    }

    fn clear(&self) {
        let bytes = self.scratch_bytes.swap(0, Ordering::Relaxed);
        give_back(self.scratch.swap(0, Ordering::Relaxed), bytes);
        lanes::discard(self.session.swap(core::ptr::null_mut(), Ordering::AcqRel));
        self.directory.store(INHERITED, Ordering::Relaxed);
        self.process.store(0, Ordering::Release);
    }
}

fn give_back(start: usize, bytes: usize) {
    if let Some(start) = NonNull::new(start as *mut u8) {
        // SAFETY: the parts came from `into_parts` in `Child::keep`, whose process is another
        // program now.
        drop(unsafe { Scratch::from_parts(start, bytes) });
    }
}

/// The calling process owns this memory: at start, and in the child of a fork.
pub(super) fn own() {
    OWNER.store(process::process_id(), Ordering::Relaxed);
    FLIGHTS.store(0, Ordering::Relaxed);
    text::share(0);
    CLEARING.reset();
    for parent in &PARENTS {
        parent.store(0, Ordering::Relaxed);
    }
}

/// May there be children of vfork in this memory?
#[inline]
pub(crate) fn is_under_way() -> bool {
    FLIGHTS.load(Ordering::Acquire) != 0
}

/// The record of the caller, when it is a child of vfork.
#[inline]
pub(crate) fn child() -> Option<&'static Child> {
    if FLIGHTS.load(Ordering::Acquire) == 0 { None } else { find_child() }
}

#[inline(never)]
fn find_child() -> Option<&'static Child> {
    let me = process::process_id();
    if me == OWNER.load(Ordering::Relaxed) {
        return None;
    }
    let mine = CHILDREN.iter().find(|child| child.process.load(Ordering::Relaxed) == me);
    mine.or_else(|| {
        CHILDREN.iter().find(|child| {
            child.process.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    })
    // More children at once than records: they meet in the last one, each of them for microseconds.
    .or(CHILDREN.last())
}

/// The calling thread is about to start a child in this memory.
///
/// # Errors
/// EAGAIN when too many do.
pub(super) fn depart() -> Result<(), Errno> {
    let me = process::thread_id();
    let _held = CLEARING.hold();
    let free = PARENTS.iter().find(|parent| parent.load(Ordering::Relaxed) == 0);
    free.ok_or(Errno::EAGAIN)?.store(me, Ordering::Relaxed);
    let others_are = FLIGHTS.load(Ordering::Relaxed) == 0 || BARE.load(Ordering::Relaxed);
    BARE.store(others_are && table::is_empty(), Ordering::Relaxed);
    text::share(FLIGHTS.fetch_add(1, Ordering::AcqRel) + 1);
    Ok(())
}

/// Has the calling child certainly no descriptor of ours?
pub(super) fn is_bare() -> bool {
    BARE.load(Ordering::Relaxed) && table::is_empty()
}

/// A child has got a descriptor that may be ours.
pub(crate) fn note_descriptor() {
    BARE.store(false, Ordering::Relaxed);
}

/// Ends the calling thread's flight, if it has one: it runs again, so its child does not.
#[inline]
pub(crate) fn settle() {
    if FLIGHTS.load(Ordering::Acquire) != 0 {
        land();
    }
}

#[inline(never)]
fn land() {
    if process::process_id() != OWNER.load(Ordering::Relaxed) {
        return;
    }
    let me = process::thread_id();
    let Some(mine) = PARENTS.iter().find(|parent| parent.load(Ordering::Relaxed) == me) else {
        return;
    };
    let _held = CLEARING.hold();
    mine.store(0, Ordering::Relaxed);
    if FLIGHTS.load(Ordering::Relaxed) == 1 {
        for child in CHILDREN.iter().filter(|child| child.process.load(Ordering::Relaxed) != 0) {
            child.clear();
        }
        text::reclaim(OWNER.load(Ordering::Relaxed));
        fault::forget_scope();
    }
    text::share(FLIGHTS.fetch_sub(1, Ordering::AcqRel) - 1);
}
