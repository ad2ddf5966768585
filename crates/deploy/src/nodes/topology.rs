//! Pools from the network's topology, as Slurm knows it: one for each leaf switch.
//!
//! `scontrol show topology` prints, with the plugin topology/tree, one line for each switch:
//! `SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-3]`. Level 0 are leaves; switches of higher levels
//! name the nodes below them as well. The order of the words and LinkSpeed are not relied on.

use std::{collections::HashSet, process::Command};

use anyhow::{Context, Result, bail, ensure};
use mayfly_daemon::{Pool, is_name};

use super::{hosts, pools::POOLS_MAX};

/// Asks Slurm, for an instance with these hosts.
///
/// # Errors
/// When Slurm does not answer, or its topology has no switches, or no host is below one.
pub fn pools_of_the_topology(hosts: &[String]) -> Result<Vec<Pool>> {
    let output = Command::new("scontrol")
        .args(["show", "topology"])
        .output()
        .context("--pools topology asks Slurm, and the program `scontrol` cannot be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`scontrol show topology`: {}", said.trim());
    pools_of(&String::from_utf8_lossy(&output.stdout), hosts).context("`scontrol show topology`")
}

/// The pools of the leaf switches that this text names. Switches without a host of the instance
/// have none.
fn pools_of(text: &str, hosts: &[String]) -> Result<Vec<Pool>> {
    let mut pools: Vec<Pool> = Vec::new();
    let mut switches = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        ensure!(
            word(line, "BlockName").is_none(),
            "Slurm has a topology of blocks here, which have no leaf switches: name pools with \
             --pool NAME=LIST"
        );
        let Some(name) = word(line, "SwitchName") else { continue };
        switches += 1;
        if word(line, "Level") != Some("0") {
            continue;
        }
        let list = word(line, "Nodes").with_context(|| format!("{line:?} names no nodes"))?;
        let pool = pool(name, list, hosts).with_context(|| format!("the switch {name:?}"))?;
        ensure!(pools.iter().all(|other| other.name != pool.name), "{name:?} is there twice");
        if !pool.nodes.is_empty() {
            pools.push(pool);
        }
    }
    if switches == 0 {
        bail!("Slurm knows no switches here: name pools with --pool NAME=LIST");
    }
    ensure!(!pools.is_empty(), "none of the instance's hosts is below one of its leaf switches");
    ensure!(pools.len() <= POOLS_MAX, "an instance has at most {POOLS_MAX} pools");
    Ok(pools)
}

fn pool(name: &str, list: &str, hosts: &[String]) -> Result<Pool> {
    ensure!(is_name(name), "a pool cannot have that name: name pools with --pool NAME=LIST");
    let below: HashSet<String> = match list {
        "" | "(null)" => HashSet::new(),
        list => hosts::expand(list)?.into_iter().collect(),
    };
    let numbered = (0_u32..).zip(hosts);
    let nodes = numbered.filter(|(_, host)| below.contains(*host)).map(|(node, _)| node);
    Ok(Pool { name: name.to_owned(), nodes: nodes.collect() })
}

/// The value of this name in a line.
fn word<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let words = line.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    words.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slurm 22 and 23.
    const WITH_SPEED: &str = "\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[01-02]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[03-04],login
SwitchName=leaf3 Level=0 LinkSpeed=1 Nodes=n[05-06]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=login,n[01-06] Switches=leaf[1-3]
";
    /// Slurm 24 and later.
    const WITHOUT_SPEED: &str = "\
SwitchName=leaf1 Level=0 Nodes=n[01-02]
SwitchName=leaf2 Level=0 Nodes=n[03-04],login

SwitchName=leaf3 Level=0 Nodes=n[05-06]
SwitchName=spine Level=1 Nodes=login,n[01-06] Switches=leaf[1-3]
";
    const BLOCKS: &str = "BlockName=b1 BlockIndex=0 Nodes=n[01-04] BlockSize=4\n";

    fn hosts(list: &str) -> Vec<String> {
        hosts::expand(list).expect("a list")
    }

    fn of(text: &str, list: &str) -> Result<Vec<(String, Vec<u32>)>> {
        let pools = pools_of(text, &hosts(list))?;
        Ok(pools.into_iter().map(|pool| (pool.name, pool.nodes)).collect())
    }

    #[test]
    fn each_leaf_switch_with_a_host_of_the_instance_is_a_pool() {
        for text in [WITH_SPEED, WITHOUT_SPEED] {
            // A host that has two nodes, and one that is below no switch.
            let pools = of(text, "n04,n01,n02,n04,other").expect("pools");
            let wanted = [("leaf1", vec![1, 2]), ("leaf2", vec![0, 3])];
            assert_eq!(pools, wanted.map(|(name, nodes)| (name.to_owned(), nodes)));
        }
    }

    #[test]
    fn what_has_no_leaf_switches_is_refused_with_what_to_do() {
        let error = |text, list| format!("{:#}", of(text, list).expect_err("no pools"));
        assert!(error(BLOCKS, "n01").contains("blocks"), "{}", error(BLOCKS, "n01"));
        for text in ["", "No topology information available\n"] {
            assert!(error(text, "n01").contains("--pool NAME=LIST"));
        }
        assert!(error(WITH_SPEED, "elsewhere").contains("none of the instance's hosts"));
        assert!(error("SwitchName=s Level=0 Nodes=n[2-1]\n", "n01").contains("\"s\""));
        assert!(error("SwitchName=a/b Level=0 Nodes=n01\n", "n01").contains("a/b"));
        assert!(error("SwitchName=s Level=0 LinkSpeed=1\n", "n01").contains("names no nodes"));
    }
}
