//! Sessions that end: of which ones every shard has done its part.
//!
//! The end of a session becomes known twice, in any order: by the kernel's evidence before a lock
//! is decided, and by the supervisor's word. The shards are told once. The supervisor hears that
//! the number may be used again when it has spoken itself and every shard has committed its part.

use mayfly_types::SessionId;

use crate::maps::HashMap;

#[derive(Debug, Default)]
struct Closing {
    /// Other shards and nodes that have not done their part.
    missing: u32,
    /// The supervisor has said so, and the serving thread's shard has done its part.
    by_supervisor: bool,
}

/// The sessions that are ending.
#[derive(Debug)]
pub(in crate::serve) struct Ends {
    other_shards: u32,
    closing: HashMap<SessionId, Closing>,
}

impl Ends {
    pub(in crate::serve) fn new(other_shards: u32) -> Ends {
        Ends { other_shards, closing: HashMap::default() }
    }

    /// True when the session is ending.
    pub(in crate::serve) fn contains(&self, session: SessionId) -> bool {
        self.closing.contains_key(&session)
    }

    /// The session ends, of which so many other nodes must hear; true when that is new, so that the
    /// shards must be told.
    pub(in crate::serve) fn begin(&mut self, session: SessionId, nodes: u32) -> bool {
        let closing = Closing { missing: self.other_shards + nodes, by_supervisor: false };
        let fresh = !self.contains(session);
        self.closing.entry(session).or_insert(closing);
        fresh
    }

    /// The supervisor has said so, and this shard has done its part; true when all have.
    pub(in crate::serve) fn end_by_supervisor(&mut self, session: SessionId) -> bool {
        if let Some(closing) = self.closing.get_mut(&session) {
            closing.by_supervisor = true;
        }
        self.remove_complete(session)
    }

    /// Another shard has done its part; true when all have, and the supervisor has spoken.
    pub(in crate::serve) fn end_by_shard(&mut self, session: SessionId) -> bool {
        if let Some(closing) = self.closing.get_mut(&session) {
            closing.missing = closing.missing.saturating_sub(1);
        }
        self.remove_complete(session)
    }

    fn remove_complete(&mut self, session: SessionId) -> bool {
        let complete =
            self.closing.get(&session).is_some_and(|of| of.by_supervisor && of.missing == 0);
        if complete {
            self.closing.remove(&session);
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_over_when_everybody_has_spoken_in_any_order() {
        let session = SessionId(3);
        let mut ends = Ends::new(2);
        assert!(ends.begin(session, 0) && !ends.begin(session, 0));
        assert!(
            !ends.end_by_shard(session)
                && !ends.end_by_supervisor(session)
                && ends.contains(session)
        );
        assert!(ends.end_by_shard(session) && !ends.contains(session));
        assert!(ends.begin(session, 0));
        assert!(
            !ends.end_by_shard(session)
                && !ends.end_by_shard(session)
                && ends.end_by_supervisor(session)
        );
        let mut alone = Ends::new(0);
        assert!(alone.begin(session, 0) && alone.end_by_supervisor(session));
    }
}
