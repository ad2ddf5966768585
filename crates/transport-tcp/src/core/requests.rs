//! Requests of this program that have no reply yet, and when their time is over.

use std::collections::{BTreeSet, HashMap};

use mayfly_types::BuildFold;

use crate::{Class, Lane, NodeId};

/// A request without a reply.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) to: NodeId,
    pub(super) lane: Lane,
    pub(super) class: Class,
    pub(super) deadline_ns: u64,
    pub(super) cancelled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    outstanding: HashMap<u64, Outstanding, BuildFold>,
    deadlines: BTreeSet<(u64, u64)>,
    /// When something was last asked.
    asked_ns: Option<u64>,
}

impl Requests {
    pub(super) fn ask(&mut self, id: u64, request: Outstanding, now_ns: u64) {
        self.deadlines.insert((request.deadline_ns, id));
        self.outstanding.insert(id, request);
        self.asked_ns = Some(now_ns);
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Outstanding> {
        self.outstanding.get_mut(&id)
    }

    pub(super) fn is_asked(&self, id: u64, node: NodeId) -> bool {
        self.outstanding.get(&id).is_some_and(|request| request.to == node)
    }

    pub(super) fn of_node(&self, node: NodeId) -> impl Iterator<Item = (u64, &Outstanding)> {
        let all = self.outstanding.iter().map(|(id, request)| (*id, request));
        all.filter(move |(_, request)| request.to == node)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Outstanding> {
        let request = self.outstanding.remove(&id)?;
        self.deadlines.remove(&(request.deadline_ns, id));
        Some(request)
    }

    /// The earliest deadline, and the request that has it.
    pub(super) fn first_deadline(&self) -> Option<(u64, u64)> {
        self.deadlines.first().copied()
    }

    pub(super) fn drop_first_deadline(&mut self) {
        self.deadlines.pop_first();
    }

    /// Whether something was asked less than `pause_ns` ago.
    pub(super) fn is_asking(&self, now_ns: u64, pause_ns: u64) -> bool {
        self.asked_ns.is_some_and(|asked_ns| now_ns < asked_ns + pause_ns)
    }
}
