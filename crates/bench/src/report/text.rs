//! The table, for a terminal and for a page of Markdown.

use std::fmt::Write;

use super::cells::{mib, ratio, short, spread};
use super::results::{Measured, PhaseReport, Report};
use crate::workloads::{Family, settings::Scaling};

/// Where the table is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Columns by spaces.
    Terminal,
    /// A table of Markdown.
    Markdown,
}

const HEADS: [&str; 13] = [
    "phase",
    "target",
    "ops/s",
    "MiB/s",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "max µs",
    "ratio (span)",
    "raw",
    "client µs",
    "daemon µs",
    "MiB c/d",
];
/// Families whose ratios have a mean.
const VERDICTS: [(&str, Family); 5] = [
    ("meta", Family::Meta),
    ("data", Family::Data),
    ("find", Family::Find),
    ("patterns", Family::Patterns),
    ("tools", Family::Tools),
];
/// Columns that are read as words, from the left.
const WORDS: usize = 2;

/// The whole report.
#[must_use]
pub fn table(report: &Report, style: Style) -> String {
    let mut text = String::new();
    for line in preface(report) {
        let lead = if style == Style::Markdown { "- " } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{lead}{line}");
    }
    for procs in &report.settings.procs {
        let plural = if *procs == 1 { "process" } else { "processes" };
        let title = format!("{procs} {plural}");
        let mark = if style == Style::Markdown { "### " } else { "" };
        let _ = writeln!(text, "\n{mark}{title}\n");
        let phases = report.phases.iter().filter(|phase| phase.procs == *procs);
        let rows: Vec<Vec<String>> = phases.flat_map(rows).collect();
        text.push_str(&grid(&HEADS, WORDS, &rows, style));
    }
    let mark = if style == Style::Markdown { "### " } else { "" };
    if report.settings.procs.len() > 1 {
        let (title, heads, rows) = scaling(report);
        let _ = writeln!(text, "\n{mark}{title}\n");
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        text.push_str(&grid(&heads, WORDS, &rows, style));
    }
    let (heads, rows) = verdict(report);
    if !rows.is_empty() && heads.len() > WORDS {
        let title = "geometric means of the ratios (above 1: faster than";
        let _ = writeln!(text, "\n{mark}{title} {})\n", report.reference);
        text.push_str(&grid(&heads, WORDS, &rows, style));
    }
    text
}

fn preface(report: &Report) -> Vec<String> {
    let machine = &report.machine;
    let mut lines = vec![format!(
        "machine: {} processors, {} MiB of memory, Linux {}; {} runs; ratios to {}",
        machine.cpus,
        mib(machine.memory_bytes),
        machine.kernel,
        report.settings.runs,
        report.reference
    )];
    for target in &report.targets {
        let kind = if target.is_instance { "instance with data in" } else { "directory" };
        lines.push(format!(
            "{}: {kind} {} ({}); the loop itself takes {:.0} ns an operation",
            target.label,
            target.directory.display(),
            target.file_system,
            target.loop_ns
        ));
    }
    for device in &report.devices {
        for rates in &device.rates {
            lines.push(format!(
                "raw rate below {} ({}, streams: {}): write {} MiB/s, read {} MiB/s",
                device.targets.join(", "),
                device.how,
                rates.streams,
                spread(&rates.write_mib_per_s),
                spread(&rates.read_mib_per_s)
            ));
        }
    }
    lines.extend(report.cold.iter().map(|how| format!("cold: {how}")));
    lines
}

fn rows(phase: &PhaseReport) -> Vec<Vec<String>> {
    let row = |(index, measured): (usize, &Measured)| {
        let name = if index == 0 { phase.phase.clone() } else { String::new() };
        row(name, measured)
    };
    phase.targets.iter().enumerate().map(row).collect()
}

fn row(name: String, measured: &Measured) -> Vec<String> {
    let latency = &measured.latency;
    let share = |of: &crate::Summary| format!("{:.0}%", of.median * 100.0);
    vec![
        name,
        measured.target.clone(),
        spread(&measured.ops_per_s),
        measured.mib_per_s.as_ref().map_or_else(String::new, |rate| short(rate.mean)),
        short(latency.p50_us),
        short(latency.p99_us),
        short(latency.p999_us),
        short(latency.max_us),
        measured.ratio.as_ref().map_or_else(String::new, ratio),
        measured.raw_share.as_ref().map_or_else(String::new, share),
        short(measured.client_cpu_us),
        short(measured.daemon_cpu_us),
        format!("{}/{}", mib(measured.client_peak_bytes), mib(measured.daemon_peak_bytes)),
    ]
}

