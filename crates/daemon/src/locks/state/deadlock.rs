//! What [`crate::locks::deadlock`] keeps and works with.

use std::collections::{VecDeque, hash_map::Entry};

use mayfly_types::{SessionId, Timestamp};

use crate::{
    api::Caller,
    locks::table::WaitId,
    maps::{HashMap, HashSet},
    message::{Delay, Process},
    shards::slots::ShardId,
};

/// The searches of a shard for waits that may never end.
#[derive(Debug, Default)]
pub(crate) struct DeadlockSearches {
    pub(crate) under_way: HashMap<WaitId, DeadlockSearch>,
    pub(crate) rounds: u64,
    /// Lanes whose request may wait for a lock at the shard that it was sent to.
    pub(crate) sent_on: HashMap<(SessionId, u32), ShardId>,
}

/// A wait, and what is known of those that it may depend on.
#[derive(Debug)]
pub(crate) struct DeadlockSearch {
    pub(crate) process: Process,
    pub(crate) wait: WaitId,
    /// Answers to questions of other rounds do not count.
    pub(crate) round: u64,
    pub(crate) attempt: u32,
    pub(crate) began: Timestamp,
    /// Waits, and the shards where they are.
    pub(crate) delays: Vec<(ShardId, Delay)>,
    pub(crate) visited: HashSet<(ShardId, Process)>,
    pub(crate) missing: usize,
    pub(crate) stage: Stage,
    /// Somebody could not be asked.
    pub(crate) lost: bool,
    /// Something is not as it was.
    pub(crate) moved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Who waits for whom is being asked.
    Looking,
    /// Whether that lasts is being asked.
    Confirming,
    /// Others are being told of circles of which they are the last.
    Telling,
}

impl DeadlockSearches {
    /// The lane has another request than the one before.
    pub(crate) fn lane_goes_on(&mut self, caller: Caller) {
        if !self.sent_on.is_empty() {
            self.sent_on.remove(&(caller.session, caller.lane));
        }
    }

    pub(crate) fn session_closed(&mut self, session: SessionId) {
        self.sent_on.retain(|(of, _), _| *of != session);
    }
}

impl DeadlockSearch {
    /// A circle through the wait, of waits that `counts` is true of.
    pub(crate) fn circle(
        &self,
        counts: impl Fn(ShardId, &Delay) -> bool,
    ) -> Option<Vec<(ShardId, Delay)>> {
        let mut of: HashMap<Process, Vec<usize>> = HashMap::default();
        let (mut next, mut led_here) = (VecDeque::new(), HashMap::default());
        for (index, (at, delay)) in self.delays.iter().enumerate() {
            if !counts(*at, delay) {
                continue;
            }
            if self.is_own(delay) {
                next.push_back(index);
            } else {
                of.entry(delay.waiter).or_default().push(index);
            }
        }
        while let Some(index) = next.pop_front() {
            let blocker = self.delays[index].1.blocker;
            if blocker == self.process {
                return Some(self.way_back(index, &led_here));
            }
            if let Entry::Vacant(entry) = led_here.entry(blocker) {
                entry.insert(index);
                next.extend(of.get(&blocker).into_iter().flatten());
            }
        }
        None
    }

    pub(crate) fn way_back(
        &self,
        last: usize,
        led_here: &HashMap<Process, usize>,
    ) -> Vec<(ShardId, Delay)> {
        let mut circle = vec![self.delays[last]];
        while let Some((_, delay)) = circle.last()
            && !self.is_own(delay)
            && let Some(index) = led_here.get(&delay.waiter)
        {
            circle.push(self.delays[*index]);
        }
        circle
    }

    /// Of what is known, this is about the wait itself.
    pub(crate) fn is_own(&self, delay: &Delay) -> bool {
        delay.waiter == self.process && delay.wait == self.wait.0
    }
}
