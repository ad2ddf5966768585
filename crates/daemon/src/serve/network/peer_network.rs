//! The network of requests and replies between nodes, and the clock by which it loses them.
//!
//! In a daemon it is connections ([`Tcp`]). The simulator has one of its own, so that what stands
//! above it is the same code in both.

use std::fmt;

use mayfly_transport_tcp::{
    Body, Clock, Endpoint, Event, Lane, MonotonicClock, Request, RequestId, SendError, Ticket,
};

/// Carries requests and replies. A request is delivered once at most; what becomes of it is told in
/// an [`Event`], sooner or later. Any thread may call it.
pub trait PeerNetwork: fmt::Debug + Send + Sync {
    /// Takes a request on; it may stay until [`PeerNetwork::flush`].
    ///
    /// # Errors
    /// Nothing was sent.
    fn queue(&self, request: Request) -> Result<RequestId, SendError>;

    /// Answers a request of another node; it may stay until [`PeerNetwork::flush`], and when it may
    /// wait some milliseconds longer.
    ///
    /// # Errors
    /// Nothing was sent.
    fn reply(
        &self,
        ticket: Ticket,
        lane: Lane,
        body: Body,
        may_wait: bool,
    ) -> Result<(), SendError>;

    /// Sends what was queued.
    fn flush(&self);

    /// So many requests of one class to one node may be under way.
    fn outstanding_max(&self) -> usize;

    /// Appends what has come, oldest first.
    fn take(&self, events: &mut Vec<Event>);

    /// Nanoseconds since some moment; never goes back.
    fn now_ns(&self) -> u64;
}

/// Connections over TCP.
pub(in crate::serve) struct Tcp {
    pub(in crate::serve) endpoint: Endpoint,
    pub(in crate::serve) clock: MonotonicClock,
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp").finish_non_exhaustive()
    }
}

impl PeerNetwork for Tcp {
    fn queue(&self, request: Request) -> Result<RequestId, SendError> {
        self.endpoint.queue(request)
    }

    fn reply(
        &self,
        ticket: Ticket,
        lane: Lane,
        body: Body,
        may_wait: bool,
    ) -> Result<(), SendError> {
        self.endpoint.queue_reply(ticket, lane, body, may_wait)
    }

    fn flush(&self) {
        self.endpoint.flush();
    }

    fn outstanding_max(&self) -> usize {
        self.endpoint.outstanding_max()
    }

    fn take(&self, events: &mut Vec<Event>) {
        self.endpoint.take(events);
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
}
