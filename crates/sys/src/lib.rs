//! System calls without a C library.
//!
//! The library in the host process may run before libc is ready, inside a signal handler or in the
//! child of vfork, so it issues system calls itself. What depends on the processor stands in
//! [`arch`]. Errors are [`Errno`]; nothing here touches the host's `errno`.
#![no_std]

pub mod arch;
pub mod clock;
pub mod entry;
pub mod fault;
pub mod file;
pub mod followed;
pub mod futex;
mod ids;
pub mod interrupt;
pub mod lock;
pub mod mapped;
pub mod memory;
pub mod number;
pub mod process;
pub mod scratch;
pub mod text;
pub mod user;

pub use mayfly_types::Errno;

/// Turns a raw result into a value or an error.
///
/// # Errors
/// The error number when `raw` is in -4095..0.
pub const fn result(raw: isize) -> Result<usize, Errno> {
    if raw < 0 && raw >= -4095 {
        match Errno::from_raw(-raw as i32) {
            Some(errno) => Err(errno),
            None => Err(Errno::EIO),
        }
    } else {
        Ok(raw as usize)
    }
}
