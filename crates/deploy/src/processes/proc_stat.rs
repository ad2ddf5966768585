//! `/proc/PID/stat`, as proc(5) numbers its fields.

use std::fs;

/// What the kernel tells of a process.
pub(crate) struct ProcStat(String);

impl ProcStat {
    /// Nothing of one that is not there.
    pub(crate) fn of(pid: u32) -> Option<ProcStat> {
        let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        // The name, in parentheses, may hold anything, parentheses too: what follows is the third
        // field.
        Some(ProcStat(text.rsplit_once(')')?.1.to_owned()))
    }

    /// The field with that number, 3 or more.
    pub(super) fn field(&self, number: usize) -> Option<&str> {
        self.0.split_whitespace().nth(number - 3)
    }

    /// The same, which is a number.
    pub(crate) fn number(&self, number: usize) -> Option<u64> {
        self.field(number)?.parse().ok()
    }

    /// `R`, `S`, `T`, `Z` …
    pub(crate) fn state(&self) -> Option<&str> {
        self.field(3)
    }
}
