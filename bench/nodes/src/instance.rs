//! The instance that is measured.

use std::path::PathBuf;

use anyhow::{Context, Result};
use mayfly_testkit::{Instance, Job, Running, Scratch, process};
use serde_json::Value;

/// Starts an instance of so many nodes on this machine. All names are where [`crate::placing`]
/// computes that they hash to.
pub(crate) fn start<'a>(scratch: &'a Scratch, name: &str, nodes: usize) -> Result<Instance<'a>> {
    start_with(scratch, name, nodes, &["--names", "spread"])
}

/// The same, with directories that are where they are made.
pub(crate) fn start_whole<'a>(
    scratch: &'a Scratch,
    name: &str,
    nodes: usize,
) -> Result<Instance<'a>> {
    start_with(scratch, name, nodes, &[])
}

fn start_with<'a>(
    scratch: &'a Scratch,
    name: &str,
    nodes: usize,
    options: &[&str],
) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    let start = instance.command("start").args(["--nodes", &format!("local:{nodes}")]);
    start.args(options).run_ok()?;
    Ok(instance)
}

/// Starts one whose first node stores nothing, besides so many that do.
pub(crate) fn start_apart<'a>(
    scratch: &'a Scratch,
    name: &str,
    servers: usize,
    options: &[&str],
) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    let (nodes, servers) = (format!("local:{}", servers + 1), format!("@[1-{servers}]"));
    let start = instance.command("start").args(["--nodes", &nodes, "--servers", &servers]);
    start.args(options).run_ok()?;
    Ok(instance)
}

fn program() -> Result<PathBuf> {
    std::env::current_exe().context("this program has a path")
}

/// This program in another role, on one node of the instance; what it printed.
pub(crate) fn child(instance: &Instance<'_>, node: usize, words: &[&str]) -> Result<String> {
    let outcome = job_of_child(instance, (node, 0), words)?.run_ok()?;
    Ok(String::from_utf8(outcome.stdout)?)
}

/// The same, one of several at a time, by number.
pub(crate) fn start_child<'a>(
    instance: &Instance<'a>,
    (node, number): (usize, usize),
    words: &[&str],
) -> Result<Running<'a>> {
    job_of_child(instance, (node, number), words)?.start()
}

fn job_of_child<'a>(
    instance: &Instance<'a>,
    (node, number): (usize, usize),
    words: &[&str],
) -> Result<Job<'a>> {
    let mut script = format!("exec '{}'", program()?.display());
    for word in words {
        script.push_str(&format!(" '{word}'"));
    }
    let label = format!("{}-{}-{number}", instance.name(), words.first().context("a role")?);
    let job = instance.shell(&label, &script).env("MAYFLY_NODE", node.to_string());
    Ok(job.deadline(std::time::Duration::from_secs(600)))
}

/// This program in another role, outside of any instance.
pub(crate) fn beside<'a>(scratch: &'a Scratch, words: &[&str]) -> Result<Job<'a>> {
    Ok(Job::new(scratch, words.first().context("a role")?, program()?).args(words))
}

/// Where the child works: the mount point.
pub(crate) fn mount() -> Result<PathBuf> {
    std::env::var_os("MAYFLY_MOUNT").map(PathBuf::from).context("a child has the mount point")
}

/// The nodes as `mayfly status` has them.
pub(crate) fn nodes(instance: &Instance<'_>) -> Result<Vec<Value>> {
    let status = instance.status()?;
    status.get("nodes").and_then(Value::as_array).cloned().context("no list of nodes")
}

/// Daemons and supervisors.
pub(crate) fn processes(instance: &Instance<'_>) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for node in nodes(instance)? {
        let daemon = node.get("daemon_pid").and_then(Value::as_u64).context("a daemon")?;
        let daemon = u32::try_from(daemon)?;
        found.push(daemon);
        found.extend(process::parent(daemon));
    }
    Ok(found)
}
