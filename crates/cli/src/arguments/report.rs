//! The command line of `mayfly report`.

use std::path::PathBuf;

use clap::Args;

use super::Which;

const ABOUT: &str = "\
A report says what programs did with an instance since it began: operations, sizes, the busiest
processes, directories and files, the course of time, and what would make it better. It is there
at any time, and costs nothing before it is asked for: processes count what they do anyway.

Examples:
  mayfly report
  mayfly report --name work --output report.html
  mayfly report --json | jq '.findings'
  mayfly run --report report.html -- ./job.sh";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct ReportOf {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Write it to this file: a page for a browser, or JSON where the name ends in .json
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
