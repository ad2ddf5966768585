//! `mayfly bench`: from the command line to places and settings, and from the report to its files.

mod sweep;

use std::{
    ffi::OsString,
    io::IsTerminal,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use mayfly_bench::{
    Family, Interrupted, Place, PlaceKind, Progress, Report, Scaling, Settings, Style, Tree,
};

use crate::{arguments::Make, size};

/// Exit status of a command that Ctrl-C ended, as shells say it.
const INTERRUPTED: i32 = 130;

const AFTER: &str = "\
What is measured: separate processes make plain POSIX calls. Each phase starts at a barrier and \
ends with the slowest process. Targets take turns within each repetition; `ratio` is the median of \
the repetitions' ratios to the first plain directory, with their span. `raw` is the share of what \
a plain stream gets from the storage below.

Examples:
  mayfly bench --quick
      an instance beside a plain directory on the same local file system: a minute
  mayfly bench --data-dir /local/nvme --compare /scratch --procs 1,16
      is this job better off on the parallel file system or on Mayfly?
  mayfly bench --only /scratch --only home=$HOME --workload meta
      no instance: any directories against each other
  mayfly bench --workload data --transfer 4K,1M,16M --size 1G --cold --json out.json --svg out.svg
  mayfly bench --sweep chunk-size=64K,512K,4M --workload data
  mayfly bench --sweep access=preload,fuse --transfer 8K,1M
      the library, the mount and the local file system in one run
  mayfly bench --workload patterns --procs 1 --files 5000
  mayfly bench --sweep times=none,mtime,all --phase 3901/shared
  mayfly bench --scaling strong --procs 1,2,4,8 --files 80000";

#[derive(Debug, Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Bench {
    /// Compare with this directory instead of one beside the instance's data; repeatable
    #[arg(long, value_name = "[LABEL=]DIR", help_heading = "Targets")]
    compare: Vec<OsString>,
    /// Measure this directory and start no instance; repeatable
    #[arg(long, value_name = "[LABEL=]DIR", conflicts_with_all = ["compare", "sweep"],
          help_heading = "Targets")]
    only: Vec<OsString>,
    /// An instance for each value of one of its options, such as chunk-size=64K,4M; repeatable
    #[arg(long, value_name = "OPTION=VALUE,...", help_heading = "Targets")]
    sweep: Vec<String>,
    /// Workloads: meta, data, find, or all of these; patterns: some forty sequences of calls as
    /// programs make them; tools: tar, cp, find, du, grep, rsync, git, rm and a shell that starts
    /// programs, on a tree of files; beside: stat by one process while the others write 64 MiB at a
    /// time; bars: memory, first calls and a long listing (one process), creates
    /// by half of the processes while the other half burns processor time (more)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    workload: Vec<String>,
    /// Only groups with a phase whose name contains this; repeatable
    #[arg(long, value_name = "TEXT")]
    phase: Vec<String>,
    /// The important phases in small sizes: about a minute
    #[arg(long)]
    quick: bool,
    /// Numbers of processes [default: 1 and the number of processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    procs: Vec<u32>,
    /// Repetitions of everything
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: u32,
    /// Files, or directories, of each process [default: 20000; with --quick 4000]; files with
    /// contents at most as many as --size holds
    #[arg(long, value_name = "N")]
    files: Option<u64>,
    /// Tree of each process: directories in a directory, levels, files in a directory. With
    /// `--scaling strong` there are as many trees as the most processes, and each makes its part
    #[arg(long, value_name = "BRANCH,DEPTH,ITEMS", value_parser = parse_tree,
          default_value = "4,3,10")]
    tree: Tree,
    /// Data of each process [default: 256M; with --quick 64M]; at most 50000 transfers are made
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Sizes of a read or a write, from 512 to 64M
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size::parse,
          default_value = "4K,1M")]
    transfer: Vec<u64>,
    /// fsync before a written file is closed, inside the clock
    #[arg(long)]
    fsync: bool,
    /// Empty caches before what is read: dropped by root, else pages evicted; the report says how
    #[arg(long)]
    cold: bool,
    /// More processes: the same work for each (weak), or for all together (strong)
    #[arg(long, value_name = "KIND", value_parser = ["weak", "strong"], default_value = "weak")]
    scaling: String,
    /// Write everything, each run included, as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// Write a page of plots
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// Print the table as Markdown
    #[arg(long, help_heading = "Output")]
    markdown: bool,
    #[command(flatten, next_help_heading = "Instance")]
    make: Make,
}

fn parse_tree(text: &str) -> Result<Tree, String> {
    let wrong = || format!("{text:?}: three numbers, such as 4,3,10");
    let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    match numbers.map_err(|_| wrong())?.as_slice() {
        &[branch, depth, items] => Ok(Tree { branch, depth, items }),
        _ => Err(wrong()),
    }
}

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

    #[test]
    fn a_tree_is_three_numbers() {
        assert_eq!(parse_tree("2,3,4"), Ok(Tree { branch: 2, depth: 3, items: 4 }));
        for bad in ["", "2,3", "2,3,4,5", "a,b,c", "-1,2,3"] {
            assert!(parse_tree(bad).is_err(), "{bad:?}");
        }
    }
}
