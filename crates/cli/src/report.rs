//! `mayfly report`: what programs did with an instance, and whether that was good.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use mayfly_deploy::Depth;
use mayfly_report::{Report, page};

use crate::{arguments, metrics, size};

pub(crate) fn report(wanted: &arguments::ReportOf) -> Result<()> {
    let name = wanted.which.name();
    let report = gather(&name, None)?;
    if let Some(output) = &wanted.output {
        return write(&report, output);
    }
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// Where `mayfly run --report` will write, before the job begins: who waits for a job wants to know
/// then that it cannot.
pub(crate) fn check_output(output: &Path) -> Result<PathBuf> {
    // The command may go to another directory, and this one too.
    let output = std::path::absolute(output)?;
    match output.parent() {
        Some(parent) if parent.is_dir() => {}
        _ => bail!("--report: there is no directory for {}", output.display()),
    }
    if output.is_dir() {
        bail!("--report: {} is a directory; name a file in it", output.display());
    }
    Ok(output)
}

/// The report of a command that has ended, as long as its instance is there. That it cannot be made
/// does not make the job fail.
pub(crate) fn of_run(name: &str, command: &[OsString], output: &Path) {
    let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match gather(name, Some(words)).and_then(|report| write(&report, output)) {
        Ok(()) => eprintln!("mayfly: the report is in {}", output.display()),
        Err(error) => eprintln!("mayfly: no report: {error:#}"),
    }
}

fn gather(name: &str, command: Option<Vec<String>>) -> Result<Report> {
    let scope = arguments::Scope { name: Some(name.to_owned()), all_nodes: true };
    let nodes = metrics::nodes(&scope, Depth::Everything)?;
    Ok(Report::of(name, command, &nodes))
}

fn write(report: &Report, output: &Path) -> Result<()> {
    let text = if output.extension().is_some_and(|extension| extension == "json") {
        serde_json::to_string_pretty(report)? + "\n"
    } else {
        page(report)
    };
    fs::write(output, text).with_context(|| format!("cannot write {}", output.display()))
}

/// The most important of it, on a terminal.
fn print(report: &Report) {
    let work = &report.work;
    println!(
        "{}: {} nodes, {:.1} s, {} processes",
        report.name,
        report.nodes.len(),
        report.seconds,
        report.processes_seen
    );
    println!(
        "{} operations, {} read, {} written; {} files, {} in use",
        work.count(),
        size::show(work.read()),
        size::show(work.written()),
        report.files,
        size::show(report.used_bytes)
    );
    let mut kinds: Vec<_> =
        work.operations.iter().map(|(kind, ways)| (ways.values().sum::<u64>(), kind)).collect();
    kinds.sort_unstable_by(|one, other| other.cmp(one));
    let told: Vec<String> = kinds.iter().map(|(count, kind)| format!("{kind} {count}")).collect();
    println!("{}", told.join(", "));
    for finding in &report.findings {
        println!("\n* {}\n  {}", finding.what, finding.advice);
    }
    println!("\n`mayfly report --output report.html` writes all of it, for a browser.");
}
