//! What [`crate::remote::own_requests`] keeps and works with.

use mayfly_types::{OpenRef, limits::LANES};

use crate::{
    api::Caller,
    maps::HashMap,
    message::Forward,
    shards::{numbering::OWN_SESSION, slots::ShardId},
};

/// Numbers of a daemon's own requests are no process's, and greater than those of its predecessor:
/// above the counter are how often a daemon has started, and one bit.
const STARTS_SHIFT: u32 = 40;
const OWN_BIT: u64 = 1 << 63;
const _: () = assert!(LANES == u16::BITS as usize);

/// What a request of the daemon's own is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// What was written through this description.
    Behind(OpenRef),
    /// What will be read through this one.
    Ahead(OpenRef),
}

/// A request that is held back until so many writes are at their homes.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) to: ShardId,
    pub(crate) forward: Forward,
    pub(crate) upto: u64,
}

/// Requests of the daemon's own to other nodes that are not answered.
#[derive(Debug, Default)]
pub(crate) struct OwnRequests {
    last: u64,
    /// A bit for each lane that has one, by node.
    lanes: HashMap<u32, u16>,
    under_way: HashMap<u64, (Own, u32)>,
}

impl OwnRequests {
    /// Those of the node's daemon number `starts`.
    pub(crate) fn numbered_for(starts: u32) -> OwnRequests {
        let last = OWN_BIT | u64::from(starts) << STARTS_SHIFT;
        OwnRequests { last, ..OwnRequests::default() }
    }

    /// One more, to this node; nothing while all lanes are taken.
    pub(crate) fn begin(&mut self, node: u32, what: Own) -> Option<Caller> {
        let taken = self.lanes.entry(node).or_default();
        let lane = taken.trailing_ones();
        if lane == u16::BITS {
            return None;
        }
        *taken |= 1 << lane;
        self.last += 1;
        self.under_way.insert(self.last, (what, node));
        Some(Caller { session: OWN_SESSION, lane, request_id: self.last })
    }

    /// It is answered.
    pub(crate) fn end(&mut self, caller: Caller) -> Option<Own> {
        let (what, node) = self.under_way.remove(&caller.request_id)?;
        if let Some(taken) = self.lanes.get_mut(&node) {
            *taken &= !(1 << caller.lane);
        }
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_one_request_at_a_time_and_their_numbers_grow() {
        let open = OpenRef { index: 1, generation: 1 };
        let mut own = OwnRequests::numbered_for(3);
        let sent: Vec<Caller> =
            (0..LANES).map(|_| own.begin(1, Own::Behind(open)).expect("a lane")).collect();
        assert!(own.begin(1, Own::Ahead(open)).is_none());
        assert!(own.begin(2, Own::Ahead(open)).is_some(), "another node's lanes are others");
        let lanes: std::collections::HashSet<u32> = sent.iter().map(|caller| caller.lane).collect();
        assert_eq!(lanes.len(), LANES);
        assert_eq!(own.end(sent[5]), Some(Own::Behind(open)));
        assert_eq!(own.end(sent[5]), None);
        let again = own.begin(1, Own::Ahead(open)).expect("a lane");
        assert!(again.is_behind(sent[5]), "{again:?}");
        let next = OwnRequests::numbered_for(4).begin(1, Own::Ahead(open)).expect("a lane");
        assert!(next.request_id > again.request_id);
    }
}
