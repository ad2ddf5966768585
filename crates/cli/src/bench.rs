//! `mayfly bench`: from the command line to places and settings, and from the report to its files.

mod sweep;

use std::{
    ffi::OsString,
    io::IsTerminal,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use mayfly_bench::{
    Family, Interrupted, Place, PlaceKind, Progress, Report, Scaling, Settings, Style,
};

use crate::arguments::Bench;

/// Exit status of a command that Ctrl-C ended, as shells say it.
const INTERRUPTED: i32 = 130;

pub(crate) fn bench(bench: &Bench) -> Result<()> {
    let (settings, places) = (bench.settings()?, bench.places()?);
    settings.check()?;
    for path in [&bench.json, &bench.svg].into_iter().flatten() {
        check_writable(path)?;
    }
    let bar = progress();
    let outcome = mayfly_bench::run(&settings, &places, &mut |now: Progress<'_>| {
        bar.set_length(now.total);
        bar.set_position(now.done);
        bar.set_message(now.phase.to_owned());
    });
    bar.finish_and_clear();
    match outcome {
        Ok(report) => bench.show(&report),
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("mayfly: interrupted; what the benchmark made is removed");
            std::process::exit(INTERRUPTED);
        }
        Err(error) => Err(error),
    }
}

/// Before the work, not after an hour of it.
fn check_writable(path: &Path) -> Result<()> {
    std::fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar
}

impl Bench {
    fn settings(&self) -> Result<Settings> {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        let usual_procs = if cpus > 1 { vec![1, cpus] } else { vec![1] };
        let size_bytes = self.size.unwrap_or(if self.quick { 64 << 20 } else { 256 << 20 });
        Ok(Settings {
            families: self.families()?,
            only_phases: self.phase.clone(),
            quick: self.quick,
            files: self.files.unwrap_or(if self.quick { 4000 } else { 20_000 }),
            tree: self.tree,
            size_bytes,
            transfers_bytes: self.transfer.clone(),
            fsync: self.fsync,
            procs: if self.procs.is_empty() { usual_procs } else { self.procs.clone() },
            runs: self.runs,
            cold: self.cold,
            scaling: if self.scaling == "strong" { Scaling::Strong } else { Scaling::Weak },
        })
    }

    fn families(&self) -> Result<Vec<Family>> {
        if self.workload.iter().any(|word| word == "all") {
            return Ok(vec![Family::Meta, Family::Data, Family::Find]);
        }
        let parse = |word: &String| word.parse::<Family>().map_err(anyhow::Error::msg);
        let mut families = self.workload.iter().map(parse).collect::<Result<Vec<_>>>();
        if let Ok(families) = &mut families {
            let mut seen = Vec::new();
            families.retain(|family| {
                !seen.contains(family) && {
                    seen.push(*family);
                    true
                }
            });
        }
        families.context("--workload")
    }

    fn places(&self) -> Result<Vec<Place>> {
        if !self.only.is_empty() {
            return Ok(self.only.iter().map(directory).collect());
        }
        let mut places = sweep::instances(&self.make, &self.sweep)?;
        let others = match self.compare.as_slice() {
            [] => mayfly_bench::beside(&places),
            named => named.iter().map(directory).collect(),
        };
        places.extend(others);
        Ok(places)
    }

    fn show(&self, report: &Report) -> Result<()> {
        let style = if self.markdown { Style::Markdown } else { Style::Terminal };
        print!("{}", mayfly_bench::table(report, style));
        let write = |path: &Option<PathBuf>, text: &dyn Fn() -> Result<String>| match path {
            Some(path) => std::fs::write(path, text()?)
                .with_context(|| format!("cannot write {}", path.display())),
            None => Ok(()),
        };
        write(&self.json, &|| Ok(serde_json::to_string_pretty(report)?))?;
        write(&self.svg, &|| mayfly_bench::svg(report))
    }
}

/// `label=DIR` or `DIR`; a directory whose name has a `=` is written with a slash before it.
fn directory(argument: &OsString) -> Place {
    let parts = argument.to_str().and_then(|text| text.split_once('='));
    let (label, path) = match parts.filter(|(label, _)| !label.contains('/')) {
        Some((label, path)) => (Some(label.to_owned()), PathBuf::from(path)),
        None => (None, PathBuf::from(argument)),
    };
    Place { label, kind: PlaceKind::Directory(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_may_have_a_label() {
        let label = |text: &str| directory(&OsString::from(text)).label;
        assert_eq!(label("lustre=/scratch").as_deref(), Some("lustre"));
        assert_eq!(label("/scratch"), None);
        assert_eq!(label("./a=b"), None);
    }
}
