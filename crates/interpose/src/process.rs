//! The process: how it begins, what it passes on, and its line to the daemon.
//!
//! [`inherit`] reads what an earlier program has left, [`daemons`] chooses a daemon, [`settings`]
//! keeps what the environment says about the instance, and [`session`] attaches to the daemon at
//! the first call that needs it; [`lanes`] says what a session is. What makes a process is [`fork`]
//! and, for a child in our memory, [`flight`]. What makes a program is [`exec`]: it looks at what
//! is executed ([`program`], [`loader`], [`libraries`], [`strangers`]) and rebuilds the
//! [`environment`]. [`run_directory`] finds the directory of the instance after a change of the
//! root, before which [`view`] takes hold of it. [`image`] asks for what a library needs, and
//! [`owner`] says who owns what is made here.
//!
//! **Invariants.** Settings are written once, at start. A session belongs to one process: a child
//! never uses its parent's. Whatever an exec passes on is in the environment or in descriptors, as
//! the memory does not outlive it.

pub(crate) mod daemons;
mod environment;
pub(crate) mod exec;
pub(crate) mod flight;
pub mod fork;
pub mod image;
pub(crate) mod inherit;
pub(crate) mod lanes;
mod libraries;
mod loader;
pub(crate) mod owner;
pub(crate) mod program;
pub(crate) mod run_directory;
pub(crate) mod session;
pub(crate) mod settings;
mod strangers;
pub(crate) mod view;
