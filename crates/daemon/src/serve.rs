//! The serving loop: requests from shared memory to the file system, replies back.
//!
//! One thread does all of it, in rounds: gather the marked lanes, execute their requests one after
//! the other, each reply going straight into its lane with the number of the transaction it rests
//! on, then commit, then show the replies. What is shown is therefore true after any crash, and
//! what was stored but not shown is shown by the next daemon if its transaction made it, and
//! executed otherwise: each request exactly once.
//!
//! The loop never waits but in [`idle`]. Descriptors (the supervisor's channel, the inotify queue)
//! are watched by a second thread ([`control`]). The sessions themselves, the processes' handles
//! and the inotify queue belong to the supervisor and outlive this process; [`handover`] takes them
//! up.

pub mod channel;
mod control;
mod handover;
mod idle;
pub mod releases;
mod rounds;
mod service;
#[cfg(test)]
mod tests;

use std::{fmt::Display, io, os::fd::OwnedFd, path::Path};

pub use handover::Handover;
pub use idle::Waker;
pub use rounds::{Ending, Serving};
pub use service::{Caller, Completion, Progress, Service};

/// A daemon's life: takes up what the supervisor at the other end of `channel` hands over, opens
/// the file system, serves until told to stop. `slot_files` is the directory of the slot files.
///
/// # Errors
/// When the supervisor does not keep to the protocol, or `open` fails, which the supervisor is
/// told.
pub fn run<S: Service, E: Display>(
    channel: OwnedFd,
    slot_files: &Path,
    open: impl FnOnce(&Handover) -> Result<S, E>,
) -> io::Result<Ending> {
    let handover = Handover::receive(channel)?;
    let service = match open(&handover) {
        Ok(service) => service,
        Err(error) => {
            let why = format!("{error:#}");
            handover.refuse(&why);
            return Err(io::Error::other(why));
        }
    };
    Ok(Serving::new(handover, service, slot_files.to_owned())?.run())
}
