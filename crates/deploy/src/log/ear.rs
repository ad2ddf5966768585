//! A pipe by which children say what is to be in the log.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::Stdio,
};

use anyhow::Result;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Level, Part, line::TEXT_BYTES_MAX, write};

/// Bytes taken at a time, and at most in one turn: others are to be heard too.
const TURN_BYTES_MAX: usize = 64 << 10;

/// One pipe, for all children that are the same part of the node.
#[derive(Debug)]
pub(crate) struct Ear {
    part: Part,
    ours: OwnedFd,
    theirs: OwnedFd,
    /// The beginning of a line.
    unfinished: Vec<u8>,
}

impl Ear {
    pub(crate) fn new(part: Part) -> Result<Ear> {
        // Neither side waits for the other.
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Ear { part, ours, theirs, unfinished: Vec::new() })
    }

    /// What a child has as its standard error.
    pub(crate) fn for_child(&self) -> Result<Stdio> {
        Ok(Stdio::from(self.theirs.try_clone()?))
    }

    /// Writes what was said to the log.
    pub(crate) fn hear(&mut self) {
        let mut bytes = vec![0; TURN_BYTES_MAX];
        let Ok(count) = rustix::io::read(&self.ours, &mut bytes[..]) else { return };
        for piece in bytes[..count].split_inclusive(|byte| *byte == b'\n') {
            let room = TEXT_BYTES_MAX.saturating_sub(self.unfinished.len());
            self.unfinished.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// The children are gone: writes all that they have said.
    pub(crate) fn hear_the_rest(&mut self) {
        for _ in 0..2 {
            self.hear();
        }
        self.end_line();
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.unfinished);
        let text = String::from_utf8_lossy(&line);
        let (level, text) = Level::split(text.trim_end());
        if !text.is_empty() {
            write(self.part, level, text);
        }
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }
}
