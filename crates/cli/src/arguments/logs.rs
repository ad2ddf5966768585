//! The command line of `mayfly logs`.

use std::time::SystemTime;

use clap::Args;
use mayfly_deploy::Level;

use super::values;

const ABOUT: &str = "\
A line is a time (UTC), a level, a node, a part of it, and what happened. Levels: INFO (began,
ended, mounted), WARN (a daemon died and another was started, a node cannot be reached, a slow
request), ERROR (a person must look). Parts: supervisor, daemon, mount, image, stage.

A slow request is one that took longer than `--slow` of start and run. Its line says which file,
which process asked, how long it took in all, and where the time went as far as that is known:
  asleep_ms     the daemon did not run: it was stopped, restarted, or got no processor
  served_ms     other requests before it, its execution, and its commit
  waiting_ms    for what waits_for says: a node, shards, the disk and other requests
  commit_ms     its answer was known, and not yet committed
Waits for locks, and for changes of files, are as long as they are, and never slow.

What is kept of a node is its last megabyte or two, for as long as the instance is there: with
`mayfly stop`, and at the end of `mayfly run`, the log goes too.

Examples:
  mayfly logs
  mayfly logs work --node 3 --since 10m
  mayfly logs --follow --level warn
  mayfly logs --json | jq -r 'select(.level == \"ERROR\") | .text'";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Logs {
    /// Name of the instance [default: that of this environment, job-ID in a batch job, otherwise
    /// default]
    #[arg(value_name = "NAME")]
    pub(crate) instance: Option<String>,
    /// The same
    #[arg(long, conflicts_with = "instance")]
    pub(crate) name: Option<String>,
    /// Of this node only [default: all, on whatever hosts they are]
    #[arg(long, value_name = "K")]
    pub(crate) node: Option<u32>,
    /// Go on with new lines, until Ctrl-C or the end of the instance
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Lines of the last 10m, say, or since a file was changed
    #[arg(long, value_name = "TIME|FILE", value_parser = values::moment)]
    pub(crate) since: Option<SystemTime>,
    /// Lines as bad as this: info, warn or error
    #[arg(long, value_name = "LEVEL", value_parser = values::level, default_value = "info")]
    pub(crate) level: Level,
    /// An object a line: time, level, node, host, part, text
    #[arg(long)]
    pub(crate) json: bool,
}
