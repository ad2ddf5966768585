//! The command line.

mod bench;
mod logs;
mod metrics;
mod report;
mod site;
mod stage;
mod tier;
mod top;
pub(crate) mod values;
mod version;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use mayfly_deploy::{
    Audience, DataDir, INSIDE, Instance, Options, SHARDS_MAX,
    containers::Container,
    nodes::{NODE, RELAY, job},
};

pub(crate) use self::bench::Bench;
pub(crate) use self::logs::Logs;
pub(crate) use self::metrics::Metrics;
pub(crate) use self::report::ReportOf;
pub(crate) use self::site::{Half, Site};
pub(crate) use self::stage::{
    Every, HANDS, HELPER, STAGER, Stage, StageIds, StageStatus, Staging, WhenOpen,
};
pub(crate) use self::tier::{Stop, Tier, TierFlush, TierPrefetch, TierStatus, TierUnlink};
pub(crate) use self::top::Top;
pub(crate) use self::version::version;
use crate::{instances, nodes::Nodes, size};

const AFTER: &str = "\
Examples:
  mayfly run -- bash -c 'cd \"$MAYFLY_MOUNT\" && tar xf ~/case.tar && make'
  mayfly run --stage-in case:case --stage-out case/results:results -- ./job.sh
  mayfly stage out --changed 'case/**/*.h5' /scratch/me/out
  mayfly start --name work --data-dir /local/nvme
  mayfly run --nodes n[01-16] -- mpirun ./solver
  eval \"$(mayfly env --name work)\"; ls \"$MAYFLY_MOUNT\"
  mayfly stop --name work";

