//! What an endpoint tells its program.

use crate::{Class, Lane, NodeId, RequestId};

/// A request of another node that is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Who asks.
    pub node: NodeId,
    /// Which of its daemons, by number of starts.
    pub incarnation: u64,
    /// The number of the request there.
    pub id: RequestId,
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request, delivered at most once. Its credit goes back when the event is taken.
    Request {
        /// The reply has to name it.
        ticket: Ticket,
        /// Its class.
        class: Class,
        /// What was left of its time when it was sent, milliseconds.
        left_ms: u32,
        /// What it says.
        body: Vec<u8>,
    },
    /// The reply to a request of this program.
    Reply {
        /// The request.
        id: RequestId,
        /// Who answers.
        from: NodeId,
        /// What it says.
        body: Vec<u8>,
    },
    /// Nobody waits for the reply to this request any more. A reply does no harm.
    Cancelled(Ticket),
    /// There will be no reply to a request of this program.
    Lost {
        /// The request.
        id: RequestId,
        /// To whom it was sent.
        to: NodeId,
        /// Why.
        cause: Cause,
        /// Whether it may have been executed.
        fate: Fate,
    },
    /// Requests were refused with [`SendError::Full`](crate::SendError::Full); there is room again.
    Room {
        /// On the way to this node.
        node: NodeId,
        /// On this lane.
        lane: Lane,
        /// For this class.
        class: Class,
    },
    /// The connection to a node (its message lane) came up or was lost. A program that does not
    /// look in time gets the latest state only.
    Peer {
        /// The node.
        node: NodeId,
        /// How it is now.
        state: PeerState,
    },
}

/// Why a request has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its deadline passed.
    Deadline,
    /// The daemon that it was sent to was replaced.
    Restarted,
    /// It was cancelled before it was sent.
    Cancelled,
}

/// Whether a request without a reply may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was never sent: nothing happened.
    Unsent,
    /// Nobody knows.
    Unknown,
}

/// Whether a node can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// It is connected.
    Up {
        /// Grows with every start of the daemon.
        incarnation: u64,
    },
    /// The connection was lost, or an attempt to connect failed.
    Down,
}
