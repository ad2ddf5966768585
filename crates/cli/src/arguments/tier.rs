//! The caching tier: origins of an instance, and `mayfly tier`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mayfly_deploy::Origin;

use super::Which;

/// Directories outside that an instance shows.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Caching")]
pub(crate) struct Origins {
    /// Show a directory or a bucket outside in the instance, at its root or at SUBDIR: its files
    /// are fetched when they are first read, and what is written goes back by `mayfly tier flush`
    /// and before the end. With ,ro nothing there can be changed. Repeatable, with a SUBDIR each
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX[:SUBDIR][,ro]", value_parser = Origin::parse)]
    pub(crate) origin: Vec<Origin>,
    /// How long what was seen in an origin is believed before it is looked at again
    /// [default: 1s]
    #[arg(long, value_name = "always|TIME|never", requires = "origin")]
    pub(crate) validate: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) which: Which,
    /// End it although files cannot be written back to their origins. Without this an instance of
    /// several nodes goes on then
    #[arg(long)]
    pub(crate) discard: bool,
}

const TIER: &str = "\
A file of an origin whose master copy somebody has changed since it was read, and which was
written here too, is a conflict: the master copy stays, and ours is written beside it, as
NAME.mayfly-conflict-HOST-N. Nothing is overwritten in silence.

Examples:
  mayfly run --origin /scratch/project -- ./job.sh
  mayfly start --origin /scratch/project:proj --origin /data/sets:sets,ro
  mayfly start --origin s3://bucket/sets:sets,ro   # credentials as for `mayfly stage`
  mayfly tier status --json | jq .origins
  mayfly tier flush \"$MAYFLY_MOUNT/proj/results\"";

#[derive(Debug, Subcommand)]
#[command(after_help = TIER)]
pub(crate) enum Tier {
    /// Show how much of each origin is here, and what is not written back
    Status(TierStatus),
    /// Write back what was changed
    Flush(TierFlush),
    /// Free the space of files that can be fetched again: not of those that were changed and not
    /// written back, are open or mapped, or are small
    Evict(TierFlush),
}

#[derive(Debug, Args)]
pub(crate) struct TierStatus {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TierFlush {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Files and directories of the instance [default: everything]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

impl super::Make {
    /// The deadline of an instance for which nobody has chosen one.
    pub(super) fn usual_deadline(&self) -> u64 {
        match self.origins.origin.is_empty() {
            true => mayfly_deploy::Options::default().deadline_seconds,
            // A file is fetched as a whole.
            false => mayfly_deploy::TIER_DEADLINE_SECONDS,
        }
    }
}
