//! The error of a command that could not be started.

use std::{
    ffi::{OsStr, OsString},
    io,
};

/// A command that was not started, or not to its first instruction.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {}", program.display())]
pub struct CannotRun {
    program: OsString,
    source: io::Error,
}

impl CannotRun {
    pub(super) fn new(program: &OsStr, source: io::Error) -> CannotRun {
        CannotRun { program: program.to_owned(), source }
    }

    /// The exit status that shells and `env` use: 127 for a program that is not there, 126 for one
    /// that cannot be executed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}
