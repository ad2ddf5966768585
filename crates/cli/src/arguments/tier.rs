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
    /// and before the end. With ,ro nothing there can be changed; ,async and ,through are as
    /// --names for this one. Repeatable, with a SUBDIR each
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX[:SUBDIR][,ro][,async]")]
    #[arg(value_parser = Origin::parse)]
    pub(crate) origin: Vec<Origin>,
    /// How long what was seen in an origin is believed before it is looked at again
    /// [default: 1s]
    #[arg(long, value_name = "always|TIME|never", requires = "origin")]
    pub(crate) validate: Option<String>,
    /// Write back by itself what was not written for this time
    #[arg(long, value_name = "TIME", requires = "origin")]
    pub(crate) flush_after: Option<String>,
    /// Write a file back before a close of it returns, of who could write to it, with the error
    /// that this meets
    #[arg(long, requires = "origin")]
    pub(crate) flush_on_close: bool,
    /// fsync, and writes with O_SYNC, return when the file is written back
    #[arg(long, requires = "origin")]
    pub(crate) fsync_origin: bool,
    /// Each write returns when the file is written back: all of it each time. With
    /// --flush-on-close and --fsync-origin
    #[arg(long, requires = "origin")]
    pub(crate) write_through: bool,
}

impl Origins {
    pub(super) fn write_back(&self) -> mayfly_deploy::WriteBack {
        mayfly_deploy::WriteBack {
            after: self.flush_after.clone(),
            at_close: self.flush_on_close,
            at_sync: self.fsync_origin,
            at_write: self.write_through,
        }
    }
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
  mayfly tier prefetch \"$MAYFLY_MOUNT/proj/input\"; ls sets/*.tar | mayfly tier prefetch -
  mayfly tier flush \"$MAYFLY_MOUNT/proj/results\"";

#[derive(Debug, Subcommand)]
#[command(after_help = TIER)]
pub(crate) enum Tier {
    /// Show how much of each origin is here, and what is not written back
    Status(TierStatus),
    /// Write back what was changed
    Flush(TierFlush),
    /// Fetch files, and what is in directories, before somebody reads them. What is read meanwhile
    /// goes first
    Prefetch(TierPrefetch),
    /// Fetch files, and what is in directories now, and keep them here: they are never evicted
    Pin(TierPrefetch),
    /// Let files go again that were pinned
    Unpin(TierFlush),
    /// Show an origin no more: what is dirty of it goes back first, and nothing outside is removed
    Unlink(TierUnlink),
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

#[derive(Debug, Args)]
pub(crate) struct TierUnlink {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The directory of the instance that shows the origin
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TierPrefetch {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Files and directories of the instance; -: those that standard input names, one a line
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// What standard input names is separated by zero bytes, as `find -print0` does it
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// How many files are fetched at a time
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) at_once: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The words of `--names` that are about origins.
const OF_ORIGINS: [&str; 2] = ["through", "async"];

impl super::Make {
    /// Where the names of directories are, if that was chosen.
    pub(super) fn names_of_directories(&self) -> Option<String> {
        self.names.clone().filter(|word| !OF_ORIGINS.contains(&word.as_str()))
    }

    /// The origins, with what was chosen for all of them.
    pub(super) fn origins_with_names(&self) -> anyhow::Result<Vec<Origin>> {
        let mut origins = self.origins.origin.clone();
        if let Some(word) = self.names.as_deref().filter(|word| OF_ORIGINS.contains(word)) {
            anyhow::ensure!(!origins.is_empty(), "--names {word} is about origins: say --origin");
            for origin in &mut origins {
                origin.names_async.get_or_insert(word == "async");
            }
        }
        Ok(origins)
    }

    /// The deadline of an instance for which nobody has chosen one.
    pub(super) fn usual_deadline(&self) -> u64 {
        match self.origins.origin.is_empty() {
            true => mayfly_deploy::Options::default().deadline_seconds,
            // A file is fetched as a whole.
            false => mayfly_deploy::TIER_DEADLINE_SECONDS,
        }
    }
}
