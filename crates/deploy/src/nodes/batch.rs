//! The hosts that a batch system gave to the job in which we run.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::hosts;

/// Components that a heterogeneous job may have, as Slurm itself allows.
const COMPONENTS_MAX: u32 = 128;

/// The hosts of the job, each once, in the batch system's order.
///
/// # Errors
/// When no batch system's variables are set, or they make no sense.
pub fn hosts() -> Result<Vec<String>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let found = of_variables(&variable)?;
    let found = match found {
        Some(hosts) => hosts,
        None if variable("FLUX_URI").is_some() => of_flux()?,
        None => bail!(
            "no job of Slurm, PBS, LSF, OAR or Flux here: none of their variables is set; name the \
             hosts with --nodes or --hostfile"
        ),
    };
    Ok(hosts::once(found))
}

/// The number of the job in which we run, as a part of names; an element of an array has its own.
#[must_use]
pub fn job() -> Option<String> {
    job_of(&|name| std::env::var(name).ok().filter(|text| !text.trim().is_empty()))
}

fn job_of(variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let names = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID", "FLUX_JOB_ID"];
    let number = names.into_iter().find_map(variable)?;
    // Flux writes 2Xyz with its sign in front where the locale has it, otherwise with an f.
    let of_flux = variable("FLUX_JOB_ID").filter(|id| *id == number);
    let number = of_flux.and_then(|id| id.strip_prefix('f').map(str::to_owned)).unwrap_or(number);
    let element = variable("LSB_JOBINDEX").filter(|index| index != "0");
    let number = element.map_or(number.clone(), |index| format!("{number}-{index}"));
    // PBS: 123[4].server.
    let number = number.split('.').next().unwrap_or_default();
    let fine = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = number.chars().map(fine).collect();
    let name = name.trim_matches('-').to_owned();
    (!name.is_empty()).then_some(name)
}

/// The lists of hosts of a heterogeneous job of Slurm's, by component; nothing in any other.
fn components(variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Vec<String>>> {
    let count = variable("SLURM_HET_SIZE").and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    let names = (0..count.min(COMPONENTS_MAX)).map(|k| format!("SLURM_JOB_NODELIST_HET_GROUP_{k}"));
    let lists = names.filter_map(|name| Some((variable(&name)?, name)));
    lists.map(|(list, name)| hosts::expand(&list).with_context(|| format!("${name}"))).collect()
}

/// The component of a heterogeneous job of Slurm's that has the host: steps are for one of them.
pub(super) fn component_of(host: &str) -> Option<usize> {
    let components = components(&|name| std::env::var(name).ok()).ok()?;
    components.iter().position(|hosts| hosts.iter().any(|other| other == host))
}

fn of_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Vec<String>>> {
    let components = components(variable)?;
    if !components.is_empty() {
        return Ok(Some(components.concat()));
    }
    for name in ["SLURM_JOB_NODELIST", "LSB_HOSTS"] {
        if let Some(list) = variable(name) {
            return hosts::expand(&list).with_context(|| format!("${name}")).map(Some);
        }
    }
    if let Some(list) = variable("LSB_MCPU_HOSTS") {
        // A host and its number of slots, again and again.
        let words: Vec<&str> = list.split_whitespace().step_by(2).collect();
        return hosts::expand(&words.join(",")).context("$LSB_MCPU_HOSTS").map(Some);
    }
    for name in ["PBS_NODEFILE", "OAR_NODEFILE"] {
        if let Some(file) = variable(name) {
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read ${name}, {file}"))?;
            return hosts::of_file(&text).with_context(|| format!("${name}, {file}")).map(Some);
        }
    }
    Ok(None)
}

fn of_flux() -> Result<Vec<String>> {
    let output = Command::new("flux")
        .args(["hostlist", "local"])
        .output()
        .context("$FLUX_URI is set, but the program `flux` cannot be run")?;
    if !output.status.success() {
        bail!("`flux hostlist local`: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    hosts::expand(&String::from_utf8_lossy(&output.stdout)).context("`flux hostlist local`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &'static str, value: &str) -> Result<Option<Vec<String>>> {
        let value = value.to_owned();
        of_variables(&move |asked| (asked == name).then(|| value.clone()))
    }

    #[test]
    fn the_variables_of_slurm_and_lsf_are_understood() {
        let hosts = |name, value| found(name, value).expect("good").expect("set").join(" ");
        assert_eq!(hosts("SLURM_JOB_NODELIST", "n[1-2,07],gpu3"), "n1 n2 n07 gpu3");
        assert_eq!(hosts("LSB_HOSTS", "a a b"), "a a b");
        assert_eq!(hosts("LSB_MCPU_HOSTS", "a 4 b 2"), "a b");
    }

    #[test]
    fn a_heterogeneous_job_has_the_hosts_of_all_its_components() {
        let set = [
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-2]"),
            ("SLURM_JOB_NODELIST_HET_GROUP_1", "gpu7"),
        ];
        let found = of_variables(&|name| {
            set.iter().find(|(set, _)| *set == name).map(|(_, is)| (*is).to_owned())
        });
        assert_eq!(found.expect("good").expect("set").join(" "), "n1 n2 gpu7");
    }

    #[test]
    fn a_job_has_a_number_that_may_be_in_a_name() {
        let number = |of: &'static [(&str, &str)]| {
            job_of(&|name| of.iter().find(|(set, _)| *set == name).map(|(_, is)| (*is).to_owned()))
        };
        assert_eq!(number(&[("SLURM_JOB_ID", "17")]).as_deref(), Some("17"));
        assert_eq!(number(&[("PBS_JOBID", "123[4].server.site")]).as_deref(), Some("123-4"));
        let lsf = number(&[("LSB_JOBID", "9"), ("LSB_JOBINDEX", "3")]);
        assert_eq!(lsf.as_deref(), Some("9-3"));
        assert_eq!(number(&[("LSB_JOBID", "9"), ("LSB_JOBINDEX", "0")]).as_deref(), Some("9"));
        assert_eq!(number(&[("FLUX_JOB_ID", "ƒ2Xyz")]).as_deref(), Some("2Xyz"));
        assert_eq!(number(&[("FLUX_JOB_ID", "f2Xyz")]).as_deref(), Some("2Xyz"));
        assert_eq!(number(&[]), None);
    }

    #[test]
    fn a_node_file_that_is_not_there_is_named() {
        let error = format!("{:#}", found("PBS_NODEFILE", "/nonexistent").expect_err("no file"));
        assert!(error.contains("PBS_NODEFILE"), "{error}");
        assert!(found("HOME", "/").expect("nothing wrong").is_none());
    }
}
