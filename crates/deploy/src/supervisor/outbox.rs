//! What the daemon is still to be told.
//!
//! The channel holds a few hundred messages; a daemon that is stopped, or stuck, takes none. The
//! supervisor must not wait for it, since attaching, `status` and `stop` would wait too. So it
//! sends without blocking and keeps what does not fit here, in order.
//!
//! Nothing is ever dropped, and the queue is bounded all the same: a session is owed at most one
//! message. The end of one that the daemon has not heard of takes its beginning back instead of
//! being queued behind it. A session that is owed its end keeps its number until the daemon has
//! confirmed it, so the numbers bound the queue, and when they run out processes are refused.

use std::collections::VecDeque;

use mayfly_types::{SessionId, limits::SESSIONS_MAX};
use rustix::io::Errno;

/// Messages with which a fresh daemon is handed what is no session's: node, releases, net, start.
const HANDOVER_MESSAGES: usize = 4;
/// Messages owed at most.
const OWED_MAX: usize = SESSIONS_MAX as usize + HANDOVER_MESSAGES;

/// A message that is owed; what it carries is looked up when it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owed {
    Node,
    Releases,
    Net,
    Session(SessionId),
    End(SessionId),
    Start,
}

/// How far [`Outbox::flush`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing is owed.
    All,
    /// The channel is full: go on when it can be written to.
    Full,
    /// The kernel is short of something (memory, descriptors under way): go on in a while.
    Short,
    /// The daemon is gone; its successor is told everything anew.
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<Owed>);

impl Outbox {
    /// Messages that are owed.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, owed: Owed) {
        debug_assert!(self.0.len() < OWED_MAX, "a session is owed one message at most");
        self.0.push_back(owed);
    }

    /// Takes the beginning of a session back; false when the daemon has been told of it.
    pub(super) fn take_back(&mut self, session: SessionId) -> bool {
        let place = self.0.iter().position(|owed| *owed == Owed::Session(session));
        place.and_then(|place| self.0.remove(place)).is_some()
    }

    /// Forgets everything: the daemon it was for is gone.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Sends what can be sent.
    pub(super) fn flush(&mut self, mut send: impl FnMut(Owed) -> Result<(), Errno>) -> Flushed {
        while let Some(owed) = self.0.front() {
            match send(*owed) {
                Ok(()) => self.0.pop_front(),
                Err(Errno::AGAIN) => return Flushed::Full,
                Err(Errno::PIPE | Errno::CONNRESET) => return Flushed::Gone,
                Err(_) => return Flushed::Short,
            };
        }
        Flushed::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel with room for so many messages.
    fn room_for(count: usize, said: &mut Vec<Owed>) -> impl FnMut(Owed) -> Result<(), Errno> {
        let mut left = count;
        move |owed| {
            left = left.checked_sub(1).ok_or(Errno::AGAIN)?;
            said.push(owed);
            Ok(())
        }
    }

    #[test]
    fn what_does_not_fit_is_said_later_and_in_order() {
        let (mut outbox, mut said) = (Outbox::default(), Vec::new());
        let sessions = || (1..=9).map(|id| Owed::Session(SessionId(id)));
        sessions().for_each(|owed| outbox.push(owed));
        assert_eq!(outbox.flush(room_for(4, &mut said)), Flushed::Full);
        assert_eq!(outbox.len(), 5);
        assert_eq!(outbox.flush(room_for(9, &mut said)), Flushed::All);
        assert!(said.into_iter().eq(sessions()));
    }

    #[test]
    fn an_end_takes_back_a_beginning_that_was_not_said_and_only_that() {
        let (mut outbox, mut said) = (Outbox::default(), Vec::new());
        outbox.push(Owed::Session(SessionId(1)));
        outbox.push(Owed::Session(SessionId(2)));
        assert_eq!(outbox.flush(room_for(1, &mut said)), Flushed::Full);
        assert!(!outbox.take_back(SessionId(1)), "the daemon knows of it and must hear its end");
        assert!(outbox.take_back(SessionId(2)));
        assert_eq!(outbox.len(), 0);
    }

    #[test]
    fn a_daemon_that_never_listens_makes_the_queue_no_longer_than_its_bound() {
        let mut outbox = Outbox::default();
        for owed in [Owed::Node, Owed::Releases, Owed::Net, Owed::Start] {
            outbox.push(owed);
        }
        // Every number in use, then ended, then in use again, and so on.
        for _ in 0..3 {
            let all = || (1..SESSIONS_MAX).map(SessionId);
            all().for_each(|session| outbox.push(Owed::Session(session)));
            assert!(outbox.len() <= OWED_MAX);
            assert!(all().all(|session| outbox.take_back(session)));
        }
        assert_eq!(outbox.len(), 4);
    }
}
