//! Processor time of everybody for one operation in directories that the process's own node has
//! made: with 64 nodes and with 2; and by four processes, one on each of four nodes, beside four on
//! an instance of one node.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Result, bail};
use mayfly_testkit::{Instance, Scratch};

use crate::{
    growth::All,
    instance::{self, mount},
    processor, report,
};

const FEW: usize = 2;
const MANY: usize = 64;
const ROUNDS: usize = 5;
const FILES: usize = 20_000;
const DIRECTORIES: usize = 10_000;
const ENTRIES: usize = 100;
const LISTINGS: usize = 2_000;
const KINDS: [&str; 6] = ["create", "stat", "remove", "mkdir", "rmdir", "readdir-100"];

/// Processes, and nodes on which they are apart.
const APART: usize = 4;
const PHASES: [&str; 4] = ["create", "stat", "read", "remove"];
/// mdtest-hard's.
const BYTES: usize = 3_901;
/// Longer than an acknowledgement waits.
const AFTERMATH: Duration = Duration::from_millis(300);

pub(crate) fn run() -> Result<()> {
    more_nodes()?;
    nodes_apart()
}

fn more_nodes() -> Result<()> {
    let scratch = Scratch::new("nodes-own")?;
    let few = instance::start_whole(&scratch, "few", FEW)?;
    let many = instance::start_whole(&scratch, "many", MANY)?;
    let mut said = [String::new(), String::new()];
    for _ in 0..ROUNDS {
        for (text, instance) in said.iter_mut().zip([&few, &many]) {
            let processes: Vec<String> =
                instance::processes(instance)?.iter().map(u32::to_string).collect();
            let kinds = KINDS.join(",");
            let mut words = vec!["__own", &kinds];
            words.extend(processes.iter().map(String::as_str));
            text.push_str(&instance::child(instance, 0, &words)?);
        }
    }
    head(&format!("{MANY} nodes | {FEW} nodes"));
    for kind in KINDS {
        let [few, many] = said.each_ref().map(|text| report::numbers(text, kind));
        report::row(kind, "µs", &many, &few);
    }
    few.stop()?;
    many.stop()
}

fn head(sides: &str) {
    println!(
        "\n| processor time of all, an operation in an own directory | {sides} | ratio |\n\
         |---|---:|---:|---:|"
    );
}

pub(crate) fn child(words: &[&str]) -> Result<()> {
    if let [phase, number] = words
        && PHASES.contains(phase)
    {
        return one_phase(phase, number);
    }
    let all = All::with_this_one(words)?;
    let directory = mount()?.join(format!("own-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let path = |number: usize| directory.join(format!("f-{number}"));
    let each = |count: usize, work: &dyn Fn(PathBuf) -> io::Result<()>| -> Result<()> {
        Ok((0..count).map(path).try_for_each(work)?)
    };
    let create = |path| File::create(path).map(drop);
    // The directory is given to the process.
    each(FILES / 10, &create)?;
    each(FILES / 10, &|path| fs::remove_file(path))?;
    all.count("create", FILES, || each(FILES, &create))?;
    all.count("stat", FILES, || each(FILES, &|path| fs::metadata(path).map(drop)))?;
    all.count("remove", FILES, || each(FILES, &|path| fs::remove_file(path)))?;
    all.count("mkdir", DIRECTORIES, || each(DIRECTORIES, &|path| fs::create_dir(path)))?;
    all.count("rmdir", DIRECTORIES, || each(DIRECTORIES, &|path| fs::remove_dir(path)))?;
    each(ENTRIES, &create)?;
    all.count("readdir-100", LISTINGS, || {
        for _ in 0..LISTINGS {
            anyhow::ensure!(fs::read_dir(&directory)?.count() == ENTRIES, "entries are missing");
        }
        Ok(())
    })?;
    Ok(fs::remove_dir_all(&directory)?)
}

fn nodes_apart() -> Result<()> {
    let scratch = Scratch::new("nodes-apart")?;
    let one = instance::start_whole(&scratch, "one", 1)?;
    let four = instance::start_whole(&scratch, "four", APART)?;
    let mut used = [[const { Vec::new() }; PHASES.len()], [const { Vec::new() }; PHASES.len()]];
    for _ in 0..ROUNDS {
        for (used, (instance, nodes)) in used.iter_mut().zip([(&one, 1), (&four, APART)]) {
            for (used, phase) in used.iter_mut().zip(PHASES) {
                used.push(together(instance, nodes, phase)?);
            }
        }
    }
    head(&format!("{APART} processes, one on each of {APART} nodes | {APART} on one node"));
    let [one_node, apart] = &used;
    for ((phase, one), four) in PHASES.iter().zip(one_node).zip(apart) {
        report::row(phase, "µs", four, one);
    }
    one.stop()?;
    four.stop()
}

/// All processes do their part at the same time; the processor time of an operation, µs.
fn together(instance: &Instance<'_>, nodes: usize, phase: &str) -> Result<f64> {
    let daemons = instance::processes(instance)?;
    let before = processor::time_ns(&daemons);
    let numbers: Vec<String> = (0..APART).map(|number| number.to_string()).collect();
    let jobs: Vec<_> = numbers
        .iter()
        .enumerate()
        .map(|(at, number)| {
            instance::start_child(instance, (at % nodes, at), &["__own", phase, number])
        })
        .collect::<Result<_>>()?;
    let mut used = 0.0;
    for job in jobs {
        let outcome = job.wait()?;
        if outcome.code != 0 {
            bail!("{phase}: {}", String::from_utf8_lossy(&outcome.stderr));
        }
        let said = String::from_utf8(outcome.stdout)?;
        used += report::numbers(&said, "used").iter().sum::<f64>();
    }
    std::thread::sleep(AFTERMATH);
    used += (processor::time_ns(&daemons) - before) as f64;
    Ok(used / 1000.0 / (APART * FILES) as f64)
}

/// What mdtest does with a directory for each process.
fn one_phase(phase: &str, number: &str) -> Result<()> {
    let directory = mount()?.join(format!("process-{number}"));
    if phase == "create" {
        fs::create_dir(&directory)?;
    }
    let paths: Vec<PathBuf> =
        (0..FILES).map(|number| directory.join(format!("file.mdtest.{number}"))).collect();
    let (done, used) = processor::used_ns(&[], || -> Result<()> {
        let mut bytes = vec![7; BYTES];
        for path in &paths {
            match phase {
                "create" => fs::write(path, &bytes)?,
                "stat" => fs::metadata(path).map(drop)?,
                "read" => io::Read::read_exact(&mut File::open(path)?, &mut bytes)?,
                _ => fs::remove_file(path)?,
            }
        }
        Ok(())
    });
    done?;
    println!("used {used}");
    if phase == "remove" {
        fs::remove_dir(&directory)?;
    }
    Ok(())
}
