//! What a site's batch system does around a job: it finds an instance over its nodes.
//!
//! The prolog of each node, as root, makes the job's directories, becomes the job's user, and opens
//! a *door*: a process of the user's that starts programs of Mayfly for whoever has the job's key.
//! The prolog of the first node then runs `mayfly start` as that user, which reaches all nodes by
//! their doors. The epilog brings out what was asked for, ends the instance, and clears up what is
//! left of the job. The job's key comes from the site's, which only root reads, so the nodes need
//! nothing in common but that file.
//!
//! Root trusts: its own configuration, what the batch system sets in the environment, and what it
//! has written itself below the site's directories. Whatever a user says or has made is looked at
//! by processes of that user.

mod config;
mod door;
mod epilog;
mod job;
mod key;
mod line;
mod person;
mod prolog;
mod reach;
mod remains;
mod request;
mod slurm;

pub use config::{CONFIG, Site};
pub use door::{DOOR, open as open_door};
pub use epilog::epilog;
pub use job::Job;
pub use key::make as make_key;
pub use person::{BECOME, EMPTY, RUN_ROOT, become_and_run, empty, run_root};
pub use prolog::{Part, prolog};
pub use reach::{REACH, reach};
pub use remains::clean;
pub use request::{Direction, Request};
