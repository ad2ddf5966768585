//! The command line of `mayfly metrics`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Scope, values};

const ABOUT: &str = "\
What is exposed: `mayfly help metrics`. Nothing of it is a path or a secret.

Examples:
  mayfly metrics
  mayfly metrics --name work --all-nodes
  mayfly metrics --listen 9400
  mayfly metrics --listen unix:/run/user/1000/mayfly-metrics
  mayfly metrics --output /var/lib/node_exporter/mayfly.prom --every 15s";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Metrics {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Answer scrapers at http://ADDRESS/metrics until this is ended: PORT on the loopback,
    /// HOST:PORT, or unix:PATH
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["output", "every"])]
    pub(crate) listen: Option<String>,
    /// Write a file instead, which is whole at every moment, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write it again and again, until this is ended
    #[arg(long, value_name = "TIME", value_parser = values::span, requires = "output")]
    pub(crate) every: Option<Duration>,
    /// Print the page that explains each metric
    #[arg(long, exclusive = true)]
    pub(crate) reference: bool,
}
