//! Instances of several nodes: how they are started, looked at and ended.
//!
//! Daemons find each other through whoever starts them. The command line starts a *relay*
//! ([`relay`]) and gives it the settings, the instance's secret among them, on a pipe. The relay
//! starts a process for each node of its own host ([`agent`]). It reaches other hosts through a
//! *launcher* ([`launcher`]): the same program is a relay there, too. Each node makes its
//! directories, opens a socket on any free port, and says where that is. When all have done so, the
//! list goes down ([`members`]). Each node starts its daemon and says when that serves. The start
//! ends with the answer of the last node. Nobody polls, and nothing is shared.
//!
//! The nodes end when their line is cut, until one word leaves them to themselves. The relay gets
//! that word. It is out of the terminal's reach, and passes the word on whatever happens to the
//! command line. So a `mayfly start` that is killed leaves all nodes or none.
//!
//! Status, logs and stopping go the same way, with another job for the relays.

mod agent;
mod batch;
mod below;
mod elsewhere;
mod fleet;
mod hosts;
mod launcher;
mod lists;
mod local;
mod logs;
mod members;
mod net;
mod pools;
mod relay;
mod roles;
mod topology;
mod words;

pub use agent::run_node;
pub(crate) use agent::{Net, word_of};
pub use batch::{hosts as hosts_of_the_job, job};
pub use elsewhere::{names_elsewhere, remembered};
pub use fleet::{Fleet, Launch, NodeReport, NodeState, Progress, Trouble, report_all, stop_all};
pub use hosts::{NODES_MAX, expand as expand_hosts, of_file as hosts_of_file};
pub use launcher::Launcher;
pub use logs::Logs;
pub use members::{Member, Members};
pub use net::{Fabric, Net as Network, parse_ports};
pub use pools::{POOLS_MAX, pools, pools_of_file};
pub use relay::run_relay;
pub use roles::{RoleLists, Roles};
pub use topology::pools_of_the_topology;

pub use words::{NODE, RELAY, Wanted};

/// Name of the host on which we are.
#[must_use]
pub fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Does a list of hosts mean the machine on which we are? Slurm may have another name for it than
/// the machine itself has (`NodeHostname`).
#[must_use]
pub fn is_this_machine(host: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let this = this_host();
    let by_slurm = std::env::var("SLURMD_NODENAME").is_ok_and(|name| name == host);
    by_slurm || host == "localhost" || host == this || (!host.contains('.') && host == short(&this))
}
