//! Figures as they come in, and what becomes of them at the end of the run.

use crate::{
    report::{
        latency::Latencies,
        results::{Measured, PhaseReport, Run},
        statistics::Summary,
    },
    workloads::{
        Family, Phase,
        step::{Share, Way},
    },
};

/// What is known of a phase on one target.
#[derive(Default)]
pub(crate) struct Account {
    runs: Vec<Run>,
    latencies: Latencies,
    client_peak_bytes: u64,
    daemon_peak_bytes: u64,
}

impl Account {
    pub(crate) fn add(&mut self, run: Run, shares: &[Share]) {
        self.runs.push(run);
        for share in shares {
            self.latencies.merge(&share.latencies);
        }
    }

    pub(super) fn peaks(&mut self, client_bytes: u64, daemon_bytes: u64) {
        self.client_peak_bytes = self.client_peak_bytes.max(client_bytes);
        self.daemon_peak_bytes = self.daemon_peak_bytes.max(daemon_bytes);
    }

    /// Rates of the raw storage, one for each run; empty where there is none.
    fn measured(&self, target: &str, reference: Option<&Account>, raw: &[f64]) -> Option<Measured> {
        let rates: Vec<f64> = self.runs.iter().map(Run::ops_per_s).collect();
        let bytes: Vec<f64> = self.runs.iter().map(Run::mib_per_s).collect();
        let moved = self.runs.iter().any(|run| run.bytes > 0);
        let ops: u64 = self.runs.iter().map(|run| run.ops).sum();
        let each = |micros: f64| if ops == 0 { 0.0 } else { micros / ops as f64 };
        let client: u64 = self.runs.iter().map(|r| r.client_user_us + r.client_system_us).sum();
        let compared = reference.map(|reference| {
            let theirs: Vec<f64> = reference.runs.iter().map(Run::ops_per_s).collect();
            quotients(&rates, &theirs)
        });
        Some(Measured {
            target: target.to_owned(),
            ops_per_s: Summary::of(&rates)?,
            mib_per_s: if moved { Summary::of(&bytes) } else { None },
            latency: self.latencies.quantiles(),
            ratio: compared.and_then(|ratios| Summary::of(&ratios)),
            raw_share: Summary::of(&quotients(&bytes, raw)),
            client_cpu_us: each(client as f64),
            daemon_cpu_us: each(self.runs.iter().map(|run| run.daemon_cpu_us).sum()),
            client_peak_bytes: self.client_peak_bytes,
            daemon_peak_bytes: self.daemon_peak_bytes,
            runs: self.runs.clone(),
        })
    }
}

/// One by one: those of the same repetition.
fn quotients(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).filter(|(_, below)| **below > 0.0).map(|(a, b)| a / b).collect()
}

/// A phase's accounts, one for each target.
pub(crate) struct Page {
    pub(crate) procs: u32,
    family: Family,
    name: String,
    way: Option<Way>,
    pub(crate) accounts: Vec<Account>,
}

impl Page {
    pub(crate) fn new(phase: &Phase, family: Family, procs: u32, targets: usize) -> Page {
        let accounts = (0..targets).map(|_| Account::default()).collect();
        Page { procs, family, name: phase.name.clone(), way: phase.way(), accounts }
    }

    /// The report's entry; `raw` gives the rates of the storage below a target for a number of
    /// processes.
    pub(crate) fn close(
        &self,
        labels: &[String],
        reference: usize,
        raw: impl Fn(usize, u32, Way) -> Vec<f64>,
    ) -> PhaseReport {
        let measured = |(index, account): (usize, &Account)| {
            let other = (index != reference).then(|| &self.accounts[reference]);
            let raw = self.way.map(|way| raw(index, self.procs, way)).unwrap_or_default();
            account.measured(&labels[index], other, &raw)
        };
        PhaseReport {
            phase: self.name.clone(),
            family: self.family,
            procs: self.procs,
            targets: self.accounts.iter().enumerate().filter_map(measured).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{groups, settings::tests::usual};

    fn run(elapsed_s: f64) -> Run {
        Run {
            elapsed_s,
            ops: 1000,
            bytes: 1 << 20,
            client_user_us: 1000,
            client_system_us: 1000,
            daemon_cpu_us: 500.0,
        }
    }

    #[test]
    fn ratios_are_those_of_the_same_repetition() {
        let groups = groups(&usual(), 1);
        let phase = &groups[0].phases[0];
        let mut page = Page::new(phase, groups[0].family, 1, 2);
        // The machine is ten times slower in the second repetition: for both.
        for (ours, theirs) in [(1.0, 2.0), (10.0, 20.0), (1.0, 4.0)] {
            page.accounts[0].add(run(ours), &[]);
            page.accounts[1].add(run(theirs), &[]);
        }
        let labels = ["ours".to_owned(), "theirs".to_owned()];
        let report = page.close(&labels, 1, |_, _, _| Vec::new());
        let ratio = report.targets[0].ratio.expect("a ratio");
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 2.0, 4.0));
        assert_eq!(report.targets[1].ratio, None);
        assert!((report.targets[0].client_cpu_us - 2.0).abs() < 1e-9);
        assert!((report.targets[0].daemon_cpu_us - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_rate_of_bytes_is_a_share_of_the_raw_one() {
        let mut account = Account::default();
        account.add(run(0.01), &[]);
        let measured = account.measured("t", None, &[200.0]).expect("a run");
        assert!((measured.raw_share.expect("a share").median - 0.5).abs() < 1e-9);
        assert!(Account::default().measured("t", None, &[]).is_none());
    }
}
