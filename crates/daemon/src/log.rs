//! What the daemon has to say to people: lines on standard error, which its supervisor keeps.
//!
//! ERROR means that a person must look. A line is written once, where the trouble is handled, and
//! names its subject. Trouble that repeats for ever does not fill the disk.

use std::{
    fmt::Display,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Lines of one daemon's life.
const LINES_MAX: u32 = 1000;

static LINES: AtomicU32 = AtomicU32::new(0);

/// A person must look at `subject`.
pub(crate) fn error(subject: impl Display, what: impl Display) {
    match LINES.fetch_add(1, Relaxed) {
        0..LINES_MAX => eprintln!("ERROR {subject}: {what}"),
        LINES_MAX => eprintln!("ERROR log: more than {LINES_MAX} lines; the rest is left out"),
        _ => {
            LINES.store(LINES_MAX + 1, Relaxed);
        }
    }
}
