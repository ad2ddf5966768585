//! A file that another process changes and makes longer, mapped for reading.
//!
//! Other threads read while one of them finds that the file has outgrown the mapping, so a mapping
//! never moves: a longer one is added beside it, and all of them stay until the end. Each has twice
//! the addresses of the one before, so all together have at most twice those of the last.

use core::{
    ptr::{NonNull, null_mut},
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use crate::{
    Errno,
    mapped::Shown,
    process::{RLIMIT_AS, limit},
};

/// Mappings at most: 256 MiB, doubled so often, are more than what a processor has addresses for.
const MAPPINGS: usize = 20;

/// Such a file.
#[derive(Debug)]
pub struct Followed {
    /// The first mapping has so many bytes.
    first_span: usize,
    /// Where the mappings begin, each twice as long as the one before; null: not made.
    starts: [AtomicPtr<u8>; MAPPINGS],
    /// Which of them is the longest.
    longest: AtomicUsize,
    /// There will be no longer one.
    is_last: AtomicBool,
}

impl Followed {
    /// Maps `span` bytes of the file behind `descriptor`, which need not be so long. The descriptor
    /// need not stay open.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(descriptor: i32, span: usize) -> Result<Followed, Errno> {
        let shown = Shown::new(descriptor, span)?;
        let starts = [const { AtomicPtr::new(null_mut()) }; MAPPINGS];
        starts[0].store(shown.start().as_ptr(), Relaxed);
        let (longest, is_last) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Followed { first_span: span, starts, longest, is_last })
    }

    /// The longest mapping so far.
    #[must_use]
    #[inline]
    pub fn shown(&self) -> Shown {
        let longest = self.longest.load(Acquire).min(MAPPINGS - 1);
        let start = self.starts[longest].load(Relaxed);
        // SAFETY: a mapping is counted when it is there, and there until the end.
        unsafe { Shown::at(NonNull::new_unchecked(start), self.first_span << longest) }
    }

    /// A mapping of the first `bytes` bytes, where it can be had; the longest otherwise. Where the
    /// process may have only so many addresses they are left to it.
    #[cold]
    #[must_use]
    pub fn reach(&self, bytes: usize) -> Shown {
        while self.shown().span() < bytes && !self.is_last.load(Relaxed) {
            if self.lengthen().is_none() {
                self.is_last.store(true, Relaxed);
            }
        }
        self.shown()
    }

    fn lengthen(&self) -> Option<()> {
        let longest = self.longest.load(Acquire);
        let next = self.starts.get(longest + 1)?;
        let span = (self.first_span << longest).checked_mul(2)?;
        if limit(RLIMIT_AS).soft != u64::MAX {
            return None;
        }
        let longer = self.shown().again(span).ok()?;
        let made = next.compare_exchange(null_mut(), longer.start().as_ptr(), AcqRel, Acquire);
        if made.is_err() {
            // SAFETY: another thread has made it, and nobody knows of this one.
            unsafe { longer.end() };
        }
        // Others may have gone on meanwhile.
        self.longest.fetch_max(longest + 1, Release);
        Some(())
    }

    /// Gives the mappings back.
    ///
    /// # Safety
    /// Nobody looks any more.
    pub unsafe fn end(&self) {
        for (at, start) in self.starts.iter().enumerate() {
            if let Some(start) = NonNull::new(start.load(Relaxed)) {
                // SAFETY: so much was mapped there, and nobody looks, says the caller.
                unsafe { Shown::at(start, self.first_span << at).end() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{
        format,
        fs::{File, OpenOptions},
        os::{fd::AsRawFd, unix::fs::FileExt},
    };

    use super::*;

    const SPAN: usize = 1 << 16;

    /// A file of so many bytes without a name.
    fn file_of(name: &str, bytes: usize) -> File {
        let name = format!("mayfly-followed-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("made");
        std::fs::remove_file(&path).expect("it was made");
        lengthen(&file, bytes);
        file
    }

    /// Makes the file so long; its last word says so.
    fn lengthen(file: &File, bytes: usize) {
        let last = (bytes as u64).to_le_bytes();
        file.write_all_at(&last, (bytes - 8) as u64).expect("written");
    }

    fn last_word(followed: &Followed, bytes: usize) -> Option<u64> {
        // SAFETY: the file is so long.
        unsafe { followed.reach(bytes).word(bytes - 8) }
    }

    #[test]
    fn a_file_that_grows_is_read_to_its_end_and_what_was_mapped_stays() {
        let file = file_of("grows", SPAN);
        let followed = Followed::new(file.as_raw_fd(), SPAN).expect("mapped");
        assert_eq!(last_word(&followed, SPAN), Some(SPAN as u64));
        let before = followed.shown();
        for bytes in [SPAN + 8, SPAN * 2, SPAN * 5] {
            lengthen(&file, bytes);
            assert_eq!(last_word(&followed, bytes), Some(bytes as u64));
        }
        assert_eq!(followed.shown().span(), SPAN * 8);
        // SAFETY: the file is so long.
        assert_eq!(unsafe { before.word(SPAN - 8) }, Some(SPAN as u64));
        // SAFETY: nobody looks any more.
        unsafe { followed.end() };
    }

    #[test]
    fn threads_that_find_the_same_mapping_too_short_share_a_longer_one() {
        let bytes = SPAN * 64;
        let file = file_of("threads", bytes);
        let followed = Followed::new(file.as_raw_fd(), SPAN).expect("mapped");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(last_word(&followed, bytes), Some(bytes as u64)));
            }
        });
        assert_eq!(followed.shown().span(), bytes);
        // SAFETY: nobody looks any more.
        unsafe { followed.end() };
    }

    #[test]
    fn a_mapping_that_cannot_be_had_is_not_tried_again() {
        let file = file_of("limit", SPAN);
        let followed = Followed::new(file.as_raw_fd(), SPAN).expect("mapped");
        assert!(followed.reach(usize::MAX).span() >= SPAN);
        assert!(followed.is_last.load(Relaxed));
        assert_eq!(last_word(&followed, SPAN), Some(SPAN as u64));
        // SAFETY: nobody looks any more.
        unsafe { followed.end() };
    }
}
