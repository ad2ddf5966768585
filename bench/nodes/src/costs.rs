//! Processor time of each thread of the daemons for one operation, with 16 processes at work: what
//! the scaling study (`bench/scaling`) takes for its costs. How many operations a second that was
//! tells whether somebody else had the processors.
//!
//! With so many processes the daemons seldom sleep, and requests travel together; that is how nodes
//! are loaded that the study is about. What waking up costs one lonely request is in `latency`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::Scratch;

use crate::{
    instance::{self, mount},
    placing, report,
};

const PROCESSES: usize = 16;
const ROUNDS: usize = 3;
const OPERATIONS: usize = 400;
const PAYLOAD_BYTES: usize = 8 << 10;
const LONG_BYTES: usize = 1 << 20;
const LONG_OPERATIONS: usize = 10;

/// What is done, in this order, and how often by each process.
const KINDS: [(&str, usize); 7] = [
    ("create", OPERATIONS),
    ("stat", OPERATIONS),
    ("remove", OPERATIONS),
    ("write-8K", OPERATIONS),
    ("read-8K", OPERATIONS),
    ("write-1M", LONG_OPERATIONS),
    ("read-1M", LONG_OPERATIONS),
];
/// Whose names and files: those of the other node, or the own one's.
const PLACES: [(&str, usize); 2] = [("other", 1), ("own", 0)];
/// Files that each process makes, looks at and removes in a directory of its own.
const OWN_OPERATIONS: usize = 4000;
/// What is done there, and where that is.
const OWN_KINDS: [&str; 3] = ["create", "stat", "remove"];
const OWN: &str = "directory";
/// Bytes of each file of the dataset.
const FILE_BYTES: usize = 3 << 10;
/// The first look at a dataset, and the second one.
const LOOKS: [&str; 2] = ["first", "second"];
/// What the columns are.
const THREADS: [&str; 4] = ["front", "shards", "network", "pool"];

pub(crate) fn run() -> Result<()> {
    of_names_elsewhere()?;
    of_directories()
}

/// Directories that are whole: each process's own, of its own node, and a dataset of another one.
fn of_directories() -> Result<()> {
    let scratch = Scratch::new("nodes-costs-whole")?;
    let instance = instance::start_whole(&scratch, "whole", 2)?;
    let daemons = [0, 1].map(|node| instance.daemon_pid_of(node).map(|pid| pid.to_string()));
    let [first, second] = daemons;
    let (first, second) = (first?, second?);
    let mut said = instance::child(&instance, 0, &["__costs", "directories", &first, &second])?;
    instance::child(&instance, 0, &["__costs", "make"])?;
    said += &instance::child(&instance, 1, &["__costs", "dataset", &second, &first])?;
    println!(
        "\n| µs of processor time, {PROCESSES} processes | process | asking node: front | other \
         shards | network | pool | owner: front | other shards | network | pool | operations/s |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    let own = OWN_KINDS.map(|kind| (format!("{kind}, own directory"), format!("{kind}-{OWN}")));
    let looks = LOOKS.map(|look| (format!("dataset, {look} look"), format!("look-{look}")));
    for (says, name) in own.into_iter().chain(looks) {
        let of = |what: &str| report::numbers(&said, &format!("{name}-{what}"));
        let mut row = format!("| {says} | {} |", report::span(&of("process")));
        for node in 0..2 {
            for thread in THREADS {
                row.push_str(&format!(" {} |", report::span(&of(&format!("{node}-{thread}")))));
            }
        }
        println!("{row} {:.0} |", report::median(&of("rate")));
    }
    instance.stop()
}

fn of_names_elsewhere() -> Result<()> {
    let scratch = Scratch::new("nodes-costs")?;
    let instance = instance::start(&scratch, "costs", 2)?;
    let daemons = [0, 1].map(|node| instance.daemon_pid_of(node).map(|pid| pid.to_string()));
    let [here, there] = daemons;
    let said = instance::child(&instance, 0, &["__costs", "all", &here?, &there?])?;
    println!(
        "\n| µs of processor time, {PROCESSES} processes | asking node: front | other shards | \
         network | pool | owner: front | other shards | network | pool | operations/s |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for (place, _) in PLACES {
        for (kind, _) in KINDS {
            let mut row = format!("| {kind}, {place} node's |");
            for node in 0..2 {
                for thread in THREADS {
                    let name = format!("{kind}-{place}-{node}-{thread}");
                    row.push_str(&format!(" {} |", report::span(&report::numbers(&said, &name))));
                }
            }
            let rates = report::numbers(&said, &format!("{kind}-{place}-rate"));
            println!("{row} {:.0} |", report::median(&rates));
        }
    }
    instance.stop()
}

pub(crate) fn child(words: &[&str]) -> Result<()> {
    match words {
        ["all", here, there] => all([here, there]),
        ["directories", here, there] => own_directories([here, there]),
        ["make"] => make_datasets(),
        ["dataset", here, there] => look_at_datasets([here, there]),
        ["loop", kind, directory, place, number] => repeat(kind, directory, place, number),
        _ => bail!("no such role: {words:?}"),
    }
}

/// Processor time of a daemon's threads, ns, by what they are for.
fn threads(pid: &str) -> Result<BTreeMap<&'static str, u64>> {
    let mut sums = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
        let Ok(used) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        let used: u64 = used.split(' ').next().context("a number")?.parse()?;
        let is_first = task.file_name().to_string_lossy() == pid;
        let thread = match name.trim() {
            _ if is_first => "front",
            "mayfly-net" => "network",
            name if name.starts_with("shard-") => "shards",
            _ => "pool",
        };
        *sums.entry(thread).or_default() += used;
    }
    Ok(sums)
}

