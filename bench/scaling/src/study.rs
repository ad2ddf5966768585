//! What is looked at: each workload at each number of nodes, simulated where that is feasible and
//! by the model beyond.

use anyhow::{Context, Result};
use mayfly_daemon::Directories;
use mayfly_sim::node::Chunks;
use mayfly_types::limits::CHUNK_BYTES_MIN;

use crate::{
    cluster::{Act, Cluster, Measured, PROCESSES},
    costs::{self, CORES, Cost, Daemon, Machine, Operation},
    model::{self, Target},
};

/// Numbers of nodes in the tables and plots.
pub const NODES: [u32; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// Bytes of a small transfer.
pub const SMALL_BYTES: u32 = 8 << 10;
/// Operations of each process before those that are measured: every node has become a member of
/// the directory, and every connection is there.
const WARM: u32 = 6;
/// How often each of several daemons of a host has asked each other daemon by then.
const ASKED_TIMES: u32 = 4;
/// Operations of each process that are measured.
const OPERATIONS: u32 = 12;
/// The same of looks that processes take by themselves.
const LOOKS: u32 = 240;

/// Longer than it takes until what was made counts as not being changed.
const AT_REST_NS: u64 = 1_500_000_000;

/// Nodes up to which long transfers are simulated.
const LONG_NODES_MAX: u32 = 32;

/// Shards and network threads of a node's daemon in the table that compares them, besides one.
pub const THREADS: [u32; 2] = [4, 16];

/// Daemons of each host in the table that compares them with one.
pub const OF_HOST: u32 = 4;

/// What is looked at with several daemons on each host.
pub const ON_SEVERAL: [Workload; 5] =
    [Workload::Create, Workload::Stat, Workload::Remove, Workload::OwnCreate, Workload::OwnRemove];

/// The same, with their daemons.
pub fn with_more_daemons() -> impl Iterator<Item = (Workload, Daemon)> {
    ON_SEVERAL.into_iter().map(|of| (of, Daemon::beside(OF_HOST)))
}

/// What is dealt out, with daemons that have more threads.
pub fn with_more_threads() -> impl Iterator<Item = (Workload, Daemon)> {
    THREADS.into_iter().flat_map(|threads| DEALT.map(|of| (of, Daemon::of(threads))))
}

/// Workloads in one directory, whose names are dealt out to all shards.
pub const DEALT: [Workload; 3] = [Workload::Create, Workload::Stat, Workload::Remove];

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Empty files in one directory, which all its nodes have entries of already.
    Create,
    /// The same files are looked at.
    Stat,
    /// The same files are removed.
    Remove,
    /// Empty files in a directory of each process, which its node has made.
    OwnCreate,
    /// The same files are looked at.
    OwnStat,
    /// The same files are removed.
    OwnRemove,
    /// Small files that one process has made in one directory are read by all.
    DatasetFirst,
    /// The same files are read again.
    DatasetSecond,
    /// The same once more: now their nodes keep them.
    DatasetThird,
    /// One file, at which all look.
    HotFile,
    /// One small file, which all open and read.
    HotRead,
    /// A file for each process, written in small pieces.
    WriteEach,
    /// The same, read.
    ReadEach,
    /// One file for all, at its home alone.
    WriteOneHome,
    /// One file for all, its chunks on all nodes in turn.
    WriteOneStriped,
    /// A file for each process, written 1 MiB at a time.
    WriteLong,
    /// The same, read.
    ReadLong,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 17] = [
        Workload::Create,
        Workload::Stat,
        Workload::Remove,
        Workload::HotFile,
        Workload::HotRead,
        Workload::OwnCreate,
        Workload::OwnStat,
        Workload::OwnRemove,
        Workload::DatasetFirst,
        Workload::DatasetSecond,
        Workload::DatasetThird,
        Workload::WriteEach,
        Workload::ReadEach,
        Workload::WriteOneHome,
        Workload::WriteOneStriped,
        Workload::WriteLong,
        Workload::ReadLong,
    ];

    /// In tables and plots.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Create => "create, one directory",
            Workload::Stat => "stat, one directory",
            Workload::Remove => "remove, one directory",
            Workload::OwnCreate => "create, own directories",
            Workload::OwnStat => "stat, own directories",
            Workload::OwnRemove => "remove, own directories",
            Workload::DatasetFirst => "dataset of one node, first read",
            Workload::DatasetSecond => "dataset of one node, second read",
            Workload::DatasetThird => "dataset of one node, third read",
            Workload::HotFile => "stat of one file",
            Workload::HotRead => "read of one file",
            Workload::WriteEach => "8 KiB write, file per process",
            Workload::ReadEach => "8 KiB read, file per process",
            Workload::WriteOneHome => "8 KiB write, one file at home",
            Workload::WriteOneStriped => "8 KiB write, one striped file",
            Workload::WriteLong => "1 MiB write, file per process",
            Workload::ReadLong => "1 MiB read, file per process",
        }
    }

    /// The table that has it.
    #[must_use]
    pub fn table(self) -> &'static str {
        match self {
            Workload::Create
            | Workload::Stat
            | Workload::Remove
            | Workload::HotFile
            | Workload::HotRead => "metadata",
            Workload::OwnCreate | Workload::OwnStat | Workload::OwnRemove => "own",
            Workload::DatasetFirst | Workload::DatasetSecond | Workload::DatasetThird => "dataset",
            _ => "data",
        }
    }

    /// Bytes that one request moves.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Workload::WriteLong | Workload::ReadLong => costs::LONG_REQUEST_BYTES,
            Workload::WriteEach
            | Workload::ReadEach
            | Workload::WriteOneHome
            | Workload::WriteOneStriped => SMALL_BYTES,
            _ => 0,
        }
    }

    /// Whether it is the bytes that count.
    #[must_use]
    pub fn is_long(self) -> bool {
        matches!(self, Workload::WriteLong | Workload::ReadLong)
    }

    /// Requests of a process that are under way at a time: all of a MiB.
    fn depth(self) -> u32 {
        if self.is_long() { (1 << 20) / costs::LONG_REQUEST_BYTES } else { 1 }
    }

    /// Lanes that each process needs.
    fn lanes(self) -> u32 {
        self.depth().max(2)
    }

    fn operation(self, daemon: Daemon) -> Operation {
        if let Some(at) = DEALT.iter().position(|of| *of == self).filter(|_| daemon.shards > 1) {
            return costs::DEALT[at];
        }
        match self {
            Workload::Create => costs::CREATE,
            Workload::OwnCreate => costs::OWN_CREATE,
            // Each node keeps it under a lease.
            Workload::OwnStat | Workload::HotFile => costs::OWN_STAT,
            Workload::OwnRemove => costs::OWN_REMOVE,
            Workload::DatasetFirst | Workload::DatasetSecond => costs::LOOK,
            Workload::DatasetThird | Workload::HotRead => costs::KEPT_LOOK,
            Workload::Stat => costs::STAT,
            Workload::Remove => costs::REMOVE,
            Workload::ReadEach => costs::READ_8K,
            Workload::WriteLong => costs::WRITE_1M,
            Workload::ReadLong => costs::READ_1M,
            Workload::WriteEach | Workload::WriteOneHome | Workload::WriteOneStriped => {
                costs::WRITE_8K
            }
        }
    }

    fn target(self) -> Target {
        match self {
            Workload::WriteOneHome | Workload::DatasetFirst | Workload::DatasetSecond => {
                Target::One
            }
            Workload::HotFile
            | Workload::HotRead
            | Workload::DatasetThird
            | Workload::OwnCreate
            | Workload::OwnStat
            | Workload::OwnRemove => Target::Own,
            _ => Target::All,
        }
    }

    fn chunks(self) -> Chunks {
        match self {
            Workload::WriteOneStriped => Chunks::Striped(CHUNK_BYTES_MIN),
            _ => Chunks::AtHome,
        }
    }

    /// Files of all processes are in one directory where it is about their bytes, and their homes
    /// are dealt out like names.
    fn directories(self) -> Directories {
        if self.bytes() > 0 { Directories::Spread } else { Directories::Whole }
    }

    /// Requests of one operation that is counted.
    fn requests(self) -> f64 {
        if self.bytes() > 0 { 1.0 } else { self.operation(Daemon::USUAL).requests }
    }

    /// One instance of so many nodes at work.
    ///
    /// # Errors
    /// An operation failed, or was not answered.
    pub fn simulate(self, nodes: u32) -> Result<Measured> {
        self.simulate_with(nodes, Daemon::USUAL)
    }

    /// The same with other daemons.
    ///
    /// # Errors
    /// The same.
    pub fn simulate_with(self, nodes: u32, daemon: Daemon) -> Result<Measured> {
        let cost = self.operation(daemon).cost();
        let machine = Machine::new(CORES[0], daemon, &cost);
        let placing = (self.chunks(), self.directories());
        let mut cluster = Cluster::start(&machine, nodes, placing, self.lanes())?;
        prepare(self, &mut cluster, cost)?;
        let depth = self.depth() as usize;
        let measured = cluster.phase(cost, depth, |process| self.acts(process));
        measured.with_context(|| format!("{} on {nodes} nodes", self.name()))
    }

    fn acts(self, process: u32) -> Vec<Act> {
        let file = |at| format!("d/f.{process}.{at}");
        let own = |at| format!("o{process}/f.{at}");
        let each = |act: &dyn Fn(u32) -> Act| (0..OPERATIONS).map(act).collect();
        // They take no time of a daemon, and all processes keep step.
        let many = |act: &dyn Fn(u32) -> Act| (0..LOOKS).map(|at| act(at % OPERATIONS)).collect();
        let count = self.bytes();
        let bytes = u64::from(count);
        match self {
            Workload::Create => each(&|at| Act::Create(file(at))),
            Workload::Stat => each(&|at| Act::Stat(file(at))),
            Workload::Remove => each(&|at| Act::Unlink(file(at))),
            Workload::OwnCreate => each(&|at| Act::Create(own(at))),
            Workload::OwnStat => many(&|at| Act::Stat(own(at))),
            Workload::OwnRemove => each(&|at| Act::Unlink(own(at))),
            Workload::DatasetFirst | Workload::DatasetSecond | Workload::DatasetThird => {
                each(&|at| Act::Look(file(at)))
            }
            Workload::HotRead => each(&|_| Act::Look("d/hot".to_owned())),
            Workload::HotFile => many(&|_| Act::Stat("d/hot".to_owned())),
            Workload::WriteEach => each(&|at| Act::Write(u64::from(at) * bytes, count)),
            Workload::ReadEach => each(&|at| Act::Read(u64::from(at) * bytes, count)),
            // The same bytes again, so that hundreds of nodes fit into memory.
            Workload::WriteLong => each(&|at| Act::Write(u64::from(at % 4) * bytes, count)),
            Workload::ReadLong => each(&|at| Act::Read(u64::from(at % 4) * bytes, count)),
            Workload::WriteOneHome | Workload::WriteOneStriped => {
                let first = u64::from(process * OPERATIONS);
                each(&|at| Act::Write((first + u64::from(at)) * bytes, SMALL_BYTES))
            }
        }
    }
}

