//! What became of the calls that the filter did not let through, counted when `MAYFLY_REPORT=1` is
//! in the environment and printed to standard error when the process ends.

use core::sync::atomic::Ordering;

use mayfly_sys::{Errno, number, text::PathText};

pub(crate) mod counters;

use counters::{COUNTS, ERRORS, NAMES, STANDARD_ERROR, UNSERVED};
pub(crate) use counters::{Reason, is_on, note, turn_on};

use crate::{
    Call, Outcome,
    calls::{data, ours::on_ours, serve::issue},
    process::{flight, fork},
};

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

/// Writes to standard error, wherever that is. The call is served as [`crate::calls::dispatch`]
/// serves it, which stands above this: there are calls that print.
pub(crate) fn write(text: &[u8]) {
    let mut write =
        Call { number: number::WRITE, args: [2, text.as_ptr() as usize, text.len(), 0, 0, 0] };
    fork::notice();
    flight::settle();
    // SAFETY: the text outlives the calls.
    unsafe {
        // Standard error may be a file of the instance.
        let outcome = on_ours(&write, |call| data::transfer(call));
        if outcome == Outcome::Pass && issue(&write) < 0 {
            write.args[0] = STANDARD_ERROR.load(Ordering::Relaxed) as usize;
            issue(&write);
        }
    }
}