fn all(daemons: [&str; 2]) -> Result<()> {
    let directory = mount()?.join(format!("work-{}", std::process::id()));
    fs::create_dir(&directory)?;
    for round in 0..=ROUNDS {
        for (place, _) in PLACES {
            for (kind, operations) in KINDS {
                let run = together(kind, &directory, place, daemons)?;
                // The first round is for nobody: files grow, connections are made.
                if round > 0 {
                    run.print(&format!("{kind}-{place}"), operations * PROCESSES);
                }
            }
        }
    }
    Ok(fs::remove_dir_all(directory)?)
}

fn own_directories(daemons: [&str; 2]) -> Result<()> {
    let directory = mount()?;
    for round in 0..=ROUNDS {
        for kind in OWN_KINDS {
            let run = together(kind, &directory, OWN, daemons)?;
            if round > 0 {
                run.print(&format!("{kind}-{OWN}"), OWN_OPERATIONS * PROCESSES);
            }
        }
    }
    Ok(())
}

fn dataset(round: usize) -> Result<PathBuf> {
    Ok(mount()?.join(format!("dataset-{round}")))
}

fn make_datasets() -> Result<()> {
    for round in 0..=ROUNDS {
        let directory = dataset(round)?;
        fs::create_dir(&directory)?;
        for file in 0..PROCESSES * OPERATIONS {
            fs::write(directory.join(file.to_string()), [1; FILE_BYTES])?;
        }
    }
    Ok(())
}

fn look_at_datasets(daemons: [&str; 2]) -> Result<()> {
    for round in 0..=ROUNDS {
        for look in LOOKS {
            let run = together("look", &dataset(round)?, look, daemons)?;
            if round > 0 {
                run.print(&format!("look-{look}"), OPERATIONS * PROCESSES);
            }
        }
    }
    Ok(())
}

