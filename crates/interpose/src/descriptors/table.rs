//! Which descriptor numbers are ours.
//!
//! One word for each number, in a mapping that the trampolines' filter reads: zero (not ours), an
//! index in the node's table of open file descriptions plus one, [`HIDDEN`], or [`CLOSED_NUMBER`].
//! Beside it stands, for each open file description, how many descriptors of this process refer to
//! it and under which generation. The kernel hands out the numbers, so two threads never get one
//! number at once; a thread that uses a descriptor while another closes it gets either the old
//! description or EBADF.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use mayfly_sys::{Errno, memory};
use mayfly_types::{OpenRef, limits::OPEN_FILES_MAX};

use crate::class::DESCRIPTORS_MAX;

/// A descriptor of our own that the application must not meet.
const HIDDEN: u32 = u32::MAX;
/// A number that the application has closed and the kernel has not: whoever uses it is shown to
/// [`crate::descriptors::closed_number`], which makes it what the application takes it for.
const CLOSED_NUMBER: u32 = u32::MAX - 1;

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The kernel's business.
    Foreign,
    /// One of our own.
    Hidden,
    /// An open file description of the instance.
    Open(OpenRef),
}

#[derive(Debug)]
struct Local {
    descriptors: AtomicU32,
    generation: AtomicU32,
}

static WORDS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static LOCALS: AtomicPtr<Local> = AtomicPtr::new(core::ptr::null_mut());
/// One more than the highest number that was ever ours.
static BOUND: AtomicU32 = AtomicU32::new(0);
/// The same without hidden ones, which stand high: most loops need not go there.
static OPEN_BOUND: AtomicU32 = AtomicU32::new(0);
/// Descriptors of ours, hidden ones not counted.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Makes the table.
///
/// # Errors
/// ENOMEM.
pub(crate) fn set_up() -> Result<(), Errno> {
    let words: NonNull<AtomicU32> = memory::map_anonymous(DESCRIPTORS_MAX * 4)?.cast();
    let locals: NonNull<Local> =
        memory::map_anonymous(OPEN_FILES_MAX as usize * size_of::<Local>())?.cast();
    LOCALS.store(locals.as_ptr(), Ordering::Release);
    WORDS.store(words.as_ptr(), Ordering::Release);
    Ok(())
}

/// Address of the first word.
pub(crate) fn base() -> *const u32 {
    WORDS.load(Ordering::Acquire).cast_const().cast()
}

fn words() -> &'static [AtomicU32] {
    let words = WORDS.load(Ordering::Acquire);
    if words.is_null() {
        return &[];
    }
    // SAFETY: the mapping has this many words and lives as long as the process.
    unsafe { core::slice::from_raw_parts(words, DESCRIPTORS_MAX) }
}

fn local(index: u32) -> Option<&'static Local> {
    let locals = LOCALS.load(Ordering::Acquire);
    if locals.is_null() || index >= OPEN_FILES_MAX {
        return None;
    }
    // SAFETY: the mapping has OPEN_FILES_MAX elements, zeroed at first, and lives as long as the
    // process.
    Some(unsafe { &*locals.add(index as usize) })
}

fn word(descriptor: i32) -> Option<&'static AtomicU32> {
    words().get(usize::try_from(descriptor).ok()?)
}

fn meaning(word: u32) -> Meaning {
    match word {
        0 | CLOSED_NUMBER => Meaning::Foreign,
        HIDDEN => Meaning::Hidden,
        _ => match local(word - 1) {
            Some(local) => Meaning::Open(OpenRef {
                index: word - 1,
                generation: local.generation.load(Ordering::Relaxed),
            }),
            None => Meaning::Foreign,
        },
    }
}

/// What `descriptor` stands for.
pub(crate) fn get(descriptor: i32) -> Meaning {
    word(descriptor).map_or(Meaning::Foreign, |word| meaning(word.load(Ordering::Acquire)))
}

/// `descriptor` refers to `open` from now on.
///
/// # Errors
/// EMFILE when the number is beyond the table.
pub(crate) fn adopt(descriptor: i32, open: OpenRef) -> Result<(), Errno> {
    replace(descriptor, open).map(|_| ())
}

