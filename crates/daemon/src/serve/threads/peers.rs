//! What the threads of a daemon's shards tell each other: an inbox for each, first in, first out.
//!
//! The serving thread alone learns of sessions and closed slot files, and passes that on. The
//! shards send each other their messages in the same way. So everything that a shard must know
//! before it executes a request is in its inbox before that request.
//!
//! An inbox has no bound of its own: what is in it belongs to a request under way, a session, or a
//! slot file that was closed, and `types::limits` bounds those.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use mayfly_transport_shm::server::Session;
use mayfly_types::{Errno, FileId, SessionId, limits::SHARDS_MAX};

use crate::{
    Message, Numbering, ShardId,
    serve::{
        Waker,
        network::{
            door::{Door, StandIn},
            net::Net,
        },
        sessions::watched::Watched,
    },
};

/// [`Peers::send`] has a bit for each.
const _: () = assert!(SHARDS_MAX <= u64::BITS);

/// Something that a shard's thread must act on.
#[derive(Debug)]
pub(in crate::serve) enum ToShard {
    /// Another shard says something.
    Message { from: ShardId, message: Message },
    /// A process attached.
    SessionOpened { pid: u32, shared: Arc<Session> },
    /// Its process image is gone. To be answered with [`Report::SessionGone`].
    SessionClosed(SessionId),
    /// A slot file was closed, when its entry had this generation.
    OpenReleased { index: u32, generation: u32 },
    /// A process of another node asks for something.
    StrangerCame { session: SessionId, pid: u32 },
    /// It is over.
    StrangerLeft(SessionId),
    /// A node has no others than these.
    StrangersAre { node: u32, sessions: Arc<[(SessionId, u32)]> },
    /// A node can be reached no more, or again.
    NodeReached { node: u32, reached: crate::serve::Reached },
    /// Finish.
    Stop,
    /// To the serving thread.
    Report(Report),
}

/// What another shard's thread tells the serving thread.
#[derive(Debug)]
pub(in crate::serve) enum Report {
    /// Nothing of earlier daemons is left to be finished.
    Recovered,
    /// Nothing of the session is left.
    SessionGone(SessionId),
    /// The store cannot commit.
    Failed(Errno),
}

/// How somebody hears that there is something in his inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Call {
    /// His thread is woken.
    Wake,
    /// If that sleeps, this thread takes its place.
    StandIn,
}

#[derive(Debug)]
struct Inbox {
    queue: Mutex<VecDeque<ToShard>>,
    waker: Waker,
    /// Where the loop is that acts on it, if another thread may run that.
    door: Door,
}

impl Inbox {
    fn push(&self, item: ToShard) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(item);
    }

    fn call(&self, how: Call) {
        match how {
            Call::Wake => self.waker.wake(),
            Call::StandIn => self.door.knock(&self.waker),
        }
    }
}

/// The shards of the daemon, as one of them sees them.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Peers {
    inboxes: Arc<[Inbox]>,
    /// Number of this one on the node.
    me: u32,
    numbering: Numbering,
    /// Says to other nodes what is for their shards.
    net: Option<Arc<Net>>,
    /// Who is told of files that were written to.
    watched: Option<Arc<Watched>>,
}

impl Peers {
    /// The view of the node's first shard, whose thread `waker` wakes.
    pub(in crate::serve) fn new(waker: Waker, numbering: Numbering) -> Peers {
        let others = (1..numbering.shards).map(|_| Waker::of_worker());
        let wakers = std::iter::once(waker).chain(others);
        let inbox = |waker| Inbox { queue: Mutex::default(), waker, door: Door::default() };
        let inboxes = wakers.map(inbox).collect();
        Peers { inboxes, me: 0, numbering, net: None, watched: None }
    }

    /// Those in `run_dir` are told of files that were written to; before the others are made.
    pub(in crate::serve) fn watched_at(&mut self, run_dir: &Path) {
        self.watched = Some(Arc::new(Watched::of(run_dir)));
    }

