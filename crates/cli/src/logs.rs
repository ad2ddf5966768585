//! `mayfly logs`: what the nodes of an instance have to say, in order of time.

use std::{
    io::{self, Write},
    path::Path,
    time::UNIX_EPOCH,
};

use anyhow::{Result, bail, ensure};
use mayfly_deploy::{
    Config, Found, Line,
    nodes::{Logs, Members, Wanted, this_host},
    what_to_do,
};
use serde_json::json;

use crate::{arguments, instances};

pub(crate) fn logs(wanted: &arguments::Logs) -> Result<()> {
    let name = wanted.instance.clone().or_else(|| wanted.name.clone());
    let name = name.unwrap_or_else(|| arguments::Which::of_here().name());
    let (mut logs, members) = begin(&name, wanted)?;
    let mut out = io::stdout().lock();
    let mut missing = 0;
    loop {
        let line = logs.next_line()?;
        for trouble in logs.troubles() {
            missing += 1;
            let (node, host, why) = (trouble.node, trouble.host, trouble.why);
            eprintln!(
                "mayfly: the log of node {node} of {name:?}, on {host}, is not to be had: {why}"
            );
        }
        let Some(line) = line else { break };
        let text = show(&line, wanted.json, members.as_ref())?;
        match writeln!(out, "{text}") {
            // Who has read enough has gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    logs.finish();
    ensure!(missing == 0, "{missing} of the logs are missing; `mayfly status` shows the nodes");
    Ok(())
}

fn show(line: &Line, as_json: bool, members: Option<&Members>) -> Result<String> {
    if !as_json {
        return Ok(line.to_string());
    }
    let member = members.and_then(|members| members.nodes.get(line.node as usize));
    let host = member.map_or_else(this_host, |member| member.host.clone());
    let value = json!({
        "time": line.time(),
        "level": line.level,
        "node": line.node,
        "host": host,
        "part": line.part,
        "text": line.text,
    });
    Ok(serde_json::to_string(&value)?)
}

fn begin(name: &str, wanted: &arguments::Logs) -> Result<(Logs, Option<Members>)> {
    let since = wanted.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let since_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let (level, follow) = (wanted.level, wanted.follow);
    let what = Wanted { since_ms, level, follow };
    if let Some(members) = instances::members(name)? {
        let count = members.nodes.len();
        if let Some(node) = wanted.node {
            ensure!((node as usize) < count, "{name:?} has {count} nodes, the first is number 0");
        }
        return Ok((Logs::of_nodes(&members, wanted.node, what)?, Some(members)));
    }
    let config = one(name)?;
    if let Some(node) = wanted.node.filter(|node| *node > 0) {
        bail!("{name:?} has one node, number 0, and no node {node}");
    }
    Ok((Logs::of_one(&config, what)?, None))
}

/// An instance of one node, dead or alive.
fn one(name: &str) -> Result<Config> {
    match Found::look(name)? {
        Found::Running(config) => Ok(*config),
        Found::Stale(run_dir) => of_dead(name, &run_dir),
        Found::Absent => bail!(
            "there is no instance {name:?} on this machine. `mayfly status` lists those that run; \
             the log of one that has ended went with it"
        ),
    }
}

fn of_dead(name: &str, run_dir: &Path) -> Result<Config> {
    let config = Config::load(run_dir)?;
    eprintln!("mayfly: {name:?} is dead; this is what it left. {}", what_to_do(name, run_dir));
    Ok(config)
}
