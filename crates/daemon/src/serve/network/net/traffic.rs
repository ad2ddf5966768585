//! What goes to other nodes and comes from them, counted for people.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mayfly_transport_shm::layout::{NodeRegion, Traffic};
use mayfly_transport_tcp::{Cause, Event, PeerState};

use crate::serve::network::net::Net;

/// Starts of the node's daemon so far: those of before may have left something with others.
pub(super) fn starts(node: &NodeRegion) -> u32 {
    node.head.daemon_starts.load(Relaxed)
}

impl Net {
    /// Where what goes to a node and comes from it is counted.
    fn traffic_with(&self, node: u32) -> Option<&Traffic> {
        self.traffic.get((node as usize).min(self.traffic.len().saturating_sub(1)))
    }

    pub(super) fn count_sent(&self, node: u32, bytes: usize) {
        if let Some(traffic) = self.traffic_with(node) {
            traffic.sent_bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    pub(super) fn count_request(&self, node: u32, bytes: usize) {
        self.count_sent(node, bytes);
        if let Some(traffic) = self.traffic_with(node) {
            traffic.requests.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn count_event(&self, event: &Event) {
        let (node, counter, bytes): (_, fn(&Traffic) -> &AtomicU64, _) = match event {
            Event::Request { ticket, body, .. } => (ticket.node, |of| &of.heard, body.len()),
            Event::Reply { from, body, .. } => (*from, |of| &of.answers, body.len()),
            Event::Lost { to, cause: Cause::Deadline, .. } => (*to, |of| &of.late, 0),
            Event::Lost { to, .. } => (*to, |of| &of.lost, 0),
            Event::Peer { node, state: PeerState::Up { .. } } => (*node, |of| &of.connections, 0),
            Event::Peer { .. } | Event::Room { .. } | Event::Cancelled(_) => return,
        };
        if let Some(traffic) = self.traffic_with(node.0) {
            counter(traffic).fetch_add(1, Relaxed);
            traffic.received_bytes.fetch_add(bytes as u64, Relaxed);
        }
    }
}
