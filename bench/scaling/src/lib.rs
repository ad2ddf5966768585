//! The study of scaling: what an instance of up to 4,096 nodes would do.
//! `docs/benchmarks/scaling.md` has the results, and says what they rest on.

pub mod balance;
pub mod cluster;
pub mod costs;
pub mod document;
pub mod field;
pub mod model;
pub mod plots;
pub mod report;
pub mod startup;
pub mod study;
pub mod transfers;
