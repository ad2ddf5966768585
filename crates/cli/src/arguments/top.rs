//! The command line of `mayfly top`.

use std::time::Duration;

use clap::Args;

use super::{Scope, values};

const ABOUT: &str = "\
It shows nodes, and below them one of five tables: kinds of operations, waits for answers,
processes, directories and files. Programs count what they do; directories and files are estimated
from the latest samples. What is read or written by mmap is not counted, and programs that use a
mount are counted together, as the mount's process.

Keys: q ends it, Tab shows the next table, s sorts in another way, + and - change the interval, ?
shows all of them.

Examples:
  mayfly top
  mayfly top --name work --all-nodes
  mayfly top --once --json | jq '.nodes[].operations_per_second'";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Time between two looks, 100ms to 1m
    #[arg(long, value_name = "TIME", value_parser = values::interval, default_value = "2s")]
    pub(crate) interval: Duration,
    /// Print what goes on during one interval, and end; so it is without a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// The same as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
