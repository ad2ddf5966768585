//! What became of the calls that the filter did not let through, counted when `MAYFLY_REPORT=1` is
//! in the environment and printed to standard error when the process ends.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use mayfly_sys::{Errno, file, number, text::PathText};

use crate::{
    Call, Outcome,
    calls::{self, serve::issue},
    descriptors::hidden,
};

/// Why a call ended as it did.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    /// Served, or issued from here because its failure would have needed a second look.
    Ours,
    /// The same, with an error.
    Failed,
    /// The text of the path told that it is the kernel's.
    Elsewhere,
    /// A longer look told that it is the kernel's, or both must know of it.
    Passed,
}

const REASONS: usize = 4;
const NAMES: [&[u8]; REASONS] =
    [b"answered here", b"failed here", b"elsewhere by its path", b"passed"];
const ERRNOS: usize = 134;

static ON: AtomicBool = AtomicBool::new(false);
static COUNTS: [AtomicU64; REASONS] = [const { AtomicU64::new(0) }; REASONS];
static ERRORS: [AtomicU64; ERRNOS] = [const { AtomicU64::new(0) }; ERRNOS];

/// Libraries without an image.
static UNSERVED: AtomicU32 = AtomicU32::new(0);

/// Another descriptor of standard error: many programs close theirs before they end.
static KEPT: AtomicI32 = AtomicI32::new(-1);

/// Counts from now on.
pub(crate) fn turn_on() {
    ON.store(true, Ordering::Relaxed);
    if let Ok(copy) = file::control(2, file::F_DUPFD_CLOEXEC, 3)
        && let Ok(copy) = hidden::conceal(copy as i32)
    {
        KEPT.store(copy, Ordering::Relaxed);
    }
}

/// For the child of a fork.
pub(crate) fn reset() {
    KEPT.store(-1, Ordering::Relaxed);
    for count in COUNTS.iter().chain(&ERRORS) {
        count.store(0, Ordering::Relaxed);
    }
}

/// Is anything counted?
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Counts an outcome of the long way.
pub(crate) fn count(call: &Call, outcome: Outcome) {
    match outcome {
        Outcome::Pass => note(Reason::Passed),
        Outcome::Done(raw) if (-4095..0).contains(&raw) => {
            note(Reason::Failed);
            if let Some(count) = ERRORS.get(raw.unsigned_abs()) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Outcome::Done(_) => note(Reason::Ours),
    }
    if call.number == number::EXIT_GROUP {
        // A report that cannot be written is no reason to keep a process alive.
        let _ = print();
    }
}

/// Counts a reason.
pub(crate) fn note(reason: Reason) {
    if let Some(count) = COUNTS.get(reason as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a library that keeps its code for want of an image, and says so.
pub(crate) fn note_unserved(name: &[u8], why: Errno) {
    UNSERVED.fetch_add(1, Ordering::Relaxed);
    if is_on() {
        // As for the report at the end.
        let _ = print_unserved(name, why);
    }
}

fn print_unserved(name: &[u8], why: Errno) -> Result<(), Errno> {
    let mut line = begin()?;
    line.push(b": ")?;
    line.push(name)?;
    line.push(b" is not served, it has no image: ")?;
    line.push(why.text().as_bytes())?;
    line.push(b"\n")?;
    write(line.as_bytes());
    Ok(())
}

fn begin() -> Result<PathText, Errno> {
    let mut line = PathText::from_bytes(b"mayfly: process ")?;
    line.push_decimal(u64::from(mayfly_sys::process::process_id()))?;
    Ok(line)
}

fn print() -> Result<(), Errno> {
    let mut line = begin()?;
    let lead = [&b": "[..], b", ", b", ", b", "];
    for ((name, count), lead) in NAMES.iter().zip(&COUNTS).zip(lead) {
        line.push(lead)?;
        line.push(name)?;
        line.push(b" ")?;
        line.push_decimal(count.load(Ordering::Relaxed))?;
    }
    for (errno, count) in ERRORS.iter().enumerate() {
        let count = count.load(Ordering::Relaxed);
        if count != 0 {
            line.push(b"; errno ")?;
            line.push_decimal(errno as u64)?;
            line.push(b": ")?;
            line.push_decimal(count)?;
        }
    }
    let unserved = UNSERVED.load(Ordering::Relaxed);
    if unserved != 0 {
        line.push(b"; libraries without an image: ")?;
        line.push_decimal(u64::from(unserved))?;
    }
    line.push(b"\n")?;
    write(line.as_bytes());
    Ok(())
}

/// Writes to standard error, wherever that is.
pub(crate) fn write(text: &[u8]) {
    let mut write =
        Call { number: number::WRITE, args: [2, text.as_ptr() as usize, text.len(), 0, 0, 0] };
    // Standard error may be a file of the instance.
    // SAFETY: the text outlives the calls.
    unsafe {
        let outcome = calls::dispatch(&mut write);
        if outcome == Outcome::Pass && issue(&write) < 0 {
            write.args[0] = KEPT.load(Ordering::Relaxed) as usize;
            issue(&write);
        }
    }
}
