//! The command line of `mayfly bench`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use mayfly_bench::Tree;

use super::Make;
use crate::size;

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
    pub(crate) compare: Vec<OsString>,
    /// Measure this directory and start no instance; repeatable
    #[arg(long, value_name = "[LABEL=]DIR", conflicts_with_all = ["compare", "sweep"],
          help_heading = "Targets")]
    pub(crate) only: Vec<OsString>,
    /// An instance for each value of one of its options, such as chunk-size=64K,4M; repeatable
    #[arg(long, value_name = "OPTION=VALUE,...", help_heading = "Targets")]
    pub(crate) sweep: Vec<String>,
    /// Workloads: meta, data, find, or all of these; patterns: some forty sequences of calls as
    /// programs make them; tools: tar, cp, find, du, grep, rsync, git, rm and a shell that starts
    /// programs, on a tree of files; beside: stat by one process while the others write 64 MiB at a
    /// time; bars: memory, first calls and a long listing (one process), creates
    /// by half of the processes while the other half burns processor time (more)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    pub(crate) workload: Vec<String>,
    /// Only groups with a phase whose name contains this; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) phase: Vec<String>,
    /// The important phases in small sizes: about a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Numbers of processes [default: 1 and the number of processors]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) procs: Vec<u32>,
    /// Repetitions of everything
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) runs: u32,
    /// Files, or directories, of each process [default: 20000; with --quick 4000]; files with
    /// contents at most as many as --size holds
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<u64>,
    /// Tree of each process: directories in a directory, levels, files in a directory. With
    /// `--scaling strong` there are as many trees as the most processes, and each makes its part
    #[arg(long, value_name = "BRANCH,DEPTH,ITEMS", value_parser = parse_tree,
          default_value = "4,3,10")]
    pub(crate) tree: Tree,
    /// Data of each process [default: 256M; with --quick 64M]; at most 50000 transfers are made
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) size: Option<u64>,
    /// Sizes of a read or a write, from 512 to 64M
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size::parse,
          default_value = "4K,1M")]
    pub(crate) transfer: Vec<u64>,
    /// fsync before a written file is closed, inside the clock
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Empty caches before what is read: dropped by root, else pages evicted; the report says how
    #[arg(long)]
    pub(crate) cold: bool,
    /// More processes: the same work for each (weak), or for all together (strong)
    #[arg(long, value_name = "KIND", value_parser = ["weak", "strong"], default_value = "weak")]
    pub(crate) scaling: String,
    /// Write everything, each run included, as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page of plots
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) svg: Option<PathBuf>,
    /// Print the table as Markdown
    #[arg(long, help_heading = "Output")]
    pub(crate) markdown: bool,
    #[command(flatten, next_help_heading = "Instance")]
    pub(crate) make: Make,
}

fn parse_tree(text: &str) -> Result<Tree, String> {
    let wrong = || format!("{text:?}: three numbers, such as 4,3,10");
    let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    match numbers.map_err(|_| wrong())?.as_slice() {
        &[branch, depth, items] => Ok(Tree { branch, depth, items }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_three_numbers() {
        assert_eq!(parse_tree("2,3,4"), Ok(Tree { branch: 2, depth: 3, items: 4 }));
        for bad in ["", "2,3", "2,3,4,5", "a,b,c", "-1,2,3"] {
            assert!(parse_tree(bad).is_err(), "{bad:?}");
        }
    }
}
