//! Processor time of everybody for one operation from a node that stores nothing, with 64 nodes
//! that do and with 2.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail};
use mayfly_testkit::{Instance, Scratch};

use crate::{
    echoes,
    instance::{self, mount},
    processor, report,
};

const FEW: usize = 2;
const MANY: usize = 64;
const ROUNDS: usize = 5;
const OPERATIONS: usize = 200;
const ENTRIES: usize = 100;
const LISTINGS: usize = 20;
/// More than a record holds.
const SPILLED_BYTES: usize = 16 << 10;
/// Longer than an acknowledgement waits, and a probe.
const AFTERMATH: Duration = Duration::from_millis(1_200);

const KINDS: [&str; 10] = [
    "create",
    "stat",
    "stat-open",
    "write-4K",
    "read-4K",
    "remove",
    "remove-spilled",
    "mkdir",
    "rmdir",
    "readdir-100",
];

pub(crate) fn run() -> Result<()> {
    only(&KINDS)
}

/// Of these kinds, to compare two programs by many short turns.
pub(crate) fn only(kinds: &[&str]) -> Result<()> {
    if let Some(kind) = kinds.iter().find(|kind| !KINDS.contains(kind)) {
        bail!("{kind} is none of {}", KINDS.join(", "));
    }
    compare("__growth", [FEW, MANY], kinds, &[])?;
    echoes::row(MANY, FEW)
}

/// This program in `role` in instances of so many nodes that store something, by turns.
pub(crate) fn compare(
    role: &str,
    nodes: [usize; 2],
    kinds: &[&str],
    options: &[&str],
) -> Result<()> {
    let scratch = Scratch::new("nodes-growth")?;
    let few = instance::start_apart(&scratch, "few", nodes[0], options)?;
    let many = instance::start_apart(&scratch, "many", nodes[1], options)?;
    let mut said = [String::new(), String::new()];
    for _ in 0..ROUNDS {
        for (text, instance) in said.iter_mut().zip([&few, &many]) {
            text.push_str(&once(instance, role, kinds)?);
        }
    }
    println!(
        "\n| processor time of all nodes, an operation | {} nodes | {} nodes | ratio |\n\
         |---|---:|---:|---:|",
        nodes[1], nodes[0]
    );
    for kind in kinds {
        let [few, many] = said.each_ref().map(|text| report::numbers(text, kind));
        report::row(kind, "µs", &many, &few);
    }
    few.stop()?;
    many.stop()
}

fn once(instance: &Instance<'_>, role: &str, kinds: &[&str]) -> Result<String> {
    let processes: Vec<String> =
        instance::processes(instance)?.iter().map(u32::to_string).collect();
    let kinds = kinds.join(",");
    let mut words = vec![role, &kinds];
    words.extend(processes.iter().map(String::as_str));
    instance::child(instance, 0, &words)
}

/// Whose time counts, and for what.
pub(crate) struct All<'a> {
    /// Everybody besides this process.
    others: Vec<u32>,
    /// The kinds that are counted. The others are done for what they leave.
    kinds: Vec<&'a str>,
}

impl<'a> All<'a> {
    /// The processes that `words` name behind the kinds, and this one.
    pub(crate) fn with_this_one(words: &[&'a str]) -> Result<All<'a>> {
        let [kinds, others @ ..] = words else { bail!("no kinds") };
        let others = others.iter().map(|pid| Ok(pid.parse()?)).collect::<Result<_>>()?;
        Ok(All { others, kinds: kinds.split(',').collect() })
    }

    pub(crate) fn count(
        &self,
        name: &str,
        operations: usize,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.kinds.contains(&name) {
            return work();
        }
        let (done, used) = processor::used_ns(&self.others, || {
            let done = work();
            // What nobody waited for is part of it: acknowledgements that travel alone, timers.
            std::thread::sleep(AFTERMATH);
            done
        });
        done?;
        println!("{name} {}", used as f64 / 1000.0 / operations as f64);
        Ok(())
    }
}

pub(crate) fn child(words: &[&str]) -> Result<()> {
    let all = All::with_this_one(words)?;
    let directory = mount()?.join(format!("work-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let paths: Vec<PathBuf> =
        (0..OPERATIONS).map(|number| directory.join(format!("f-{number}"))).collect();
    // Every node has been asked for something.
    for path in &paths {
        File::create(path)?;
        fs::remove_file(path)?;
    }
    files(&all, &paths)?;
    spilled(&all, &paths)?;
    directories(&all, &paths)?;
    listing(&all, &directory)?;
    Ok(fs::remove_dir(directory)?)
}

fn files(all: &All, paths: &[PathBuf]) -> Result<()> {
    let each = |work: &dyn Fn(&PathBuf) -> io::Result<()>| paths.iter().try_for_each(work);
    all.count("create", OPERATIONS, || Ok(each(&|path| File::create(path).map(drop))?))?;
    let stat = || Ok(each(&|path| fs::metadata(path).map(|_| ()))?);
    all.count("stat", OPERATIONS, stat)?;
    let open = |path| File::options().read(true).write(true).open(path);
    let files: Vec<File> = paths.iter().map(open).collect::<Result<_, _>>()?;
    all.count("stat-open", OPERATIONS, stat)?;
    let mut bytes = [1; 4096];
    all.count("write-4K", OPERATIONS, || {
        Ok(files.iter().try_for_each(|file| file.write_all_at(&bytes, 0))?)
    })?;
    all.count("read-4K", OPERATIONS, || {
        Ok(files.iter().try_for_each(|file| file.read_exact_at(&mut bytes, 0))?)
    })?;
    drop(files);
    all.count("remove", OPERATIONS, || Ok(each(&|path| fs::remove_file(path))?))
}

fn spilled(all: &All, paths: &[PathBuf]) -> Result<()> {
    paths.iter().try_for_each(|path| fs::write(path, [1; SPILLED_BYTES]))?;
    all.count("remove-spilled", OPERATIONS, || Ok(paths.iter().try_for_each(fs::remove_file)?))
}

fn directories(all: &All, paths: &[PathBuf]) -> Result<()> {
    let each = |work: &dyn Fn(&PathBuf) -> io::Result<()>| paths.iter().try_for_each(work);
    all.count("mkdir", OPERATIONS, || Ok(each(&|path| fs::create_dir(path))?))?;
    all.count("rmdir", OPERATIONS, || Ok(each(&|path| fs::remove_dir(path))?))
}

fn listing(all: &All, directory: &Path) -> Result<()> {
    let entries: Vec<PathBuf> =
        (0..ENTRIES).map(|number| directory.join(format!("e{number}"))).collect();
    entries.iter().try_for_each(|path| File::create(path).map(drop))?;
    all.count("readdir-100", LISTINGS, || {
        for _ in 0..LISTINGS {
            anyhow::ensure!(fs::read_dir(directory)?.count() == ENTRIES, "entries are missing");
        }
        Ok(())
    })?;
    Ok(entries.iter().try_for_each(fs::remove_file)?)
}
