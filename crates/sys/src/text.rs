//! A path in a buffer, ready for the kernel.
//!
//! There is no allocator here, and a hook may run on a signal stack of a few KiB, so a path takes a
//! 4 KiB page of a pool when it gets its first byte: one that stays empty costs nothing. The pool
//! is a mapping with a word for each page, claimed with one compare-exchange, lowest first, so that
//! one thread uses the same few pages again and again.
//!
//! A child of vfork that becomes another program never gives its pages back. While such children
//! may exist ([`share`]) the word of a page holds the process id, and [`reclaim`] frees what
//! strangers left.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use crate::{Errno, ids, memory};

/// Capacity with the terminating zero (PATH_MAX).
const CAPACITY: usize = 4096;
const PAGES: usize = 128;
/// Word of a page taken while there are no children of vfork.
const TAKEN: u32 = u32::MAX;

static POOL: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static WORDS: [AtomicU32; PAGES] = [const { AtomicU32::new(0) }; PAGES];
static SHARERS: AtomicU32 = AtomicU32::new(0);

/// From now on other processes may run in this memory, `count` at most.
pub fn share(count: u32) {
    SHARERS.store(count, Ordering::Release);
}

/// Frees the pages of processes other than `owner`, which are gone.
pub fn reclaim(owner: u32) {
    for word in &WORDS {
        let held = word.load(Ordering::Relaxed);
        if held != 0 && held != TAKEN && held != owner {
            let _ = word.compare_exchange(held, 0, Ordering::Release, Ordering::Relaxed);
        }
    }
}

fn pool() -> Result<NonNull<u8>, Errno> {
    if let Some(pool) = NonNull::new(POOL.load(Ordering::Acquire)) {
        return Ok(pool);
    }
    let made = memory::map_anonymous(PAGES * CAPACITY)?;
    let null = core::ptr::null_mut();
    match POOL.compare_exchange(null, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made),
        Err(other) => {
            // SAFETY: nobody else has seen this mapping.
            unsafe { memory::unmap(made, PAGES * CAPACITY) };
            NonNull::new(other).ok_or(Errno::ENOMEM)
        }
    }
}

fn take_page() -> Result<NonNull<u8>, Errno> {
    let pool = pool()?;
    let mark = if SHARERS.load(Ordering::Acquire) == 0 { TAKEN } else { ids::process_id() };
    for (index, word) in WORDS.iter().enumerate() {
        if word.load(Ordering::Relaxed) == 0
            && word.compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            // SAFETY: the pool has a page for each word.
            return Ok(unsafe { pool.add(index * CAPACITY) });
        }
    }
    memory::map_anonymous(CAPACITY)
}

fn give_page(page: NonNull<u8>) {
    let start = POOL.load(Ordering::Acquire) as usize;
    let distance = (page.as_ptr() as usize).wrapping_sub(start);
    match WORDS.get(distance / CAPACITY) {
        Some(word) => word.store(0, Ordering::Release),
        // SAFETY: the page was mapped by itself, for this path.
        None => unsafe { memory::unmap(page, CAPACITY) },
    }
}

/// Room for 4 KiB of anything that must not be on a stack of a few KiB, which may have anything in
/// it.
pub struct Room(NonNull<u8>);

impl Room {
    /// A page of the pool.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn take() -> Result<Room, Errno> {
        take_page().map(Room)
    }

    /// All of it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the page is mapped, and this one's alone.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_ptr(), CAPACITY) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        give_page(self.0);
    }
}

/// A byte string of up to 4095 bytes that is always followed by a zero.
pub struct PathText {
    /// The page; none while nothing was ever put in.
    page: Option<NonNull<u8>>,
    used: usize,
}

impl Drop for PathText {
    fn drop(&mut self) {
        if let Some(page) = self.page.take() {
            give_page(page);
        }
    }
}

impl Default for PathText {
    fn default() -> Self {
        Self::new()
    }
}

impl PathText {
    /// An empty path.
    #[must_use]
    pub const fn new() -> Self {
        PathText { page: None, used: 0 }
    }

    fn page(&mut self) -> Result<NonNull<u8>, Errno> {
        match self.page {
            Some(page) => Ok(page),
            None => Ok(*self.page.insert(take_page()?)),
        }
    }

    /// Sets the length, with the zero behind it. `length` is below the capacity.
    fn end_at(&mut self, page: NonNull<u8>, length: usize) {
        self.used = length.min(CAPACITY - 1);
        // SAFETY: the position lies in the page, which is this path's alone.
        unsafe { page.add(self.used).write(0) };
    }

