//! Authenticated connections between the daemons of an instance, over TCP.
//!
//! Daemons talk through an [`Endpoint`]: requests with a class and a deadline, and replies, which
//! may overtake each other. To each other node there are at most two connections, made when first
//! needed: one for messages, one for bulk data, so that a small message never stands behind a large
//! one. Everything of any number of callers shares them.
//!
//! What is promised:
//! - **Nothing is believed before proof** that the other side knows the instance's secret
//!   (`handshake.rs`); with [`Encryption::On`] nothing is readable or changeable afterwards either.
//! - **A request is delivered at most once, and so is a reply**, whatever happens to connections
//!   (`session.rs`). Connections that break are made again; what was lost with them is sent again.
//! - **A request ends**: with its reply, or with [`Event::Lost`] at its deadline or when the daemon
//!   that it was sent to is found to have been replaced. `Lost` says whether it may have been
//!   executed.
//! - **Order**: requests of one class on one lane from one node to another are delivered in the
//!   order in which one thread sent them. Between classes, lanes, and requests and replies there is
//!   none.
//! - **No circle of full queues**: every class has credits of its own, replies need none.
//! - **Bounded memory** for any number of strangers, and for each node that is known.
//!
//! What it does not do: it starts no daemon, finds no address, has no keys of single nodes, and
//! does not survive its process; what a restarted daemon has executed before, the daemon remembers.
//!
//! `docs/design/tcp.md` has the bytes and the states.
#![forbid(unsafe_code)]

mod body;
mod class;
mod clock;
mod complaints;
mod connection;
mod core;
mod endpoint;
mod event;
pub mod frame;
mod handshake;
#[doc(hidden)]
pub mod hostile;
pub mod limits;
mod peer;
mod record;
mod session;
mod watch;

pub use self::{
    body::{Body, Bytes},
    class::{Class, Lane, NodeId, RequestId},
    clock::{Clock, MonotonicClock},
    endpoint::{Config, Endpoint, Finder, Request, SendError},
    event::{Cause, Event, Fate, PeerState, Ticket},
    handshake::{Encryption, PROTOCOL_VERSION, Secret},
};
