//! Where there is room for what is made.
//!
//! A file and a directory are made where their name is, since that is near to who uses them. When
//! that node is fuller than others, new ones go elsewhere: of two servers that are drawn by the
//! name, the emptier one has it (*the power of two choices*, Mitzenmacher 1996). So nobody has to
//! know how full all servers are, and no server becomes much fuller than the others.

use crate::{
    fault::Outcome,
    message::{Answer, Question, SpaceFacts},
    namespace::state::walk::Place,
    shard::Shard,
    shards::slots::{ShardId, slot_of_cookie},
};

/// What another node has said of its space is believed for so long, seconds.
const KNOWN_SECONDS: i64 = 1;
/// A node that is used less is not left.
const LEFT_PERCENT: u64 = 50;
/// Another one is chosen when it is used by so much less.
const BETTER_PERCENT: u64 = 10;

/// How much of it is used.
fn percent_used(space: &SpaceFacts) -> u64 {
    let SpaceFacts { capacity_bytes, used_bytes, .. } = *space;
    used_bytes.saturating_mul(100) / capacity_bytes.max(1)
}

impl Shard {
    /// The shard at which what gets this name is to be made, when that is on another node since
    /// this one is too full.
    pub(super) fn roomier_shard(&mut self, place: &Place) -> Outcome<Option<ShardId>> {
        if !self.has_seats() {
            return Ok(None);
        }
        let hash = slot_of_cookie(place.cookie);
        let drawn = [hash.rotate_left(8) ^ 0x5a5a, hash.rotate_left(3) ^ 0x1ee7];
        let drawn = drawn.map(|slot| self.place.slots.owner(slot));
        if self.namespace.seats.are_restless() {
            let is_moved = place.cookie.is_multiple_of(4) && drawn[0] != self.place.shard;
            return Ok(is_moved.then_some(drawn[0]));
        }
        let own_percent = self.percent_used();
        if own_percent < LEFT_PERCENT {
            return Ok(None);
        }
        let numbering = self.place.numbering;
        let is_other = |shard: &ShardId| !numbering.is_here(*shard);
        let candidates: Vec<ShardId> = drawn.into_iter().filter(is_other).collect();
        self.ask_for_room(&candidates)?;
        let known = |shard: &ShardId| {
            let (space, _) = self.namespace.rooms.get(&numbering.node_of(*shard))?;
            Some(percent_used(space))
        };
        let used = candidates.iter().filter_map(|shard| Some((known(shard)?, *shard)));
        let best = used.min_by_key(|(percent, _)| *percent);
        let better = best.filter(|(percent, _)| percent + BETTER_PERCENT <= own_percent);
        Ok(better.map(|(_, shard)| shard))
    }

    fn percent_used(&self) -> u64 {
        let capacity_bytes = self.config.capacity_bytes;
        let used_bytes = self.used_bytes();
        percent_used(&SpaceFacts { capacity_bytes, used_bytes, ..SpaceFacts::default() })
    }

    /// Whether the node is so full that what is made may go to others.
    pub(crate) fn is_left_for_room(&self) -> bool {
        self.place.numbering.nodes > 1 && self.percent_used() >= LEFT_PERCENT
    }

    /// Asks the nodes of these shards how much room they have, where that is not known.
    fn ask_for_room(&mut self, shards: &[ShardId]) -> Outcome<()> {
        let (numbering, now) = (self.place.numbering, self.now.seconds);
        let is_known = |node: u32| {
            let known = self.namespace.rooms.get(&node);
            known.is_some_and(|(_, at)| (now - at).abs() <= KNOWN_SECONDS)
        };
        let nodes = shards.iter().map(|shard| numbering.node_of(*shard));
        let mut unknown: Vec<u32> = nodes.filter(|node| !is_known(*node)).collect();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        let fronts: Vec<u32> = unknown.iter().map(|node| numbering.front_of(*node).0).collect();
        let answers = self.facts(&fronts, &Question::Space)?;
        for (node, answer) in unknown.into_iter().zip(answers) {
            // One that does not answer is as good as full.
            let full = SpaceFacts { capacity_bytes: 1, used_bytes: 1, ..SpaceFacts::default() };
            let space = if let Answer::Space(space) = answer { space } else { full };
            self.namespace.rooms.insert(node, (space, now));
        }
        Ok(())
    }
}
