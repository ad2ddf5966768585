//! A whole run: targets made ready, phases in turn on all of them, again and again, and all of it
//! taken away.
//!
//! A phase runs on one target right after the other, and the first of them changes from repetition
//! to repetition, so that a neighbour's load meets all alike; ratios are taken within a repetition
//! only.
//!
//! A [`target`] is a directory, or an instance that is started for the run; its workers are its
//! [`crew`]. The [`ledger`] takes the figures as they come in. An [`interrupt`] is noticed between
//! steps, so that what was made is removed.

mod crew;
pub(crate) mod interrupt;
pub(crate) mod ledger;
pub(crate) mod target;

use std::collections::BTreeSet;

use anyhow::{Context, Result, anyhow, ensure};

use crate::{
    report::{
        results::{Machine, Report, Run, TargetReport, VERSION},
        statistics::elapsed_s,
    },
    storage::{Storage, cold, usage},
    workloads::{
        Group, Phase, groups,
        settings::Settings,
        step::{Share, Step, Task},
    },
};
use interrupt::Interrupt;
use ledger::Page;
use target::{Place, Target};

/// Calls of the calibration.
const CALIBRATION: u64 = 200_000;
/// Least and most that one stream of the raw rate moves, bytes.
const RAW_BYTES: (u64, u64) = (32 << 20, 256 << 20);

/// Where a run is, for whoever shows it.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Steps done.
    pub done: u64,
    /// Steps of the whole run.
    pub total: u64,
    /// What comes now.
    pub phase: &'a str,
}

/// Runs it all. `show` is called before each step.
///
/// # Errors
/// When a target cannot be made ready, a call fails, a byte is wrong, or somebody interrupts
/// ([`crate::Interrupted`]); what was made is removed in any case.
pub fn run(
    settings: &Settings,
    places: &[Place],
    show: &mut dyn FnMut(Progress<'_>),
) -> Result<Report> {
    settings.check()?;
    ensure!(!places.is_empty(), "there is nothing to measure");
    let interrupt = Interrupt::listen()?;
    let mut targets = Vec::new();
    let outcome = open(settings, places, &interrupt, &mut targets)
        .and_then(|()| Campaign::new(settings, &mut targets, interrupt)?.run(show));
    let closed: Vec<_> = targets.into_iter().filter_map(|target| target.close().err()).collect();
    match (outcome, closed.first()) {
        (outcome, None) => outcome,
        (Ok(_), Some(left)) => Err(anyhow!("{left:#}")),
        // No longer an interrupt after which all is removed.
        (Err(error), Some(left)) => Err(anyhow!("{error:#}; besides, {left:#}")),
    }
}

/// All of them, or those that came before the error.
fn open(
    settings: &Settings,
    places: &[Place],
    interrupt: &Interrupt,
    targets: &mut Vec<Target>,
) -> Result<()> {
    for place in places {
        interrupt.check()?;
        targets.push(Target::open(place)?);
    }
    let mut labels = BTreeSet::new();
    for target in targets.iter_mut() {
        let label = target.label.clone();
        ensure!(labels.insert(label), "two targets are called {:?}: use LABEL=DIR", target.label);
    }
    let count = settings.procs.iter().copied().max().unwrap_or(1);
    targets.iter_mut().try_for_each(|target| target.staff(count, interrupt))
}

struct Campaign<'a> {
    settings: &'a Settings,
    targets: &'a mut [Target],
    interrupt: Interrupt,
    storage: Storage,
    cold: Vec<BTreeSet<&'static str>>,
    pages: Vec<Page>,
    done: u64,
    total: u64,
}