/// How many names each process makes before: several daemons of a host have fewer processes each,
/// and more others to be asked for the first time.
fn warm_up(cluster: &Cluster) -> u32 {
    match cluster.daemons_of_host() {
        1 => WARM,
        of_host => {
            let each = cluster.processes() / cluster.nodes();
            (WARM * of_host).max(ASKED_TIMES * cluster.nodes() / each)
        }
    }
}

/// Everything before what is measured.
fn prepare(workload: Workload, cluster: &mut Cluster, cost: Cost) -> Result<()> {
    let first = |process: u32, act: Act| if process == 0 { vec![act] } else { Vec::new() };
    cluster.phase(cost, 1, |process| first(process, Act::MakeDirectory("d".to_owned())))?;
    match workload {
        Workload::Create | Workload::Stat | Workload::Remove => {
            let count = warm_up(cluster);
            let warm = |process| (0..count).map(move |at| format!("d/w.{process}.{at}"));
            cluster.phase(cost, 1, |process| warm(process).map(Act::Create).collect())?;
            if workload != Workload::Create {
                cluster.phase(cost, 1, |process| Workload::Create.acts(process))?;
            }
        }
        Workload::OwnCreate | Workload::OwnStat | Workload::OwnRemove => {
            let make = |process| vec![Act::MakeDirectory(format!("o{process}"))];
            cluster.phase(cost, 1, make)?;
            // From here on each node knows where its directories are.
            let warm = |process| vec![Act::Create(format!("o{process}/w"))];
            cluster.phase(cost, 1, warm)?;
            if workload != Workload::OwnCreate {
                cluster.phase(cost, 1, |process| Workload::OwnCreate.acts(process))?;
            }
        }
        Workload::DatasetFirst | Workload::DatasetSecond | Workload::DatasetThird => {
            let processes = cluster.processes();
            let all = || (0..processes).flat_map(|of| Workload::Create.acts(of)).collect();
            cluster.phase(cost, 1, |process| if process == 0 { all() } else { Vec::new() })?;
            cluster.begin_program(0, workload.lanes())?;
            cluster.rest(AT_REST_NS);
            let before = match workload {
                Workload::DatasetSecond => 1,
                Workload::DatasetThird => 2,
                _ => 0,
            };
            for _ in 0..before {
                cluster.phase(cost, 1, |process| workload.acts(process))?;
            }
        }
        Workload::HotRead | Workload::HotFile => {
            let hot = || "d/hot".to_owned();
            cluster.phase(cost, 1, |process| first(process, Act::Create(hot())))?;
            cluster.begin_program(0, workload.lanes())?;
            cluster.rest(AT_REST_NS);
            let look = if workload == Workload::HotRead { Act::Look } else { Act::Stat };
            cluster.phase(cost, 1, |_| vec![look(hot()); 8])?;
        }
        Workload::WriteEach | Workload::ReadEach | Workload::WriteLong | Workload::ReadLong => {
            let own = |process| vec![Act::Open(format!("d/e.{process}"))];
            cluster.phase(cost, 1, own)?;
            // What outgrows its record gets an object once.
            let fill = if workload.is_long() { Workload::WriteLong } else { Workload::WriteEach };
            cluster.phase(cost, 1, |process| fill.acts(process))?;
        }
        Workload::WriteOneHome | Workload::WriteOneStriped => {
            let one = || Act::Open("d/one".to_owned());
            cluster.phase(cost, 1, |process| first(process, one()))?;
            let end = u64::from(cluster.processes() * OPERATIONS - 1);
            let last = || Act::Write(end * u64::from(SMALL_BYTES), SMALL_BYTES);
            cluster.phase(cost, 1, |process| first(process, last()))?;
            cluster.phase(
                cost,
                1,
                |process| if process == 0 { Vec::new() } else { vec![one()] },
            )?;
            cluster.phase(cost, 1, |process| workload.acts(process))?;
        }
    }
    Ok(())
}

