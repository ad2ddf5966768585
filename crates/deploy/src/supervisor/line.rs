//! The line to the daemon: which daemon there is, and what it is handed and still owed.

use std::os::fd::{AsFd, OwnedFd};

use mayfly_daemon::serve::channel::{self, Message};
use mayfly_types::SessionId;
use rustix::event::epoll;

use super::{
    children::Daemon,
    outbox::{Flushed, Outbox, Owed},
    sessions::Sessions,
    watch::{Source, Watch},
};
use crate::nodes::Net;

/// What every daemon of this node gets, one after the other.
pub(super) struct Handed {
    /// The node's region.
    pub(super) node: OwnedFd,
    /// Tells of the end of shared open file descriptions.
    pub(super) releases: OwnedFd,
    /// None for an instance of one node.
    pub(super) net: Option<Net>,
}

pub(super) struct Line {
    daemon: Option<Daemon>,
    outbox: Outbox,
    flushed: Flushed,
}

impl Line {
    pub(super) fn new() -> Line {
        Line { daemon: None, outbox: Outbox::default(), flushed: Flushed::All }
    }

    pub(super) fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Messages that the daemon is owed.
    pub(super) fn owed(&self) -> usize {
        self.outbox.len()
    }

    /// Whether the kernel was short of something when the daemon was last told.
    pub(super) fn is_short(&self) -> bool {
        self.flushed == Flushed::Short
    }

    /// A daemon was started: it is owed what every daemon gets, and the sessions that live.
    pub(super) fn begin(
        &mut self,
        daemon: Daemon,
        handed: &Handed,
        alive: impl Iterator<Item = SessionId>,
    ) {
        self.outbox.push(Owed::Node);
        self.outbox.push(Owed::Releases);
        if handed.net.is_some() {
            self.outbox.push(Owed::Net);
        }
        alive.for_each(|session| self.outbox.push(Owed::Session(session)));
        self.outbox.push(Owed::Start);
        self.daemon = Some(daemon);
    }

    /// The daemon has ended, or is to end: nothing is owed to it any more.
    pub(super) fn end(&mut self) -> Option<Daemon> {
        self.outbox.clear();
        self.flushed = Flushed::All;
        self.daemon.take()
    }

    /// A session has begun. A daemon that is started later hears of it then.
    pub(super) fn begin_session(&mut self, session: SessionId) {
        if self.daemon.is_some() {
            self.outbox.push(Owed::Session(session));
        }
    }

    /// A session has ended. False when no daemon has heard of it.
    pub(super) fn end_session(&mut self, session: SessionId) -> bool {
        if self.daemon.is_none() || self.outbox.take_back(session) {
            return false;
        }
        self.outbox.push(Owed::End(session));
        true
    }

    /// Tells the daemon what it is owed, as far as it listens.
    pub(super) fn flush(&mut self, handed: &Handed, sessions: &Sessions, watch: &Watch) {
        let Some(daemon) = &self.daemon else { return };
        let say = |message: &Message, fd: &OwnedFd| {
            channel::send(&daemon.channel, message, &[fd.as_fd()])
        };
        let flushed = self.outbox.flush(|owed| match owed {
            Owed::Node => say(&Message::Node, &handed.node),
            Owed::Releases => say(&Message::Releases, &handed.releases),
            Owed::Net => handed.net.as_ref().map_or(Ok(()), |net| {
                let message = Message::Net(net.secret.clone());
                channel::send(&daemon.channel, &message, &[net.listener.as_fd()])
            }),
            Owed::Session(session) => sessions.tell(session, &daemon.channel),
            Owed::End(session) => channel::send(&daemon.channel, &Message::End(session), &[]),
            Owed::Start => channel::send(&daemon.channel, &Message::Start, &[]),
        });
        if (flushed == Flushed::Full) != (self.flushed == Flushed::Full) {
            let room = match flushed {
                Flushed::Full => epoll::EventFlags::OUT,
                _ => epoll::EventFlags::empty(),
            };
            watch.change(&daemon.channel, Source::Channel, epoll::EventFlags::IN | room);
        }
        self.flushed = flushed;
    }
}
