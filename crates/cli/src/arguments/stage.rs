//! The arguments of `mayfly stage`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Entered, values};
use crate::size;

/// The hidden subcommand that copies: `__stage in|out` and the arguments of `stage`.
pub(crate) const STAGER: &str = "__stage";
/// The hidden subcommand by which a process on another node is reached; it reads which node it is.
pub(crate) const HELPER: &str = "__stage-helper";
/// What that becomes: it copies what it is told to.
pub(crate) const HANDS: &str = "__stage-hands";

const STAGES: &str = "\
One source becomes DESTINATION; several, or one with DESTINATION ending in a slash, go into
it. Paths in the instance begin at its root, or at the working directory when that is in the
instance; '*', '?', '[...]' and '**' in a source choose what is below it.

A file appears under its name when it is whole. What fails is named and everything else goes
on. The same command goes on where an earlier one was killed (--restart: from the beginning).

Exit status: 0 all is there, 3 some of it is not, and was named, 1 nothing was begun.

Examples:
  mayfly stage in /scratch/me/case case
  mayfly stage in --exclude '*.log' ./a ./b data/
  mayfly stage out --changed 'case/**/*.h5' /scratch/me/out
  mayfly stage out --dry-run --delete results /scratch/me/results";

#[derive(Debug, Subcommand)]
#[command(after_help = STAGES)]
pub(crate) enum Stage {
    /// From outside into an instance
    In(Staging),
    /// From an instance to the outside
    Out(Staging),
    /// Out of an instance again and again, in the background, until it is cancelled or the instance
    /// ends
    ///
    /// There is always one whole copy: the next one is made beside it (DESTINATION.next), of what
    /// has changed and of further names of what has not, and takes its place when it is whole.
    Every(Every),
    /// Show the stages of an instance: those that run, and how the last ones ended
    Status(StageStatus),
    /// Wait until stages have ended; status 3 when one of them is not whole
    Wait(StageIds),
    /// End stages: what is under way is given up, what is done stays
    Cancel(StageIds),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WhenOpen {
    Skip,
    Wait,
    Copy,
}

#[derive(Debug, Args)]
#[command(after_help = STAGES)]
pub(crate) struct Staging {
    #[command(flatten)]
    pub(crate) entered: Entered,
    /// Only files of this pattern, as in .gitignore, and all below directories of it; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) include: Vec<String>,
    /// Nothing of this pattern, as in .gitignore; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Only what this file lists (`-`: standard input), paths below the one source, each ended by a
    /// line's end or a zero byte; of directories all that is below them
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// Only files changed within this time (2h, 30m), or after this file was
    #[arg(long, value_name = "TIME|FILE", value_parser = values::moment)]
    pub(crate) newer: Option<std::time::SystemTime>,
    /// Only files of so many bytes or more
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) larger: Option<u64>,
    /// Only files of so many bytes or fewer
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) smaller: Option<u64>,
    /// Only files that were made or changed in any way since the last `stage in` of this instance,
    /// from this node, ended
    #[arg(long)]
    pub(crate) since_stage_in: bool,
    /// Leave files that have the same length and time at the destination as they are there
    #[arg(long)]
    pub(crate) changed: bool,
    /// Remove at the destination what the source has not
    #[arg(long)]
    pub(crate) delete: bool,
    /// Write nothing; print what would be copied, with sizes, and removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Copy what symbolic links lead to, not the links
    #[arg(long)]
    pub(crate) follow: bool,
    /// Read both sides again and compare them
    #[arg(long)]
    pub(crate) verify: bool,
    /// What becomes of a file that somebody has open for writing: it is skipped and named, waited
    /// for until it is closed, or copied as any other
    #[arg(long, value_enum, value_name = "WHAT", default_value = "skip")]
    pub(crate) open: WhenOpen,
    /// Begin from the beginning where an earlier try was killed
    #[arg(long)]
    pub(crate) restart: bool,
    /// At most so many nodes take part, this one among them: those that see what is outside the
    /// instance [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) nodes_used: Option<u16>,
    /// Threads on each node [default: two for each processor, 4 to 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) streams: Option<u16>,
    /// Copy with these processors only, on each node: 0-3,8
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Bytes a second, at most
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) bandwidth: Option<u64>,
    /// Files a second, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) files_per_second: Option<u64>,
    /// Print JSON: one event a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Of `mayfly run`, before its command is started.
    #[arg(long, hide = true)]
    pub(crate) unwatched: bool,
    /// Let everything else go first: the lowest priority for processors and disks; so in the
    /// background
    #[arg(long)]
    pub(crate) idle: bool,
    /// Go on in the background; `mayfly stage wait` waits for it, and so does the instance's end
    #[arg(long)]
    pub(crate) background: bool,
    /// Say nothing of success
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// What is copied, and last where it goes
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Every {
    /// How often: 10m, 1h
    #[arg(value_name = "TIME", value_parser = values::span)]
    pub(crate) span: std::time::Duration,
    #[command(flatten)]
    pub(crate) staging: Staging,
}

#[derive(Debug, Args)]
pub(crate) struct StageStatus {
    #[command(flatten)]
    pub(crate) entered: Entered,
    /// Print JSON: a list
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StageIds {
    #[command(flatten)]
    pub(crate) entered: Entered,
    /// Their numbers [default: all that run]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<u32>,
}
