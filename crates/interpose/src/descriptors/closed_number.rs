//! A number that the application has closed, kept for the file that it opens next.
//!
//! To get a number from the kernel and to give it back are a third of what a process does for a
//! file that it makes without asking anybody. So when the application closes the number that it got
//! last, the kernel's descriptor stays; and when it opens a file next, that number is the lowest
//! free one, as the kernel would have found, provided that no lower one became free meanwhile.
//!
//! The application does not notice. The number of the last open is noted while it is open and while
//! it is kept, in a word that the filter in the trampolines reads: as long as it is not zero, every
//! call that takes a number, frees one, limits or shows them is looked at. Before any such call
//! goes to the kernel, and before any other that is passed on from here, what is noted is forgotten
//! and a kept number closed ([`give_up`]): the kernel's descriptors are then what the application
//! takes them for. So it is before fork and exec. A number that is kept has a meaning of its own in
//! the table, so a use of it is looked at, and finds it closed.
//!
//! The filter's look and the call are two steps. A handler of the application that runs between
//! them notes nothing ([`mayfly_sys::interrupt::HANDLERS`]). Another thread could: a process that
//! starts one keeps nothing from then on. A thread that was started unseen, by an instruction of
//! the program's own, may meet a number that is not the lowest; each change is one step, so nothing
//! worse comes of it.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mayfly_sys::{
    entry,
    file::{self, O_CLOEXEC},
    interrupt, number,
};

use super::table;
use crate::{
    Call,
    class::{CALLS_MAX, DESCRIPTORS_MAX, ON_DESCRIPTOR, ON_PATH, ON_PATH_AT, put},
    process::flight,
};

/// Nothing is noted.
const NOTHING: u32 = 0;
/// The application has closed the number.
const CLOSED: u32 = 1;
/// The number is closed by exec.
const CLOEXEC: u32 = 2;
const NUMBER_SHIFT: u32 = 2;

const _: () = assert!((DESCRIPTORS_MAX as u64) << NUMBER_SHIFT < u32::MAX as u64);

/// The number of the last open, plus one, and what is to be known of it.
static NOTED: &AtomicU32 = &entry::WORDS.watched;
/// Nothing is kept in this process any more.
static OFF: AtomicBool = AtomicBool::new(false);

/// Calls in which what is noted stays so until one of them is passed on: those that are about files
/// and do not take, free or show numbers, and open and close, which are what this is for.
static STAYS: [u8; CALLS_MAX] = {
    let mut stays = [0; CALLS_MAX];
    put(&mut stays, ON_DESCRIPTOR, 1);
    put(&mut stays, ON_PATH, 1);
    put(&mut stays, ON_PATH_AT, 1);
    put(&mut stays, &[number::RENAME, number::RENAMEAT, number::RENAMEAT2], 1);
    put(&mut stays, &[number::LINK, number::LINKAT, number::SYMLINK, number::SYMLINKAT], 1);
    put(&mut stays, &[number::DUP], 0);
    stays
};

fn noted(number: i32, cloexec: u32) -> u32 {
    let cloexec = if cloexec & O_CLOEXEC == 0 { 0 } else { CLOEXEC };
    (number as u32 + 1) << NUMBER_SHIFT | cloexec
}

fn number_of(noted: u32) -> i32 {
    (noted >> NUMBER_SHIFT) as i32 - 1
}

fn change(from: u32, to: u32) -> bool {
    NOTED.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The word for the filter.
pub(crate) fn word() -> *const u32 {
    NOTED.as_ptr()
}

/// To be called first in every call.
#[inline]
pub(crate) fn before(call: &Call) {
    if STAYS.get(call.number) != Some(&1) {
        give_up();
    }
}

/// The kernel has handed out `number` as the lowest free one, for a placeholder.
pub(super) fn handed_out(number: i32, cloexec: u32) {
    let now = NOTED.load(Ordering::Acquire);
    let may = now & CLOSED == 0
        && !OFF.load(Ordering::Relaxed)
        && interrupt::HANDLERS.load(Ordering::Relaxed) == 0
        && (0..DESCRIPTORS_MAX as i32).contains(&number);
    if may {
        change(now, noted(number, cloexec));
    }
}

/// The application closes `number`, a placeholder that has left the table: is it kept? Otherwise
/// the kernel's descriptor has to be closed now.
pub(crate) fn keep(number: i32) -> bool {
    let now = NOTED.load(Ordering::Acquire);
    if now & CLOSED == 0 && now != NOTHING && number_of(now) == number && change(now, now | CLOSED)
    {
        table::keep(number);
        return true;
    }
    if now != NOTHING && number < number_of(now) {
        give_up();
    }
    false
}

/// The number that is kept, for a new placeholder.
pub(super) fn take(cloexec: u32) -> Option<i32> {
    let now = NOTED.load(Ordering::Acquire);
    if now & CLOSED == 0 {
        return None;
    }
    let number = number_of(now);
    let wanted = noted(number, cloexec);
    if !change(now, wanted) {
        return None;
    }
    if wanted != now & !CLOSED {
        let flags = if cloexec & O_CLOEXEC == 0 { 0 } else { file::FD_CLOEXEC };
        // Of a descriptor that is open, it cannot fail.
        let _ = file::control(number, file::F_SETFD, flags);
    }
    Some(number)
}

/// Nothing is noted any more, and no number kept: the kernel's descriptors are the application's.
#[inline]
pub(crate) fn give_up() {
    if NOTED.load(Ordering::Acquire) != NOTHING {
        forget();
    }
}

#[inline(never)]
fn forget() {
    if flight::child().is_some() {
        // The child's descriptors are others, of which none is kept.
        return;
    }
    let before = NOTED.swap(NOTHING, Ordering::AcqRel);
    if before & CLOSED != 0 {
        let number = number_of(before);
        table::forget_closed(number);
        file::close(number);
    }
}

/// From now on nothing is noted.
pub(crate) fn turn_off() {
    OFF.store(true, Ordering::Relaxed);
    give_up();
}
