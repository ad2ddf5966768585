//! One directory for many nodes: the processor time of everybody for what processes of several
//! nodes do in it at the same time, and of looks by some at files of which another one writes all
//! the time. Of one program; `MAYFLY_BIN` chooses which, to compare two.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use mayfly_testkit::{Instance, Scratch};

use crate::{
    instance::{self, mount},
    processor, report,
};

const NODES: usize = 64;
/// Each on a node of its own.
const PROCESSES: usize = 16;
const FILES: usize = 500;
const ROUNDS: usize = 5;
const PHASES: [&str; 3] = ["create", "stat", "remove"];
/// Longer than an acknowledgement waits.
const AFTERMATH: Duration = Duration::from_millis(500);

/// Nodes that look, besides the one that writes.
const READERS: usize = 8;
/// Files in the directory in which is written.
const BUSY_FILES: usize = 100;
const BUSY_BYTES: usize = 1_000;
const BUSY_FOR: Duration = Duration::from_secs(2);
/// Between two files that are written.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn run() -> Result<()> {
    for_all()?;
    busy()
}

fn for_all() -> Result<()> {
    let scratch = Scratch::new("nodes-one")?;
    let instance = instance::start_whole(&scratch, "one", NODES)?;
    instance::child(&instance, 0, &["__one", "make", "all"])?;
    let mut used = [const { Vec::new() }; PHASES.len()];
    // The first round is for nobody: the directory is spread, and connections are made.
    for round in 0..=ROUNDS {
        for (used, phase) in used.iter_mut().zip(PHASES) {
            let words: Vec<Vec<String>> =
                (0..PROCESSES).map(|at| vec![phase.to_owned(), at.to_string()]).collect();
            let (used_ns, _) = together(&instance, NODES / PROCESSES, &words)?;
            if round > 0 {
                used.push(used_ns / 1000.0 / (PROCESSES * FILES) as f64);
            }
        }
    }
    println!(
        "\n| processor time of all, {PROCESSES} processes on {NODES} nodes, one directory | µs |\n\
         |---|---:|"
    );
    for (phase, used) in PHASES.iter().zip(&used) {
        println!("| {phase} | {} |", report::span(used));
    }
    instance.stop()
}

fn busy() -> Result<()> {
    let scratch = Scratch::new("nodes-busy")?;
    let instance = instance::start_whole(&scratch, "busy", READERS + 1)?;
    instance::child(&instance, 0, &["__one", "make", "busy"])?;
    let (mut each, mut rates) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let role = |at: usize| if at == 0 { "write" } else { "look" };
        let words: Vec<Vec<String>> =
            (0..=READERS).map(|at| vec![role(at).to_owned(), at.to_string()]).collect();
        let (used_ns, said) = together(&instance, 1, &words)?;
        let looks: f64 = report::numbers(&said, "looks").iter().sum();
        if round > 0 {
            each.push(used_ns / 1000.0 / looks);
            rates.push(looks / BUSY_FOR.as_secs_f64());
        }
    }
    println!(
        "\n| {READERS} nodes look at and read {BUSY_FILES} files, one of which another node writes \
         each millisecond | |\n|---|---:|\n| processor time of all, a look and read, µs | {} |\n\
         | of them in a second | {} |",
        report::span(&each),
        report::span(&rates)
    );
    instance.stop()
}

/// All processes do their part at the same time: the processor time of everybody, ns, and what the
/// processes say.
fn together(
    instance: &Instance<'_>,
    nodes_apart: usize,
    words: &[Vec<String>],
) -> Result<(f64, String)> {
    let daemons = instance::processes(instance)?;
    let before = processor::time_ns(&daemons);
    let start = |(at, words): (usize, &Vec<String>)| {
        let words: Vec<&str> =
            std::iter::once("__one").chain(words.iter().map(String::as_str)).collect();
        instance::start_child(instance, (at * nodes_apart, at), &words)
    };
    let jobs: Vec<_> = words.iter().enumerate().map(start).collect::<Result<_>>()?;
    let mut said = String::new();
    for job in jobs {
        let outcome = job.wait()?;
        if outcome.code != 0 {
            bail!("{}", String::from_utf8_lossy(&outcome.stderr));
        }
        said += &String::from_utf8(outcome.stdout)?;
    }
    std::thread::sleep(AFTERMATH);
    let used = report::numbers(&said, "used").iter().sum::<f64>();
    Ok((used + (processor::time_ns(&daemons) - before) as f64, said))
}

pub(crate) fn child(words: &[&str]) -> Result<()> {
    let &[what, of] = words else { bail!("what, and a name or number") };
    if what == "make" {
        return make(of);
    }
    let (done, used) = processor::used_ns(&[], || match what {
        "write" => write_on(&mount()?.join("busy")),
        "look" => look_on(&mount()?.join("busy")),
        phase => one_phase(phase, of),
    });
    done?;
    println!("used {used}");
    Ok(())
}

fn make(name: &str) -> Result<()> {
    let directory = mount()?.join(name);
    fs::create_dir(&directory)?;
    if name == "busy" {
        for number in 0..BUSY_FILES {
            fs::write(directory.join(number.to_string()), vec![7; BUSY_BYTES])?;
        }
    }
    Ok(())
}

fn one_phase(phase: &str, number: &str) -> Result<()> {
    let directory = mount()?.join("all");
    let paths = (0..FILES).map(|file| directory.join(format!("file.{number}.{file}")));
    let each = |work: &dyn Fn(PathBuf) -> io::Result<()>| paths.clone().try_for_each(work);
    Ok(match phase {
        "create" => each(&|path| File::create(path).map(drop)),
        "stat" => each(&|path| fs::metadata(path).map(drop)),
        "remove" => each(&|path| fs::remove_file(path)),
        _ => bail!("no such phase: {phase}"),
    }?)
}

fn write_on(directory: &Path) -> Result<()> {
    let begin = Instant::now();
    for number in (0..BUSY_FILES).cycle() {
        if begin.elapsed() > BUSY_FOR {
            break;
        }
        let path = directory.join(number.to_string());
        File::options().write(true).open(path)?.write_all(&[8; BUSY_BYTES])?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn look_on(directory: &Path) -> Result<()> {
    let (begin, mut looks) = (Instant::now(), 0);
    while begin.elapsed() < BUSY_FOR {
        for number in 0..BUSY_FILES {
            let path = directory.join(number.to_string());
            let size = fs::metadata(&path)?.len();
            let bytes = fs::read(&path)?;
            anyhow::ensure!(size as usize == BUSY_BYTES && bytes.len() == BUSY_BYTES, "{number}");
            looks += 1;
        }
    }
    println!("looks {looks}");
    Ok(())
}
