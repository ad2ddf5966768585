//! The serving loop: requests from shared memory to the file system, replies back.
//!
//! Each shard has a thread, which works in rounds: execute requests and messages one after the
//! other, each reply going straight into its lane with the number of the transaction it rests on,
//! then commit, then show the replies, then send the messages ([`threads::driver`]). What is shown
//! is therefore true after any crash, and what was stored but not shown is shown by the next daemon
//! if its transaction made it, and executed otherwise: each request exactly once.
//!
//! The first shard's thread, the *serving thread*, is the one that gathers the marked lanes of all
//! sessions ([`threads::rounds`]); while it sleeps the network thread may take its place
//! ([`threads::lead`]). What belongs to another shard is left in its lane and goes there in a
//! message; the thread of the shard that finishes it stores and shows the reply itself. Those
//! threads act on their inboxes only ([`threads::worker`], [`threads::peers`]). With one shard
//! there is one thread and no message.
//!
//! A loop never waits but in [`threads::idle`]. Descriptors (the supervisor's channel, the inotify
//! queue) are watched by a further thread ([`sessions::control`]). The sessions themselves, the
//! processes' handles and the inotify queue belong to the supervisor and outlive this process;
//! [`sessions::handover`] and [`threads::start`] take them up.

pub(crate) mod network;
mod service;
mod sessions;
mod slow;
#[cfg(test)]
mod tests;
mod threads;

pub use network::{nodes::Nodes, peer_network::PeerNetwork};
pub use service::{Caller, Completion, Progress, Reached, Service};
pub use sessions::{
    channel, event::Event, handover::Known, host_environment::HostEnvironment, releases,
};
pub use threads::{
    idle::Waker,
    rounds::Ending,
    start::{Opener, Place, run},
    stepped,
};
