//! The daemon of a node: shards over a metadata store and an object store, served to the processes
//! of the node.
//!
//! [`Core`] is a shard: a state machine that is handed requests and answers them. It owns no thread
//! but its I/O pool's, reads no clock but the injected one and knows no lanes, so the daemon, the
//! tests and the simulator run the same code. [`serve`] is what surrounds it in a real daemon: the
//! thread that drives it, the polling of lanes, the channel to the supervisor.

mod api;
mod by_number;
mod cache;
mod core;
pub mod fsck;
#[doc(hidden)]
pub mod hostile;
mod layouts;
mod locks;
mod log;
mod maps;
mod message;
mod numbering;
mod op_name;
mod opens;
mod roles;
pub mod serve;
mod slots;
mod stripes;
mod totals;

pub use self::{
    api::{Caller, Clock, Completion, Config, Progress, Reached, Survivors, SystemClock},
    core::{Core, OpenError, Parts},
    layouts::{LAYOUT_XATTR, LayoutWords, NODES_XATTR, Pool, is_name},
    message::Message,
    numbering::Numbering,
    op_name::name_of,
    roles::Roles,
    slots::{ShardId, SlotTable},
    totals::Totals,
};
pub use mayfly_transport_tcp::PROTOCOL_VERSION;
