//! The sources of events for which the supervisor waits.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use mayfly_types::SessionId;
use rustix::event::epoll;

/// The source of an epoll event: a kind in the upper half, a number in the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Listener,
    Lifeline,
    Channel,
    DaemonExit,
    /// A connection that has not said yet what it wants.
    Connection(u32),
    /// The connection of a session.
    Evidence(SessionId),
    /// The process of a session.
    Process(SessionId),
    /// A process that makes an image.
    Maker(u32),
    /// The line to a process that serves a mount.
    Mount(u32),
    /// Somebody has sent SIGTERM.
    EndRequested,
    /// A child's pipe, by its number.
    Ear(u32),
    /// The line to the keeper of the caching tier.
    Tier,
}

impl Source {
    fn token(self) -> u64 {
        let (kind, number) = match self {
            Source::Listener => (1, 0),
            Source::Lifeline => (2, 0),
            Source::Channel => (3, 0),
            Source::DaemonExit => (4, 0),
            Source::Connection(number) => (5, number),
            Source::Evidence(session) => (6, session.0),
            Source::Process(session) => (7, session.0),
            Source::Maker(number) => (8, number),
            Source::Mount(number) => (9, number),
            Source::EndRequested => (10, 0),
            Source::Ear(number) => (11, number),
            Source::Tier => (12, 0),
        };
        u64::from(number) | kind << 32
    }

    pub(crate) fn of(token: u64) -> Option<Source> {
        let number = token as u32;
        Some(match token >> 32 {
            1 => Source::Listener,
            2 => Source::Lifeline,
            3 => Source::Channel,
            4 => Source::DaemonExit,
            5 => Source::Connection(number),
            6 => Source::Evidence(SessionId(number)),
            7 => Source::Process(SessionId(number)),
            8 => Source::Maker(number),
            9 => Source::Mount(number),
            10 => Source::EndRequested,
            11 => Source::Ear(number),
            12 => Source::Tier,
            _ => return None,
        })
    }
}

/// What the supervisor waits for.
pub(crate) struct Watch(pub(super) OwnedFd);

impl Watch {
    pub(super) fn add(&self, fd: impl AsFd, source: Source) -> Result<()> {
        let data = epoll::EventData::new_u64(source.token());
        epoll::add(&self.0, fd, data, epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?;
        Ok(())
    }

    /// Changes what a descriptor is watched for besides its end.
    pub(super) fn change(&self, fd: impl AsFd, source: Source, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(source.token());
        // It fails only for a descriptor that is not watched: the daemon's, once it has hung up.
        let _ = epoll::modify(&self.0, fd, data, flags | epoll::EventFlags::RDHUP);
    }

    pub(super) fn remove(&self, fd: impl AsFd) {
        // It fails only for a descriptor that is not watched, which is what is wanted.
        let _ = epoll::delete(&self.0, fd);
    }
}