/// A temporary file system for one job, in the node's own storage, for unmodified programs.
#[derive(Debug, Parser)]
#[command(name = "mayfly", version = version(), after_help = AFTER)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) subcommand: Do,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Do {
    /// Start an instance, run a command in it, and end the instance with the command
    ///
    /// The command finds the mount point in $MAYFLY_MOUNT. Its exit status is the exit status of
    /// `mayfly run`.
    Run(Run),
    /// Start an instance that lives until `mayfly stop`
    Start(Start),
    /// End an instance
    Stop(Stop),
    /// Show running instances, or one of them
    Status(Status),
    /// Print the environment for programs of an instance, for `eval "$(mayfly env)"`
    ///
    /// Programs that are started afterwards are served by the library. The shell itself sees the
    /// mount; where there is none (`mayfly status` says so) its own redirections do not reach the
    /// instance: `mayfly shell`, or `exec "$SHELL"` afterwards.
    ///
    /// `eval "$(mayfly env --unset)"` takes the variables back.
    Env(Env),
    /// Start a shell in a running instance; its exit status is that of `mayfly shell`
    Shell(Entered),
    /// Mount a running instance at a further directory, for programs that the preload library
    /// cannot enter
    ///
    /// Programs on either side see each other's files and locks at once. It lasts until `umount`,
    /// or the instance's end.
    Mount(Mount),
    /// Find mounts and directories that a crash left
    Doctor(Doctor),
    /// Print what instances do, as numbers for a monitoring system (OpenMetrics)
    Metrics(Metrics),
    /// Say what programs did with an instance, and what would make it better
    Report(ReportOf),
    /// Watch what instances do: nodes and operations, a second
    Top(Top),
    /// Print what an instance's nodes have to say: what began and ended, slow requests, trouble
    Logs(Logs),
    /// Check that everything that an instance keeps fits together, on all nodes
    Fsck(Fsck),
    /// Copy trees into an instance, or out of it: in parallel, completely or not at all
    #[command(subcommand)]
    Stage(Stage),
    /// The caching tier: directories outside that an instance shows
    #[command(subcommand)]
    Tier(Tier),
    /// Show or choose on which nodes the bytes of files are, directory by directory
    #[command(subcommand)]
    Layout(Layout),
    /// Measure an instance beside other directories: metadata, data, find
    Bench(Box<Bench>),
    /// What a batch system runs around jobs, so that they find an instance over their nodes
    #[command(subcommand)]
    Site(Site),
    /// Explain a command, or a subject: first-steps, choosing-options, staging, caching, batch,
    /// containers, several-nodes, operators, machine-learning, observing, trouble, how-it-works,
    /// requirements, metrics, exit-codes
    Help {
        /// A subject, or a command with those above it [default: all commands]
        #[arg(value_name = "SUBJECT|COMMAND")]
        words: Vec<String>,
    },
    /// Print what a shell needs to complete `mayfly` and its options
    ///
    /// For bash: `mayfly completions bash > ~/.local/share/bash-completion/completions/mayfly`.
    /// Packages install them for everybody.
    Completions { shell: clap_complete::Shell },
    /// Write the man pages, for packages.
    #[command(name = "__man", hide = true)]
    Man { directory: PathBuf },
    #[command(name = mayfly_bench::WORKER, hide = true)]
    BenchWorker,
    #[command(name = RELAY, hide = true)]
    Relay,
    #[command(name = NODE, hide = true)]
    Node,
    #[command(name = "__supervise", hide = true)]
    Supervise { run_dir: PathBuf },
    #[command(name = "__daemon", hide = true)]
    Daemon { run_dir: PathBuf },
    #[command(name = "__fuse", hide = true)]
    Fuse { run_dir: PathBuf, point: PathBuf },
    #[command(name = INSIDE, hide = true)]
    Inside {
        run_dir: PathBuf,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    #[command(name = "__keep", hide = true)]
    Keep { run_dir: PathBuf },
    #[command(name = "__tier", hide = true)]
    KeepTier { run_dir: PathBuf },
    #[command(name = "__image", hide = true)]
    Image { cache: PathBuf, pid: u32, request: String },
    #[command(name = STAGER, hide = true, subcommand)]
    Stager(Stage),
    #[command(name = HELPER, hide = true)]
    StageHelper,
    #[command(name = HANDS, hide = true)]
    StageHands,
    #[command(name = mayfly_site::DOOR, hide = true)]
    SiteDoor { run: PathBuf },
    #[command(name = mayfly_site::REACH, hide = true)]
    SiteReach { run: PathBuf, host: String, program: PathBuf, subcommand: String },
    // The command may look like options of ours.
    #[command(name = mayfly_site::BECOME, hide = true)]
    SiteAs {
        uid: u32,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    #[command(name = mayfly_site::EMPTY, hide = true)]
    SiteEmpty { directory: PathBuf },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) make: Make,
    #[command(flatten)]
    pub(crate) nodes: Nodes,
    /// Leave the data directory at the end, for `mayfly start --reopen`
    #[arg(long)]
    pub(crate) keep: bool,
    /// Copy a file or tree from outside into the instance before the command starts; repeatable
    #[arg(long, value_name = "FROM:TO", value_parser = values::inward)]
    pub(crate) stage_in: Vec<values::Transfer>,
    /// Copy a file or tree of the instance to a place outside when the command has ended, however
    /// it ended; repeatable: the most important first
    #[arg(long, value_name = "FROM:TO", value_parser = values::outward)]
    pub(crate) stage_out: Vec<values::Transfer>,
    /// Copy the whole tree to this new directory at the end: the same as --stage-out .:DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// Write what the command did with the file system to this file when it has ended: a page for a
    /// browser, or JSON where the name ends in .json
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Name of the instance [default: run-<process id>]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The command and its arguments [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    pub(crate) make: Make,
    #[command(flatten)]
    pub(crate) nodes: Nodes,
    /// Leave the data directory when the instance ends, for --reopen
    #[arg(long)]
    pub(crate) keep: bool,
    /// Take up the data directory that an instance with --keep left
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "data_dir", "meta_dir", "chunk_size", "layout", "capacity", "times", "parent_check",
        "locks", "durability", "shards", "deadline", "names", "origin",
    ])]
    pub(crate) reopen: Option<PathBuf>,
    /// Name of the instance [default: job-ID in a batch job, otherwise default]
    #[arg(long)]
    pub(crate) name: Option<String>,
}

/// An instance that runs.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Name of the instance [default: that of this environment, job-ID in a batch job, otherwise
    /// default]
    #[arg(long)]
    name: Option<String>,
}

impl Which {
    /// The one that nobody names.
    pub(crate) fn of_here() -> Which {
        Which { name: None }
    }

