//! The parts of the way from a program's system call to the daemon and back, each by itself.
//!
//! A part is a function that does its work a number of times. Criterion (`benches/parts.rs`) tells
//! how long that takes, the command `micro instructions` how many instructions it executes, which
//! does not depend on what else the machine does.

mod frames;
pub mod lanes;
mod messages;
mod paths;
mod tallies;

/// One part.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Does the work so many times, in this thread alone.
    pub run: fn(u64),
}

/// Every part that one thread can do alone.
#[must_use]
pub fn parts() -> Vec<Part> {
    let part = |name, run| Part { name, run };
    vec![
        part("wire: stat, request", messages::stat_request),
        part("wire: stat, reply", messages::stat_reply),
        part("wire: open, request", messages::open_request),
        part("wire: open, reply", messages::open_reply),
        part("wire: header", messages::header),
        part("frame: checksum of 128 KiB", frames::checksum),
        part("lane: a request without an answer", lanes::submitted),
        part("interpose: access of another's path", paths::access_elsewhere),
        part("tally: a stat, with one of 64 noted", tallies::stat),
        part("tally: a read, with one of 64 noted", tallies::read),
    ]
}
