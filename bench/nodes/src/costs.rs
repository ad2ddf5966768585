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
/// What the columns are.
const THREADS: [&str; 3] = ["front", "network", "pool"];

pub(crate) fn run() -> Result<()> {
    let scratch = Scratch::new("nodes-costs")?;
    let instance = instance::start(&scratch, "costs", 2)?;
    let daemons = [0, 1].map(|node| instance.daemon_pid_of(node).map(|pid| pid.to_string()));
    let [here, there] = daemons;
    let said = instance::child(&instance, 0, &["__costs", "all", &here?, &there?])?;
    println!(
        "\n| µs of processor time, {PROCESSES} processes | asking node: front | network | pool | \
         owner: front | network | pool | operations/s |\n|---|---:|---:|---:|---:|---:|---:|---:|"
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

/// What some processes together took.
struct Run {
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
    let mut hear_all = || -> Result<()> {
        for said in &mut said {
            ensure!(said.read_line(&mut String::new())? > 0, "a process failed");
        }
        Ok(())
    };
    hear_all()?;
    let before = daemons.map(threads);
    let begun = Instant::now();
    for child in &mut children {
        child.stdin.as_mut().context("its input is a pipe")?.write_all(b".")?;
    }
    hear_all()?;
    let lasted = begun.elapsed();
    let after = daemons.map(threads);
    for mut child in children {
        ensure!(child.wait()?.success(), "a process failed");
    }
    let [here, there] = before;
    let [here_after, there_after] = after;
    let used = [since(&here?, &here_after?), since(&there?, &there_after?)];
    Ok(Run { used, lasted })
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
    println!("here");
    Ok(std::io::stdin().read_exact(&mut [0])?)
}

fn repeat(kind: &str, directory: &str, place: &str, number: &str) -> Result<()> {
    let directory = PathBuf::from(directory);
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
    println!("done");
    // The others may need the processor that it takes to end.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
