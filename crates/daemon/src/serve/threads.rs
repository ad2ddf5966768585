//! The threads of a daemon, and who runs when.
//!
//! `start.rs` makes a thread for each shard. `driver.rs` is what each of them does with its shard;
//! `rounds.rs` is the loop of the one that takes clients' requests, and `leader.rs` lets the
//! network thread run it in that one's place. `worker.rs` is the loop of the others. The lock of a
//! loop that another thread may run is in `place.rs`. `peers.rs` is what they tell each other,
//! `idle.rs` how they wait. `stepped.rs` drives all of it by hand, for the simulator.
//!
//! Invariants:
//! - A shard is driven by one thread at a time.
//! - A reply is shown after the commit that makes it true, never before.
//! - A thread waits in `idle.rs` only.

pub(in crate::serve) mod driver;
pub(in crate::serve) mod idle;
pub(in crate::serve) mod leader;
pub(in crate::serve) mod peers;
mod place;
pub(in crate::serve) mod rounds;
pub(in crate::serve) mod start;
pub mod stepped;
pub(in crate::serve) mod worker;
