//! Runs seeds.

use std::process::ExitCode;

use clap::{Args, Parser};
use mayfly_daemon::Directories;
use mayfly_sim::{
    client::Opening,
    node::Chunks,
    origin,
    plan::{Plan, Shape},
    shrink::{Part, shrink},
    world::{Options, Report, run},
};

/// Lines of what is wrong with a run that are printed.
const WRONG_MAX: usize = 4;

/// Where the chunks of files are; otherwise at home.
#[derive(Debug, Args)]
struct Placing {
    /// The chunks of files go round all nodes.
    #[arg(long)]
    striped: bool,
    /// Files are on the nodes whose clients make them.
    #[arg(long, conflicts_with = "striped")]
    local: bool,
    /// Files go on at other nodes when they are longer than two chunks, as if their homes were
    /// full.
    #[arg(long, conflicts_with_all = ["striped", "local"])]
    outgrowing: bool,
}

/// Which seeds are run.
#[derive(Debug, Args)]
struct Runs {
    /// So many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// From this one on.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// This one only.
    #[arg(long)]
    seed: Option<u64>,
}

impl Runs {
    fn seeds(&self) -> std::ops::Range<u64> {
        let (from, count) = self.seed.map_or((self.from, self.seeds), |seed| (seed, 1));
        from..from + count
    }
}

/// What a plan with an origin has besides.
#[derive(Debug, clap::Args)]
struct More {
    /// With `--origin`: directories move, links are refused, files are pinned, what is dirty goes
    /// back by itself, and space is short.
    #[arg(long, requires = "origin")]
    wide: bool,
    /// With `--origin`: who wants one name does not wait until all of its directory are listed.
    #[arg(long, requires = "origin")]
    hurried: bool,
}

/// Runs the daemons of many nodes in simulation, one run for each seed.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    runs: Runs,
    /// Nodes of every run; otherwise as the seed says.
    #[arg(long)]
    nodes: Option<u32>,
    /// Shards of each node; otherwise as the seed says.
    #[arg(long)]
    shards: Option<u32>,
    #[command(flatten)]
    placing: Placing,
    /// The names of directories are at one shard each (whole), dealt out (spread), or anywhere and
    /// moving (restless); otherwise as the seed says.
    #[arg(long, value_parser = directories)]
    directories: Option<Directories>,
    /// Some nodes own no names, and some of these no bytes either.
    #[arg(long)]
    roles: bool,
    /// All clients work on the content of one file, and daemons die often.
    #[arg(long)]
    bytes: bool,
    /// All clients make, cut and remove a few files, and daemons and clients die often.
    #[arg(long, conflicts_with = "bytes")]
    scraps: bool,
    /// All clients lock two files.
    #[arg(long, conflicts_with_all = ["bytes", "scraps"])]
    locks: bool,
    /// All clients make and remove names in two directories.
    #[arg(long, conflicts_with_all = ["bytes", "scraps", "locks"])]
    entries: bool,
    /// Clients make and remove names without asking where that is delegated to them.
    #[arg(long)]
    submit: bool,
    /// Most daemons that die do so in the middle of a turn; needs `--profile sim` of cargo.
    #[arg(long)]
    within: bool,
    /// Files are open for a write or a read only, and cut by their names.
    #[arg(long)]
    by_name: bool,
    /// Session consistency: what was sent on before it was closed is seen by who opens later.
    #[arg(long, conflicts_with = "by_name")]
    session: bool,
    /// Clients read and write by themselves what they have leave for, and stand still in between.
    #[arg(long)]
    own: bool,
    /// A node whose root shows a directory outside that is slow, fails and is changed by others.
    #[arg(long, conflicts_with_all = ["bytes", "scraps", "locks", "entries", "submit", "own"])]
    origin: bool,
    #[command(flatten)]
    more: More,
    /// Only this part of what the seed says, as printed for a run that failed.
    #[arg(long)]
    part: Option<Part>,
    /// Print everything that happens.
    #[arg(long)]
    trace: bool,
    /// Do not look for a smaller run that fails.
    #[arg(long)]
    no_shrink: bool,
}

fn directories(word: &str) -> Result<Directories, String> {
    match word {
        "whole" => Ok(Directories::Whole),
        "spread" => Ok(Directories::Spread),
        "restless" => Ok(Directories::Restless),
        other => Err(format!("{other} is none of whole, spread, restless")),
    }
}

impl Arguments {
    fn run(&self, plan: &Plan, trace: bool) -> Report {
        let opening = match (self.by_name, self.session) {
            (true, _) => Opening::Brief,
            (_, true) => Opening::Session,
            _ => Opening::Kept,
        };
        let (chunks, directories) = (self.chunks(), self.directories);
        let (own, submits) = (self.own, self.submit);
        run(plan, Options { trace, bug: None, chunks, directories, opening, own, submits })
    }

    fn chunks(&self) -> Chunks {
        match (self.placing.striped, self.placing.local, self.placing.outgrowing) {
            (true, ..) => Chunks::OnAll,
            (_, true, _) => Chunks::AtMaker,
            (.., true) => Chunks::Outgrowing,
            _ => Chunks::AtHome,
        }
    }

    fn shape(&self) -> Shape {
        let Arguments { nodes, shards, roles, bytes, scraps, locks, entries, within, .. } = *self;
        Shape { nodes, shards, roles, bytes, scraps, locks, entries, within }
    }

    fn plan(&self, seed: u64) -> Plan {
        let plan = Plan::draw(seed, self.shape());
        self.part.as_ref().map_or(plan.clone(), |part| part.of(&plan))
    }

