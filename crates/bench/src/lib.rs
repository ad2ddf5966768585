//! `mayfly bench`: how fast an instance is, and any other directory beside it.
//!
//! The workloads are those of mdtest, IOR and IO500's find, and the ways in which programs use
//! files. Separate, unmodified processes make plain calls of the C library ([`worker()`]); they are
//! started before any clock and meet at a barrier before each phase. The slowest of them ends the
//! phase. For an instance they run with its environment, for a directory without; nothing else
//! differs, so the whole path of an operation is measured, and a directory may be anything: a local
//! disk, a parallel file system, another mount.
//!
//! [`run`] makes targets ready ([`Place`]), takes them in turn through the phases ([`Settings`])
//! and gives a [`Report`], which [`table`], [`svg`] and serde turn into what people read.

#![forbid(unsafe_code)]

mod calls;
mod campaign;
mod cold;
mod crew;
mod interrupt;
mod latency;
mod ledger;
mod mounts;
mod pattern;
mod raw;
mod report;
mod results;
mod settings;
mod statistics;
mod step;
mod storage;
mod target;
mod tools;
mod usage;
mod worker;
mod workload;

pub use campaign::{Progress, run};
pub use interrupt::Interrupted;
pub use latency::Quantiles;
pub use report::{Style, svg, table};
pub use results::{
    DeviceReport, Machine, Measured, PhaseReport, RawReport, Report, Run, TargetReport,
};
pub use settings::{Scaling, Settings};
pub use statistics::Summary;
pub use step::{Call, Layout, Manner, Order, Step, Transfers, Tree, Way};
pub use target::{Place, PlaceKind, beside};
pub use worker::{WORKER, worker};
pub use workload::Family;
