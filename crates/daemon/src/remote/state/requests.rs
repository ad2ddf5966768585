//! What [`crate::remote::requests`] keeps and works with.

use mayfly_transport_tcp::Body;
use mayfly_types::{OpenRef, SessionId, Timestamp};

use crate::{
    api::{Caller, Completion},
    maps::{HashMap, HashSet},
    message::TransactionId,
    remote::state::{
        ahead::Ahead,
        behind::Behind,
        own_requests::{Held, OwnRequests},
    },
    shards::numbering::origin,
};

/// What a shard knows of requests of other nodes that it is at.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    /// The answer will be kept.
    pub(crate) noted: HashSet<Caller>,
    /// Those of them that nobody waits for.
    pub(crate) given_up: HashSet<Caller>,
    /// The last write at an offset of each lane.
    pub(crate) written: HashMap<(SessionId, u32), Written>,
    /// Nodes that cannot be reached, so that answers may not arrive.
    pub(crate) unreached: HashSet<u32>,
    /// Descriptions that a node does not stand for, by the requests that made them, whose answers
    /// may come again there.
    pub(crate) spared: HashMap<Caller, OpenRef>,
    /// Requests that made descriptions of which their nodes are asked whether they stand for them.
    pub(crate) asked_about: HashSet<Caller>,
    /// Requests that are being executed for daemons that are gone.
    pub(crate) unheard: HashSet<Caller>,
    /// Operations that were over before it was known that this shard has a part in them.
    pub(crate) over: HashSet<TransactionId>,
    /// The time of the batch, by a clock that nobody sets.
    pub(crate) clock: Timestamp,
    /// Requests of the daemon's own.
    pub(crate) own: OwnRequests,
    /// Requests that are held back.
    pub(crate) held: Vec<Held>,
    /// What was written and is not at its home.
    pub(crate) behind: Behind,
    /// What was read that nobody has asked for yet.
    pub(crate) ahead: Ahead,
}

/// A write at an offset.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) request_id: u64,
    /// Nothing, while it is under way or when another shard does it.
    pub(crate) answer: Option<(u32, Body)>,
    /// Where the node's memory has it (`files/in_doubt.rs`), once it was done.
    pub(crate) place: Option<usize>,
}

impl Remote {
    /// Of the node's daemon number `starts`.
    pub(crate) fn of_start(starts: u32) -> Remote {
        Remote { own: OwnRequests::numbered_for(starts), ..Remote::default() }
    }

    /// The write is done that this place is about: it is kept as long as the answer. False when
    /// that is not kept in memory.
    pub(crate) fn keep_place(&mut self, caller: Caller, place: usize) -> bool {
        let written = self.written.get_mut(&(caller.session, caller.lane));
        let written = written.filter(|written| written.request_id == caller.request_id);
        written.map(|written| written.place = Some(place)).is_some()
    }

    /// What an earlier daemon has answered to a write; false when that is nobody's here.
    pub(crate) fn take_up_written(
        &mut self,
        caller: Caller,
        answer: (u32, Body),
        place: usize,
    ) -> bool {
        let Caller { session, lane, request_id } = caller;
        let known = origin(session).is_some() && !self.written.contains_key(&(session, lane));
        if known {
            let written = Written { request_id, answer: Some(answer), place: Some(place) };
            self.written.insert((session, lane), written);
        }
        known
    }

    /// Keeps the answer in memory; false when it is none to a write at an offset.
    pub(crate) fn keep_written(&mut self, done: &Completion) -> bool {
        if self.written.is_empty() {
            return false;
        }
        let Caller { session, lane, request_id } = done.caller;
        let written = self.written.get_mut(&(session, lane));
        let Some(written) = written.filter(|written| written.request_id == request_id) else {
            return false;
        };
        written.answer = Some((done.status, done.body.clone()));
        true
    }

    pub(crate) fn is_unreached(&self, caller: Caller) -> bool {
        origin(caller.session).is_some_and(|(node, _)| self.unreached.contains(&node))
    }

    /// Answers to the last writes of a node's processes.
    pub(crate) fn written_from(&self, node: u32) -> Vec<(Caller, u32, Body)> {
        let theirs = |session| origin(session).is_some_and(|(other, _)| other == node);
        let written = self.written.iter().filter(|((session, _), _)| theirs(*session));
        let answers = written.filter_map(|((session, lane), written)| {
            let (status, body) = written.answer.clone()?;
            let caller = Caller { session: *session, lane: *lane, request_id: written.request_id };
            Some((caller, status, body))
        });
        answers.collect()
    }

    /// Requests that are being executed and whose answers will be kept.
    pub(crate) fn noted(&self) -> impl Iterator<Item = &Caller> {
        self.noted.iter()
    }

    /// Its answer, which is not known yet, will be heard.
    pub(crate) fn heard_again(&mut self, session: SessionId, request_id: u64) {
        let other = |caller: &Caller| (caller.session, caller.request_id) != (session, request_id);
        self.unheard.retain(other);
        self.spared.retain(|caller, _| other(caller));
    }

    /// Another shard executes it; true if that is for a daemon that is gone.
    pub(crate) fn sent_on(&mut self, caller: Caller) -> bool {
        if !self.noted.is_empty() {
            self.noted.remove(&caller);
        }
        if !self.given_up.is_empty() {
            self.given_up.remove(&caller);
        }
        !self.unheard.is_empty() && self.unheard.remove(&caller)
    }

    /// Whether the request is being executed, and its answer will be kept.
    pub(crate) fn is_noted(&self, caller: Caller) -> bool {
        self.noted.contains(&caller)
    }
}

/// A process, among those of all nodes.
pub(crate) fn process_of(session: SessionId, pid: u32) -> u64 {
    let node = origin(session).map_or(0, |(node, _)| u64::from(node) + 1);
    node << 32 | u64::from(pid)
}

/// Whether it is another node's.
pub(crate) fn is_remote(process: u64) -> bool {
    node_of_process(process).is_some()
}

/// Of which other node.
pub(crate) fn node_of_process(process: u64) -> Option<u32> {
    ((process >> 32) as u32).checked_sub(1)
}