    fn command(&self, seed: u64, part: &Part) -> String {
        let profile = if self.within { "--profile sim" } else { "--release" };
        let mut command = format!("cargo run {profile} -p mayfly-sim -- --seed {seed}");
        if let Some(nodes) = self.nodes {
            command += &format!(" --nodes {nodes}");
        }
        if let Some(shards) = self.shards {
            command += &format!(" --shards {shards}");
        }
        if self.placing.striped {
            command += " --striped";
        }
        if self.placing.outgrowing {
            command += " --outgrowing";
        }
        match self.directories {
            Some(Directories::Whole) => command += " --directories whole",
            Some(Directories::Spread) => command += " --directories spread",
            Some(Directories::Restless) => command += " --directories restless",
            None => {}
        }
        if self.placing.local {
            command += " --local";
        }
        if self.roles {
            command += " --roles";
        }
        if self.bytes {
            command += " --bytes";
        }
        if self.scraps {
            command += " --scraps";
        }
        if self.within {
            command += " --within";
        }
        if self.locks {
            command += " --locks";
        }
        if self.entries {
            command += " --entries";
        }
        if self.submit {
            command += " --submit";
        }
        if self.by_name {
            command += " --by-name";
        }
        if self.session {
            command += " --session";
        }
        if self.own {
            command += " --own";
        }
        command + &format!(" --part {part}")
    }

    fn tell(&self, seed: u64, plan: &Plan, report: &Report) {
        println!("seed {seed} fails: {} nodes of {} shards", plan.nodes, plan.shards);
        let mut smaller = report.clone();
        if !self.no_shrink && self.part.is_none() {
            let kind = report.wrong[0].kind();
            let fails =
                |plan: &Plan| self.run(plan, false).wrong.iter().any(|wrong| wrong.kind() == kind);
            let part = shrink(plan, fails);
            smaller = self.run(&part.of(plan), false);
            println!("  repeat: {}", self.command(seed, &part));
            for (at_ns, trouble) in &part.of(plan).troubles {
                println!("  trouble at {:.6}: {trouble:?}", *at_ns as f64 / 1e9);
            }
        }
        for wrong in smaller.wrong.iter().take(WRONG_MAX) {
            println!("  {}", wrong.0);
        }
    }
}

impl Arguments {
    /// Runs seeds of nodes that have an origin.
    fn run_origins(&self) -> ExitCode {
        let seeds = self.runs.seeds();
        let count = seeds.end - seeds.start;
        let (mut failed, mut jobs, mut items, mut conflicts) = (0, 0, 0, 0);
        for seed in seeds {
            let drawn = origin::Plan::draw(seed, self.nodes);
            let wide = if self.more.wide { drawn.widened() } else { drawn };
            let whole = if self.more.hurried { wide.hurried() } else { wide };
            let plan = self.part.as_ref().map_or_else(|| whole.clone(), |part| part.of(&whole));
            let options = origin::Options { trace: self.trace, bug: None };
            let outcome = origin::run(&plan, options);
            jobs += outcome.jobs;
            items += outcome.items;
            conflicts += outcome.conflicts;
            if !outcome.wrong.is_empty() {
                failed += 1;
                self.tell_of_origin(&plan, outcome);
            }
        }
        println!(
            "{count} seeds, {failed} failed; {jobs} things done inside, {items} outside, \
             {conflicts} copies"
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn tell_of_origin(&self, plan: &origin::Plan, mut outcome: origin::Outcome) {
        let seed = plan.seed;
        println!("seed {seed} fails: {} nodes of {} shards", plan.nodes, plan.shards);
        let nodes = self.nodes.map_or_else(String::new, |nodes| format!(" --nodes {nodes}"));
        let wide = match (self.more.wide, self.more.hurried) {
            (true, true) => " --wide --hurried",
            (true, false) => " --wide",
            (false, true) => " --hurried",
            (false, false) => "",
        };
        let mut command =
            format!("cargo run --release -p mayfly-sim -- --origin{wide}{nodes} --seed {seed}");
        if !self.no_shrink && self.part.is_none() {
            let kind = origin_kind(&outcome);
            let run = |plan: &origin::Plan| origin::run(plan, origin::Options::default());
            let part = shrink(plan, |plan| {
                let smaller = run(plan);
                !smaller.wrong.is_empty() && origin_kind(&smaller) == kind
            });
            outcome = run(&part.of(plan));
            command = format!("{command} --part {part}");
        }
        println!("  repeat: {command}");
        for wrong in outcome.wrong.iter().take(WRONG_MAX) {
            println!("  {wrong}");
        }
    }
}

/// What is wrong, without what is in one run only.
fn origin_kind(outcome: &origin::Outcome) -> String {
    let first = outcome.wrong.first().map_or("", String::as_str);
    let words = first.split_once(": ").map_or(first, |(_, words)| words).split_whitespace();
    let plain = |word: &&str| word.chars().all(|letter| letter.is_ascii_alphabetic());
    words.filter(plain).collect::<Vec<_>>().join(" ")
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.within && cfg!(panic = "abort") {
        eprintln!("this program cannot let daemons die within a turn: build it by --profile sim");
        return ExitCode::FAILURE;
    }
    if arguments.origin {
        return arguments.run_origins();
    }
    let seeds = arguments.runs.seeds();
    let (mut failed, mut answers, mut submitted, mut good, mut undecided) = (0, 0, 0, 0, 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let plan = arguments.plan(seed);
        let report = arguments.run(&plan, arguments.trace);
        answers += report.answers;
        submitted += report.submitted;
        good += report.good;
        undecided += report.undecided;
        if !report.wrong.is_empty() {
            failed += 1;
            arguments.tell(seed, &plan, &report);
        }
    }
    println!(
        "{count} seeds, {failed} failed; {answers} answers, {submitted} submitted; \
         histories: {good} right, {undecided} undecided"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
