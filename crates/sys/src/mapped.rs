//! A file that is changed in memory.
//!
//! [`Mapped`] maps a file shared: what is written here is in the kernel's page cache at once and
//! outlives this process, whatever kills it. It does not outlive the machine.
//!
//! **Order.** A process dies between two of its instructions: what stands before that one in its
//! program has happened, what stands after it has not, on any processor (an interrupt is precise
//! and the stores of what was finished are performed). So whoever opens the file afterwards sees a
//! beginning of the sequence of stores that the compiler wrote down. [`Mapped::publish`] keeps
//! the compiler from moving other stores over it, in either direction; no instruction is needed.
//!
//! **Bounds.** The mapping may be longer than the file, so that it seldom moves when the file
//! grows; what lies beyond [`Mapped::bytes`] is never touched. The caller has *allocated* what it
//! says is usable: a store to a page for which the disk has no block would be a SIGBUS.
//!
//! **Who else.** The caller keeps others from the file (a lock, a private directory). Somebody of
//! the same user who shortens it nevertheless kills this process, as he could anyway.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering, compiler_fence, fence},
};

use crate::{
    Errno,
    arch::syscall6,
    memory::{self, MAP_SHARED, PROT_READ, PROT_WRITE},
    number, result,
};

/// A mapping is at least so long, bytes: addresses cost nothing.
const SPAN_BYTES_MIN: usize = 64 << 20;
const MREMAP_MAYMOVE: usize = 1;
/// What is fetched at once.
const CACHE_LINE_BYTES: usize = 64;

/// A file, mapped shared for reading and writing. Belongs to one thread at a time.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    /// Bytes that may be touched.
    usable: usize,
    /// Bytes that are mapped.
    span: usize,
}

// SAFETY: the mapping belongs to the process, and it is changed through `&mut` only.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps the file behind `descriptor`, of which the first `usable` bytes are allocated. The
    /// descriptor need not stay open.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(descriptor: i32, usable: usize) -> Result<Mapped, Errno> {
        let span = span_of(usable)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            memory::map(0, span, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor as usize, 0)
        }?;
        let start = NonNull::new(start as *mut u8).ok_or(Errno::ENOMEM)?;
        Ok(Mapped { start, usable, span })
    }

    /// The file has become longer: its first `usable` bytes are allocated.
    ///
    /// # Errors
    /// The kernel's; then nothing has changed.
    pub fn grow(&mut self, usable: usize) -> Result<(), Errno> {
        if usable > self.span {
            let span = span_of(usable)?;
            let from = self.start.as_ptr() as usize;
            // SAFETY: the range is the mapping of this value, and nobody has a reference into it:
            // they borrow `self`.
            let raw =
                unsafe { syscall6(number::MREMAP, from, self.span, span, MREMAP_MAYMOVE, 0, 0) };
            self.start = NonNull::new(result(raw)? as *mut u8).ok_or(Errno::ENOMEM)?;
            self.span = span;
        }
        self.usable = self.usable.max(usable);
        Ok(())
    }

    /// What the file holds.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so much is mapped and allocated, and only `self` writes to it, which is borrowed.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.usable) }
    }

    /// Has the processor fetch cache lines from `at` on, which are about to be read. Nothing
    /// happens where they are not within the file.
    #[inline]
    pub fn prefetch<const LINES: usize>(&self, at: usize) {
        if self.holds(at, LINES * CACHE_LINE_BYTES) {
            // SAFETY: within the mapping, as was just looked.
            let start = unsafe { self.start.add(at) };
            for line in 0..LINES {
                prefetch(start, line * CACHE_LINE_BYTES, LINES * CACHE_LINE_BYTES);
            }
        }
    }

    /// Writes `from` at `at`; false, and nothing written, where that is not within the file.
    #[must_use]
    #[inline]
    pub fn write(&mut self, at: usize, from: &[u8]) -> bool {
        if !self.holds(at, from.len()) {
            return false;
        }
        // SAFETY: the target is within the mapping, as was just looked, and `from` is elsewhere:
        // a borrow of the mapping would be a borrow of `self`.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr().add(at), from.len());
        }
        true
    }

    /// Moves `bytes` bytes at `from` to `to`; they may overlap. False, and nothing moved, where
    /// that is not within the file.
    #[must_use]
    #[inline]
    pub fn shift(&mut self, from: usize, bytes: usize, to: usize) -> bool {
        if !self.holds(from, bytes) || !self.holds(to, bytes) {
            return false;
        }
        // SAFETY: both are within the mapping, and `copy` allows them to overlap.
        unsafe {
            let start = self.start.as_ptr();
            core::ptr::copy(start.add(from), start.add(to), bytes);
        }
        true
    }

    /// Writes a number so that a process that dies leaves it only together with all that was
    /// written before, and leaves nothing that is written after without it. False, and nothing
    /// written, where `at` is not a multiple of 8 within the file.
    #[must_use]
    #[inline]
    pub fn publish(&mut self, at: usize, value: u64) -> bool {
        if !self.holds(at, 8) || !at.is_multiple_of(8) {
            return false;
        }
        compiler_fence(Ordering::SeqCst);
        // SAFETY: within the mapping, which starts at a page, and aligned.
        let number = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) };
        number.store(value.to_le(), Ordering::Release);
        // For those who read the file meanwhile; no instruction on x86-64.
        fence(Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        true
    }

    #[inline]
    fn holds(&self, at: usize, bytes: usize) -> bool {
        at <= self.usable && bytes <= self.usable - at
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is this value's mapping, and every reference into it borrowed `self`.
        unsafe { memory::unmap(self.start, self.span) };
    }
}

