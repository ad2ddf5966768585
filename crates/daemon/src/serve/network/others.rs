//! The other nodes, as the serving thread knows them.

use mayfly_transport_tcp::{Event, Ticket};
use mayfly_types::SessionId;

use crate::maps::{HashMap, HashSet};

/// What is known of another node.
#[derive(Debug, Default)]
pub(in crate::serve) struct Known {
    /// The daemon that has introduced itself.
    pub(in crate::serve) incarnation: u64,
    /// Its sessions that have asked for something here.
    pub(in crate::serve) sessions: HashSet<SessionId>,
}

/// The other nodes, as the serving thread knows them.
#[derive(Debug, Default)]
pub(in crate::serve) struct Others {
    pub(in crate::serve) known: HashMap<u32, Known>,
    /// The daemons that were connected last.
    pub(in crate::serve) connected: HashMap<u32, u64>,
    /// Those that cannot be reached.
    pub(in crate::serve) lost: HashSet<u32>,
    /// Clients' requests that came while earlier operations were being finished.
    pub(in crate::serve) held: Vec<(Ticket, Vec<u8>)>,
    /// Memory for what comes.
    pub(in crate::serve) events: Vec<Event>,
}
