//! What a run measures: the sizes, and which of them make no sense.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::{Family, step::Tree};

/// Least and most of a transfer, bytes.
const TRANSFER_BYTES: std::ops::RangeInclusive<u64> = 512..=64 << 20;
/// Transfers of one process in one phase, so that small ones end.
pub(super) const TRANSFERS_MAX: u64 = 50_000;
/// Processes of one phase.
const PROCS_MAX: u32 = 4096;
/// Names of one process are made before the clock, in memory.
const FILES_MAX: u64 = 10_000_000;

/// What `--procs` means for the amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// The sizes are those of each process.
    Weak,
    /// The sizes are those of all processes together.
    Strong,
}

/// What a run measures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Which families of workloads.
    pub families: Vec<Family>,
    /// Only phases whose name contains one of these; empty: all.
    pub only_phases: Vec<String>,
    /// The short table of workloads instead of the long one.
    pub quick: bool,
    /// Files (or directories) of each process.
    pub files: u64,
    /// The tree of each process, or, of the most processes, of each.
    pub tree: Tree,
    /// Data of each process, bytes.
    pub size_bytes: u64,
    /// Transfer sizes, bytes.
    pub transfers_bytes: Vec<u64>,
    /// fsync before the file is closed.
    pub fsync: bool,
    /// Numbers of processes.
    pub procs: Vec<u32>,
    /// Repetitions of everything.
    pub runs: u32,
    /// Empty caches before what is read.
    pub cold: bool,
    /// What more processes do.
    pub scaling: Scaling,
}

impl Settings {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// Says which option, and what to choose instead.
    pub fn check(&self) -> Result<()> {
        ensure!(self.runs >= 1, "--runs 0 measures nothing: choose at least 1");
        ensure!(!self.procs.is_empty(), "--procs: name at least one number of processes");
        for procs in &self.procs {
            ensure!(
                (1..=PROCS_MAX).contains(procs),
                "--procs {procs}: choose from 1 to {PROCS_MAX}"
            );
        }
        let mut sorted = self.procs.clone();
        sorted.sort_unstable();
        sorted.dedup();
        ensure!(sorted.len() == self.procs.len(), "--procs names a number twice");
        ensure!(
            (1..=FILES_MAX).contains(&self.files),
            "--files {}: choose from 1 to {FILES_MAX}",
            self.files
        );
        ensure!(
            self.tree.files().saturating_add(self.tree.directories()) <= FILES_MAX,
            "--tree: that are more than {FILES_MAX} files and directories"
        );
        ensure!(!self.families.is_empty(), "--workload: name at least one");
        self.check_data()
    }

    fn check_data(&self) -> Result<()> {
        ensure!(!self.transfers_bytes.is_empty(), "--transfer: name at least one size");
        for bytes in &self.transfers_bytes {
            ensure!(
                TRANSFER_BYTES.contains(bytes),
                "--transfer {bytes}: choose from 512 bytes to 64M"
            );
            ensure!(
                *bytes <= self.size_bytes,
                "--transfer {bytes} is more than --size {}",
                self.size_bytes
            );
        }
        Ok(())
    }

    /// Files of each process when there are `procs`.
    pub(super) fn files_each(&self, procs: u32) -> u64 {
        self.each(self.files, procs)
    }

    /// Trees of each process when there are `procs`: one, or as many as make one for each of the
    /// most processes.
    pub(super) fn trees_each(&self, procs: u32) -> u64 {
        match self.scaling {
            Scaling::Weak => 1,
            Scaling::Strong => {
                let most = self.procs.iter().copied().max().unwrap_or(1);
                u64::from((most / procs.max(1)).max(1))
            }
        }
    }

    /// Transfers of each process when there are `procs`.
    pub(super) fn transfers_each(&self, procs: u32, transfer_bytes: u64) -> u64 {
        (self.each(self.size_bytes, procs) / transfer_bytes).clamp(1, TRANSFERS_MAX)
    }

    fn each(&self, amount: u64, procs: u32) -> u64 {
        match self.scaling {
            Scaling::Weak => amount,
            Scaling::Strong => (amount / u64::from(procs)).max(1),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn usual() -> Settings {
        Settings {
            families: vec![Family::Meta, Family::Data, Family::Find],
            only_phases: Vec::new(),
            quick: false,
            files: 1000,
            tree: Tree { branch: 4, depth: 3, items: 10 },
            size_bytes: 64 << 20,
            transfers_bytes: vec![4096, 1 << 20],
            fsync: false,
            procs: vec![1, 4],
            runs: 5,
            cold: false,
            scaling: Scaling::Weak,
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_option_s_name() {
        type Change = fn(&mut Settings);
        let wrong: [(&str, Change); 8] = [
            ("--runs", |s| s.runs = 0),
            ("--procs", |s| s.procs.clear()),
            ("--procs", |s| s.procs = vec![0]),
            ("--procs", |s| s.procs = vec![2, 2]),
            ("--files", |s| s.files = 0),
            ("--transfer", |s| s.transfers_bytes = vec![100]),
            ("--transfer", |s| s.transfers_bytes = vec![128 << 20]),
            ("--tree", |s| s.tree = Tree { branch: 1000, depth: 9, items: 1 }),
        ];
        usual().check().expect("the usual makes sense");
        for (option, change) in wrong {
            let mut settings = usual();
            change(&mut settings);
            let error = settings.check().expect_err(option).to_string();
            assert!(error.starts_with(option), "{error}");
        }
        let mut small = usual();
        small.size_bytes = 4096;
        assert!(small.check().is_err(), "a transfer larger than the file");
    }

    #[test]
    fn strong_scaling_divides_the_work_and_weak_does_not() {
        let mut settings = usual();
        assert_eq!(settings.files_each(4), 1000);
        assert_eq!((settings.trees_each(1), settings.trees_each(4)), (1, 1));
        settings.scaling = Scaling::Strong;
        assert_eq!(settings.files_each(4), 250);
        assert_eq!((settings.trees_each(1), settings.trees_each(4)), (4, 1));
        assert_eq!(settings.transfers_each(4, 1 << 20), 16);
    }
}