    /// Whoever is in an instance means that one, as long as it runs.
    pub(crate) fn name(&self) -> String {
        let own = || {
            let mount = std::env::var_os("MAYFLY_MOUNT")?;
            let name = instances::instance_of(Path::new(&mount))?.name;
            Some(mayfly_deploy::whole_name(&name).to_owned())
        };
        self.name.clone().or_else(own).unwrap_or_else(usual_name)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Entered {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Which node of an instance of several; it must be on this machine [default: $MAYFLY_NODE, or
    /// the first one here]
    #[arg(long, value_name = "K")]
    pub(crate) node: Option<u32>,
}

/// Instances that are looked at.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scope {
    /// Name of the instance [default: all that you have on this machine]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// All nodes of these instances, not only those on this machine
    #[arg(long)]
    pub(crate) all_nodes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Env {
    #[command(flatten)]
    pub(crate) entered: Entered,
    /// Print the options with which a container of this kind is in the instance: bwrap, podman,
    /// docker or apptainer. `bwrap --ro-bind / / $(mayfly env --container bwrap) sh`
    #[arg(long, value_name = "KIND")]
    pub(crate) container: Option<Container>,
    /// Print the options with which Open MPI's mpirun has ranks on all nodes in the instance;
    /// MPICH's and Intel's hand the environment on by themselves.
    /// `mpirun $(mayfly env --mpirun) ./solver`
    #[arg(long, conflicts_with = "container")]
    pub(crate) mpirun: bool,
    /// Of the instance of a batch job: this one, or the one with that number. The same as --name
    /// job-ID
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with = "name")]
    pub(crate) job: Option<Option<String>>,
    /// Print `export NAME=VALUE` without quotes, as Slurm's TaskProlog takes it
    #[arg(long, conflicts_with_all = ["container", "json", "mpirun"])]
    pub(crate) plain: bool,
    /// Print what takes the variables back, for a shell that is to go on without the instance:
    /// `eval "$(mayfly env --unset)"`, best before its end
    #[arg(long, conflicts_with_all = [
        "container", "json", "mpirun", "plain", "job", "name", "node",
    ])]
    pub(crate) unset: bool,
    /// Print directories to bind and variables to set, for other programs that start containers
    #[arg(long, conflicts_with_all = ["container", "mpirun"])]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Mount {
    #[command(flatten)]
    pub(crate) entered: Entered,
    /// An empty directory
    #[arg(value_name = "DIR")]
    pub(crate) point: PathBuf,
}

const DOCTOR: &str = "\
Without --clean, what this machine has of what Mayfly needs comes first, for the user who asks:
`ok`, `less` (Mayfly works, with less than it could have) or `missing` (it does not start),
with what to do. `mayfly help requirements` says what each is used for.

Exit status: 0 all needs are met, 1 one is missing, or something dead could not be removed.

Examples:
  mayfly doctor
  mayfly doctor --json | jq '.machine[] | select(.level != \"fine\")'
  mayfly doctor --clean";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR)]
pub(crate) struct Doctor {
    /// Unmount and remove those that are provably dead: no process serves the mount, no supervisor
    /// holds the directory. Data that were to be kept stay
    #[arg(long)]
    pub(crate) clean: bool,
    /// For scripts: what was found of the machine, and what is dead
    #[arg(long, conflicts_with = "clean")]
    pub(crate) json: bool,
}

const FSCK: &str = "\
Every name has to have its file, every file its names, its bytes and the right length, every
object and every part its file, every directory members that say the same, every open
description a process, and nothing may be left of operations that are over. What is used
meanwhile is looked at again before it is called wrong: an instance at work is checked
without being held up.

Exit status: 0 nothing is wrong, 1 something is, 2 it could not be looked at (a node does not
answer; no node of the instance is on this machine).

Examples:
  mayfly fsck
  mayfly fsck --name work --repair
  mayfly fsck --json | jq .wrong";

#[derive(Debug, Args)]
#[command(after_help = FSCK)]
pub(crate) struct Fsck {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON: what was looked at, how much of each kind is wrong, and what it is
    #[arg(long)]
    pub(crate) json: bool,
    /// Remove objects that no file has, and nothing else; what else is wrong is only told
    #[arg(long)]
    pub(crate) repair: bool,
}

const LAYOUTS: &str = "\
Layouts:
  home         all of a file on the node that its name gives
  stripe[:W]   the first chunk there, the next ones in turn on the next nodes, W in all
               (without W all nodes): large files, and files that many nodes read or write
  hash[:W]     the same, but which node has a chunk is drawn: accesses at regular distances
               do not meet on one node
  local        all of a file on the node whose process makes it: files that one node writes and
               reads, such as scratch files; making and removing one takes more messages
  pool:NAME[:W]  as stripe, but on nodes of this pool only (--pool of start and run)

A directory hands its layout to what is made in it; files and directories that are there
already keep theirs. A file is cut into chunks when it outgrows the first one.
The same by any program: setfattr -n user.mayfly.layout -v stripe:4,chunk=1M DIR.

