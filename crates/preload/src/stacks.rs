//! Stacks for hooks, so that a host with little stack of its own can call.
//!
//! posix_spawn gives its child 32 KiB, an alternate signal stack may have 8, a coroutine less; a
//! hook that handles paths needs more. So a hook borrows a stack from a small pool for the time of
//! one call and leaves about half a KiB on the host's. When all are lent the hook runs on the
//! host's.
//!
//! A slot is claimed with one compare-exchange. The page of slots is wiped on fork: the child's
//! only thread is not in a hook then. A child of vfork that execs never gives its stack back, in
//! memory that its parent goes on using: such a claim bears the thread's id, and is void once that
//! thread does not share our memory any more (kcmp(2) knows).

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use mayfly_sys::number;

use crate::entry::Frame;
use crate::kernel;

/// Stacks in the pool: hooks that can be under way at a time with a stack of their own.
const STACKS: usize = 64;
/// Length of one, bytes; memory is used as far as a hook goes.
const STACK_BYTES: usize = 256 * 1024;
/// Claimed by a thread that will give it back.
const LENT: u32 = 1;

#[repr(C, align(4096))]
struct Slots {
    owners: [AtomicU32; STACKS],
}

static SLOTS: Slots = Slots { owners: [const { AtomicU32::new(0) }; STACKS] };
/// Address of the pool, 0 when there is none.
static POOL: AtomicUsize = AtomicUsize::new(0);

/// Reserves the pool. Without it hooks run on the host's stack.
pub(crate) fn set_up() {
    const MADV_WIPEONFORK: usize = 18;
    const PROT_READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let pool = unsafe {
        mayfly_sys::arch::syscall6(
            number::MMAP,
            0,
            STACKS * STACK_BYTES,
            PROT_READ_WRITE,
            PRIVATE_ANONYMOUS_NORESERVE,
            usize::MAX,
            0,
        )
    };
    if let Ok(pool) = mayfly_sys::result(pool) {
        POOL.store(pool, Ordering::Relaxed);
    }
    let page = core::ptr::from_ref(&SLOTS) as usize;
    // SAFETY: the page is this library's own anonymous memory.
    unsafe {
        mayfly_sys::arch::syscall3(number::MADVISE, page, size_of::<Slots>(), MADV_WIPEONFORK)
    };
}

/// Calls `serve` with `frame`, on a stack of the pool if there is one.
///
/// # Safety
/// `frame` is valid for `serve`.
pub(crate) unsafe fn call_on(
    serve: unsafe extern "C" fn(*mut Frame),
    frame: *mut Frame,
    call: usize,
) {
    let Some((slot, top)) = claim(call) else {
        // SAFETY: the caller's promise.
        return unsafe { serve(frame) };
    };
    // SAFETY: `top` is the end of a stack that is ours alone until the slot is given back; r12 is
    // preserved by `serve`, so the host's stack pointer comes back.
    unsafe {
        asm!(
            "xchg rsp, r12",
            "call rax",
            "mov rsp, r12",
            inout("r12") top => _,
            inout("rax") serve => _,
            inout("rdi") frame => _,
            clobber_abi("C"),
        );
    }
    slot.store(0, Ordering::Release);
}

fn claim(call: usize) -> Option<(&'static AtomicU32, usize)> {
    let pool = POOL.load(Ordering::Relaxed);
    if pool == 0 {
        return None;
    }
    let leaves = call == number::EXECVE || call == number::EXECVEAT;
    let owner = if leaves { kernel::thread_id() } else { LENT };
    free_slot(owner)
        .or_else(|| {
            take_back();
            free_slot(owner)
        })
        .map(|index| (&SLOTS.owners[index], pool + (index + 1) * STACK_BYTES))
}

fn free_slot(owner: u32) -> Option<usize> {
    SLOTS.owners.iter().position(|slot| {
        slot.load(Ordering::Relaxed) == 0
            && slot.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).is_ok()
    })
}

/// Frees the stacks of threads that have left this memory by exec.
fn take_back() {
    const KCMP_VM: usize = 1;
    const ESRCH: isize = -3;
    let own = kernel::thread_id() as usize;
    for slot in &SLOTS.owners {
        let owner = slot.load(Ordering::Relaxed);
        if owner <= LENT {
            continue;
        }
        // SAFETY: kcmp reads nothing of ours.
        let same = unsafe {
            mayfly_sys::arch::syscall6(number::KCMP, own, owner as usize, KCMP_VM, 0, 0, 0)
        };
        if same > 0 || same == ESRCH {
            let _ = slot.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
