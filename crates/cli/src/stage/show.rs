//! What a stage tells: a line that is kept up to date on a terminal, one every ten seconds
//! elsewhere, or an event a line.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use mayfly_stage::{Counts, Note, Problem, Report, Watcher, registry::Entry};
use serde_json::{Value, json};

use crate::{arguments::Staging, size};

/// Where there is no terminal.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// Events of progress.
const EVENT_EVERY: Duration = Duration::from_secs(1);

/// Where it is told.
pub(super) struct Screen<'a> {
    /// Where others see it.
    entry: Option<&'a Entry>,
    noted: Mutex<Instant>,
    begun: Instant,
    is_json: bool,
    is_quiet: bool,
    is_dry: bool,
    what: &'static str,
    bar: ProgressBar,
    last_progress: Mutex<Instant>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(staging: &Staging, inward: bool, entry: Option<&'a Entry>) -> Screen<'a> {
        let what = if inward { "in" } else { "out" };
        let on_terminal = io::stderr().is_terminal() && !staging.json;
        let bar = if on_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        let begun = Instant::now();
        Screen {
            entry,
            noted: Mutex::new(begun),
            begun,
            is_json: staging.json,
            is_quiet: staging.quiet && !on_terminal,
            is_dry: staging.dry_run,
            what,
            bar,
            last_progress: Mutex::new(begun),
        }
    }

    pub(super) fn say_resumed(&self) {
        if self.is_json {
            return event(json!({"event": "resumed"}));
        }
        eprintln!("mayfly: an earlier try did not end; what it has copied is not copied again");
    }

    pub(super) fn end(&self, report: &Report) {
        self.bar.finish_and_clear();
        if self.is_json {
            let mut value = json!({"event": "end", "whole": report.is_whole()});
            if let (Value::Object(all), Ok(Value::Object(counts))) =
                (&mut value, serde_json::to_value(report.counts))
            {
                all.extend(counts);
                all.insert("ended".to_owned(), report.ended.into());
                all.insert("nodes".to_owned(), shares(&report.nodes));
                all.insert("seconds".to_owned(), self.begun.elapsed().as_secs_f64().into());
            }
            return event(value);
        }
        if report.ended {
            eprintln!("mayfly: ended before all was done; the same command goes on from here");
        }
        let left = report.counts.failed + report.counts.open;
        if left > 0 {
            eprintln!("mayfly: {left} not copied, named above; the same command tries them again");
        }
        if !self.is_quiet || !report.is_whole() {
            let verb = if self.is_dry { "would stage" } else { "staged" };
            eprintln!("mayfly: {verb} {} {}", self.what, self.line(&report.counts));
            for (node, counts) in report.nodes.iter().filter(|(_, counts)| counts.files > 0) {
                let (files, bytes) = (counts.files, size::show(counts.bytes));
                eprintln!("mayfly:   {node}: {files} files, {bytes}");
            }
        }
    }

    fn line(&self, counts: &Counts) -> String {
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut line = format!(
            "{} files, {}, {} directories",
            counts.files,
            size::show(counts.bytes),
            counts.directories
        );
        let others = [
            (counts.unchanged, "unchanged"),
            (counts.deleted, "deleted"),
            (counts.left_out, "left out"),
            (counts.open, "open for writing"),
            (counts.waiting, "waited for"),
            (counts.failed, "failed"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            line += &format!(", {count} {what}");
        }
        let rate = (counts.bytes as f64 / seconds.max(1e-9)) as u64;
        line + &format!(
            " in {seconds:.1} s ({:.0} files/s, {}/s)",
            counts.files as f64 / seconds.max(1e-9),
            size::show(rate)
        )
    }

    fn problem(&self, kind: &str, path: &Path, problem: Problem) {
        if self.is_json {
            let errno = problem.errno().map(|errno| format!("{errno:?}"));
            return event(with_path(
                path,
                json!({"event": kind, "errno": errno, "error": problem.to_string()}),
            ));
        }
        self.bar.suspend(|| eprintln!("mayfly: {}: {problem}", path.display()));
    }
}

impl Watcher for Screen<'_> {
    fn note(&self, note: Note<'_>) {
        match note {
            Note::Failed(path, Problem::Open) => self.problem("open", path, Problem::Open),
            Note::Failed(path, problem) => self.problem("failed", path, problem),
            Note::LeftOut(path, problem) => self.problem("left_out", path, problem),
            Note::Without(node, why) if self.is_json => {
                event(json!({"event": "without", "node": node, "why": why}));
            }
            Note::Without(node, why) => {
                self.bar.suspend(|| eprintln!("mayfly: {node} takes no part: {why}"));
            }
            Note::NotKept(path, what) if self.is_json => {
                event(with_path(path, json!({"event": "not_kept", "what": what})));
            }
            Note::NotKept(path, what) => {
                self.bar.suspend(|| eprintln!("mayfly: {}: not kept: {what}", path.display()));
            }
            Note::WouldCopy(path, bytes) if self.is_json => {
                event(with_path(path, json!({"event": "would_copy", "bytes": bytes})));
            }
            Note::WouldCopy(path, bytes) => line(&format!("copy {bytes:>12} {}", path.display())),
            Note::WouldDelete(path) if self.is_json => {
                event(with_path(path, json!({"event": "would_delete"})));
            }
            Note::WouldDelete(path) => line(&format!("delete{:>11} {}", "", path.display())),
        }
    }

    fn progress(&self, counts: &Counts, nodes: &[(String, Counts)]) {
        if let Some(entry) = self.entry
            && is_time(&self.noted, EVENT_EVERY)
        {
            entry.progress(counts);
        }
        if self.is_json {
            if is_time(&self.last_progress, EVENT_EVERY) {
                let mut value = serde_json::to_value(counts).unwrap_or_default();
                value["event"] = "progress".into();
                value["nodes"] = shares(nodes);
                event(value);
            }
        } else if !self.bar.is_hidden() {
            self.bar.set_message(format!("stage {}: {}", self.what, self.line(counts)));
            self.bar.tick();
        } else if !self.is_dry && is_time(&self.last_progress, PROGRESS_EVERY) {
            eprintln!("mayfly: stage {}: {}", self.what, self.line(counts));
        }
    }
}

/// What other nodes have done.
fn shares(nodes: &[(String, Counts)]) -> Value {
    let share = |(node, counts): &(String, Counts)| {
        let (files, bytes) = (counts.files, counts.bytes);
        json!({"node": node, "files": files, "bytes": bytes})
    };
    nodes.iter().map(share).collect()
}

/// Is it time again?
fn is_time(last: &Mutex<Instant>, every: Duration) -> bool {
    let Ok(mut last) = last.lock() else { return false };
    let is_time = last.elapsed() >= every;
    if is_time {
        *last = Instant::now();
    }
    is_time
}

/// The path as text; its bytes too where it is none.
fn with_path(path: &Path, mut value: Value) -> Value {
    value["path"] = path.to_string_lossy().into();
    if path.to_str().is_none() {
        let bytes = path.as_os_str().as_encoded_bytes();
        value["path_hex"] =
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    }
    value
}

fn event(value: Value) {
    line(&value.to_string());
}

/// Whoever reads it may be gone, which ends nothing.
fn line(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}
