//! The life of an instance: where it lives, who starts it, who ends it.
//!
//! An instance is a *run directory* (socket, lock, configuration, preload library, slot files;
//! private to the user), a *data directory* (metadata store and objects) and two processes: the
//! supervisor, on which the instance's life hangs, and the daemon that it starts and restarts. The
//! command line and the tests drive both through this library.

mod activity;
pub mod command;
mod config;
pub mod containers;
pub mod control;
mod daemon_process;
mod data_dirs;
pub mod doctor;
pub mod environment;
pub mod fsck;
mod fuse_process;
mod image_process;
mod instance;
mod launch;
mod layouts;
mod log;
pub mod machine;
mod mount_point;
mod namespace;
pub mod nodes;
mod places;
mod proc_stat;
mod process_end;
mod processors;
mod signals;
pub mod size;
mod status;
pub mod supervisor;
mod work;
mod xattrs;

pub use activity::{Activity, Usage};
pub use config::{Access, Audience, Config, Options, SLOW_MS_MIN};
pub use daemon_process::{DAEMON, run_daemon};
pub use data_dirs::DataDir;
pub use fuse_process::{FUSE, run_fuse, run_keeper};
pub use image_process::{IMAGE, make_image};
pub use instance::{Found, Instance, what_is_left, what_to_do};
pub use launch::{Lifeline, SUPERVISE, launch};
pub use layouts::{Laid, layout_of, set_layout};
pub use log::{Level, Line, Part, add as add_to_log};
pub use mayfly_daemon::{LayoutWords, PROTOCOL_VERSION, Pool};
pub use mayfly_types::{Durability, limits::SHARDS_MAX};
pub use mount_point::is_seen;
pub use namespace::{INSIDE, command as command_inside, run_inside};
pub use nodes::Members;
pub use places::{default_run_root, image_cache};
pub use processors::keep_to as keep_to_processors;
pub use status::{Counted, Depth, Report, State, report, report_in};
