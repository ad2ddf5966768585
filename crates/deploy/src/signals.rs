//! Signals that a batch system, or an impatient user, sends to every process of a job.
//!
//! They are meant for the job's programs, which may want to save something then. So their file
//! system lives on until the process that started it has ended or says so. An instance that was
//! left to itself has nobody who says so. It takes SIGTERM as the word to end.

use std::{
    os::unix::net::UnixStream,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2},
    flag, low_level,
};

/// From now on none of these signals ends this process.
///
/// # Errors
/// What the kernel says.
pub(crate) fn outlive() -> Result<()> {
    let unread = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2] {
        flag::register(signal, Arc::clone(&unread)).context("cannot listen for signals")?;
    }
    Ok(())
}

/// A descriptor that can be read from once somebody has sent SIGTERM.
///
/// # Errors
/// What the kernel says.
pub(crate) fn end_requests() -> Result<UnixStream> {
    let (told, teller) = UnixStream::pair()?;
    low_level::pipe::register(SIGTERM, teller).context("cannot listen for signals")?;
    Ok(told)
}