/// Where a point comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Point {
    /// The product's daemons, simulated.
    Simulated(f64),
    /// The model: the least and the most that it may be.
    Modelled(f64, f64),
}

impl Point {
    /// One number.
    #[must_use]
    pub fn middle(self) -> f64 {
        match self {
            Point::Simulated(rate) => rate,
            Point::Modelled(least, most) => (least * most).sqrt(),
        }
    }
}

/// A workload at every number of nodes.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Which.
    pub workload: Workload,
    /// Its daemons.
    pub daemon: Daemon,
    /// By number of nodes.
    pub points: Vec<(u32, Point)>,
    /// What was simulated.
    pub measured: Vec<(u32, Measured)>,
    /// The simulated rate by the model's, at the largest simulated number of nodes.
    pub factor: f64,
    /// How far the model, fitted at a quarter of that number, was off at the largest.
    pub error: f64,
}

/// Simulates up to `nodes_max` nodes and goes on by the model.
///
/// # Errors
/// As [`Workload::simulate`].
pub fn curve(workload: Workload, daemon: Daemon, nodes_max: u32) -> Result<Curve> {
    let mut measured = Vec::new();
    // They move real bytes through every daemon.
    let nodes_max = if workload.is_long() { nodes_max.min(LONG_NODES_MAX) } else { nodes_max };
    for nodes in NODES.into_iter().filter(|nodes| *nodes <= nodes_max) {
        measured.push((nodes, workload.simulate_with(nodes, daemon)?));
    }
    Ok(extend(workload, daemon, measured))
}

