//! The life of an instance: where it lives, who starts it, who ends it.
//!
//! An instance is a *run directory* (socket, lock, configuration, preload library, slot files;
//! private to the user), a *data directory* (metadata store and objects) and two processes: the
//! supervisor, on which the instance's life hangs, and the daemon that it starts and restarts. The
//! command line and the tests drive both through this library.

mod attached;
pub mod environment;
pub mod fsck;
mod instance;
mod log;
pub mod machine;
pub mod nodes;
mod processes;
mod signals;
pub mod size;
mod status;
pub mod supervisor;
mod tier;
mod xattrs;

pub use environment::namespace::{INSIDE, command as command_inside, run_inside};
pub use environment::{command, containers};
pub use instance::config::{Access, Audience, Config, Options, SLOW_MS_MIN};
pub use instance::data_dirs::DataDir;
pub use instance::doctor;
pub use instance::layouts::{Laid, layout_of, set_layout};
pub use instance::mount_point::is_seen;
pub use instance::origins::{Origin, WriteBack};
pub use instance::places::{default_run_root, image_cache};
pub use instance::{Found, Instance, what_is_left, what_to_do, whole_name};
pub use log::{Level, Line, Part, add as add_to_log};
pub use mayfly_daemon::{LayoutWords, PROTOCOL_VERSION, Pool};
pub use mayfly_types::{
    Durability,
    limits::{DAEMONS_MAX, NETWORK_THREADS_MAX, SHARDS_MAX, TIER_DEADLINE_SECONDS},
};
pub use nodes::Members;
pub use processes::daemon::{DAEMON, run_daemon};
pub use processes::fuse::{FUSE, run_fuse, run_keeper};
pub use processes::image::{IMAGE, make_image};
pub use processes::processors::keep_to as keep_to_processors;
pub use processes::tier::{TIER, run_tier};
pub use status::activity::{Activity, Usage};
pub use status::{Counted, Depth, Report, State, report, report_in};
pub use supervisor::control;
pub use supervisor::launch::{Lifeline, SUPERVISE, launch};
pub use tier::{
    Event, Flushed, OriginState, Prefetched, TierState, evict_tier, flush_tier, path_inside,
    prefetch_tier, tier_state, unlink_tier, unpin_tier,
};
