//! The contents of small files at their open.
//!
//! The reply to an open for reading carries the content of a file that fits its record, and it is
//! kept here until the description is read: so a small file that is opened, read and closed costs
//! one request and not two or three.
//!
//! **Nothing stale is read.** With the content comes the version of it that stands in the node's
//! table of open files. The daemon counts that up before it answers a request that changes bytes or
//! length, and a change of the file's form shows in the flags of the same entry. Both are looked at
//! in each read, after the call has begun: a change whose call returned before is seen then, and
//! the daemon is asked.
//!
//! There is a place for each of a few descriptions, by their number; another description takes it
//! over. A place that another thread is at is as good as none, so nobody waits here. The memory is
//! mapped when the first content comes.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use mayfly_sys::{Errno, memory};
use mayfly_transport_shm::layout::{FILE_OBJECT, FileEntry};
use mayfly_types::{OpenRef, limits::INLINE_BYTES_MAX};
use mayfly_wire::Content;

use crate::data::pieces::Pieces;

const PLACES: usize = 16;

#[repr(C)]
struct Place {
    /// 1 while a thread is at it.
    busy: AtomicU32,
    /// Number of the description plus one; zero for none.
    index: AtomicU32,
    generation: AtomicU32,
    version: AtomicU32,
    bytes_used: AtomicU32,
    bytes: [u8; INLINE_BYTES_MAX],
}

/// The places.
pub(crate) struct Contents(AtomicPtr<Place>);

/// A place that no other thread is at until this is dropped.
struct Held(NonNull<Place>);

impl Held {
    fn words(&self) -> &Place {
        // SAFETY: a place of the mapping, which is given up only when nobody uses the client.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.words().busy.store(0, Ordering::Release);
    }
}

impl Contents {
    /// No contents.
    pub(crate) const fn new() -> Contents {
        Contents(AtomicPtr::new(core::ptr::null_mut()))
    }

    fn map(&self) -> Result<NonNull<Place>, Errno> {
        if let Some(places) = NonNull::new(self.0.load(Ordering::Acquire)) {
            return Ok(places);
        }
        let bytes = PLACES * size_of::<Place>();
        let made = memory::map_anonymous(bytes)?.cast::<Place>();
        let null = core::ptr::null_mut();
        match self.0.compare_exchange(null, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(made),
            Err(other) => {
                // SAFETY: nobody else has seen this mapping.
                unsafe { memory::unmap(made.cast(), bytes) };
                NonNull::new(other).ok_or(Errno::ENOMEM)
            }
        }
    }

    fn hold(places: NonNull<Place>, open: OpenRef) -> Option<Held> {
        // SAFETY: the mapping has so many places, zeroed at first, which is a valid place.
        let place = unsafe { places.add(open.index as usize % PLACES) };
        // SAFETY: as above; the words are atomics.
        let busy = unsafe { &(*place.as_ptr()).busy };
        (busy.swap(1, Ordering::Acquire) == 0).then_some(Held(place))
    }

    /// Keeps what came with an open.
    pub(crate) fn keep(&self, open: OpenRef, content: &Content<'_>) {
        let bytes = content.data.bytes;
        if bytes.len() > INLINE_BYTES_MAX {
            return;
        }
        let Ok(places) = self.map() else { return };
        let Some(held) = Contents::hold(places, open) else { return };
        // SAFETY: the place is held, so nobody else reads or writes its bytes; the length was
        // checked, and what came stands in other memory.
        unsafe {
            let to = (&raw mut (*held.0.as_ptr()).bytes).cast::<u8>();
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        let place = held.words();
        place.bytes_used.store(bytes.len() as u32, Ordering::Relaxed);
        place.version.store(content.version, Ordering::Relaxed);
        place.generation.store(open.generation, Ordering::Relaxed);
        place.index.store(open.index + 1, Ordering::Relaxed);
    }

    /// Reads from what was kept, if it is still what the file holds; the number of bytes then.
    ///
    /// # Safety
    /// The host wants its memory at the pieces written.
    pub(crate) unsafe fn read(
        &self,
        open: OpenRef,
        file: &FileEntry,
        offset: u64,
        mut pieces: Pieces<'_>,
    ) -> Option<Result<usize, Errno>> {
        let places = NonNull::new(self.0.load(Ordering::Acquire))?;
        let held = Contents::hold(places, open)?;
        let place = held.words();
        let kept = place.index.load(Ordering::Relaxed) == open.index + 1
            && place.generation.load(Ordering::Relaxed) == open.generation;
        // A file that has an object has one as long as it is open.
        let current = kept
            && file.content_version.load(Ordering::Acquire)
                == place.version.load(Ordering::Relaxed)
            && file.flags.load(Ordering::Acquire) & FILE_OBJECT == 0;
        if !current {
            return None;
        }
        let used = (place.bytes_used.load(Ordering::Relaxed) as usize).min(INLINE_BYTES_MAX);
        // SAFETY: the place is held, so the bytes stay as they are.
        let bytes = unsafe {
            core::slice::from_raw_parts((&raw const (*held.0.as_ptr()).bytes).cast::<u8>(), used)
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(used);
        // SAFETY: passed on to the caller.
        Some(unsafe { pieces.scatter(bytes.get(from..).unwrap_or(&[])) })
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nobody uses the client any more.
    pub(crate) unsafe fn abandon(&self) {
        let places = self.0.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if let Some(places) = NonNull::new(places) {
            // SAFETY: the mapping was made by `map` and, says the caller, nobody looks at it.
            unsafe { memory::unmap(places.cast(), PLACES * size_of::<Place>()) };
        }
    }
}
