//! What the serving loop is told.

use std::os::fd::OwnedFd;

use mayfly_types::SessionId;

/// Something the serving loop must act on.
#[derive(Debug)]
pub enum Event {
    /// A process attached: session region and pidfd.
    Session {
        /// Its session.
        session: SessionId,
        /// The process.
        pid: u32,
        /// The memory of the session.
        region: OwnedFd,
        /// Evidence of the process.
        process: OwnedFd,
    },
    /// A session's process image is gone.
    End(SessionId),
    /// A slot file was closed.
    Released(u32),
    /// Releases were lost.
    Overflow,
    /// Finish.
    Stop,
    /// The supervisor is gone: nobody holds the sessions any more.
    Orphaned,
}