#[inline]
fn prefetch(start: NonNull<u8>, at: usize, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if at < bytes {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is within a mapping of so many bytes; fetching it changes nothing,
        // and where nothing is to be fetched nothing happens.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.as_ptr().add(at).cast()) };
    }
}

/// How much is mapped for a file of so many bytes: room to double.
fn span_of(usable: usize) -> Result<usize, Errno> {
    let doubled = usable.checked_mul(2).ok_or(Errno::ENOMEM)?.max(SPAN_BYTES_MIN);
    doubled.checked_next_multiple_of(memory::PAGE_BYTES).ok_or(Errno::ENOMEM)
}

/// A word at any place.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(u64);

/// A file that another process changes, mapped for reading. What is read may be a mixture of what
/// was and what will be.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    start: NonNull<u8>,
    span: usize,
}

// SAFETY: nothing is written through it, and it says of nothing that it stays as it is.
unsafe impl Send for Shown {}
// SAFETY: as above.
unsafe impl Sync for Shown {}

impl Shown {
    /// Maps `span` bytes of the file behind `descriptor`, which need not be so long. The descriptor
    /// need not stay open.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(descriptor: i32, span: usize) -> Result<Shown, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { memory::map(0, span, PROT_READ, MAP_SHARED, descriptor as usize, 0) }?;
        let start = NonNull::new(start as *mut u8).ok_or(Errno::ENOMEM)?;
        Ok(Shown { start, span })
    }

    /// The same file once more, `span` bytes of it, at another place. This mapping stays.
    ///
    /// # Errors
    /// The kernel's.
    pub fn again(&self, span: usize) -> Result<Shown, Errno> {
        let from = self.start.as_ptr() as usize;
        // SAFETY: from a shared mapping none of whose bytes are moved a new one is made, at an
        // address of the kernel's choice.
        let raw = unsafe { syscall6(number::MREMAP, from, 0, span, MREMAP_MAYMOVE, 0, 0) };
        let start = NonNull::new(result(raw)? as *mut u8).ok_or(Errno::ENOMEM)?;
        Ok(Shown { start, span })
    }

    /// The mapping of so many bytes at `start`.
    ///
    /// # Safety
    /// Such a mapping was made, and has not been given back.
    #[must_use]
    #[inline]
    pub unsafe fn at(start: NonNull<u8>, span: usize) -> Shown {
        Shown { start, span }
    }

    /// Where the mapping begins.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes that are mapped.
    #[must_use]
    #[inline]
    pub fn span(&self) -> usize {
        self.span
    }

    /// The word at a multiple of 8, in one load; `None` beyond the mapping.
    ///
    /// # Safety
    /// The file is so long.
    #[must_use]
    #[inline]
    pub unsafe fn word(&self, at: usize) -> Option<u64> {
        if !at.is_multiple_of(8) || at >= self.span || self.span - at < 8 {
            return None;
        }
        // SAFETY: within the mapping, which starts at a page, and aligned; the file, says the
        // caller, reaches there. Only loads happen.
        let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) };
        Some(u64::from_le(word.load(Ordering::Acquire)))
    }

    /// The eight bytes at any place; `None` beyond the mapping.
    ///
    /// # Safety
    /// The file is so long.
    #[must_use]
    #[inline]
    pub unsafe fn chunk(&self, at: usize) -> Option<[u8; 8]> {
        if at >= self.span || self.span - at < 8 {
            return None;
        }
        // SAFETY: within the mapping and, says the caller, within the file. The other process may
        // write meanwhile, then this is a mixture, and any bytes are a valid word. Packed, it
        // needs no alignment and is one load, where eight bytes would be eight.
        let word = unsafe { self.start.as_ptr().add(at).cast::<Unaligned>().read_volatile() };
        Some(word.0.to_ne_bytes())
    }

    /// Where so many bytes at `at` are mapped; `None` beyond the mapping.
    #[must_use]
    #[inline]
    pub fn range(&self, at: usize, bytes: usize) -> Option<*const u8> {
        let fits = at <= self.span && bytes <= self.span - at;
        fits.then(|| self.start.as_ptr().wrapping_add(at).cast_const())
    }

    /// Has the processor fetch the cache line at `at`, as [`Mapped::prefetch`].
    #[inline]
    pub fn prefetch(&self, at: usize) {
        prefetch(self.start, at, self.span);
    }

    /// Gives the mapping back.
    ///
    /// # Safety
    /// Nobody looks any more.
    pub unsafe fn end(&self) {
        // SAFETY: the range is this value's mapping, and nobody looks, says the caller.
        unsafe { memory::unmap(self.start, self.span) };
    }
}
