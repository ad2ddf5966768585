//! What [`crate::leases::submissions`] keeps and works with.

use mayfly_object::ObjectId;
use mayfly_transport_shm::submission_ring::RECORDS;
use mayfly_types::{FileId, OpenRef, SessionId};

use crate::namespace::dentry_cache::FOR_EVER;

/// How long a path is believed to lead where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Belief {
    /// From which second on it may lead elsewhere.
    pub(crate) until: i64,
    /// It leads by names of other shards, which have them forgotten before they change.
    pub(crate) by_others: bool,
}

impl Belief {
    /// Of a path by names of this shard alone.
    pub(crate) const OWN: Belief = Belief { until: FOR_EVER, by_others: false };

    /// Of a path that leads on by a name of another shard.
    pub(crate) fn and_until(self, until: i64) -> Belief {
        Belief { until: self.until.min(until), by_others: true }
    }
}

/// A ring that belongs to a session, as the daemon knows it.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) session: SessionId,
    /// Whose names the session may make without asking.
    pub(crate) directory: Option<FileId>,
    /// Which path leads there: from where, and what is before the name.
    pub(crate) start: FileId,
    pub(crate) prefix: Vec<u8>,
    /// How long that is believed.
    pub(crate) belief: Belief,
    /// Records that were executed before that.
    pub(crate) since: u32,
    /// Records that were executed.
    pub(crate) executed: u32,
    /// Records whose places are free again.
    pub(crate) freed: u32,
    /// Places of which the description was made and which are not free again, a bit each.
    pub(crate) opened: u128,
    /// What is promised, by place: nothing where there was no room after a restart.
    pub(crate) promises: Vec<Option<OpenRef>>,
    /// Which file that will be, by place; [`FileId::NONE`]: it is not promised.
    pub(crate) ids: Vec<FileId>,
    /// How far an object may reach that its process makes, bytes.
    pub(crate) object_bytes: u32,
    /// The object that it has begun last, if none was filled in time. It has a mark.
    pub(crate) started: Option<ObjectId>,
}

impl Ring {
    /// A ring in which nothing waits behind the record `first`.
    pub(crate) fn new(
        session: SessionId,
        first: u32,
        promises: Vec<Option<OpenRef>>,
        ids: Vec<FileId>,
    ) -> Ring {
        Ring {
            session,
            directory: None,
            start: FileId::NONE,
            prefix: Vec::new(),
            belief: Belief::OWN,
            since: first,
            executed: first,
            freed: first,
            opened: 0,
            promises,
            ids,
            object_bytes: 0,
            started: None,
        }
    }
}

/// The rings of a set, a bit each.
pub(crate) fn members(mut rings: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let ring = (rings != 0).then(|| rings.trailing_zeros() as usize)?;
        rings &= rings - 1;
        Some(ring)
    })
}

/// The place of a record.
pub(crate) fn place_of(record: u32) -> usize {
    record as usize % RECORDS
}