fn extend(workload: Workload, daemon: Daemon, measured: Vec<(u32, Measured)>) -> Curve {
    let cost = workload.operation(daemon).cost();
    let machine = Machine::new(CORES[0], daemon, &cost);
    let model = |nodes| {
        let (nodes, each) = (nodes * daemon.of_host, PROCESSES / daemon.of_host);
        let processes = each * workload.depth();
        model::rate(&cost, &machine, nodes, workload.target(), workload.requests(), processes)
    };
    let factors: Vec<f64> = measured.iter().map(|(nodes, of)| of.rate / model(*nodes)).collect();
    let last = factors.len() - 1;
    let (factor, before) = (factors[last], factors[last.saturating_sub(2)]);
    // What the factor lost with the last two doublings it may lose with each further two.
    let falls = (factor / before).min(1.0);
    let largest = f64::from(measured[last].0);
    let point = |nodes: u32| {
        if let Some((_, of)) = measured.iter().find(|(of, _)| *of == nodes) {
            return Point::Simulated(of.rate);
        }
        let rate = model(nodes) * factor;
        let steps = (f64::from(nodes) / largest).log2() / 2.0;
        Point::Modelled(rate * falls.powf(steps), rate)
    };
    let points = NODES.into_iter().map(|nodes| (nodes, point(nodes))).collect();
    Curve { workload, daemon, points, measured, factor, error: before / factor - 1.0 }
}
