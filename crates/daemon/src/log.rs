//! What the daemon has to say to people: lines on standard error, which its supervisor keeps.
//!
//! ERROR means that a person must look. A line is written once, where the trouble is handled, and
//! names its subject. Trouble that repeats for ever does not fill the log. The supervisor adds the
//! time: nothing here reads a clock.

use std::{
    fmt::Display,
    io::{self, Write},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Lines of one daemon's life.
const LINES_MAX: u32 = 1000;

static LINES: AtomicU32 = AtomicU32::new(0);

/// A person must look at `subject`.
pub(crate) fn error(subject: impl Display, what: impl Display) {
    bounded("ERROR", &subject, &what);
}

/// `subject` is not as it should be, and the daemon goes on.
pub(crate) fn warn(subject: impl Display, what: impl Display) {
    bounded("WARN", &subject, &what);
}

/// What a person may want to know later.
pub(crate) fn info(subject: impl Display, what: impl Display) {
    bounded("INFO", &subject, &what);
}

fn bounded(level: &str, subject: &dyn Display, what: &dyn Display) {
    match LINES.fetch_add(1, Relaxed) {
        0..LINES_MAX => say(format_args!("{level} {subject}: {what}\n")),
        LINES_MAX => {
            say(format_args!("ERROR log: more than {LINES_MAX} lines; the rest is left out\n"));
        }
        _ => {
            LINES.store(LINES_MAX + 1, Relaxed);
        }
    }
}

/// A line about a request that took long. The caller sees to it that there are not too many.
pub(crate) fn slow(what: impl Display) {
    say(format_args!("WARN slow: {what}\n"));
}

fn say(line: impl Display) {
    // In one piece. Nobody may listen, or not fast enough, and the daemon does not wait for that.
    let _ = io::stderr().write_all(line.to_string().as_bytes());
}