/// What some processes together took.
struct Run {
    /// Processor time of the processes.
    processes_ns: u64,
    /// Processor time of each daemon's threads.
    used: [Vec<(&'static str, u64)>; 2],
    lasted: Duration,
}

impl Run {
    fn print(&self, name: &str, operations: usize) {
        let operations = operations as f64;
        for (of, used) in self.used.iter().enumerate() {
            for (thread, used_ns) in used {
                println!("{name}-{of}-{thread} {}", *used_ns as f64 / 1000.0 / operations);
            }
        }
        println!("{name}-process {}", self.processes_ns as f64 / 1000.0 / operations);
        println!("{name}-rate {}", operations / self.lasted.as_secs_f64());
    }
}

/// All of them begin when all are there, and nobody ends before all are done.
fn together(kind: &str, directory: &Path, place: &str, daemons: [&str; 2]) -> Result<Run> {
    let directory = directory.display().to_string();
    let start = |number: usize| {
        let words = ["__costs", "loop", kind, &directory, place, &number.to_string()];
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command.spawn()?)
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(start).collect::<Result<_>>()?;
    let said = |child: &mut Child| child.stdout.take().context("its output is a pipe");
    let mut said: Vec<_> =
        children.iter_mut().map(|child| Ok(BufReader::new(said(child)?))).collect::<Result<_>>()?;
    let mut hear_all = || -> Result<u64> {
        let mut sum = 0;
        for said in &mut said {
            let mut line = String::new();
            ensure!(said.read_line(&mut line)? > 0, "a process failed");
            sum += line.trim().parse::<u64>()?;
        }
        Ok(sum)
    };
    hear_all()?;
    let before = daemons.map(threads);
    let begun = Instant::now();
    for child in &mut children {
        child.stdin.as_mut().context("its input is a pipe")?.write_all(b".")?;
    }
    let processes_ns = hear_all()?;
    let lasted = begun.elapsed();
    let after = daemons.map(threads);
    for mut child in children {
        ensure!(child.wait()?.success(), "a process failed");
    }
    let [here, there] = before;
    let [here_after, there_after] = after;
    let used = [since(&here?, &here_after?), since(&there?, &there_after?)];
    Ok(Run { processes_ns, used, lasted })
}

fn since(
    before: &BTreeMap<&'static str, u64>,
    after: &BTreeMap<&'static str, u64>,
) -> Vec<(&'static str, u64)> {
    let of = |times: &BTreeMap<_, u64>, thread| times.get(thread).copied().unwrap_or(0);
    THREADS.map(|thread| (thread, of(after, thread).saturating_sub(of(before, thread)))).to_vec()
}

/// Tells whoever has started this process that it is there, and waits for his word.
fn wait_for_all() -> Result<()> {
    println!("0");
    Ok(std::io::stdin().read_exact(&mut [0])?)
}

/// Processor time of this process so far, ns.
fn own_time_ns() -> Result<u64> {
    let used = fs::read_to_string("/proc/self/schedstat")?;
    Ok(used.split(' ').next().context("a number")?.parse()?)
}

/// The work is over, and took this process so much time.
fn tell_end(begun_ns: u64) -> Result<()> {
    println!("{}", own_time_ns()? - begun_ns);
    // The others may need the processor that it takes to end.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn repeat(kind: &str, directory: &str, place: &str, number: &str) -> Result<()> {
    let directory = PathBuf::from(directory);
    match (kind, place) {
        (_, OWN) => repeat_in_own(kind, &directory.join(number)),
        ("look", _) => look(&directory, number.parse()?),
        _ => repeat_by_hash(kind, directory, place, number),
    }
}

fn repeat_in_own(kind: &str, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    std::env::set_current_dir(directory)?;
    let names: Vec<PathBuf> = (0..OWN_OPERATIONS).map(|at| at.to_string().into()).collect();
    wait_for_all()?;
    let begun_ns = own_time_ns()?;
    match kind {
        "create" => names.iter().try_for_each(|name| File::create(name).map(drop))?,
        "stat" => names.iter().try_for_each(|name| fs::metadata(name).map(drop))?,
        "remove" => names.iter().try_for_each(fs::remove_file)?,
        _ => bail!("no such kind: {kind}"),
    }
    tell_end(begun_ns)
}

/// Each process reads a part of the dataset, by open, read and close.
fn look(directory: &Path, number: usize) -> Result<()> {
    let first = number * OPERATIONS;
    let files = (first..first + OPERATIONS).map(|file| directory.join(file.to_string()));
    let files: Vec<PathBuf> = files.collect();
    let mut bytes = vec![0; FILE_BYTES];
    wait_for_all()?;
    let begun_ns = own_time_ns()?;
    for file in &files {
        File::open(file)?.read_exact_at(&mut bytes, 0)?;
    }
    tell_end(begun_ns)
}

fn repeat_by_hash(kind: &str, directory: PathBuf, place: &str, number: &str) -> Result<()> {
    let id = fs::metadata(&directory)?.ino();
    let node = PLACES.iter().find(|of| of.0 == place).context("own or other")?.1;
    let prefix = format!("{place}-{number}-");
    let mut names = placing::names_in(id, &prefix, node, 2);
    let paths: Vec<PathBuf> =
        names.by_ref().take(OPERATIONS).map(|name| directory.join(name)).collect();
    let data = directory.join(names.next().context("names are endless")?);
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(&data);
    let each = |work: &dyn Fn(&PathBuf) -> std::io::Result<()>| paths.iter().try_for_each(work);
    let mut bytes = vec![1; if kind.ends_with("1M") { LONG_BYTES } else { PAYLOAD_BYTES }];
    wait_for_all()?;
    let begun_ns = own_time_ns()?;
    match kind {
        "create" => each(&|path| File::create(path).map(drop))?,
        "stat" => each(&|path| fs::metadata(path).map(|_| ()))?,
        "remove" => each(&|path| fs::remove_file(path))?,
        "write-8K" | "read-8K" => {
            let file = open()?;
            for at in 0..OPERATIONS {
                let offset = (at % 64 * PAYLOAD_BYTES) as u64;
                match kind {
                    "write-8K" => file.write_all_at(&bytes, offset)?,
                    _ => file.read_exact_at(&mut bytes, offset)?,
                }
            }
        }
        _ => {
            let file = open()?;
            for at in 0..LONG_OPERATIONS {
                let offset = (at % 4 * LONG_BYTES) as u64;
                match kind {
                    "write-1M" => file.write_all_at(&bytes, offset)?,
                    _ => file.read_exact_at(&mut bytes, offset)?,
                }
            }
        }
    }
    tell_end(begun_ns)
}
