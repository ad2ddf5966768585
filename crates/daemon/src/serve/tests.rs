//! The transport between real processes, with a supervisor and a file system made for the test.
//!
//! [`host`] plays the supervisor, [`ledger`] the file system: it writes down each request it
//! executes, so that one executed twice, or acknowledged and lost, shows. Daemons and clients that
//! get killed are child processes: this test program again, told its role by the name of an ignored
//! test ([`roles`]).

mod calm;
mod circles;
mod crowd;
mod host;
mod hostile;
mod lanes;
mod layouts;
mod ledger;
mod long;
mod nodes;
mod pace;
mod releases;
mod roles;
mod separate_roles;
mod shards;
mod storm;
mod stripes;
mod turns;
