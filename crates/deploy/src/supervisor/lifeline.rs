//! The line to whoever started the instance.

use std::{
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use anyhow::Result;

/// Longest line that is read, bytes.
const WORDS_BYTES_MAX: usize = 256;

/// What was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// Leave the data.
    Keep,
    /// End.
    Stop,
    /// Live on alone.
    Detach,
    /// The other side is gone.
    Cut,
}

pub(super) struct Lifeline(UnixStream);

impl Lifeline {
    /// Standard input.
    pub(super) fn from_stdin() -> Result<Lifeline> {
        let line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        line.set_nonblocking(true)?;
        Ok(Lifeline(line))
    }

    pub(super) fn try_clone(&self) -> Result<Lifeline> {
        Ok(Lifeline(self.0.try_clone()?))
    }

    /// Says something; nobody may be listening.
    pub(super) fn say(&mut self, word: &str) {
        let _ = writeln!(self.0, "{word}");
    }

    pub(super) fn hear(&mut self) -> Vec<Word> {
        let mut bytes = [0; WORDS_BYTES_MAX];
        match self.0.read(&mut bytes) {
            Ok(0) => vec![Word::Cut],
            Ok(count) => words(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Vec::new(),
            Err(_) => vec![Word::Cut],
        }
    }
}

impl AsFd for Lifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn words(bytes: &[u8]) -> Vec<Word> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| match line {
            b"keep" => Some(Word::Keep),
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
