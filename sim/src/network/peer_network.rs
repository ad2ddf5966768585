//! How daemons reach the network.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use mayfly_daemon::serve::PeerNetwork;
use mayfly_transport_tcp::{Body, Event, Lane, Request, RequestId, SendError, Ticket};

use super::Network;
use crate::fuse::{Fuse, Place};

/// The network, as all nodes share it.
#[derive(Debug, Clone)]
pub struct Shared(Arc<Mutex<Network>>);

impl Shared {
    /// To be shared.
    #[must_use]
    pub fn new(network: Network) -> Shared {
        Shared(Arc::new(Mutex::new(network)))
    }

    /// The network, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, Network> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A daemon's end of the network. What is queued is under way at once, but a turn of the daemon
/// must not end before it was flushed: by a connection it would not have gone.
#[derive(Debug)]
pub struct SimPeerNetwork {
    network: Shared,
    node: u32,
    fuse: Fuse,
    has_queued: AtomicBool,
}

impl SimPeerNetwork {
    /// Of the daemon of this node.
    #[must_use]
    pub fn new(network: Shared, node: u32, fuse: Fuse) -> SimPeerNetwork {
        SimPeerNetwork { network, node, fuse, has_queued: AtomicBool::new(false) }
    }
}

impl PeerNetwork for SimPeerNetwork {
    fn queue(&self, request: Request) -> Result<RequestId, SendError> {
        self.fuse.burn(Place::BeforeMessage);
        self.has_queued.store(true, Relaxed);
        self.network.lock().queue(self.node, request)
    }

    /// Everything takes some time here, whether it may or not.
    fn reply(&self, ticket: Ticket, lane: Lane, body: Body, _: bool) -> Result<(), SendError> {
        self.fuse.burn(Place::BeforeMessage);
        self.has_queued.store(true, Relaxed);
        self.network.lock().reply(self.node, ticket, lane, &body);
        Ok(())
    }

    fn flush(&self) {
        self.has_queued.store(false, Relaxed);
    }

    fn outstanding_max(&self) -> usize {
        self.network.lock().outstanding_max()
    }

    fn take(&self, events: &mut Vec<Event>) {
        assert!(!self.has_queued.load(Relaxed), "what the last turn queued was not sent");
        self.network.lock().take(self.node, events);
    }

    fn now_ns(&self) -> u64 {
        self.network.lock().now_ns
    }
}