Examples:
  mayfly layout set stripe \"$MAYFLY_MOUNT/checkpoints\"
  mayfly layout set stripe:4 --chunk-size 1M \"$MAYFLY_MOUNT/results\"
  mayfly layout get \"$MAYFLY_MOUNT\"/checkpoints/*";

#[derive(Debug, Subcommand)]
#[command(after_help = LAYOUTS)]
pub(crate) enum Layout {
    /// Show layouts, and which nodes have how much of a file
    Get(LayoutGet),
    /// Choose the layout of what is made in a directory from now on
    Set(LayoutSet),
}

#[derive(Debug, Args)]
pub(crate) struct LayoutGet {
    /// Files and directories of one instance
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Print JSON: a list
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = LAYOUTS)]
pub(crate) struct LayoutSet {
    /// How files are dealt out to nodes
    #[arg(value_name = "home|stripe[:W]|hash[:W]|local|pool:NAME[:W]")]
    pub(crate) layout: String,
    /// Unit in which files are cut, a power of two [default: as it is]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) chunk_size: Option<u64>,
    /// Directories of one instance
    #[arg(required = true, value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name of the instance [default: all of them]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Print JSON: an object with --name, otherwise a list
    #[arg(long)]
    pub(crate) json: bool,
}

/// How an instance is made.
#[derive(Debug, Clone, Args)]
pub(crate) struct Make {
    /// Mount point: a new or an empty directory [default: a directory under $XDG_RUNTIME_DIR or
    /// /tmp]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// How programs reach the instance: by the preload library (fast; not for static programs), by
    /// a FUSE mount (slower; for everything), by both, or by both where a mount is possible and
    /// the library otherwise [default: $MAYFLY_ACCESS, or auto]
    #[arg(long, value_parser = ["preload", "fuse", "both", "auto"])]
    access: Option<String>,
    /// What is seen of files through the mount: whatever returned elsewhere (strict), or with
    /// caches of the kernel's for readers what was closed before it is opened (session)
    /// [default: $MAYFLY_CONSISTENCY, or strict]
    #[arg(long, value_parser = ["strict", "session"])]
    consistency: Option<String>,
    /// Where files and metadata are stored: fast storage of this node. With several directories, as
    /// in nvme=/a,/b, files are dealt out to them by their space, and the first one has the
    /// metadata; the name in front is for you [default: the temporary directory]
    #[arg(long, value_name = "[CLASS=]DIR[,DIR...]")]
    data_dir: Vec<String>,
    /// Store the metadata elsewhere than the files
    #[arg(long, value_name = "DIR")]
    meta_dir: Option<PathBuf>,
    /// Unit in which files are cut over servers, a power of two [default: 512K]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    chunk_size: Option<u64>,
    /// Where the bytes of files are in an instance of several nodes, unless a directory has a
    /// layout of its own; `mayfly layout --help` explains them [default: $MAYFLY_LAYOUT, or home]
    #[arg(long, value_name = "home|stripe[:W]|hash[:W]|local|pool:NAME[:W]")]
    layout: Option<String>,
    /// Where the names of a directory are: at one shard of the node whose program has made it,
    /// until programs of several nodes make names in it (whole), or dealt out over all nodes from
    /// the beginning (spread) [default: whole]. In an instance with origins: whether names are
    /// changed there before a call returns (through), or later and in order (async) [default:
    /// through]
    #[arg(long, value_parser = ["whole", "spread", "through", "async"])]
    names: Option<String>,
    /// Most that files and metadata may use together [default: what the file system has free]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    capacity: Option<u64>,
    /// Time stamps to keep
    #[arg(long, value_parser = ["none", "mtime", "all"])]
    times: Option<String>,
    /// Check that a directory still exists before a name is made in it; off allows daemons not to
    /// ask each other, and the check is made all the same where it costs nothing: on one node
    /// always [default: on]
    #[arg(long, value_name = "on|off", value_parser = values::switch)]
    parent_check: Option<bool>,
    /// Serve flock and fcntl locks; off answers ENOLCK [default: on]
    #[arg(long, value_name = "on|off", value_parser = values::switch)]
    locks: Option<bool>,
    /// What survives: the daemon's death nothing (none), every acknowledged operation (process),
    /// and a power loss what was fsynced (sync) [default: process]
    #[arg(long, value_parser = ["none", "process", "sync"])]
    durability: Option<String>,
    /// Shards of the daemon, each a thread with a part of the names of directories that are dealt
    /// out; more than one pays on nodes with many cores [default: $MAYFLY_SHARDS, or 1]
    #[arg(long, value_name = "N", value_parser = parse_shards)]
    shards: Option<u32>,
    /// Processors on which each daemon runs, such as 0-3,8 [default: all that it may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Threads of each shard that wait for the disk [default: 2]
    #[arg(long, value_name = "N")]
    io_threads: Option<u32>,
    /// How long a program waits for a daemon that does not answer, on this node or another one,
    /// until its call fails with EIO, in seconds, 2 to 3600 [default: 8]
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// Tell requests in the log (`mayfly logs`) that take longer, such as 200ms, and where the time
    /// went; off: none [default: 1s]
    #[arg(long, value_name = "TIME|off", value_parser = values::slow_ms)]
    slow: Option<u64>,
    #[command(flatten)]
    origins: tier::Origins,
}

