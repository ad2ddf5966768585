//! Mappings of our own: the only memory that code in a host process may allocate.

use core::ptr::NonNull;

use crate::{Errno, arch::syscall6, file, number, result};

/// Pages may be read.
pub const PROT_READ: usize = 1;
/// Pages may be written.
pub const PROT_WRITE: usize = 2;
/// Executable memory.
pub const PROT_EXEC: usize = 4;
/// Private to the process.
pub const MAP_PRIVATE: usize = 2;
/// Seen by others.
pub const MAP_SHARED: usize = 1;
/// As [`MAP_SHARED`], with unknown flags refused.
pub const MAP_SHARED_VALIDATE: usize = 3;
/// At this address and nowhere else.
pub const MAP_FIXED: usize = 0x10;
/// Backed by nothing.
pub const MAP_ANONYMOUS: usize = 0x20;
/// No swap is set aside.
pub const MAP_NORESERVE: usize = 0x4000;
/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

const MADV_DONTNEED: usize = 4;
const MADV_WIPEONFORK: usize = 18;

/// Fresh zeroed pages, private, taken from the machine only when touched.
///
/// # Errors
/// ENOMEM.
pub fn map_anonymous(bytes: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new private mapping at an address of the kernel's choice disturbs nothing.
    let address = unsafe {
        map(
            0,
            bytes,
            PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            usize::MAX,
            0,
        )
    }?;
    NonNull::new(address as *mut u8).ok_or(Errno::ENOMEM)
}

/// mmap.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// With `MAP_FIXED` the range must be the caller's to replace.
pub unsafe fn map(
    address: usize,
    bytes: usize,
    protection: usize,
    flags: usize,
    descriptor: usize,
    offset: usize,
) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    result(unsafe { syscall6(number::MMAP, address, bytes, protection, flags, descriptor, offset) })
}

/// Copies the beginning of the file behind `descriptor`, by a private mapping that goes again.
/// Somebody who shortens the file meanwhile kills the process.
///
/// # Errors
/// The kernel's; EINVAL when the file is shorter.
pub fn read_mapped(descriptor: i32, to: &mut [u8]) -> Result<(), Errno> {
    let bytes = to.len();
    if file::length(descriptor)? < bytes as u64 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let start = unsafe { map(0, bytes, PROT_READ, MAP_PRIVATE, descriptor as usize, 0) }?;
    let place = NonNull::new(start as *mut u8).ok_or(Errno::ENOMEM)?;
    // SAFETY: the file has these bytes, and `to` is elsewhere; nobody else knows of the mapping.
    unsafe {
        core::ptr::copy_nonoverlapping(place.as_ptr(), to.as_mut_ptr(), bytes);
        unmap(place, bytes);
    }
    Ok(())
}

/// Gives a mapping back.
///
/// # Safety
/// Nobody uses the range any more.
pub unsafe fn unmap(address: NonNull<u8>, bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe { syscall6(number::MUNMAP, address.as_ptr() as usize, bytes, 0, 0, 0, 0) };
}

/// Makes the pages read as zeros again.
///
/// # Safety
/// The range is a private anonymous mapping of ours in which zeros are valid.
pub unsafe fn forget(address: NonNull<u8>, bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        syscall6(number::MADVISE, address.as_ptr() as usize, bytes, MADV_DONTNEED, 0, 0, 0);
    }
}

/// Has the kernel zero the pages in the child of a fork.
///
/// # Errors
/// EINVAL on kernels before 4.14.
pub fn wipe_on_fork(address: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the advice only changes what a later child sees.
    let raw = unsafe {
        syscall6(number::MADVISE, address.as_ptr() as usize, bytes, MADV_WIPEONFORK, 0, 0, 0)
    };
    result(raw).map(|_| ())
}

/// Changes what may be done with pages.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The range is the caller's.
pub unsafe fn protect(address: usize, bytes: usize, protection: usize) -> Result<(), Errno> {
    // SAFETY: passed on to the caller.
    result(unsafe { syscall6(number::MPROTECT, address, bytes, protection, 0, 0, 0) }).map(|_| ())
}