/// One line for each number of processes and target: what to tell somebody in a hurry. Geometric
/// means, as IO500 takes them, since no phase is worth more than another.
fn verdict(report: &Report) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let families: Vec<_> = VERDICTS
        .iter()
        .filter(|(_, family)| report.phases.iter().any(|phase| phase.family == *family))
        .collect();
    let mean = |procs, target: &str, family| {
        let phases = report.phases.iter().filter(|p| p.procs == procs && p.family == family);
        let measured = phases.flat_map(|phase| &phase.targets).filter(|m| m.target == target);
        let logs: Vec<f64> = measured.filter_map(|m| Some(m.ratio?.median.ln())).collect();
        let count = logs.len() as f64;
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / count).exp())
    };
    let mut rows = Vec::new();
    for procs in &report.settings.procs {
        let others = report.targets.iter().filter(|target| target.label != report.reference);
        for target in others {
            let means = families.iter().map(|(_, family)| mean(*procs, &target.label, *family));
            let mut row = vec![procs.to_string(), target.label.clone()];
            row.extend(
                means.map(|mean| mean.map_or_else(String::new, |mean| format!("{mean:.2}"))),
            );
            rows.push(row);
        }
    }
    let words = families.iter().map(|(word, _)| *word);
    (["processes", "target"].into_iter().chain(words).collect(), rows)
}

/// Rates with more processes, and how much of the ideal that is.
fn scaling(report: &Report) -> (String, Vec<String>, Vec<Vec<String>>) {
    let procs = &report.settings.procs;
    let title = match report.settings.scaling {
        Scaling::Weak => "weak scaling: the same work for each process",
        Scaling::Strong => "strong scaling: the same work for all processes together",
    };
    let title = format!("{title}; median ops/s, and as a part of {} times more", "procs");
    let mut heads = vec!["phase".to_owned(), "target".to_owned()];
    heads.extend(procs.iter().map(|procs| format!("{procs} procs")));
    let first = report.phases.iter().filter(|phase| Some(&phase.procs) == procs.first());
    let mut rows = Vec::new();
    for phase in first {
        for (index, base) in phase.targets.iter().enumerate() {
            let mut row = vec![phase.phase.clone(), base.target.clone()];
            row.extend(procs.iter().map(|procs| scaled(report, phase, *procs, index, base)));
            rows.push(row);
        }
    }
    (title, heads, rows)
}

fn scaled(
    report: &Report,
    base: &PhaseReport,
    procs: u32,
    target: usize,
    one: &Measured,
) -> String {
    let same = |phase: &&PhaseReport| phase.procs == procs && phase.phase == base.phase;
    let Some(measured) = report.phases.iter().find(same).and_then(|p| p.targets.get(target)) else {
        return String::new();
    };
    let rate = measured.ops_per_s.median;
    let ideal = one.ops_per_s.median * f64::from(procs) / f64::from(base.procs);
    format!("{} {:.0}%", short(rate), rate / ideal * 100.0)
}

fn grid(heads: &[&str], words: usize, rows: &[Vec<String>], style: Style) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        cells.chain([heads[column]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let mut text = line(&heads, words, &widths, style);
    if style == Style::Markdown {
        let rule = |column| if column < words { "---|" } else { "---:|" };
        let rules: String = (0..heads.len()).map(rule).collect();
        let _ = writeln!(text, "|{rules}");
    }
    for row in rows {
        text.push_str(&line(row, words, &widths, style));
    }
    text
}

fn line(cells: &[String], words: usize, widths: &[usize], style: Style) -> String {
    if style == Style::Markdown {
        return format!("| {} |\n", cells.join(" | "));
    }
    let mut text = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = if index < words {
            write!(text, "{cell:width$}  ")
        } else {
            write!(text, "{cell:>width$}  ")
        };
    }
    format!("{}\n", text.trim_end())
}
