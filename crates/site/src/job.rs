//! A job, as its batch system describes it to a prolog or an epilog.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// What is known of a job on one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, as a part of names: letters, digits, `-`, `_` and `.`. All components of a
    /// heterogeneous job of Slurm's have that of the first.
    pub id: String,
    /// It is a component of such a job: its hosts are not all.
    #[serde(default)]
    pub is_component: bool,
    /// Who it runs as.
    pub uid: u32,
    /// Its hosts, in the batch system's words.
    pub hosts: String,
    /// What the batch system calls this node.
    pub node: String,
    /// So often it was begun before.
    pub restarts: u32,
    /// Features that its nodes have to have.
    pub constraints: String,
    /// What the user has said of it.
    pub comment: String,
    /// Which batch system.
    pub system: System,
}

/// A batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// Slurm.
    Slurm,
    /// One of whose scripts set `MAYFLY_JOB_*`.
    Other,
}

impl Job {
    /// The job of whose prolog or epilog this is the environment.
    ///
    /// # Errors
    /// The environment is none of a prolog's or epilog's, or makes no sense.
    pub fn of_environment() -> Result<Job> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        Job::of(&text)
    }

    fn of(text: &dyn Fn(&str) -> Option<String>) -> Result<Job> {
        let (system, prefix) = match (text("MAYFLY_JOB_ID"), text("SLURM_JOB_ID")) {
            (Some(_), _) => (System::Other, "MAYFLY"),
            (None, Some(_)) => (System::Slurm, "SLURM"),
            (None, None) => bail!(
                "neither SLURM_JOB_ID nor MAYFLY_JOB_ID is set: this is run by the batch system"
            ),
        };
        let of_job = |name: &str| text(&format!("{prefix}_JOB_{name}"));
        let needed =
            |name: &str| of_job(name).with_context(|| format!("{prefix}_JOB_{name} is not set"));
        let node = match system {
            System::Slurm => text("SLURMD_NODENAME").context("SLURMD_NODENAME is not set")?,
            System::Other => needed("NODE")?,
        };
        let whole = (system == System::Slurm).then(|| text("SLURM_HET_JOB_ID")).flatten();
        let whole = whole.filter(|id| id != "0");
        let is_component = whole.is_some();
        let id = whole.map_or_else(|| needed("ID"), Ok)?;
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        ensure!(
            (1..=64).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(fine),
            "the job's number {id:?} is none"
        );
        ensure!(!node.contains('/') && node != "..", "the node's name {node:?} is none");
        Ok(Job {
            id,
            is_component,
            uid: needed("UID")?.parse().context("the job's user is no number")?,
            // Slurm's own prologs have it under an older name.
            hosts: of_job("NODELIST")
                .or_else(|| text("SLURM_NODELIST"))
                .unwrap_or_else(|| node.clone()),
            node,
            restarts: of_job("RESTART_COUNT").and_then(|text| text.parse().ok()).unwrap_or(0),
            constraints: of_job("CONSTRAINTS").unwrap_or_default(),
            comment: of_job("COMMENT").unwrap_or_default(),
            system,
        })
    }

    /// The name of its instance.
    #[must_use]
    pub fn instance(&self) -> String {
        format!("job-{}", self.id)
    }

    /// Does its user ask for an instance?
    #[must_use]
    pub fn asks(&self, feature: &str) -> bool {
        let words = self.constraints.split(|c: char| "&|,*()[]".contains(c));
        let mut words = words.map(str::trim);
        words.any(|word| word == feature) || self.words().is_some()
    }

    /// Options in the comment: what follows the word `mayfly`, up to a semicolon.
    pub(crate) fn words(&self) -> Option<&str> {
        let ours = self.comment.split(';').next().unwrap_or_default();
        let rest = ours.trim_start().strip_prefix("mayfly")?;
        let ends = rest.is_empty() || rest.starts_with(|c: char| c == ':' || c.is_whitespace());
        ends.then(|| rest.trim_start_matches(':').trim())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn job(variables: &[(&str, &str)]) -> Result<Job> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        Job::of(&|name| variables.get(name).map(|text| (*text).to_owned()))
    }

    const SLURM: [(&str, &str); 5] = [
        ("SLURM_JOB_ID", "12"),
        ("SLURM_JOB_UID", "1000"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURMD_NODENAME", "n2"),
        ("SLURM_JOB_RESTART_COUNT", "3"),
    ];

    #[test]
    fn the_variables_of_slurm_are_understood() {
        let job = job(&SLURM).expect("a job");
        assert_eq!((job.id.as_str(), job.uid, job.restarts), ("12", 1000, 3));
        assert_eq!((job.hosts.as_str(), job.node.as_str()), ("n[1-2]", "n2"));
        assert_eq!(job.instance(), "job-12");
    }

    #[test]
    fn what_would_lead_elsewhere_is_no_number_of_a_job() {
        for bad in ["../x", "a/b", "", ".x", "a b"] {
            let mut variables = SLURM;
            variables[0].1 = bad;
            assert!(job(&variables).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_job_asks_by_a_feature_or_by_its_comment() {
        let asks = |name, text| {
            let mut variables = SLURM.to_vec();
            variables.push((name, text));
            job(&variables).expect("a job").asks("mayfly")
        };
        for constraints in ["mayfly", "gpu&mayfly", "mayfly*2&big", "[mayfly|other]"] {
            assert!(asks("SLURM_JOB_CONSTRAINTS", constraints), "{constraints}");
        }
        assert!(!asks("SLURM_JOB_CONSTRAINTS", "mayflyer"));
        for comment in ["mayfly", "mayfly capacity=1G", "mayfly: layout=stripe", "mayfly; a run"] {
            assert!(asks("SLURM_JOB_COMMENT", comment), "{comment}");
        }
        assert!(!asks("SLURM_JOB_COMMENT", "mayflies are short-lived"));
        assert!(!asks("SLURM_JOB_COMMENT", "of mayfly"));
        let mut variables = SLURM.to_vec();
        variables.push(("SLURM_JOB_COMMENT", "mayfly times=all; for Ann's mayfly"));
        assert_eq!(job(&variables).expect("a job").words(), Some("times=all"));
    }
}
