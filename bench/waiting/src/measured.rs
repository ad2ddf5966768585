//! What `mayfly bench --json` has measured.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The phases of one run with all numbers of processes.
pub(crate) struct Measured {
    phases: Vec<Phase>,
}

struct Phase {
    name: String,
    processes: u64,
    figure: Figure,
}

/// Medians over the repetitions.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    /// Operations a second.
    pub(crate) rate: f64,
    /// To the rate of the local file system in the same repetition.
    pub(crate) ratio: f64,
}

impl Measured {
    pub(crate) fn read(path: &Path) -> Result<Measured> {
        let document: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let phases = document.get("phases").and_then(Value::as_array).context("phases")?;
        Ok(Measured { phases: phases.iter().map(phase).collect::<Option<_>>().context("a phase")? })
    }

    /// Names of the phases, each once, as they were run.
    pub(crate) fn phases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for phase in &self.phases {
            if !names.contains(&phase.name.as_str()) {
                names.push(&phase.name);
            }
        }
        names
    }

    pub(crate) fn get(&self, name: &str, processes: usize) -> Option<Figure> {
        let mut phases = self.phases.iter();
        let is_it = |phase: &&Phase| phase.name == name && phase.processes == processes as u64;
        phases.find(is_it).map(|phase| phase.figure)
    }
}

fn phase(value: &Value) -> Option<Phase> {
    let [ours, plain] = value.get("targets")?.as_array()?.as_slice() else { return None };
    let (ours, plain) = (rates(ours)?, rates(plain)?);
    let ratios = ours.iter().zip(&plain).map(|(ours, plain)| ours / plain).collect();
    Some(Phase {
        name: value.get("phase")?.as_str()?.to_owned(),
        processes: value.get("procs")?.as_u64()?,
        figure: Figure { rate: median(ours), ratio: median(ratios) },
    })
}

/// Operations a second of each repetition.
fn rates(target: &Value) -> Option<Vec<f64>> {
    let rate = |run: &Value| Some(run.get("ops")?.as_f64()? / run.get("elapsed_s")?.as_f64()?);
    target.get("runs")?.as_array()?.iter().map(rate).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
