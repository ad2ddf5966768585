//! The line to whoever started the instance.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use anyhow::Result;

use crate::nodes::word_of;

/// Longest line that is read, bytes.
const WORDS_BYTES_MAX: usize = 256;

/// What was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// Leave the data.
    Keep,
    /// Leave them only if that was planned.
    Discard,
    /// End.
    Stop,
    /// Live on alone.
    Detach,
    /// The other side is gone.
    Cut,
}

pub(super) struct Lifeline {
    line: UnixStream,
    /// Whose words they are, where there are several nodes.
    node: Option<u32>,
    closed: bool,
}

impl Lifeline {
    /// Standard input.
    pub(super) fn from_stdin() -> Result<Lifeline> {
        let line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        Lifeline::new(line, None)
    }

    pub(super) fn new(line: UnixStream, node: Option<u32>) -> Result<Lifeline> {
        line.set_nonblocking(true)?;
        Ok(Lifeline { line, node, closed: false })
    }

    pub(super) fn try_clone(&self) -> Result<Lifeline> {
        Ok(Lifeline { line: self.line.try_clone()?, ..*self })
    }

    /// Says something; nobody may be listening.
    pub(super) fn say(&mut self, word: &str) {
        self.say_with(word, None);
    }

    /// Says why the instance ends, with the end of its log.
    pub(super) fn say_failed(&mut self, why: &str, log: String) {
        self.say_with(why, Some(log));
    }

    fn say_with(&mut self, word: &str, log: Option<String>) {
        let bytes = match self.node {
            Some(node) => word_of(node, word, log),
            None => format!("{word}\n").into_bytes(),
        };
        let _ = self.line.write_all(&bytes);
    }

    /// Nobody is told anything any more.
    pub(crate) fn close(&mut self) {
        let _ = self.line.shutdown(Shutdown::Both);
        self.closed = true;
    }

    /// The instance was left to itself.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn hear(&mut self) -> Vec<Word> {
        let mut bytes = [0; WORDS_BYTES_MAX];
        match self.line.read(&mut bytes) {
            Ok(0) => vec![Word::Cut],
            Ok(count) => words(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Vec::new(),
            Err(_) => vec![Word::Cut],
        }
    }
}

impl AsFd for Lifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

fn words(bytes: &[u8]) -> Vec<Word> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| match line {
            b"keep" => Some(Word::Keep),
            b"discard" => Some(Word::Discard),
            b"stop" => Some(Word::Stop),
            b"detach" => Some(Word::Detach),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_passed_over() {
        assert_eq!(words(b"keep\nhello\nstop\n"), [Word::Keep, Word::Stop]);
    }
}
