//! Memory of the host that a system call names.
//!
//! All copying between the host's memory and ours happens in [`copy_in`] and [`copy_out`], so that
//! the kernel's EFAULT can be imitated in one place. Until a fault fix-up stands here, only
//! addresses that can never be mapped are refused; another bad pointer faults where a C library's
//! own wrapper would.

use crate::{Errno, text::PathText};

/// Lowest address a process can map (`vm.mmap_min_addr` of common kernels).
const LOWEST: usize = 4096;
/// One past the highest address of user space with four-level page tables.
const HIGHEST: usize = 1 << 47;

/// Could `bytes` at `address` be memory of the host at all?
#[must_use]
pub fn plausible(address: usize, bytes: usize) -> bool {
    bytes == 0 || ((LOWEST..HIGHEST).contains(&address) && bytes <= HIGHEST - address)
}

/// Copies `to.len()` bytes of the host into `to`.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// `from` is an address that the host passed to the kernel for reading that many bytes.
pub unsafe fn copy_in(from: *const u8, to: &mut [u8]) -> Result<(), Errno> {
    if !plausible(from as usize, to.len()) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the host vouches for `from`; `to` is ours, so the two do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    Ok(())
}

/// Copies `from` into the host's memory.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// `to` is an address that the host passed to the kernel for writing that many bytes.
pub unsafe fn copy_out(from: &[u8], to: *mut u8) -> Result<(), Errno> {
    if !plausible(to as usize, from.len()) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the host vouches for `to`; `from` is ours, so the two do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    Ok(())
}

/// Reads one plain value.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// As [`copy_in`]; every bit pattern must be a valid `V`.
pub unsafe fn read<V: Copy>(from: *const V) -> Result<V, Errno> {
    let mut value = core::mem::MaybeUninit::<V>::uninit();
    // SAFETY: the bytes of an uninitialised value may be written through a byte slice.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<V>()) };
    // SAFETY: passed on to the caller.
    unsafe { copy_in(from.cast(), bytes)? };
    // SAFETY: all bytes were written, and any pattern is a value.
    Ok(unsafe { value.assume_init() })
}

/// Writes one plain value.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// As [`copy_out`]; `V` has no padding whose content matters.
pub unsafe fn write<V: Copy>(value: &V, to: *mut V) -> Result<(), Errno> {
    // SAFETY: a value may be read as bytes; padding goes to memory that only the host looks at.
    let bytes = unsafe {
        core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<V>())
    };
    // SAFETY: passed on to the caller.
    unsafe { copy_out(bytes, to.cast()) }
}

/// A zero-terminated path of the host, where it stands.
///
/// # Errors
/// EFAULT; ENAMETOOLONG when there is no zero within PATH_MAX bytes.
///
/// # Safety
/// `from` is an address that the host passed to the kernel as a path; the bytes stay for the call.
pub unsafe fn path<'a>(from: *const u8) -> Result<&'a [u8], Errno> {
    if !plausible(from as usize, 1) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the host vouches for a zero-terminated string, which is not read beyond its end.
    let length = unsafe { string_length(from, 4096) }.ok_or(Errno::ENAMETOOLONG)?;
    // SAFETY: those bytes were just read.
    Ok(unsafe { core::slice::from_raw_parts(from, length) })
}

/// Length of a zero-terminated string that is shorter than `limit`.
///
/// # Safety
/// `from` is readable up to its zero or up to `limit`.
#[must_use]
pub unsafe fn string_length(from: *const u8, limit: usize) -> Option<usize> {
    // SAFETY: each byte is read only after the ones before it were not the end.
    (0..limit).find(|at| unsafe { from.add(*at).read() } == 0)
}

/// A zero-terminated string of any length, where it stands.
///
/// # Safety
/// `from` is a valid string for as long as the result is used.
#[must_use]
pub unsafe fn string<'a>(from: *const u8) -> &'a [u8] {
    // SAFETY: the caller vouches for the string.
    let length = unsafe { string_length(from, usize::MAX >> 1) }.unwrap_or(0);
    // SAFETY: those bytes were just read.
    unsafe { core::slice::from_raw_parts(from, length) }
}

/// A path copied.
///
/// # Errors
/// As [`path`].
///
/// # Safety
/// As [`path`].
pub unsafe fn path_copied(from: *const u8) -> Result<PathText, Errno> {
    // SAFETY: passed on to the caller.
    PathText::from_bytes(unsafe { path(from)? })
}
