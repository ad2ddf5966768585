//! The daemon of a node: shards over a metadata store and an object store, served to the processes
//! of the node.
//!
//! [`Shard`] is a shard: a state machine that is handed requests and answers them. It owns no
//! thread but its I/O pool's, reads no clock but the injected one and knows no lanes, so the
//! daemon, the tests and the simulator run the same code. [`serve`] is what surrounds it in a real
//! daemon: the thread that drives it, the polling of lanes, the channel to the supervisor.

mod api;
mod fault;
mod files;
pub mod fsck;
#[doc(hidden)]
pub mod hostile;
mod leases;
mod locks;
mod log;
mod maps;
mod message;
mod namespace;
mod op_name;
mod remote;
pub mod serve;
mod shard;
mod shards;
mod striping;
mod tier;
mod transactions;

#[cfg(feature = "planted")]
pub use crate::shards::planted::plant;
pub use crate::{
    api::{
        Caller, Clock, Completion, Config, Consistency, Directories, LeaseTimes, Progress, Reached,
        Survivors, SystemClock,
    },
    message::Message,
    op_name::name_of,
    shard::{OpenError, Seams, Shard},
    shards::{
        numbering::Numbering,
        planted::Planted,
        roles::Roles,
        slots::{ShardId, SlotTable},
        totals::Totals,
    },
    striping::layouts::{LAYOUT_XATTR, LayoutWords, NODES_XATTR, Pool, is_name},
    tier::state::source::{Link, WriteBack},
};
pub use mayfly_transport_tcp::PROTOCOL_VERSION;
