//! Everything that is known of another node: its sessions, its connections, and how to reach it.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
};

use mayfly_types::BuildFold;

use crate::{
    Class, Lane, NodeId, PeerState,
    class::CLASSES,
    connection::Rank,
    limits::{Limits, UNHEARD_ATTEMPTS_MAX},
    session::{Session, credits},
};

/// Number of a connection in this process, never used twice.
pub(crate) type Token = u64;

/// How many requests are queued or unanswered, counted where senders can see it without the core.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    count: [[AtomicU32; CLASSES]; 2],
    refused: [[AtomicBool; CLASSES]; 2],
}

impl Gauge {
    /// Counts one more, unless there are `max`.
    pub(crate) fn enter(&self, lane: Lane, class: Class, max: u32) -> bool {
        let count = &self.count[lane.index()][class.index()];
        let refused = &self.refused[lane.index()][class.index()];
        let one_more = |count: u32| (count < max).then_some(count + 1);
        if count.fetch_update(SeqCst, SeqCst, one_more).is_ok() {
            return true;
        }
        // A request that leaves looks at this afterwards. If the last one left before, there is
        // room now.
        refused.store(true, SeqCst);
        count.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    /// Counts one less; true when somebody was refused.
    pub(crate) fn leave(&self, lane: Lane, class: Class) -> bool {
        self.count[lane.index()][class.index()].fetch_sub(1, SeqCst);
        self.refused[lane.index()][class.index()].swap(false, SeqCst)
    }

    pub(crate) fn is_any(&self, lane: Lane) -> bool {
        self.count[lane.index()].iter().any(|count| count.load(SeqCst) > 0)
    }
}

/// The gauges of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Gauges(RwLock<HashMap<NodeId, Arc<Gauge>, BuildFold>>);

impl Gauges {
    pub(crate) fn of(&self, node: NodeId) -> Arc<Gauge> {
        let known = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(gauge) = known.get(&node) {
            return Arc::clone(gauge);
        }
        drop(known);
        let mut all = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(all.entry(node).or_default())
    }
}

/// One lane to a node.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) session: Session,
    pub(crate) up: Option<(Token, Rank)>,
    /// An attempt of this side that is not up yet.
    pub(crate) dialing: Option<(Token, Rank)>,
    /// Largest number of an attempt of either side.
    pub(crate) attempts: u64,
    /// Attempts that failed since the lane was last up.
    pub(crate) failures: u32,
    pub(crate) retry_ns: u64,
    /// When an acknowledgement must be sent on its own.
    pub(crate) acknowledge_ns: Option<u64>,
    /// When what may wait must be sent on its own.
    pub(crate) late_ns: Option<u64>,
    /// When something was last sent that may not wait, and how long after the time before.
    pub(crate) sent_ns: u64,
    pub(crate) pause_ns: u64,
    /// It is in the list of those on which something may have to be written.
    pub(crate) listed: bool,
    /// It is in the list of those for which time may have to do something.
    pub(crate) timed: bool,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: Option<SocketAddr>,
    /// 0 when unknown.
    pub(crate) incarnation: u64,
    pub(crate) lanes: [LaneState; 2],
    /// Its requests that were delivered and not answered.
    pub(crate) owed: HashSet<u64, BuildFold>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) announced: Option<PeerState>,
}

impl Peer {
    pub(crate) fn new(limits: &Limits, gauge: Arc<Gauge>) -> Peer {
        let lane = |lane| LaneState {
            session: Session::new(credits(limits, lane)),
            up: None,
            dialing: None,
            attempts: 0,
            failures: 0,
            retry_ns: 0,
            acknowledge_ns: None,
            late_ns: None,
            sent_ns: 0,
            pause_ns: u64::MAX,
            listed: false,
            timed: false,
        };
        let lanes = Lane::ALL.map(lane);
        Peer {
            address: None,
            incarnation: 0,
            lanes,
            owed: HashSet::default(),
            gauge,
            announced: None,
        }
    }

    pub(crate) fn lane(&mut self, lane: Lane) -> &mut LaneState {
        &mut self.lanes[lane.index()]
    }

    /// True when a reply or an acknowledgement is awaited, so that silence means something.
    pub(crate) fn waits(&self, lane: Lane) -> bool {
        // The reply to what went by the other lane may be short.
        let short =
            lane == Lane::Messages && (!self.owed.is_empty() || self.gauge.is_any(Lane::Bulk));
        let state = &self.lanes[lane.index()];
        short || state.session.awaits_acknowledgement() || self.gauge.is_any(lane)
    }

    /// True when the lane should have a connection.
    pub(crate) fn needs(&self, lane: Lane) -> bool {
        let LaneState { session, failures, .. } = &self.lanes[lane.index()];
        let again = session.is_unacknowledged() && *failures < UNHEARD_ATTEMPTS_MAX;
        again || session.is_queued() || self.gauge.is_any(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frame::Kind, session::Item};

    #[test]
    fn to_send_a_short_reply_again_is_tried_some_times_and_is_nothing_to_probe_for() {
        let mut peer = Peer::new(&Limits::default(), Arc::default());
        let body = [vec![1; 100].into(), Default::default()];
        let reply = Item { kind: Kind::Reply, request_id: 1, deadline_ns: u64::MAX, body };
        let state = peer.lane(Lane::Messages);
        state.session.push(reply);
        state.failures = UNHEARD_ATTEMPTS_MAX;
        assert!(peer.needs(Lane::Messages), "it was never sent");
        assert!(peer.lane(Lane::Messages).session.next(0).is_some());
        assert!(!peer.needs(Lane::Messages) && !peer.waits(Lane::Messages));
        peer.lane(Lane::Messages).failures = 0;
        assert!(peer.needs(Lane::Messages) && !peer.waits(Lane::Messages));
    }
}
