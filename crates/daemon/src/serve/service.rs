//! What the threads of a daemon ask of the file system behind them.

use std::time::Duration;

use mayfly_transport_tcp::{Body, Bytes};
use mayfly_types::{Errno, FileId, SessionId};
use mayfly_wire::{Op, Request};

use crate::{Message, Shard, ShardId, message::Resolved};

pub use crate::api::{Caller, Completion, Progress, Reached};

/// A shard of a file system that can be served. Requests and messages
/// are handled one after the other; what they change becomes durable together, at the next
/// [`Service::commit`].
pub trait Service {
    /// Whether another thread may go on with it after a commit.
    fn may_move(&self) -> bool;
    /// The body of the request that is handled next, or, when that was handled, none. What is kept
    /// of it need not be copied.
    fn share_body(&mut self, _body: Bytes) {}
    /// Executes a request; writes the body of the reply to `body`.
    fn handle(&mut self, caller: Caller, request: Request<'_>, body: &mut [u8]) -> Progress;
    /// What the file held that the request just handled has opened, if that was for reading alone
    /// and the file has no object.
    fn opened_content(&mut self) -> Option<Vec<u8>>;
    /// Takes in a message of another shard. What a shard sends to one other arrives in order.
    fn deliver(&mut self, from: ShardId, message: Message);
    /// Answers to requests that are pending, here or where they were taken from a client, and were
    /// executed in this batch. They are stored before it is committed and shown after it.
    fn answers(&mut self) -> Vec<Completion>;
    /// Messages to other shards that may be sent now; asked for after a commit, or when there is
    /// nothing to commit.
    fn outbox(&mut self) -> Vec<(ShardId, Message)>;
    /// Operations over several shards that an earlier daemon left are being finished. While any
    /// shard is at it, messages are delivered and no requests handled.
    fn is_recovering(&self) -> bool;
    /// Number of the transaction that is open, with the shard's number in its upper 16 bits; 0 when
    /// nothing has changed since the last commit.
    fn batch_transaction(&self) -> u64;
    /// Commits the open transaction.
    ///
    /// # Errors
    /// When the store is broken: nothing since the last commit happened, and the service is of no
    /// more use.
    fn commit(&mut self) -> Result<u64, Errno>;
    /// A file of another node was opened there for a process of this one: makes the description
    /// that stands for it here. The status and the body of the answer to the process, whose request
    /// had the body `request`.
    fn adopt_open(
        &mut self,
        caller: Caller,
        shard: ShardId,
        request: &[u8],
        answer: &[u8],
    ) -> (u32, Vec<u8>);
    /// A request of this node was sent on to this place, where others like it go.
    fn learn(&mut self, place: &Resolved);
    /// Another node has executed a request that was sent on to there.
    fn done_elsewhere(&mut self, _node: u32, _op: Op, _body: &Body) {}
    /// Whether something that processes of this node have written is not at that node yet, so that
    /// this shard is to send on what goes there ([`Message::SendOn`]).
    fn is_behind_at(&self, _node: u32) -> bool {
        false
    }
    /// A process attached.
    fn session_opened(&mut self, session: SessionId, pid: u32);
    /// Its process image is gone. A request of it that another shard had on its way may still
    /// arrive in a message, and is nobody's then. What was executed before may be committed here.
    fn session_closed(&mut self, session: SessionId);
    /// Another node has no other sessions than `living`, as it numbers them: what was kept for
    /// others goes. Those that this daemon knows have been closed.
    fn end_strangers(&mut self, node: u32, living: &[(SessionId, u32)]);
    /// Another node can be reached no more, or again. What was answered to its processes may not
    /// have arrived; a commit must follow.
    fn node_reached(&mut self, node: u32, reached: Reached);
    /// Files of which a description has ended that could be written to, while somebody on this node
    /// watches files; each is returned once.
    fn written(&mut self) -> Vec<FileId>;
    /// The last descriptor of a shared open file description was closed, which may be another
    /// shard's.
    fn open_released(&mut self, index: u32);
    /// Where the last of what was executed was submitted that nobody waits for, and how much was,
    /// if anything was since the last call: a processor's number plus one, or 0.
    fn submitted_on(&mut self) -> Option<(u32, u32)>;
    /// Nobody makes anything any more without asking. True when something was executed that nobody
    /// had asked for, so that a commit must follow.
    fn recall(&mut self) -> bool;
    /// Answers to pending requests that have become known; asked for after a commit.
    fn completions(&mut self) -> Vec<Completion>;
    /// After how long it is to be called again though nobody asks for anything.
    fn due(&self) -> Option<Duration>;
    /// Work that can wait; called when there is no request. True when it changed records, so that a
    /// commit must follow, and a further call may find more.
    fn idle_work(&mut self) -> bool;
}

impl Service for Shard {
    fn may_move(&self) -> bool {
        Shard::may_move(self)
    }

    fn share_body(&mut self, body: Bytes) {
        Shard::share_body(self, body);
    }

    fn handle(&mut self, caller: Caller, request: Request<'_>, body: &mut [u8]) -> Progress {
        Shard::handle(self, caller, request, body)
    }

    fn opened_content(&mut self) -> Option<Vec<u8>> {
        Shard::opened_content(self)
    }

    fn deliver(&mut self, from: ShardId, message: Message) {
        Shard::deliver(self, from, message);
    }

    fn answers(&mut self) -> Vec<Completion> {
        Shard::answers(self)
    }

    fn outbox(&mut self) -> Vec<(ShardId, Message)> {
        Shard::outbox(self)
    }

    fn is_recovering(&self) -> bool {
        Shard::is_recovering(self)
    }

    fn batch_transaction(&self) -> u64 {
        Shard::batch_transaction(self)
    }

    fn commit(&mut self) -> Result<u64, Errno> {
        Shard::commit(self)
    }

    fn adopt_open(
        &mut self,
        caller: Caller,
        shard: ShardId,
        request: &[u8],
        answer: &[u8],
    ) -> (u32, Vec<u8>) {
        Shard::adopt_open(self, caller, shard, request, answer)
    }

    fn learn(&mut self, place: &Resolved) {
        Shard::learn(self, place);
    }

    fn done_elsewhere(&mut self, node: u32, op: Op, body: &Body) {
        Shard::done_elsewhere(self, node, op, body);
    }

    fn is_behind_at(&self, node: u32) -> bool {
        Shard::is_behind_at(self, node)
    }

    fn session_opened(&mut self, session: SessionId, pid: u32) {
        Shard::session_opened(self, session, pid);
    }

    fn session_closed(&mut self, session: SessionId) {
        Shard::session_closed(self, session);
    }

    fn end_strangers(&mut self, node: u32, living: &[(SessionId, u32)]) {
        Shard::end_strangers(self, node, living);
    }

    fn node_reached(&mut self, node: u32, reached: Reached) {
        Shard::node_reached(self, node, reached);
    }

    fn written(&mut self) -> Vec<FileId> {
        Shard::written(self)
    }

    fn open_released(&mut self, index: u32) {
        Shard::open_released(self, index);
    }

    fn submitted_on(&mut self) -> Option<(u32, u32)> {
        Shard::submitted_on(self)
    }

    fn recall(&mut self) -> bool {
        Shard::recall_all(self)
    }

    fn completions(&mut self) -> Vec<Completion> {
        Shard::completions(self).collect()
    }

    fn due(&self) -> Option<Duration> {
        Shard::due(self)
    }

    fn idle_work(&mut self) -> bool {
        Shard::idle_work(self)
    }
}
