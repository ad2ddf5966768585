//! The transport between the processes of a node and its daemon: shared memory.
//!
//! A process *attaches* once ([`attach`]): a handshake with the supervisor over a unix socket,
//! which hands out two sealed memory files, the node region and a session region of its own
//! ([`layout`]). From then on a request is a message written into a lane of the session region, a
//! bit set for the daemon, and a wait ([`ShmTransport`]); no system call is made while both sides
//! are awake.
//!
//! **Waiting.** A client spins for a moment when that has paid lately and there is more than one
//! processor, then yields, then sleeps on the lane's state word. The daemon polls for a moment,
//! then says [`layout::DAEMON_ASLEEP`] and sleeps on that word. Each side publishes what the other
//! looks for before it looks at the other's state, with a full fence between, so one of them always
//! notices.
//!
//! **Dying.** No lock is held in shared memory: a lane belongs to one thread from claim to release,
//! and what a dead process leaves half done is discarded with its session. A reply is stored in the
//! lane with the number of the transaction it rests on *before* that transaction commits; a daemon
//! that was restarted finds in each lane either a request that nobody executed or the reply to it,
//! never a doubt.
//!
//! The client half is `no_std`: it runs inside foreign processes, in signal handlers and after
//! fork, allocates nothing and takes no lock that a dead or interrupted thread could hold. The
//! other half ([`server`], [`region`]) is behind the feature `server`.
#![cfg_attr(not(feature = "server"), no_std)]

mod attach;
mod client;
pub mod file_leases;
pub mod hello;
pub mod image;
pub mod keeper;
pub mod layout;
mod raw;
#[cfg(feature = "server")]
pub mod region;
#[cfg(feature = "server")]
pub mod server;
mod spin;
pub mod submission_ring;
pub mod tally;
mod words;

pub use attach::{AttachOptions, Attachment, Earlier, attach};
pub use client::ShmTransport;
