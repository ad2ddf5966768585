//! How daemons reach the network.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mayfly_daemon::serve::Carrier;
use mayfly_transport_tcp::{Body, Event, Lane, Request, RequestId, SendError, Ticket};

use super::Network;

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

/// A daemon's end of the network.
#[derive(Debug)]
pub struct SimCarrier {
    /// The network.
    pub network: Shared,
    /// The daemon's node.
    pub node: u32,
}

impl Carrier for SimCarrier {
    fn post(&self, request: Request) -> Result<RequestId, SendError> {
        self.network.lock().post(self.node, request)
    }

    fn reply(&self, ticket: Ticket, lane: Lane, body: Body) -> Result<(), SendError> {
        self.network.lock().reply(self.node, ticket, lane, &body);
        Ok(())
    }

    fn flush(&self) {}

    fn take(&self, events: &mut Vec<Event>) {
        self.network.lock().take(self.node, events);
    }

    fn now_ns(&self) -> u64 {
        self.network.lock().now_ns
    }
}
