//! The command line of `mayfly top`.

use std::time::Duration;

use clap::Args;

use crate::top;

const ABOUT: &str = "\
Operations are requests of programs and mounts, and creates and removals that programs did not
wait for. What a program does itself, such as reading and writing the files of its own node, is
not among them.

Keys: q ends it, s sorts in another way, + and - change the interval, ? shows all of them.

Examples:
  mayfly top
  mayfly top --name work --all-nodes
  mayfly top --once --json | jq '.nodes[].operations_per_second'";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Top {
    /// Name of the instance [default: all that you have on this machine]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// All nodes of these instances, not only those on this machine
    #[arg(long)]
    pub(crate) all_nodes: bool,
    /// Time between two looks, 100ms to 1m
    #[arg(long, value_name = "TIME", value_parser = top::interval, default_value = "2s")]
    pub(crate) interval: Duration,
    /// Print what goes on during one interval, and end; so it is without a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// The same as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