    /// A path with these bytes.
    ///
    /// # Errors
    /// ENAMETOOLONG when they do not fit.
    pub fn from_bytes(text: &[u8]) -> Result<Self, Errno> {
        let mut path = PathText::new();
        path.push(text)?;
        Ok(path)
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Cuts it to `length` bytes, when it is longer.
    pub fn truncate(&mut self, length: usize) {
        if length < self.used
            && let Some(page) = self.page
        {
            self.end_at(page, length);
        }
    }

    /// Appends `text`.
    ///
    /// # Errors
    /// ENAMETOOLONG when it does not fit; nothing is appended then. ENOMEM.
    pub fn push(&mut self, text: &[u8]) -> Result<(), Errno> {
        let end = self.used.checked_add(text.len()).ok_or(Errno::ENAMETOOLONG)?;
        if end >= CAPACITY {
            return Err(Errno::ENAMETOOLONG);
        }
        let page = self.page()?;
        // SAFETY: `used..end` lies in the page, which is this path's alone, so `text` is elsewhere.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), page.add(self.used).as_ptr(), text.len());
        }
        self.end_at(page, end);
        Ok(())
    }

    /// Appends `text` as a further component: with exactly one slash in between.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub fn push_component(&mut self, text: &[u8]) -> Result<(), Errno> {
        let mut text = text;
        while let [b'/', rest @ ..] = text {
            text = rest;
        }
        if !self.as_bytes().ends_with(b"/") {
            self.push(b"/")?;
        }
        self.push(text)
    }

    /// Appends a number in decimal.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub fn push_decimal(&mut self, number: u64) -> Result<(), Errno> {
        let mut digits = [0_u8; 20];
        self.push(decimal(number, &mut digits))
    }

    /// Appends a number in hexadecimal.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub fn push_hexadecimal(&mut self, number: u64) -> Result<(), Errno> {
        let mut started = false;
        for shift in (0..16).rev() {
            let digit = (number >> (shift * 4)) & 15;
            started |= digit != 0 || shift == 0;
            if started {
                let byte = b"0123456789abcdef".get(digit as usize).copied().unwrap_or(b'0');
                self.push(&[byte])?;
            }
        }
        Ok(())
    }

    /// The bytes without the terminating zero.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self.page {
            // SAFETY: the first `used` bytes of the page were written by `push` or `fill_with`.
            Some(page) => unsafe { core::slice::from_raw_parts(page.as_ptr(), self.used) },
            None => &[],
        }
    }

    /// Address of the zero-terminated string.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.page.map_or(c"".as_ptr().cast(), |page| page.as_ptr().cast_const())
    }

    /// Lets `fill` write into the buffer; it returns how many bytes it wrote.
    ///
    /// # Errors
    /// Those of `fill`; ENAMETOOLONG when it filled all of it; ENOMEM.
    pub fn fill_with(
        &mut self,
        fill: impl FnOnce(*mut u8, usize) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let page = self.page()?;
        self.end_at(page, 0);
        let count = fill(page.as_ptr(), CAPACITY - 1)?;
        if count >= CAPACITY - 1 {
            self.end_at(page, 0);
            return Err(Errno::ENAMETOOLONG);
        }
        self.end_at(page, count);
        Ok(())
    }
}

impl core::fmt::Debug for PathText {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", core::str::from_utf8(self.as_bytes()))
    }
}

/// The decimal digits of `number`, right-justified in `digits`.
#[must_use]
pub fn decimal(number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut rest = number;
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        start -= 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    digits.get(start..).unwrap_or(&[])
}

/// Reads a whole decimal number.
#[must_use]
pub fn parse_decimal(text: &[u8]) -> Option<u64> {
    parse(text, 10)
}

/// Reads a whole hexadecimal number.
#[must_use]
pub fn parse_hexadecimal(text: &[u8]) -> Option<u64> {
    parse(text, 16)
}

fn parse(text: &[u8], radix: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = char::from(*byte).to_digit(radix)?;
        sum.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_terminated_and_bounded() {
        let mut path = PathText::from_bytes(b"/tmp").expect("short");
        path.push_component(b"/a").expect("short");
        assert_eq!(path.as_bytes(), b"/tmp/a");
        assert_eq!(path.push(&[b'x'; 4096]), Err(Errno::ENAMETOOLONG));
        assert_eq!(path.as_bytes(), b"/tmp/a");
        path.truncate(4);
        path.push_decimal(1070).expect("short");
        path.push_hexadecimal(0x2f0).expect("short");
        assert_eq!(path.as_bytes(), b"/tmp10702f0");
    }

    #[test]
    fn numbers_are_read_whole_or_not_at_all() {
        assert_eq!(parse_decimal(b"42"), Some(42));
        assert_eq!(parse_decimal(b"42x"), None);
        assert_eq!(parse_decimal(b""), None);
        assert_eq!(parse_decimal(b"99999999999999999999"), None);
        assert_eq!(parse_hexadecimal(b"ff"), Some(255));
    }
}