/// The same in one step, and what [`release`] would say of what stood there.
///
/// # Errors
/// EMFILE when the number is beyond the table.
pub(crate) fn replace(descriptor: i32, open: OpenRef) -> Result<Option<(OpenRef, bool)>, Errno> {
    let word = word(descriptor).ok_or(Errno::EMFILE)?;
    let local = local(open.index).ok_or(Errno::EMFILE)?;
    local.generation.store(open.generation, Ordering::Relaxed);
    local.descriptors.fetch_add(1, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    BOUND.fetch_max(descriptor as u32 + 1, Ordering::Relaxed);
    OPEN_BOUND.fetch_max(descriptor as u32 + 1, Ordering::Relaxed);
    let Meaning::Open(old) = meaning(word.swap(open.index + 1, Ordering::AcqRel)) else {
        return Ok(None);
    };
    Ok(Some((old, count_down(old))))
}

/// One descriptor less for this description; was it the last one?
fn count_down(open: OpenRef) -> bool {
    COUNT.fetch_sub(1, Ordering::Relaxed);
    local(open.index).is_some_and(|local| local.descriptors.fetch_sub(1, Ordering::AcqRel) == 1)
}

/// `descriptor` is ours no more. The open file description it referred to, and whether it was the
/// last descriptor of this process for it.
pub(crate) fn release(descriptor: i32) -> Option<(OpenRef, bool)> {
    let word = word(descriptor)?;
    let old = word.load(Ordering::Acquire);
    let Meaning::Open(open) = meaning(old) else { return None };
    if word.compare_exchange(old, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return None;
    }
    Some((open, count_down(open)))
}

/// `descriptor` is one of our own.
pub(super) fn hide(descriptor: i32) {
    if let Some(word) = word(descriptor) {
        word.store(HIDDEN, Ordering::Release);
        BOUND.fetch_max(descriptor as u32 + 1, Ordering::Relaxed);
    }
}

/// `descriptor` is not one of our own any more.
pub(crate) fn unhide(descriptor: i32) {
    if let Some(word) = word(descriptor) {
        let _ = word.compare_exchange(HIDDEN, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// `descriptor`, which is nobody's, is kept.
pub(crate) fn keep(descriptor: i32) {
    if let Some(word) = word(descriptor) {
        word.store(CLOSED_NUMBER, Ordering::Release);
    }
}

/// `descriptor` is not kept any more.
pub(super) fn forget_closed(descriptor: i32) {
    if let Some(word) = word(descriptor) {
        let _ = word.compare_exchange(CLOSED_NUMBER, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Are there any descriptors of ours but hidden ones?
pub(crate) fn is_empty() -> bool {
    COUNT.load(Ordering::Relaxed) == 0
}

/// Every number in `from..=to` that is not foreign, ascending.
pub(crate) fn each(from: u32, to: u32) -> impl Iterator<Item = (i32, Meaning)> {
    let end = BOUND.load(Ordering::Relaxed).min(to.saturating_add(1));
    (from..end).filter_map(|number| {
        let number = i32::try_from(number).ok()?;
        match get(number) {
            Meaning::Foreign => None,
            meaning => Some((number, meaning)),
        }
    })
}

/// Every descriptor of ours that is not hidden, ascending.
pub(crate) fn each_open() -> impl Iterator<Item = (i32, OpenRef)> {
    let end = OPEN_BOUND.load(Ordering::Relaxed) as i32;
    (0..end).filter_map(|number| match get(number) {
        Meaning::Open(open) => Some((number, open)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_one_description_are_counted() {
        set_up().expect("memory");
        let open = OpenRef { index: 7, generation: 3 };
        assert_eq!(get(5), Meaning::Foreign);
        adopt(5, open).expect("in range");
        adopt(9, open).expect("in range");
        hide(11);
        assert_eq!(get(9), Meaning::Open(open));
        let all: std::vec::Vec<_> = each(0, u32::MAX).collect();
        assert_eq!(
            all,
            [(5, Meaning::Open(open)), (9, Meaning::Open(open)), (11, Meaning::Hidden)]
        );
        assert_eq!(each_open().count(), 2);
        assert_eq!(release(5), Some((open, false)));
        assert_eq!(release(5), None);
        assert_eq!(release(11), None);
        let other = OpenRef { index: 8, generation: 1 };
        assert_eq!(replace(9, other), Ok(Some((open, true))));
        assert_eq!(replace(9, other), Ok(Some((other, false))));
        assert_eq!(release(9), Some((other, true)));
        assert!(is_empty());
        assert_eq!(get(-1), Meaning::Foreign);
        assert_eq!(adopt(i32::MAX, open), Err(Errno::EMFILE));
    }
}
