//! Processes, threads and their limits.

use crate::{
    Errno,
    arch::{syscall3, syscall6},
    file, number, result,
    text::PathText,
};

pub use crate::ids::{process_id, thread_id};

/// Largest file size a process may create.
pub const RLIMIT_FSIZE: usize = 1;
/// Largest sum of all mappings, bytes.
pub const RLIMIT_AS: usize = 9;
/// One more than the highest descriptor number.
pub const RLIMIT_NOFILE: usize = 7;
/// Sent when a file would exceed the limit.
pub const SIGXFSZ: usize = 25;

/// A resource limit (`struct rlimit64`).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Limit {
    /// What the kernel enforces.
    pub soft: u64,
    /// How far `soft` may be raised.
    pub hard: u64,
}

/// Effective user and group: the owner of new files.
#[must_use]
pub fn owner() -> (u32, u32) {
    // SAFETY: touches no memory.
    unsafe {
        (syscall3(number::GETEUID, 0, 0, 0) as u32, syscall3(number::GETEGID, 0, 0, 0) as u32)
    }
}

/// A limit of this process.
#[must_use]
pub fn limit(resource: usize) -> Limit {
    let mut limit = Limit { soft: u64::MAX, hard: u64::MAX };
    // SAFETY: the structure has the kernel's form and outlives the call.
    unsafe {
        syscall6(number::PRLIMIT64, 0, resource, 0, core::ptr::from_mut(&mut limit) as usize, 0, 0);
    }
    limit
}

/// Sets a limit of this process.
///
/// # Errors
/// The kernel's.
pub fn set_limit(resource: usize, limit: Limit) -> Result<(), Errno> {
    // SAFETY: the structure has the kernel's form and outlives the call.
    let raw = unsafe {
        syscall6(number::PRLIMIT64, 0, resource, core::ptr::from_ref(&limit) as usize, 0, 0, 0)
    };
    result(raw).map(|_| ())
}

/// Sends a signal to the calling thread.
pub fn raise(signal: usize) {
    // SAFETY: touches no memory; what the host does with the signal is the host's business.
    unsafe {
        syscall3(number::TGKILL, process_id() as usize, thread_id() as usize, signal);
    }
}

/// Lets another thread run.
pub fn give_way() {
    // SAFETY: touches no memory.
    unsafe { syscall3(number::SCHED_YIELD, 0, 0, 0) };
}

/// Is the thread alive? A zombie is not: it will never let go of anything.
#[must_use]
pub fn thread_lives(thread: u32) -> bool {
    read_state(thread).is_ok_and(|state| state != b'Z' && state != b'X')
}

fn read_state(thread: u32) -> Result<u8, Errno> {
    let mut path = PathText::from_bytes(b"/proc/")?;
    path.push_decimal(u64::from(thread))?;
    path.push(b"/stat")?;
    let descriptor = file::open_at(file::AT_FDCWD, &path, file::O_CLOEXEC, 0)?;
    let mut line = [0_u8; 128];
    // SAFETY: the buffer is ours and as long as stated.
    let count = unsafe { file::read_at(descriptor, line.as_mut_ptr(), line.len(), 0) };
    file::close(descriptor);
    let line = line.get(..count?).ok_or(Errno::EIO)?;
    // The name in parentheses may hold anything, so the state follows the last closing one.
    let end = line.iter().rposition(|byte| *byte == b')').ok_or(Errno::EIO)?;
    line.get(end + 2).copied().ok_or(Errno::EIO)
}

/// Names the thread, as `ps` shows it.
pub fn set_name(name: &[u8]) {
    const PR_SET_NAME: usize = 15;
    let mut text = [0_u8; 16];
    for (to, from) in text.iter_mut().take(15).zip(name) {
        *to = *from;
    }
    // SAFETY: the kernel reads up to 16 bytes, terminated.
    unsafe { syscall3(number::PRCTL, PR_SET_NAME, text.as_ptr() as usize, 0) };
}

/// How often the kernel took the processor away from the calling thread (`ru_nivcsw`).
#[must_use]
pub fn preemptions() -> i64 {
    const RUSAGE_THREAD: usize = 1;
    /// Place of `ru_nivcsw`, the last of the words of `struct rusage`.
    const NIVCSW: usize = 17;
    let mut usage = [0_i64; 18];
    // SAFETY: the array has the size of a rusage and outlives the call.
    unsafe { syscall3(number::GETRUSAGE, RUSAGE_THREAD, usage.as_mut_ptr() as usize, 0) };
    usage[NIVCSW]
}

/// Puts this process, which must have one thread, into a user namespace of its own, where it may
/// mount, and a namespace of mounts.
///
/// # Errors
/// As unshare: EPERM and ENOSPC where the machine does not allow it.
pub fn enter_own_namespaces() -> Result<(), Errno> {
    const NEW_USER: usize = 0x1000_0000;
    const NEW_MOUNTS: usize = 0x2_0000;
    // SAFETY: the call touches no memory, and the table of files stays shared.
    result(unsafe { syscall3(number::UNSHARE, NEW_USER | NEW_MOUNTS, 0, 0) }).map(drop)
}

/// Moves the calling thread to another processor than the one with number `here`, if it may run on
/// more than that one. Where it may run stays as it was. False when it has not moved.
#[must_use]
pub fn step_aside(here: u32) -> bool {
    move_within(|allowed| set_bit(allowed, here, false))
}

/// Moves the calling thread to the processor with number `there`, if it may run on it. Where it may
/// run stays as it was. False when it has not moved.
#[must_use]
pub fn step_over(there: u32) -> bool {
    move_within(|allowed| {
        let may =
            allowed.get(there as usize / 64).is_some_and(|word| word >> (there % 64) & 1 != 0);
        allowed.fill(0);
        set_bit(allowed, there, may);
    })
}

/// Processors, a bit each.
type Mask = [u64; 64];

fn set_bit(mask: &mut Mask, number: u32, on: bool) {
    if let Some(word) = mask.get_mut(number as usize / 64) {
        *word = *word & !(1 << (number % 64)) | u64::from(on) << (number % 64);
    }
}

/// Processors that the calling thread may run on; 1 when that is not known.
#[must_use]
pub fn processors() -> u32 {
    allowed().map_or(1, |(mask, _)| mask.iter().map(|word| word.count_ones()).sum())
}

/// Where the calling thread may run, and the bytes of it that the kernel knows.
fn allowed() -> Option<(Mask, usize)> {
    let mut mask: Mask = [0; 64];
    let (at, bytes) = (mask.as_mut_ptr() as usize, size_of_val(&mask));
    // SAFETY: the mask has the length given and outlives the call.
    let raw = unsafe { syscall3(number::SCHED_GETAFFINITY, 0, bytes, at) };
    result(raw).ok().map(|bytes| (mask, bytes))
}

/// Takes away from where the thread may run for a moment what `narrow` takes away.
fn move_within(narrow: impl FnOnce(&mut Mask)) -> bool {
    let Some((allowed, bytes)) = allowed() else { return false };
    let mut narrowed = allowed;
    narrow(&mut narrowed);
    let set = |mask: &Mask| {
        // SAFETY: the mask has at least that length, and the kernel only reads it.
        result(unsafe {
            syscall3(number::SCHED_SETAFFINITY, 0, bytes, core::ptr::from_ref(mask) as usize)
        })
    };
    let moved = narrowed.iter().any(|word| *word != 0) && set(&narrowed).is_ok();
    // What was allowed before is allowed still.
    moved && set(&allowed).is_ok()
}
