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

mod campaign;
mod report;
mod storage;
mod worker;
mod workloads;

pub use campaign::interrupt::Interrupted;
pub use campaign::target::{Place, PlaceKind, beside};
pub use campaign::{Progress, run};
pub use report::latency::Quantiles;
pub use report::results::{
    DeviceReport, Machine, Measured, PhaseReport, RawReport, Report, Run, TargetReport,
};
pub use report::statistics::Summary;
pub use report::{Style, svg, table};
pub use worker::{WORKER, worker};
pub use workloads::Family;
pub use workloads::settings::{Scaling, Settings};
pub use workloads::step::{Call, Layout, Manner, Order, Step, Transfers, Tree, Way};
