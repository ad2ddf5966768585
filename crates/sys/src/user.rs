//! Memory of the host that a system call names.
//!
//! All reading and writing of the host's memory goes through the routines of [`fault`], so that a
//! bad pointer gives EFAULT, as the kernel would. What the kernel copies itself is not read here.

use crate::{Errno, fault, text::PathText};

/// Lowest address a process can map (`vm.mmap_min_addr` of common kernels).
const LOWEST: usize = 4096;
/// One past the highest address of user space with four-level page tables.
const HIGHEST: usize = 1 << 47;

/// Could `bytes` at `address` be memory of the host at all?
#[must_use]
pub fn plausible(address: usize, bytes: usize) -> bool {
    bytes == 0 || ((LOWEST..HIGHEST).contains(&address) && bytes <= HIGHEST - address)
}

/// Looks at each page of an array of the host, before it is read where it stands.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// What is mapped of it may be read.
pub unsafe fn look_over(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: passed on to the caller.
    if unsafe { readable(address, bytes) } == bytes { Ok(()) } else { Err(Errno::EFAULT) }
}

/// How many of these bytes of the host can be read, up to the first page that cannot.
///
/// # Safety
/// What is mapped of it may be read.
#[must_use]
pub unsafe fn readable(address: usize, bytes: usize) -> usize {
    const PAGE_BYTES: usize = 4096;
    if !plausible(address, bytes) {
        return 0;
    }
    let mut done = 0;
    while done < bytes {
        let (at, mut byte) = (address + done, 0);
        // SAFETY: passed on to the caller.
        if unsafe { copy_in(at as *const u8, core::slice::from_mut(&mut byte)) }.is_err() {
            break;
        }
        done = (done + PAGE_BYTES - at % PAGE_BYTES).min(bytes);
    }
    done
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
    let copied = unsafe { fault::copy(to.as_mut_ptr(), from, to.len()) };
    if copied { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies `from` into the host's memory.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// `to` is an address that the host passed to the kernel for writing that many bytes.
pub unsafe fn copy_out(from: &[u8], to: *mut u8) -> Result<(), Errno> {
    // SAFETY: passed on to the caller.
    unsafe { copy_out_shown(from.as_ptr(), from.len(), to) }
}

/// The same from memory that others may be changing.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// As [`copy_out`]; so many bytes are mapped at `from`.
pub unsafe fn copy_out_shown(from: *const u8, bytes: usize, to: *mut u8) -> Result<(), Errno> {
    if !plausible(to as usize, bytes) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the host vouches for `to`; `from` is ours, so the two do not overlap, and the copy is
    // made by instructions of which the compiler knows nothing.
    let copied = unsafe { fault::copy(to, from, bytes) };
    if copied { Ok(()) } else { Err(Errno::EFAULT) }
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

/// A path of the host, where it stands.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    /// Its bytes, without the zero.
    pub bytes: &'a [u8],
    /// It has an empty component, or one that starts with a dot and is not the first.
    pub odd: bool,
}

/// A zero-terminated path of the host, where it stands.
///
/// # Errors
/// EFAULT; ENAMETOOLONG when there is no zero within PATH_MAX bytes.
///
/// # Safety
/// `from` is an address that the host passed to the kernel as a path; the bytes stay for the call.
#[inline]
pub unsafe fn scanned<'a>(from: *const u8) -> Result<Path<'a>, Errno> {
    const PATH_BYTES_MAX: usize = 4096;
    if !plausible(from as usize, 1) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the host vouches for a zero-terminated string.
    let found = unsafe { fault::scan(from, PATH_BYTES_MAX) };
    match found.length {
        fault::FAULT => Err(Errno::EFAULT),
        PATH_BYTES_MAX.. => Err(Errno::ENAMETOOLONG),
        length => {
            // SAFETY: those bytes were just read.
            let bytes = unsafe { core::slice::from_raw_parts(from, length) };
            Ok(Path { bytes, odd: found.odd != 0 })
        }
    }
}

/// The bytes of [`scanned`].
///
/// # Errors
/// As [`scanned`].
///
/// # Safety
/// As [`scanned`].
pub unsafe fn path<'a>(from: *const u8) -> Result<&'a [u8], Errno> {
    // SAFETY: passed on to the caller.
    unsafe { scanned(from) }.map(|path| path.bytes)
}

/// A zero-terminated string of any length, where it stands; empty when the address is bad.
///
/// # Safety
/// `from` is what the host takes for a string, for as long as the result is used.
#[must_use]
pub unsafe fn string<'a>(from: *const u8) -> &'a [u8] {
    // SAFETY: passed on to the caller.
    match unsafe { fault::scan(from, usize::MAX >> 1) }.length {
        fault::FAULT => &[],
        // SAFETY: those bytes were just read.
        length => unsafe { core::slice::from_raw_parts(from, length) },
    }
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
