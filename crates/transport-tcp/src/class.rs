//! Classes of requests, and which of the two connections a message takes.

/// Class of a request. Each has credits of its own, so a full queue of one class stops no other.
///
/// The order is that of the ranks: whoever serves a request may send requests of *higher* classes
/// only and wait for them. Leaf requests are answered without asking anybody, replies and cancels
/// need no credit; so there is always somebody who can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A client's request that is passed on.
    Client,
    /// A shard's question to another one.
    Shard,
    /// What the holder of a lease is asked, who may have to ask whom the thing belongs to.
    Holder,
    /// A request that is answered without asking anybody else.
    Leaf,
}

/// Number of classes.
pub(crate) const CLASSES: usize = 4;

impl Class {
    /// All, lowest first.
    pub const ALL: [Class; CLASSES] = [Class::Client, Class::Shard, Class::Holder, Class::Leaf];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Which connection of a pair of nodes: messages do not stand behind bulk data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Up to [`MESSAGE_BYTES_MAX`](crate::limits::MESSAGE_BYTES_MAX).
    Messages,
    /// Up to [`BULK_BYTES_MAX`](crate::limits::BULK_BYTES_MAX).
    Bulk,
}

impl Lane {
    /// Both.
    pub const ALL: [Lane; 2] = [Lane::Messages, Lane::Bulk];

    /// Longest message, bytes.
    #[must_use]
    pub fn bytes_max(self) -> usize {
        match self {
            Lane::Messages => crate::limits::MESSAGE_BYTES_MAX,
            Lane::Bulk => crate::limits::BULK_BYTES_MAX,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Number of a node in its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Number of a request, unique in one incarnation of the node that sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);
