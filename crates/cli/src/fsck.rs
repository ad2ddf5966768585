//! `mayfly fsck`: whether what an instance keeps fits together.

use std::{io::IsTerminal, process::ExitCode, time::Duration};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use mayfly_deploy::fsck::{Checked, Kind, Stage, check, repair};
use serde_json::{Value, json};

use crate::{arguments, instances};

/// Something is wrong.
const WRONG: u8 = 1;
/// It could not be looked at.
const UNSEEN: u8 = 2;
/// Findings that are shown to people; `--json` has all of them.
const SHOWN_MAX: usize = 100;

pub(crate) fn fsck(wanted: &arguments::Fsck) -> ExitCode {
    match perform(wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) => {
            eprintln!("mayfly: {error:#}");
            ExitCode::from(UNSEEN)
        }
    }
}

/// Whether nothing is wrong, or nothing any more.
fn perform(wanted: &arguments::Fsck) -> Result<bool> {
    let name = wanted.which.name();
    // Whichever node runs, it can ask all others.
    let config = instances::any_node(&name).map_or_else(|| instances::running(&name), Ok)?;
    let bar = bar();
    let mut show = |stage: Stage| {
        bar.set_length(stage.all.into());
        bar.set_position(stage.done.into());
        bar.set_message(format!("look {}, {} records", stage.look, stage.facts));
    };
    let mut checked = check(&config, &mut show)?;
    if wanted.repair && checked.found.iter().any(|finding| finding.stray.is_some()) {
        repair(&config, &mut checked)?;
        let after = check(&config, &mut show)?;
        let repaired = std::mem::take(&mut checked.repaired);
        checked = Checked { repaired, ..after };
    }
    bar.finish_and_clear();
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&json(&name, &checked)?)?);
    } else {
        print(&name, &checked);
    }
    Ok(checked.found.is_empty())
}

fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} looking: {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn count(checked: &Checked, kind: Kind) -> usize {
    checked.found.iter().filter(|finding| finding.kind == kind).count()
}

fn json(name: &str, checked: &Checked) -> Result<Value> {
    let wrong = Kind::ALL.iter().map(|kind| {
        let key = serde_json::to_value(kind)?.as_str().unwrap_or_default().to_owned();
        Ok((key, json!(count(checked, *kind))))
    });
    let repaired = checked.repaired.iter().map(|(stray, removed)| {
        let why = removed.err().map(|errno| errno.to_string());
        json!({ "node": stray.node, "object": stray.id.path(), "error": why })
    });
    Ok(json!({
        "name": name,
        "nodes": checked.nodes,
        "shards": checked.shards,
        "looks": checked.looks,
        "looked_at": serde_json::to_value(checked.counts)?,
        "wrong": wrong.collect::<Result<serde_json::Map<_, _>>>()?,
        "found": serde_json::to_value(&checked.found)?,
        "removed": repaired.collect::<Vec<_>>(),
    }))
}

fn print(name: &str, checked: &Checked) {
    let counts = &checked.counts;
    let plural =
        |count: u32, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    println!("{name}, {}, {}", plural(checked.nodes, "node"), plural(checked.shards, "shard"));
    let row = |what: &str, count: u64, kinds: &[Kind]| {
        let wrong: usize = kinds.iter().map(|kind| self::count(checked, *kind)).sum();
        println!("  {what:12}  {count:>12}  {wrong:>8}");
    };
    println!("  {:12}  {:>12}  {:>8}", "", "looked at", "wrong");
    row("names", counts.names, &[Kind::Name]);
    row("files", counts.files, &[Kind::File, Kind::Links, Kind::Content, Kind::Length]);
    row("directories", counts.directories, &[Kind::Directory]);
    row("objects", counts.objects, &[Kind::Object]);
    row("parts", counts.parts, &[Kind::Part]);
    row("descriptions", counts.descriptions, &[Kind::Description]);
    row("operations", counts.operations, &[Kind::Operation]);
    row("records", counts.records, &[Kind::Mark, Kind::Record]);
    for (stray, removed) in &checked.repaired {
        let object = stray.id.path();
        match removed {
            Ok(()) => println!("removed object {object} of node {}", stray.node),
            Err(errno) => println!("object {object} of node {} stays: {errno}", stray.node),
        }
    }
    for finding in checked.found.iter().take(SHOWN_MAX) {
        println!("{}: {finding}", finding.kind.words());
    }
    if checked.found.len() > SHOWN_MAX {
        println!("... {} more; --json shows all", checked.found.len() - SHOWN_MAX);
    }
    match checked.found.len() {
        0 => println!("nothing is wrong"),
        wrong => println!("{wrong} things are wrong, in each of {} looks", checked.looks),
    }
}
