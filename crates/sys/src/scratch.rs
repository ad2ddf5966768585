//! Buffers for what does not fit a stack: gathered pieces, bounced data, a new environment.
//!
//! Buffers of the common size are kept for the next user, a few of them; others are mapped and
//! unmapped.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{Errno, memory};

/// Length of a kept buffer: one transfer.
pub const COMMON_BYTES: usize = mayfly_types::limits::TRANSFER_BYTES_MAX;
const KEPT: usize = 4;

static FREE: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];

/// A buffer; given back when dropped.
#[derive(Debug)]
pub struct Scratch {
    start: NonNull<u8>,
    bytes: usize,
}

impl Scratch {
    /// A buffer of at least `bytes` bytes, at least [`COMMON_BYTES`]. Its content is arbitrary.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn take(bytes: usize) -> Result<Scratch, Errno> {
        if bytes > COMMON_BYTES {
            let bytes = bytes.checked_next_multiple_of(memory::PAGE_BYTES).ok_or(Errno::ENOMEM)?;
            return Ok(Scratch { start: memory::map_anonymous(bytes)?, bytes });
        }
        for slot in &FREE {
            if let Some(start) = NonNull::new(slot.swap(0, Ordering::Acquire) as *mut u8) {
                return Ok(Scratch { start, bytes: COMMON_BYTES });
            }
        }
        Ok(Scratch { start: memory::map_anonymous(COMMON_BYTES)?, bytes: COMMON_BYTES })
    }

    /// The buffer.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping has this length and belongs to this value alone.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The buffer.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length and belongs to this value alone.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Gives up the guard: address and length, for [`Scratch::from_parts`].
    #[must_use]
    pub fn into_parts(self) -> (NonNull<u8>, usize) {
        let parts = (self.start, self.bytes);
        core::mem::forget(self);
        parts
    }

    /// Takes up what [`Scratch::into_parts`] gave.
    ///
    /// # Safety
    /// The parts came from there and nobody uses the buffer.
    #[must_use]
    pub unsafe fn from_parts(start: NonNull<u8>, bytes: usize) -> Scratch {
        Scratch { start, bytes }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.bytes == COMMON_BYTES {
            for slot in &FREE {
                let address = self.start.as_ptr() as usize;
                if slot.compare_exchange(0, address, Ordering::Release, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
        }
        // SAFETY: the buffer is ours and nobody else has its address.
        unsafe { memory::unmap(self.start, self.bytes) };
    }
}