    /// Descriptions of these files have ended that could be written to.
    pub(in crate::serve) fn tell_written(&self, files: Vec<FileId>) {
        if let Some(watched) = &self.watched {
            files.into_iter().for_each(|file| watched.tell_written(file));
        }
    }

    /// The views of the other shards.
    pub(in crate::serve) fn others(&self) -> impl Iterator<Item = Peers> {
        self.other_numbers().map(|me| Peers { me, ..self.clone() })
    }

    fn other_numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.me;
        (0..self.count()).filter(move |shard| *shard != me)
    }

    /// Number of shards of the node.
    pub(in crate::serve) fn count(&self) -> u32 {
        self.inboxes.len() as u32
    }

    /// Which of them this is.
    pub(in crate::serve) fn me(&self) -> u32 {
        self.me
    }

    /// All shards.
    pub(in crate::serve) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// The thread of the first shard may run this one's loop while its own thread sleeps.
    pub(in crate::serve) fn may_be_stood_in_for(&self, stand_in: Weak<dyn StandIn>) {
        // A shard has one loop.
        let _first = self.inboxes[self.me as usize].door.0.set(stand_in);
    }

    /// Wakes this one.
    pub(in crate::serve) fn waker(&self) -> &Waker {
        &self.inboxes[self.me as usize].waker
    }

    /// Appends what has come for this one.
    pub(in crate::serve) fn take(&self, items: &mut VecDeque<ToShard>) {
        let inbox = &self.inboxes[self.me as usize];
        items.append(&mut inbox.queue.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells all others.
    pub(in crate::serve) fn tell_others(&self, item: impl Fn() -> ToShard) {
        for shard in self.other_numbers() {
            let inbox = &self.inboxes[shard as usize];
            inbox.push(item());
            inbox.waker.wake();
        }
    }

    /// Tells the serving thread.
    pub(in crate::serve) fn report(&self, report: Report) {
        let inbox = &self.inboxes[0];
        inbox.push(ToShard::Report(report));
        inbox.waker.wake();
    }

    /// Sends messages; each receiver is called once.
    pub(in crate::serve) fn send(&self, messages: Vec<(ShardId, Message)>, call: Call) {
        if messages.is_empty() {
            return;
        }
        let from = self.numbering.shard(self.me);
        let mut called = 0_u64;
        for (to, message) in messages {
            if self.numbering.is_here(to) {
                let own = self.numbering.own(to);
                self.inboxes[own as usize].push(ToShard::Message { from, message });
                called |= 1 << own;
            } else if let Some(net) = &self.net {
                net.send(from, to, message);
            }
        }
        // What is on its way to other nodes meanwhile takes longest.
        if let Some(net) = &self.net {
            net.flush();
        }
        for (shard, inbox) in self.inboxes.iter().enumerate() {
            if called & (1 << shard) != 0 {
                inbox.call(call);
            }
        }
    }

    /// Hands one of this node's shards what came from another node.
    pub(in crate::serve) fn hand(&self, own: u32, item: ToShard) {
        if let Some(inbox) = self.inboxes.get(own as usize) {
            inbox.push(item);
            inbox.waker.wake();
        }
    }

    /// The connections to other nodes.
    pub(in crate::serve) fn net(&self) -> Option<&Arc<Net>> {
        self.net.as_ref()
    }

    /// From now on there are other nodes. To be called before there are views of other shards.
    pub(in crate::serve) fn connect(&mut self, net: Arc<Net>) {
        self.net = Some(net);
    }
}

/// Stops the other shards when the serving thread ends, whichever way.
#[derive(Debug)]
pub(in crate::serve) struct StopOthers(pub(in crate::serve) Peers);

impl Drop for StopOthers {
    fn drop(&mut self) {
        self.0.tell_others(|| ToShard::Stop);
    }
}
