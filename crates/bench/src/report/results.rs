//! What a run found: the form of `--json`, from which table and plot are made.

use std::path::PathBuf;

use mayfly_deploy::Options;
use serde::Serialize;

use super::{latency::Quantiles, statistics::Summary};
use crate::workloads::{Family, settings::Settings};

/// Version of the form; it grows when a field changes its meaning or goes.
pub(crate) const VERSION: u32 = 1;

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form.
    pub version: u32,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Settings,
    /// What was measured; ratios are to `reference`.
    pub targets: Vec<TargetReport>,
    /// Label of the target that the others are compared with.
    pub reference: String,
    /// How caches were emptied, for each target; empty without `--cold`.
    pub cold: Vec<String>,
    /// The storage below.
    pub devices: Vec<DeviceReport>,
    /// The figures.
    pub phases: Vec<PhaseReport>,
}

/// The machine.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cpus: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

/// One target.
#[derive(Debug, Clone, Serialize)]
pub struct TargetReport {
    /// Its name in the table.
    pub label: String,
    /// An instance of the run's own, or a directory.
    pub is_instance: bool,
    /// Where its bytes lie.
    pub directory: PathBuf,
    /// On what file system.
    pub file_system: String,
    /// Options of the instance.
    pub options: Option<Options>,
    /// What a worker's loop itself costs an operation, nanoseconds; it is part of all latencies.
    pub loop_ns: f64,
}

/// Storage below one or more targets.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// How it was measured.
    pub how: String,
    /// Labels of the targets on it.
    pub targets: Vec<String>,
    /// Its rates, in the order of the numbers of processes.
    pub rates: Vec<RawReport>,
}

/// What streams get from storage.
#[derive(Debug, Clone, Serialize)]
pub struct RawReport {
    /// How many at once.
    pub streams: u32,
    /// Together, MiB/s.
    pub write_mib_per_s: Summary,
    /// Together, MiB/s.
    pub read_mib_per_s: Summary,
}

/// One phase with one number of processes.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseReport {
    /// Its name.
    pub phase: String,
    /// Its kind.
    pub family: Family,
    /// How many processes.
    pub procs: u32,
    /// Its figures, in the order of the targets.
    pub targets: Vec<Measured>,
}

/// The figures of a phase on one target.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The target's label.
    pub target: String,
    /// Operations a second of all processes together.
    pub ops_per_s: Summary,
    /// Bytes, for phases that move some.
    pub mib_per_s: Option<Summary>,
    /// The latencies of all calls of all runs.
    pub latency: Quantiles,
    /// Rate here by the rate at the reference in the same repetition; `None` for the reference.
    pub ratio: Option<Summary>,
    /// Rate of bytes by the raw rate of the storage in the same repetition.
    pub raw_share: Option<Summary>,
    /// Processor time of the workers for an operation, microseconds.
    pub client_cpu_us: f64,
    /// Processor time of the instance's daemon and supervisor for an operation, microseconds.
    pub daemon_cpu_us: f64,
    /// Peak memory of the workers together, bytes.
    pub client_peak_bytes: u64,
    /// Peak memory of daemon and supervisor together, bytes; shared and mapped pages included.
    pub daemon_peak_bytes: u64,
    /// Each run.
    pub runs: Vec<Run>,
}

/// One run of a phase on one target.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Run {
    /// From the first start to the last end.
    pub elapsed_s: f64,
    /// Operations of all processes.
    pub ops: u64,
    /// Bytes of all processes.
    pub bytes: u64,
    /// Processor time of the workers, in user mode.
    pub client_user_us: u64,
    /// The same, in kernel mode.
    pub client_system_us: u64,
    /// Processor time of the instance's processes.
    pub daemon_cpu_us: f64,
}

impl Run {
    pub(crate) fn ops_per_s(&self) -> f64 {
        self.ops as f64 / self.elapsed_s
    }

    pub(crate) fn mib_per_s(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.elapsed_s
    }
}
