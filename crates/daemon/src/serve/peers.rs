//! What the threads of a daemon's shards tell each other: an inbox for each, first in, first out.
//!
//! The serving thread passes on what it alone learns (sessions, closed slot files) and the shards
//! send each other their messages the same way, so whatever a shard must know before it executes a
//! request stands before that request in its inbox.
//!
//! An inbox has no bound of its own: what is in it belongs to a request under way, a session, or a
//! slot file that was closed, and `types::limits` bounds those.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use mayfly_transport_shm::server::Session;
use mayfly_types::{Errno, SessionId, limits::SHARDS_MAX};

use super::Waker;
use crate::{Message, ShardId};

/// [`Peers::send`] has a bit for each.
const _: () = assert!(SHARDS_MAX <= u64::BITS);

/// Something that a shard's thread must act on.
#[derive(Debug)]
pub(super) enum ToShard {
    /// Another shard says something.
    Message { from: ShardId, message: Message },
    /// A process attached.
    SessionOpened { pid: u32, shared: Arc<Session> },
    /// Its process image is gone. To be answered with [`Report::SessionGone`].
    SessionClosed(SessionId),
    /// A slot file was closed, when its entry had this generation.
    OpenReleased { index: u32, generation: u32 },
    /// Finish.
    Stop,
    /// To the serving thread.
    Report(Report),
}

/// What another shard's thread tells the serving thread.
#[derive(Debug)]
pub(super) enum Report {
    /// Nothing of earlier daemons is left to be finished.
    Recovered,
    /// Nothing of the session is left.
    SessionGone(SessionId),
    /// The store cannot commit.
    Failed(Errno),
}

#[derive(Debug)]
struct Inbox {
    queue: Mutex<VecDeque<ToShard>>,
    waker: Waker,
}

impl Inbox {
    fn push(&self, item: ToShard) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(item);
    }
}

/// The shards of the daemon, as one of them sees them.
#[derive(Debug, Clone)]
pub(super) struct Peers {
    inboxes: Arc<[Inbox]>,
    me: ShardId,
}

impl Peers {
    /// `shards` shards; the view of the first, whose thread `waker` wakes.
    pub(super) fn new(waker: Waker, shards: u32) -> Peers {
        let others = (1..shards).map(|_| Waker::of_worker());
        let wakers = std::iter::once(waker).chain(others);
        let inboxes = wakers.map(|waker| Inbox { queue: Mutex::default(), waker }).collect();
        Peers { inboxes, me: ShardId(0) }
    }

    /// The views of the other shards.
    pub(super) fn others(&self) -> impl Iterator<Item = Peers> {
        let inboxes = &self.inboxes;
        self.other_numbers().map(|me| Peers { inboxes: Arc::clone(inboxes), me })
    }

    fn other_numbers(&self) -> impl Iterator<Item = ShardId> + use<> {
        let me = self.me;
        (0..self.count()).map(ShardId).filter(move |shard| *shard != me)
    }

    /// Number of shards.
    pub(super) fn count(&self) -> u32 {
        self.inboxes.len() as u32
    }

    /// Which of them this is.
    pub(super) fn me(&self) -> ShardId {
        self.me
    }

    /// Wakes this one.
    pub(super) fn waker(&self) -> &Waker {
        &self.inboxes[self.me.0 as usize].waker
    }

    /// Appends what has come for this one.
    pub(super) fn take(&self, items: &mut VecDeque<ToShard>) {
        let inbox = &self.inboxes[self.me.0 as usize];
        items.append(&mut inbox.queue.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells all others.
    pub(super) fn tell_others(&self, item: impl Fn() -> ToShard) {
        for shard in self.other_numbers() {
            let inbox = &self.inboxes[shard.0 as usize];
            inbox.push(item());
            inbox.waker.wake();
        }
    }

    /// Tells the serving thread.
    pub(super) fn report(&self, report: Report) {
        let inbox = &self.inboxes[0];
        inbox.push(ToShard::Report(report));
        inbox.waker.wake();
    }

    /// Sends messages; each receiver is woken once.
    pub(super) fn send(&self, messages: Vec<(ShardId, Message)>) {
        if messages.is_empty() {
            return;
        }
        let mut woken = 0_u64;
        for (to, message) in messages {
            // A shard that does not exist is an error of the sender, which must not stop the rest.
            let Some(inbox) = self.inboxes.get(to.0 as usize) else { continue };
            inbox.push(ToShard::Message { from: self.me, message });
            woken |= 1 << to.0;
        }
        for (shard, inbox) in self.inboxes.iter().enumerate() {
            if woken & (1 << shard) != 0 {
                inbox.waker.wake();
            }
        }
    }
}

/// Stops the other shards when the serving thread ends, whichever way.
#[derive(Debug)]
pub(super) struct StopOthers(pub(super) Peers);

impl Drop for StopOthers {
    fn drop(&mut self) {
        self.0.tell_others(|| ToShard::Stop);
    }
}
