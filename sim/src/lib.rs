//! Mayfly's simulator: the daemons of many nodes, with simulated network, disks, clocks and
//! clients, in one thread and under one seed. `docs/design/simulator.md` says what is simulated and
//! what is not.

pub mod bytes;
pub mod client;
pub mod dice;
pub mod disk;
pub mod fabric;
pub mod fits;
pub mod fuse;
pub mod history;
pub mod judge;
pub mod lanes;
pub mod linear;
pub mod names;
pub mod network;
pub mod node;
pub mod origin;
pub mod plan;
pub mod shrink;
pub mod world;
