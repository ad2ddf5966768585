//! Where a shard keeps its metadata: an ordered key/value store in transactions, and the records in
//! it.
//!
//! A shard takes a batch of requests from its queues, reads and writes records through a [`Store`],
//! and commits once. What was committed survives the death of the process; what was not is as if it
//! had never been asked for. There are three stores: [`TreeStore`] for instances that outlive their
//! processes, [`LmdbStore`] for those that outlive the machine, [`MemoryStore`] for those that
//! nothing outlives, for the simulator and for tests; one suite of conformance runs on all.
//! [`key`] and [`record`] hold the bytes that `docs/design/on-disk.md` describes. The crate knows
//! no network, reads no clock, and decides nothing about files: what a rename does to the records
//! is the daemon's affair.

mod bytes;
pub mod key;
mod lmdb;
mod memory;
pub mod record;
mod store;
mod tree;

pub use lmdb::{LmdbOptions, LmdbStore};
pub use memory::{MemoryDisk, MemoryStore};
pub use store::{KEY_BYTES_MAX, Scan, Store, StoreError};
pub use tree::{TreeOptions, TreeStore};
