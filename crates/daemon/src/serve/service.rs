//! What the serving loop asks of the file system behind it.

use mayfly_types::{Errno, SessionId};
use mayfly_wire::Request;

use crate::Core;
pub use crate::api::{Caller, Completion, Progress};

/// A file system that can be served. Requests are handled one after the other; what they change
/// becomes durable together, at the next [`Service::commit`].
pub trait Service {
    /// Executes a request; writes the body of the reply to `body`.
    fn handle(&mut self, caller: Caller, request: Request<'_>, body: &mut [u8]) -> Progress;
    /// Number of the transaction that is open, 0 when nothing has changed since the last commit.
    fn batch_transaction(&self) -> u64;
    /// Number of the last transaction that was committed.
    fn committed_transaction(&self) -> u64;
    /// Commits the open transaction.
    ///
    /// # Errors
    /// When the store is broken: nothing since the last commit happened, and the service is of no
    /// more use.
    fn commit(&mut self) -> Result<u64, Errno>;
    /// A process attached.
    fn session_opened(&mut self, session: SessionId, pid: u32);
    /// Its process image is gone.
    fn session_closed(&mut self, session: SessionId);
    /// The last descriptor of a shared open file description was closed.
    fn open_released(&mut self, index: u32);
    /// Answers to pending requests that have become known; asked for after a commit.
    fn completions(&mut self) -> Vec<Completion>;
    /// Work that can wait; called when there is no request. True when it changed records, so that a
    /// commit must follow, and a further call may find more.
    fn idle_work(&mut self) -> bool;
}

impl Service for Core {
    fn handle(&mut self, caller: Caller, request: Request<'_>, body: &mut [u8]) -> Progress {
        Core::handle(self, caller, request, body)
    }

    fn batch_transaction(&self) -> u64 {
        Core::batch_transaction(self)
    }

    fn committed_transaction(&self) -> u64 {
        Core::committed_transaction(self)
    }

    fn commit(&mut self) -> Result<u64, Errno> {
        Core::commit(self)
    }

    fn session_opened(&mut self, session: SessionId, pid: u32) {
        Core::session_opened(self, session, pid);
    }

    fn session_closed(&mut self, session: SessionId) {
        Core::session_closed(self, session);
    }

    fn open_released(&mut self, index: u32) {
        Core::open_released(self, index);
    }

    fn completions(&mut self) -> Vec<Completion> {
        Core::completions(self).collect()
    }

    fn idle_work(&mut self) -> bool {
        Core::idle_work(self)
    }
}
