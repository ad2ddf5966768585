//! The serving loop: requests from shared memory to the file system, replies back.
//!
//! Each shard has a thread, which works in rounds: execute requests and messages one after the
//! other, each reply going straight into its lane with the number of the transaction it rests on,
//! then commit, then show the replies, then send the messages ([`shard`]). What is shown is
//! therefore true after any crash, and what was stored but not shown is shown by the next daemon if
//! its transaction made it, and executed otherwise: each request exactly once.
//!
//! The first shard's thread, the *serving thread*, is the one that gathers the marked lanes of all
//! sessions ([`rounds`]); while it sleeps the network thread may take its place ([`lead`]). What
//! belongs to another shard is left in its lane and goes there in a message; the thread of the
//! shard that finishes it stores and shows the reply itself. Those threads act on their inboxes
//! only ([`worker`], [`peers`]). With one shard there is one thread and no message.
//!
//! A loop never waits but in [`idle`]. Descriptors (the supervisor's channel, the inotify queue)
//! are watched by a further thread ([`control`]). The sessions themselves, the processes' handles
//! and the inotify queue belong to the supervisor and outlive this process; [`handover`] and
//! [`start`] take them up.

mod carrier;
pub mod channel;
mod contents;
mod control;
mod distant;
mod driver;
mod ends;
mod handover;
mod idle;
mod lead;
pub(crate) mod net;
mod nodes;
mod outside;
mod peers;
mod processes;
pub mod releases;
mod rounds;
mod service;
mod slow;
mod start;
pub mod stepped;
#[cfg(test)]
mod tests;
mod watched;
mod worker;

pub use carrier::Carrier;
use handover::Handover;
pub use handover::Known;
pub use idle::Waker;
pub use nodes::Nodes;
pub use outside::{Event, Outside};
pub use rounds::Ending;
pub use service::{Caller, Completion, Progress, Reached, Service};
pub use start::{Opener, Place, run};
