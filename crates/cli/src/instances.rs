//! Instances that there are, by the names that users give them.
//!
//! What stands in the run directories of this machine is all that is looked at, and what is
//! remembered of instances that were started from here. An instance of several nodes may have
//! several run directories on one machine: that of its first node here has the instance's name, the
//! others have `name@NUMBER`.
//!
//! Nothing is started or ended here, and no running instance is asked anything.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, Result, bail, ensure};
use mayfly_deploy::{
    Config, Found, Members, default_run_root,
    nodes::{names_elsewhere, remembered},
    what_is_left, whole_name,
};

/// Which node of an instance of several, for commands that do not say it.
const NODE: &str = "MAYFLY_NODE";

/// Names of run directories.
pub(crate) fn names() -> Vec<String> {
    let entries = std::fs::read_dir(default_run_root()).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join("lock").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Those of nodes that share this machine with another one of their instance.
pub(crate) fn names_of_nodes(name: &str) -> Vec<String> {
    let mut names = names();
    names.retain(|node| node.strip_prefix(name).is_some_and(|rest| rest.starts_with('@')));
    names
}

/// Names of instances on this machine, those of several nodes once.
pub(crate) fn instances_here() -> BTreeSet<String> {
    names().iter().map(|name| whole_name(name).to_owned()).collect()
}

/// The same, with those that were started from here and are elsewhere.
pub(crate) fn instances() -> BTreeSet<String> {
    instances_here().into_iter().chain(names_elsewhere()).collect()
}

/// The running instance of this machine that has the path.
pub(crate) fn instance_of(path: &Path) -> Option<Config> {
    names().into_iter().find_map(|name| match Found::look(&name) {
        Ok(Found::Running(config)) if path.starts_with(&config.mount) => Some(*config),
        _ => None,
    })
}

/// The configuration of a running instance, or an error that says what there is instead.
pub(crate) fn running(name: &str) -> Result<Config> {
    match Found::look(name)? {
        Found::Running(config) => Ok(*config),
        Found::Stale(run_dir) => bail!(what_is_left(name, &run_dir)),
        Found::Absent => bail!("no instance {name:?}; `mayfly status` lists those that run"),
    }
}

/// The instance, as seen from one of its nodes on this machine.
pub(crate) fn node(name: &str, wanted: Option<u32>) -> Result<Config> {
    let usual = std::env::var(NODE).ok().filter(|text| !text.is_empty());
    let usual = usual.map(|text| text.parse().with_context(|| format!("{NODE}={text}")));
    if let Some(node) = wanted.map(Ok).or(usual).transpose()? {
        let config = of_node(name, node)?;
        ensure!(
            config.serves_programs,
            "node {node} of {name:?} serves no programs: it is not among the --clients of its start"
        );
        return Ok(config);
    }
    let first = running(name);
    if first.as_ref().is_ok_and(|config| config.serves_programs) {
        return first;
    }
    let others = names_of_nodes(name).into_iter().filter_map(|name| running(&name).ok());
    let others = others.filter(|config| config.serves_programs);
    match others.min_by_key(|config| config.node) {
        Some(config) => Ok(config),
        None if first.is_ok() => bail!("no node of {name:?} here is among its --clients"),
        None => first,
    }
}

/// A node of the instance on this machine.
pub(crate) fn any_node(name: &str) -> Option<Config> {
    let others = names_of_nodes(name).into_iter().filter_map(|name| running(&name).ok());
    running(name).ok().or_else(|| others.min_by_key(|config| config.node))
}

/// The nodes of an instance, from whatever node of it is on this machine, or since it was started
/// from here; `None` when it has one node, or there is no such instance.
pub(crate) fn members(name: &str) -> Result<Option<Members>> {
    for name in std::iter::once(name.to_owned()).chain(names_of_nodes(name)) {
        let run_dir = match Found::look(&name)? {
            Found::Running(config) => config.run_dir,
            Found::Stale(run_dir) => run_dir,
            Found::Absent => continue,
        };
        if let Some(members) = Members::load(&run_dir)? {
            return Ok(Some(members));
        }
    }
    remembered(name)
}

/// The configuration of node `node` of the instance `name`, which must be on this machine.
pub(crate) fn of_node(name: &str, node: u32) -> Result<Config> {
    for name in std::iter::once(name.to_owned()).chain(names_of_nodes(name)) {
        match Found::look(&name) {
            Ok(Found::Running(config)) if config.node.unwrap_or(0) == node => return Ok(*config),
            _ => {}
        }
    }
    match members(name)? {
        Some(members) => match members.nodes.get(node as usize) {
            Some(member) => {
                bail!("node {node} of {name:?} does not run here; its host is {}", member.host)
            }
            None => bail!("{name:?} has {} nodes, the first is number 0", members.nodes.len()),
        },
        None => running(name),
    }
}
