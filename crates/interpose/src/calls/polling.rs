//! poll and select: files of ours are always ready, as files are.
//!
//! When one of ours is asked about, the rest is asked without waiting and the answers are put
//! together. The arrays of the host are copied first, so that a failing call leaves them alone.

use mayfly_sys::{
    Errno,
    arch::{syscall3, syscall6},
    number,
    scratch::Scratch,
    user,
};

use super::serve::argument;
use crate::{
    Call, Outcome,
    descriptors::table::{self, Meaning},
    process::{flight, session},
};

/// `struct pollfd`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Entry {
    descriptor: i32,
    events: i16,
    returned: i16,
}

const READY: i16 = 0x1 | 0x4 | 0x40 | 0x100;
const INVALID: i16 = 0x20;
const ENTRIES_MAX: usize = 1 << 20;

/// What poll says about a descriptor of ours; `None` for one that is not.
fn answer(entry: Entry) -> Option<i16> {
    if entry.descriptor < 0 || table::get(entry.descriptor) == Meaning::Foreign {
        return None;
    }
    match session::open_file(entry.descriptor) {
        Ok(Some(open)) if !open.is_path() => Some(entry.events & READY),
        _ => Some(INVALID),
    }
}

/// poll, ppoll.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn poll(call: &Call) -> Outcome {
    let (start, count) = (argument(call, 0), argument(call, 1) as u32 as usize);
    if table::is_empty()
        || flight::child().is_some()
        || count > ENTRIES_MAX
        || !start.is_multiple_of(align_of::<Entry>())
        // SAFETY: the host passes an array of this form.
        || unsafe { user::look_over(start, count * size_of::<Entry>()) }.is_err()
    {
        return Outcome::Pass;
    }
    // SAFETY: the host passes an array of this form.
    let entries = unsafe { core::slice::from_raw_parts_mut(start as *mut Entry, count) };
    let ours =
        |entry: &Entry| entry.descriptor >= 0 && table::get(entry.descriptor) != Meaning::Foreign;
    if !entries.iter().any(ours) {
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    Outcome::Done(unsafe { poll_mixed(call, entries) })
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn poll_mixed(call: &Call, entries: &mut [Entry]) -> isize {
    let mut scratch = match Scratch::take(size_of_val(entries)) {
        Ok(scratch) => scratch,
        Err(errno) => return errno.as_result(),
    };
    // SAFETY: the buffer is page-aligned and long enough, and any bytes are an entry.
    let rest = unsafe {
        core::slice::from_raw_parts_mut(
            scratch.as_mut_slice().as_mut_ptr().cast::<Entry>(),
            entries.len(),
        )
    };
    let mut ready = 0;
    for (entry, other) in entries.iter().zip(&mut *rest) {
        *other = *entry;
        if let Some(answer) = answer(*entry) {
            *other = Entry { descriptor: -1, ..*entry };
            ready += isize::from(answer != 0);
        }
    }
    let array = rest.as_mut_ptr() as usize;
    let [_, count, a, b, c, _] = call.args;
    // SAFETY: the array is ours; the other arguments are the host's.
    let raw = unsafe {
        if ready > 0 {
            syscall3(number::POLL, array, count, 0)
        } else {
            syscall6(call.number, array, count, a, b, c, 0)
        }
    };
    if raw < 0 {
        return raw;
    }
    for (entry, other) in entries.iter_mut().zip(rest) {
        entry.returned = answer(*entry).unwrap_or(other.returned);
    }
    raw + ready
}

/// Descriptors that the sets here cover: four times the C library's.
const SET_BITS: usize = 4096;
type Set = [u64; SET_BITS / 64];

/// select, pselect6.
///
/// # Safety
/// As [`crate::dispatch`].
pub(super) unsafe fn select(call: &Call) -> Outcome {
    let bound = (argument(call, 0) as i32).max(0) as usize;
    if table::is_empty() || flight::child().is_some() || bound == 0 || bound > SET_BITS {
        return Outcome::Pass;
    }
    let mut sets = [[0; SET_BITS / 64]; 3];
    for (index, set) in sets.iter_mut().enumerate() {
        // SAFETY: passed on to the caller.
        if unsafe { copy_set(argument(call, 1 + index), bound, set) }.is_err() {
            return Outcome::Pass;
        }
    }
    let mut ours = [[0_u64; SET_BITS / 64]; 3];
    let mut found = 0;
    for (descriptor, _) in table::each(0, bound as u32 - 1) {
        let (word, bit) = (descriptor as usize / 64, 1_u64 << (descriptor % 64));
        for (set, mine) in sets.iter_mut().zip(&mut ours) {
            let (Some(set), Some(mine)) = (set.get_mut(word), mine.get_mut(word)) else { continue };
            if *set & bit != 0 {
                *set &= !bit;
                *mine |= bit;
                found += 1;
            }
        }
    }
    if found == 0 {
        return Outcome::Pass;
    }
    // SAFETY: passed on to the caller.
    Outcome::Done(unsafe { select_mixed(call, bound, &mut sets, &ours) })
}

/// # Safety
/// As [`crate::dispatch`].
unsafe fn select_mixed(call: &Call, bound: usize, sets: &mut [Set; 3], ours: &[Set; 3]) -> isize {
    let [readable, writable, _] = ours;
    let ready: u32 = readable.iter().chain(writable).map(|word| word.count_ones()).sum();
    let mut addresses = [0; 3];
    for (index, (address, set)) in addresses.iter_mut().zip(sets.iter_mut()).enumerate() {
        if argument(call, 1 + index) != 0 {
            *address = set.as_mut_ptr() as usize;
        }
    }
    let at_once = [0_i64; 2];
    let [a, b, c] = addresses;
    // SAFETY: the sets are ours and cover `bound`; the other arguments are the host's.
    let raw = unsafe {
        if ready > 0 {
            syscall6(number::SELECT, bound, a, b, c, at_once.as_ptr() as usize, 0)
        } else {
            syscall6(call.number, bound, a, b, c, argument(call, 4), argument(call, 5))
        }
    };
    if raw < 0 {
        return raw;
    }
    let none = [0; SET_BITS / 64];
    // Files have no exceptional condition.
    let mine = [readable, writable, &none];
    for (index, (set, mine)) in sets.iter_mut().zip(mine).enumerate() {
        for (word, mine) in set.iter_mut().zip(mine) {
            *word |= *mine;
        }
        // SAFETY: passed on to the caller.
        if let Err(errno) = unsafe { return_set(set, bound, argument(call, 1 + index)) } {
            return errno.as_result();
        }
    }
    raw + ready as isize
}

/// Bytes of a set that covers `bound` descriptors, as the kernel counts.
fn set_bytes(bound: usize) -> usize {
    bound.div_ceil(64) * 8
}

/// # Safety
/// `from` is 0 or the address of a set of the host.
unsafe fn copy_set(from: usize, bound: usize, to: &mut Set) -> Result<(), Errno> {
    if from == 0 {
        return Ok(());
    }
    // SAFETY: any bytes are words of a set.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of::<Set>()) };
    let room = bytes.get_mut(..set_bytes(bound)).ok_or(Errno::EINVAL)?;
    // SAFETY: passed on to the caller.
    unsafe { user::copy_in(from as *const u8, room) }
}

/// # Safety
/// `to` is 0 or the address of a set of the host.
unsafe fn return_set(set: &Set, bound: usize, to: usize) -> Result<(), Errno> {
    if to == 0 {
        return Ok(());
    }
    // SAFETY: the words may be read as bytes.
    let bytes = unsafe { core::slice::from_raw_parts(set.as_ptr().cast::<u8>(), size_of::<Set>()) };
    let bytes = bytes.get(..set_bytes(bound)).ok_or(Errno::EINVAL)?;
    // SAFETY: passed on to the caller.
    unsafe { user::copy_out(bytes, to as *mut u8) }
}
