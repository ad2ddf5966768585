//! The few system calls this library makes on its own behalf.
//!
//! All are inlined: the signal path runs in a section of its own and must not leave it.

use mayfly_image::format::PAGE_BYTES;
use mayfly_sys::arch::{syscall3, syscall6};
use mayfly_sys::number;

/// Bytes of the kernel's signal set.
pub(crate) const SIGSET_BYTES: usize = 8;

/// The kernel's `struct sigaction` (not the C library's).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Action {
    /// Function, SIG_DFL (0) or SIG_IGN (1).
    pub(crate) handler: usize,
    /// SA_ flags.
    pub(crate) flags: usize,
    /// Where the handler returns to.
    pub(crate) restorer: usize,
    /// Signals blocked while it runs.
    pub(crate) mask: u64,
}

#[inline(always)]
fn address<T>(place: Option<&T>) -> usize {
    place.map_or(0, |place| core::ptr::from_ref(place) as usize)
}

/// rt_sigaction on values of ours.
#[inline(always)]
pub(crate) fn set_action(signal: usize, new: Option<&Action>, old: Option<&mut Action>) -> isize {
    let old = old.map_or(0, |old| core::ptr::from_mut(old) as usize);
    // SAFETY: both pointers are null or references to the kernel's structure.
    unsafe { syscall6(number::RT_SIGACTION, signal, address(new), old, SIGSET_BYTES, 0, 0) }
}

/// Unblocks the signals in `mask` for the calling thread.
#[inline(always)]
pub(crate) fn unblock(mask: u64) {
    const SIG_UNBLOCK: usize = 1;
    let mask = core::ptr::from_ref(&mask) as usize;
    // SAFETY: the mask outlives the call.
    unsafe { syscall6(number::RT_SIGPROCMASK, SIG_UNBLOCK, mask, 0, SIGSET_BYTES, 0, 0) };
}

/// The calling thread's signal mask.
pub(crate) fn blocked() -> u64 {
    let mut now = 0_u64;
    // SAFETY: the mask outlives the call, which changes nothing.
    unsafe { syscall6(number::RT_SIGPROCMASK, 0, 0, &raw mut now as usize, SIGSET_BYTES, 0, 0) };
    now
}

/// Sets the calling thread's signal mask; the one before.
pub(crate) fn set_mask(mask: u64) -> u64 {
    const SIG_SETMASK: usize = 2;
    let mut before = 0_u64;
    let (new, old) = (&raw const mask as usize, &raw mut before as usize);
    // SAFETY: both masks outlive the call.
    unsafe { syscall6(number::RT_SIGPROCMASK, SIG_SETMASK, new, old, SIGSET_BYTES, 0, 0) };
    before
}

/// The calling process.
#[inline(always)]
pub(crate) fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall3(number::GETPID, 0, 0, 0) as u32 }
}

/// The calling thread.
#[inline(always)]
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall3(number::GETTID, 0, 0, 0) as u32 }
}

/// Writes to the host's standard error, as well as it goes.
pub(crate) fn write_to_stderr(bytes: &[u8]) {
    // SAFETY: the bytes are readable.
    unsafe { syscall3(number::WRITE, 2, bytes.as_ptr() as usize, bytes.len()) };
}

/// Opens a file for reading; negative on failure.
///
/// # Safety
/// `path` is null-terminated.
pub(crate) unsafe fn open(path: *const u8) -> isize {
    const AT_FDCWD: isize = -100;
    const O_CLOEXEC_NOFOLLOW: usize = 0o2_400_000;
    // SAFETY: the caller's promise.
    unsafe { syscall3(number::OPENAT, AT_FDCWD as usize, path as usize, O_CLOEXEC_NOFOLLOW) }
}

/// Closes a descriptor of ours.
pub(crate) fn close(fd: usize) {
    // SAFETY: no pointers.
    unsafe { syscall3(number::CLOSE, fd, 0, 0) };
}