/// The name of an instance that nobody names: in a batch job the job's, so that several jobs of a
/// user on one node have one each.
pub(crate) fn usual_name() -> String {
    job().map_or_else(|| "default".to_owned(), |job| format!("job-{job}"))
}

/// Set for a whole session or test suite. Not by clap, for which `--reopen` would contradict it.
const SHARDS: &str = "MAYFLY_SHARDS";

/// The same.
const ACCESS: &str = "MAYFLY_ACCESS";

/// The same.
const CONSISTENCY: &str = "MAYFLY_CONSISTENCY";

/// The same.
const LAYOUT: &str = "MAYFLY_LAYOUT";

/// The same.
const CHUNK_SIZE: &str = "MAYFLY_CHUNK_SIZE";

/// What a variable says; words that mean nothing are refused with the other options.
fn usual_word(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

fn parse_shards(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=SHARDS_MAX).contains(number));
    number.ok_or_else(|| format!("choose 1 to {SHARDS_MAX}"))
}

fn usual_shards() -> Result<Option<u32>> {
    let Some(text) = std::env::var_os(SHARDS).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    match parse_shards(&text) {
        Ok(shards) => Ok(Some(shards)),
        Err(why) => bail!("{SHARDS}={text}: {why}"),
    }
}

impl Make {
    fn data_dirs(&self) -> Result<Vec<DataDir>> {
        let parsed = self.data_dir.iter().map(|text| DataDir::parse(text));
        Ok(parsed.collect::<Result<Vec<_>>>()?.concat())
    }

    pub(crate) fn instance(&self, name: Option<String>, keep: bool) -> Result<Instance> {
        let usual = Options::default();
        let shards = match self.shards {
            Some(shards) => shards,
            None => usual_shards()?.unwrap_or(usual.shards),
        };
        let chunk_bytes = match (self.chunk_size, usual_word(CHUNK_SIZE)) {
            (Some(bytes), _) => bytes,
            (None, Some(text)) => {
                size::parse(&text).map_err(|why| anyhow::anyhow!("{CHUNK_SIZE}={text}: {why}"))?
            }
            (None, None) => usual.chunk_bytes,
        };
        Ok(Instance {
            audience: Audience::default(),
            name,
            mount: self.mount.clone(),
            data_dirs: self.data_dirs()?,
            meta_dir: self.meta_dir.clone(),
            keep,
            options: Options {
                chunk_bytes,
                capacity_bytes: self.capacity,
                times: self.times.clone().unwrap_or(usual.times),
                parent_check: self.parent_check.unwrap_or(usual.parent_check),
                locks: self.locks.unwrap_or(usual.locks),
                durability: self.durability.clone().unwrap_or(usual.durability),
                access: self.access.clone().or_else(|| usual_word(ACCESS)).unwrap_or(usual.access),
                consistency: (self.consistency.clone().or_else(|| usual_word(CONSISTENCY)))
                    .unwrap_or(usual.consistency),
                names: self.names_of_directories().unwrap_or(usual.names),
                shards,
                cpus: self.cpus.clone(),
                io_threads: self.io_threads.unwrap_or(usual.io_threads),
                network_threads: usual.network_threads,
                deadline_seconds: self.deadline.unwrap_or_else(|| self.usual_deadline()),
                slow_ms: self.slow.unwrap_or(usual.slow_ms),
                layout: self.layout.clone().or_else(|| usual_word(LAYOUT)).unwrap_or(usual.layout),
                pools: usual.pools,
                origins: self.origins_with_names()?,
                validate: self.origins.validate.clone().unwrap_or(usual.validate),
                write_back: self.origins.write_back(),
            },
        })
    }
}
