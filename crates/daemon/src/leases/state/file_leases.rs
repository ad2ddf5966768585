//! What [`crate::leases::file_leases`] keeps and works with.

use std::collections::BTreeMap;

use mayfly_transport_shm::file_leases::{FILE_LEASES_MAX, SessionLeases};
use mayfly_types::SessionId;

/// What is leased to a session, by place.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    /// Files that it has opened for reading by asking, as far as that counts.
    pub(crate) opened: u32,
    pub(crate) places: [Option<u32>; FILE_LEASES_MAX],
}

/// Who is leased descriptions, or has begun to open files for reading.
#[derive(Debug, Default)]
pub(crate) struct FileLeases {
    pub(crate) all: BTreeMap<SessionId, Holder>,
    /// Where those show what they read to whom something was leased.
    pub(crate) shown: Vec<(SessionId, &'static SessionLeases)>,
}

impl FileLeases {
    pub(crate) fn all(&self) -> impl Iterator<Item = (SessionId, usize, u32)> {
        self.all.iter().flat_map(|(session, holder)| {
            let leases = holder.places.iter().enumerate();
            leases.filter_map(|(place, index)| Some((*session, place, (*index)?)))
        })
    }

    pub(crate) fn at(&self, session: SessionId, place: usize) -> Option<u32> {
        *self.all.get(&session)?.places.get(place)?
    }

    /// The place of a session that has this entry.
    pub(crate) fn place_of(&self, session: SessionId, index: u32) -> Option<usize> {
        self.all.get(&session)?.places.iter().position(|at| *at == Some(index))
    }

    pub(crate) fn show(&mut self, session: SessionId, leases: &'static SessionLeases) {
        if !self.shown.iter().any(|(other, _)| *other == session) {
            self.shown.push((session, leases));
        }
    }

    pub(crate) fn remove(&mut self, session: SessionId) -> Option<Holder> {
        self.shown.retain(|(other, _)| *other != session);
        self.all.remove(&session)
    }

    pub(crate) fn set(&mut self, session: SessionId, place: usize, index: Option<u32>) {
        if let Some(at) = self.all.get_mut(&session).and_then(|of| of.places.get_mut(place)) {
            *at = index;
        }
    }
}