/// Reads from the beginning of a file until `buffer` is full or the file ends; bytes read.
pub(crate) fn read_at_start(fd: usize, buffer: &mut [u8]) -> usize {
    let mut used = 0;
    while used < buffer.len() {
        let (at, bytes) = (buffer[used..].as_mut_ptr() as usize, buffer.len() - used);
        // SAFETY: the rest of the buffer is writable.
        let read = unsafe { syscall6(number::PREAD64, fd, at, bytes, used, 0, 0) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => used += read,
            _ => break,
        }
    }
    used
}

/// Where and how to map.
pub(crate) struct Mapping {
    /// Address, binding with MAP_FIXED or MAP_FIXED_NOREPLACE.
    pub(crate) address: usize,
    /// Bytes.
    pub(crate) bytes: usize,
    /// PROT_ bits.
    pub(crate) protection: usize,
    /// MAP_ bits.
    pub(crate) flags: usize,
    /// The file and the offset in it; `None` for anonymous memory.
    pub(crate) file: Option<(usize, usize)>,
}

pub(crate) const PROT_READ: usize = 1;
pub(crate) const PROT_WRITE: usize = 2;
pub(crate) const PROT_EXEC: usize = 4;
pub(crate) const MAP_SHARED: usize = 1;
pub(crate) const MAP_PRIVATE: usize = 2;
pub(crate) const MAP_FIXED: usize = 0x10;
pub(crate) const MAP_ANONYMOUS: usize = 0x20;
pub(crate) const MAP_FIXED_NOREPLACE: usize = 0x10_0000;

/// mmap; the address, or nothing.
///
/// # Safety
/// With MAP_FIXED, what was mapped there must be the caller's to replace.
pub(crate) unsafe fn map(mapping: &Mapping) -> Option<usize> {
    let Mapping { address, bytes, protection, .. } = *mapping;
    let (flags, fd, offset) = match mapping.file {
        Some((fd, offset)) => (mapping.flags, fd, offset),
        None => (mapping.flags | MAP_ANONYMOUS, usize::MAX, 0),
    };
    // SAFETY: the caller's promise.
    let at = unsafe { syscall6(number::MMAP, address, bytes, protection, flags, fd, offset) };
    usize::try_from(at).ok()
}

/// munmap of a mapping of ours.
///
/// # Safety
/// Nothing refers to the range any more.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall3(number::MUNMAP, address, bytes, 0) };
}

/// Is there anything in the page at this address?
pub(crate) fn is_mapped(page: usize) -> bool {
    let mut resident = 0_u8;
    let answer = (&raw mut resident) as usize;
    // SAFETY: asks for one page, and there is room for the answer.
    page != 0 && unsafe { syscall3(number::MINCORE, page, PAGE_BYTES, answer) } == 0
}

/// mprotect of a mapping of ours; whether it worked.
///
/// # Safety
/// Nothing relies on a permission that goes.
pub(crate) unsafe fn protect(address: usize, bytes: usize, protection: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { syscall3(number::MPROTECT, address, bytes, protection) == 0 }
}

/// The size of a regular file that belongs to us and to which nobody else has access.
pub(crate) fn own_file_bytes(fd: usize) -> Option<u64> {
    const S_IFMT: u32 = 0o170_000;
    const S_IFREG: u32 = 0o100_000;
    // `struct stat`: mode at 24, owner at 28, size at 48, 144 bytes in all.
    let mut stat = [0_u64; 18];
    // SAFETY: the buffer has the structure's size.
    let failed = unsafe { syscall3(number::FSTAT, fd, stat.as_mut_ptr() as usize, 0) };
    // SAFETY: no arguments.
    let user = unsafe { syscall3(number::GETEUID, 0, 0, 0) } as u32;
    let (mode, owner) = (stat[3] as u32, (stat[3] >> 32) as u32);
    let private = mode & S_IFMT == S_IFREG && mode & 0o077 == 0 && owner == user;
    if failed == 0 && private { Some(stat[6]) } else { None }
}
