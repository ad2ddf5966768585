//! Instances of several nodes, as the user sees them.

use std::{io::IsTerminal, time::Duration};

use anyhow::{Result, anyhow, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use mayfly_deploy::{
    Depth, Members, Pool,
    nodes::{Fleet, Launch, NodeReport, NodeState, Progress, Trouble, is_this_machine, report_all},
};
use serde_json::{Value, json};

use crate::{size, stage};

/// Starts all nodes, with a line of progress on a terminal.
pub(crate) fn launch(launch: &Launch) -> Result<Fleet> {
    let bar = bar(launch.hosts.len());
    let started = launch.start(&mut |now: Progress| {
        // Each node is counted twice: when it listens, and when it serves.
        bar.set_position((now.listening + now.ready) as u64);
        bar.set_message(format!("{} of {} nodes serve", now.ready, now.count));
    });
    bar.finish_and_clear();
    started
}

fn bar(count: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(2 * count as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} starting: {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The command of `mayfly run` is a child of ours, so the first node must be here.
pub(crate) fn expect_first_here(launch: &Launch) -> Result<()> {
    let first = launch.hosts.first().map_or("", String::as_str);
    ensure!(
        is_this_machine(first),
        "`mayfly run` runs the command on the first node, which must be this machine, and \
         {first:?} is not. Put this machine first, or use `mayfly start`"
    );
    ensure!(
        launch.roles()?.first().is_some_and(|roles| roles.client),
        "`mayfly run` runs the command on the first node, which is not among --clients: put it \
         there, or a client first"
    );
    Ok(())
}

/// Tells the user what was lost with daemons that died.
pub(crate) fn say_lost(name: &str, lost: &[Trouble]) {
    for Trouble { node, host, why, .. } in lost {
        eprintln!(
            "mayfly: the content of node {node} of {name:?}, on {host}, was lost before its end: \
             {why}"
        );
    }
}

/// A number in a node's report.
fn number(report: &Value, field: &str) -> u64 {
    report.get(field).and_then(Value::as_u64).unwrap_or(0)
}

fn sum(reports: &[NodeReport], field: &str) -> u64 {
    let answers = reports.iter().filter_map(|report| match &report.state {
        NodeState::Answers(report) => Some(number(report, field)),
        NodeState::Unreachable { .. } => None,
    });
    answers.sum()
}

/// What is wrong, of each node with which something is.
fn troubles(reports: &[NodeReport]) -> Vec<String> {
    let trouble = |report: &NodeReport| {
        let why = match &report.state {
            NodeState::Answers(value) => value.get("trouble")?.as_str()?.to_owned(),
            NodeState::Unreachable { why, .. } => why.clone(),
        };
        Some(format!("node {} on {}: {why}", report.node, report.host))
    };
    reports.iter().filter_map(trouble).collect()
}

/// All that is known of an instance, as JSON.
fn json(members: &Members, reports: &[NodeReport]) -> Result<Value> {
    let total = |field| sum(reports, field);
    let serving = reports.iter().filter(|report| state(report) == "serving").count();
    Ok(json!({
        "name": members.name,
        "instance": members.instance,
        "state": if serving == reports.len() { "serving" } else { "degraded" },
        "serving": serving,
        "used_bytes": total("used_bytes"),
        "daemons_per_host": members.daemons,
        "capacity_bytes": total("capacity_bytes"),
        "free_bytes": total("free_bytes"),
        "requests": total("requests"),
        "sessions": total("sessions"),
        "open_files": total("open_files"),
        "locks": total("locks"),
        "pools": pools(reports),
        "nodes": serde_json::to_value(reports)?,
    }))
}

/// The pools, from whichever node answers.
fn pools(reports: &[NodeReport]) -> Value {
    let of = |report: &NodeReport| match &report.state {
        NodeState::Answers(value) => value.get("options")?.get("pools").cloned(),
        NodeState::Unreachable { .. } => None,
    };
    reports.iter().find_map(of).unwrap_or_else(|| json!([]))
}

/// Numbers of nodes for people: `0-3, 8`.
fn runs(nodes: &[u32]) -> String {
    let of = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        one => one.first().map_or_else(String::new, u32::to_string),
    };
    let runs: Vec<String> = nodes.chunk_by(|one, next| one + 1 == *next).map(of).collect();
    runs.join(", ")
}

fn state(report: &NodeReport) -> &str {
    match &report.state {
        NodeState::Answers(value) => value.get("state").and_then(Value::as_str).unwrap_or("?"),
        NodeState::Unreachable { state, .. } => state,
    }
}

/// One instance: its JSON, or a table for people; and what is wrong with it.
pub(crate) fn status(members: &Members, as_json: bool) -> Result<(Option<Value>, Result<()>)> {
    let reports = report_all(members, Depth::Sums)?;
    let stages = stage::running_here(&members.name);
    let value = if as_json {
        let mut value = json(members, &reports)?;
        value["stages"] = stages;
        Some(value)
    } else {
        print(members, &reports);
        for stage in stages.as_array().into_iter().flatten() {
            let text = |field: &str| stage[field].as_str().unwrap_or_default().to_owned();
            println!("stage {} on node {}: {}", stage["id"], stage["node"], text("what"));
        }
        None
    };
    let troubles = troubles(&reports);
    let trouble = match troubles.len() {
        0 => Ok(()),
        count => Err(anyhow!(
            "{count} of {} nodes of {:?} do not serve:\n  {}",
            reports.len(),
            members.name,
            troubles.join("\n  ")
        )),
    };
    Ok((value, trouble))
}

const COLUMNS: [&str; 10] = [
    "node",
    "host",
    "address",
    "roles",
    "capacity",
    "used",
    "free",
    "operations",
    "sessions",
    "state",
];

fn print(members: &Members, reports: &[NodeReport]) {
    let each = match members.daemons {
        1 => String::new(),
        count => format!(", {count} daemons on each host"),
    };
    println!("{}, {} nodes{each}", members.name, reports.len());
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(reports.iter().map(row));
    let total = |field| sum(reports, field);
    rows.push([
        "all".to_owned(),
        String::new(),
        String::new(),
        String::new(),
        size::show(total("capacity_bytes")),
        size::show(total("used_bytes")),
        size::show(total("free_bytes")),
        total("requests").to_string(),
        total("sessions").to_string(),
        String::new(),
    ]);
    let mut widths = [0; COLUMNS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    let pools: Vec<Pool> = serde_json::from_value(pools(reports)).unwrap_or_default();
    for pool in pools {
        println!("  pool {}: nodes {}", pool.name, runs(&pool.nodes));
    }
}

fn row(report: &NodeReport) -> [String; COLUMNS.len()] {
    let counted = |field: &str, show: fn(u64) -> String| match &report.state {
        NodeState::Answers(value) => {
            value.get(field).and_then(Value::as_u64).map_or_else(|| "-".to_owned(), show)
        }
        NodeState::Unreachable { .. } => "-".to_owned(),
    };
    let plain: fn(u64) -> String = |number| number.to_string();
    [
        report.node.to_string(),
        report.host.clone(),
        report.address.to_string(),
        report.roles.to_string(),
        counted("capacity_bytes", size::show),
        counted("used_bytes", size::show),
        counted("free_bytes", size::show),
        counted("requests", plain),
        counted("sessions", plain),
        state(report).to_owned(),
    ]
}
