//! Prepared images: a library's code with every `syscall` instruction redirected, ready to be
//! mapped.
//!
//! Disassembling a C library takes milliseconds and would be paid at every exec, so it is done once
//! for each build of a library and the result is kept in a file. [`format`] is that file's layout
//! with a validating reader that a host process can afford (`no_std`, one page read); `maker`
//! (feature `maker`) finds the instructions and writes the file; [`plain`] remembers what has none.
#![cfg_attr(not(feature = "maker"), no_std)]

pub mod format;
#[cfg(feature = "maker")]
pub mod maker;
pub mod plain;