impl<'a> Campaign<'a> {
    fn new(
        settings: &'a Settings,
        targets: &'a mut [Target],
        interrupt: Interrupt,
    ) -> Result<Campaign<'a>> {
        let below: Vec<_> = targets.iter().map(|target| target.storage.clone()).collect();
        let storage = Storage::below(&below)?;
        let mut pages = Vec::new();
        for procs in &settings.procs {
            for group in groups(settings, *procs) {
                let page = |phase| Page::new(phase, group.family, *procs, targets.len());
                pages.extend(group.phases.iter().map(page));
            }
        }
        ensure!(!pages.is_empty(), "--phase: no phase of these workloads has such a name");
        let total = pages.len() as u64 * u64::from(settings.runs) * targets.len() as u64;
        let cold = targets.iter().map(|_| BTreeSet::new()).collect();
        Ok(Campaign { settings, targets, interrupt, storage, cold, pages, done: 0, total })
    }

    fn run(mut self, show: &mut dyn FnMut(Progress<'_>)) -> Result<Report> {
        let loops = (0..self.targets.len())
            .map(|target| self.calibrate(target))
            .collect::<Result<Vec<f64>>>()?;
        for repetition in 0..self.settings.runs as usize {
            let bytes = self.settings.size_bytes.clamp(RAW_BYTES.0, RAW_BYTES.1);
            self.storage.measure(bytes, &self.settings.procs, &self.interrupt)?;
            let mut page = 0;
            for procs in &self.settings.procs {
                for group in groups(self.settings, *procs) {
                    self.group(&group, *procs, repetition, page, show)?;
                    page += group.phases.len();
                }
            }
        }
        self.report(&loops)
    }

    /// What the loop of a worker costs an operation, nanoseconds.
    fn calibrate(&mut self, target: usize) -> Result<f64> {
        let task = self.task(target, "calibration", "", 1, Step::Calibrate { count: CALIBRATION });
        let shares = self.perform(target, &task)?;
        Ok(elapsed_s(&shares) * 1e9 / CALIBRATION as f64)
    }

    fn task(&self, target: usize, phase: &str, group: &str, procs: u32, step: Step) -> Task {
        let root = self.targets[target].root.join(group.replace('/', "-"));
        Task { phase: phase.to_owned(), root, rank: 0, procs, step }
    }

    fn perform(&mut self, target: usize, task: &Task) -> Result<Vec<Share>> {
        let crew = self.targets[target].crew()?;
        crew.prepare(task)?;
        crew.go(task.procs)
    }

    /// All targets, one after the other; another one first in each repetition.
    fn turns(&self, repetition: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.targets.len();
        (0..count).map(move |index| (index + repetition) % count)
    }

    fn group(
        &mut self,
        group: &Group,
        procs: u32,
        repetition: usize,
        first_page: usize,
        show: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        for target in self.turns(repetition) {
            self.perform(target, &self.task(target, &group.name, &group.name, procs, Step::Begin))?;
        }
        for (index, phase) in group.phases.iter().enumerate() {
            for target in self.turns(repetition) {
                show(Progress { done: self.done, total: self.total, phase: &phase.name });
                self.phase(target, phase, &group.name, procs, first_page + index)?;
                self.done += 1;
            }
        }
        for target in self.turns(repetition) {
            self.perform(target, &self.task(target, &group.name, &group.name, procs, Step::End))?;
        }
        Ok(())
    }

    fn phase(
        &mut self,
        target: usize,
        phase: &Phase,
        group: &str,
        procs: u32,
        page: usize,
    ) -> Result<()> {
        if self.settings.cold && phase.reads() {
            let how = cold::empty_caches(self.targets[target].contents())?;
            self.cold[target].insert(how);
        }
        let task = self.task(target, &phase.name, group, procs, phase.step);
        let crew = self.targets[target].crew()?;
        crew.prepare(&task)?;
        let clients = crew.pids(procs);
        let servants = self.targets[target].servants();
        clients.iter().chain(&servants).for_each(|pid| usage::reset_peak(*pid));
        let spent = || servants.iter().map(|pid| usage::cpu_ns(*pid)).sum::<u64>();
        let before = spent();
        let shares = self.targets[target].crew()?.go(procs)?;
        let daemon_cpu_us = spent().saturating_sub(before) as f64 / 1000.0;
        let peak = |pids: &[u32]| pids.iter().map(|pid| usage::peak_bytes(*pid)).sum();
        let account = &mut self.pages[page].accounts[target];
        account.peaks(peak(&clients), peak(&servants));
        account.add(one_run(&shares, daemon_cpu_us), &shares);
        Ok(())
    }

    /// The first plain directory, since that is what people know; else the first target.
    fn reference(targets: &[TargetReport]) -> usize {
        targets.iter().position(|target| !target.is_instance).unwrap_or(0)
    }

    fn report(self, loops: &[f64]) -> Result<Report> {
        let targets: Vec<TargetReport> =
            self.targets.iter().zip(loops).map(|(target, ns)| target.describe(*ns)).collect();
        let labels: Vec<String> = targets.iter().map(|target| target.label.clone()).collect();
        let reference = Campaign::reference(&targets);
        let raw = |target, procs, way| self.storage.rates(target, procs, way);
        let cold = labels
            .iter()
            .zip(&self.cold)
            .flat_map(|(label, how)| how.iter().map(move |how| format!("{label}: {how}")));
        Ok(Report {
            version: VERSION,
            machine: machine()?,
            settings: self.settings.clone(),
            cold: cold.collect(),
            devices: self.storage.report(&labels, &self.settings.procs),
            phases: self.pages.iter().map(|page| page.close(&labels, reference, raw)).collect(),
            reference: labels.get(reference).cloned().context("there is a target")?,
            targets,
        })
    }
}

fn one_run(shares: &[Share], daemon_cpu_us: f64) -> Run {
    let sum = |of: fn(&Share) -> u64| shares.iter().map(of).sum();
    Run {
        elapsed_s: elapsed_s(shares),
        ops: sum(|share| share.ops),
        bytes: sum(|share| share.bytes),
        client_user_us: sum(|share| share.user_us),
        client_system_us: sum(|share| share.system_us),
        daemon_cpu_us,
    }
}

fn machine() -> Result<Machine> {
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let memory = line("/proc/meminfo");
    let kib = memory.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    Ok(Machine {
        cpus: std::thread::available_parallelism()?.get(),
        memory_bytes: kib.unwrap_or(0) * 1024,
        kernel: line("/proc/sys/kernel/osrelease").trim().to_owned(),
    })
}
