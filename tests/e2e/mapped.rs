//! Files that are mapped through a mount show what others change when their call has returned.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::job::Running;
use mayfly_testkit::{Instance, Job, process, skip};
use mayfly_tests::mount::{Bench, inside, server, wait_until};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};

/// A program that has mapped a file, and pipes to it.
struct Looker<'a> {
    program: PathBuf,
    asked: PathBuf,
    answers: PathBuf,
    running: Running<'a>,
}

impl<'a> Looker<'a> {
    fn start(bench: &'a Bench, file: &Path) -> Result<Option<Self>> {
        if !skip::unless_installed("mapped: a program in C", &["gcc"], "gcc libc6-dev") {
            return Ok(None);
        }
        let program = bench.compile("mapped.c", &["-static"])?;
        let pipe = |name: &str| -> Result<PathBuf> {
            let path = bench.scratch.join(name);
            let _ = fs::remove_file(&path);
            mkfifoat(CWD, &path, Mode::from_raw_mode(0o600))?;
            Ok(path)
        };
        let (asked, answers) = (pipe("asked")?, pipe("answers")?);
        let job = Job::new(&bench.scratch, "look", &program).args(["look"]);
        let running = job.args([file, asked.as_path(), answers.as_path()]).start()?;
        Ok(Some(Looker { program, asked, answers, running }))
    }

    /// The words of a shell that changes a file, and compares.
    fn changes(&self, program: &Path, file: &str, rounds: u32, seed: u32) -> String {
        let (asked, answers) = (self.asked.display(), self.answers.display());
        format!("{} change {file} {asked} {answers} {rounds} {seed}", program.display())
    }

    fn stop(self, bench: &Bench) -> Result<()> {
        let job = Job::new(&bench.scratch, "stop", &self.program).args(["stop"]);
        job.args([&self.asked]).run_ok()?;
        let end = self.running.wait()?;
        ensure!(end.code == 0, "who looks ends with {}", end.code);
        Ok(())
    }
}

/// The same program for the preload library, which reaches static ones nowhere.
fn dynamic(bench: &Bench) -> Result<PathBuf> {
    let source = mayfly_testkit::binary::workspace().join("tests/apps/fuse/mapped.c");
    let program = bench.scratch.join("mapped-preloaded");
    let job = Job::new(&bench.scratch, "cc", "gcc").args(["-O1", "-o"]);
    job.args([&program, &source]).run_ok()?;
    Ok(program)
}

fn make_file(instance: &Instance<'_>, bytes: u32) -> Result<()> {
    inside(instance, &format!("head -c {bytes} /dev/zero | tr '\\0' x > file"))?;
    Ok(())
}

#[test]
fn a_mapping_shows_what_preloaded_programs_have_changed_when_their_call_returns() -> Result<()> {
    let Some(bench) = Bench::new("mapped")? else { return Ok(()) };
    let instance = bench.start("both")?;
    make_file(&instance, 30_000)?;
    let Some(looker) = Looker::start(&bench, &bench.mount.join("file"))? else { return Ok(()) };
    let program = dynamic(&bench)?;
    for seed in 1..=4 {
        let said = inside(&instance, &looker.changes(&program, "file", 400, seed))?;
        ensure!(said.is_empty(), "seed {seed}: {said}");
    }
    looker.stop(&bench)?;
    bench.finish(&instance)
}

#[test]
fn a_mapping_in_one_mount_shows_what_is_changed_through_another() -> Result<()> {
    let Some(bench) = Bench::new("mapped2")? else { return Ok(()) };
    let instance = bench.start("both")?;
    make_file(&instance, 30_000)?;
    let point = bench.scratch.join("point");
    fs::create_dir(&point)?;
    instance.command("mount").args([&point]).run_ok()?;
    let Some(looker) = Looker::start(&bench, &point.join("file"))? else { return Ok(()) };
    let script = looker.changes(&looker.program, "$M/file", 300, 5);
    let said = bench.outside(&script)?;
    ensure!(said.is_empty(), "{said}");
    looker.stop(&bench)?;
    bench.finish(&instance)
}

/// Nodes on this machine, the second of which is mounted; files at home on all of them.
fn changed_at_other_nodes(name: &str, options: &[&str]) -> Result<()> {
    let Some(bench) = Bench::new(name)? else { return Ok(()) };
    let instance = Instance::named(&bench.scratch, name)?;
    instance.command("start").args(["--nodes", "local:3"]).args(options).run_ok()?;
    let point = bench.scratch.join("point");
    fs::create_dir(&point)?;
    instance.command("mount").args(["--node", "1"]).args([&point]).run_ok()?;
    let program = dynamic(&bench)?;
    for number in 0..6 {
        let on_node = |node: u32, script: &str| -> Result<String> {
            let script = format!("cd \"$MAYFLY_MOUNT\"; {script}");
            let job = instance.shell("on-node", &script).env("MAYFLY_NODE", node.to_string());
            Ok(String::from_utf8_lossy(&job.run_ok()?.stdout).into_owned())
        };
        let file = format!("file-{number}");
        on_node(number % 3, &format!("head -c 30000 /dev/zero | tr '\\0' x > {file}"))?;
        let looker = Looker::start(&bench, &point.join(&file))?;
        let Some(looker) = looker else { return Ok(()) };
        for node in 0..3 {
            let said = on_node(node, &looker.changes(&program, &file, 100, 7 * number + node))?;
            ensure!(said.is_empty(), "{file} changed at node {node}: {said}");
        }
        looker.stop(&bench)?;
    }
    instance.stop()
}

#[test]
fn a_mapping_shows_what_programs_of_other_nodes_have_changed() -> Result<()> {
    changed_at_other_nodes("mappednodes", &[])
}

#[test]
fn a_mapping_shows_what_programs_of_other_nodes_have_changed_in_striped_files() -> Result<()> {
    changed_at_other_nodes("mappedparts", &["--layout", "stripe", "--chunk-size", "64K"])
}

fn requests(instance: &Instance<'_>) -> Result<u64> {
    instance.status()?["requests"].as_u64().context("no number of requests")
}

/// Writes within a long file by one process.
const WRITES: &str = "import os\n\
                      fd = os.open(os.environ['MAYFLY_MOUNT'] + '/file', os.O_RDWR)\n\
                      for i in range(500): os.pwrite(fd, b'y' * 10, i * 100)\n";

#[test]
fn only_a_file_that_is_mapped_costs_a_request_for_each_write() -> Result<()> {
    let Some(bench) = Bench::new("mappedcost")? else { return Ok(()) };
    let instance = bench.start("both")?;
    make_file(&instance, 90_000)?;
    let write = format!("python3 -c \"{WRITES}\"");
    let cost = || -> Result<u64> {
        let before = requests(&instance)?;
        inside(&instance, &write)?;
        Ok(requests(&instance)? - before)
    };
    cost()?;
    // Open in the mount, and read by calls.
    let mut file = fs::File::open(bench.mount.join("file"))?;
    file.read_exact(&mut [0; 8192])?;
    let unmapped = cost()?;
    ensure!(unmapped < 400, "{unmapped} requests");
    drop(file);
    let Some(looker) = Looker::start(&bench, &bench.mount.join("file"))? else { return Ok(()) };
    wait_until("each write is told of", || Ok(cost()? >= 500))?;
    looker.stop(&bench)?;
    ensure!(cost()? < 400, "it is as if somebody had it mapped still");
    bench.finish(&instance)
}

#[test]
fn who_writes_waits_a_moment_only_for_a_mount_that_stands_still_or_is_dead() -> Result<()> {
    let Some(bench) = Bench::new("mappedstill")? else { return Ok(()) };
    let instance = bench.start("both")?;
    make_file(&instance, 90_000)?;
    let Some(looker) = Looker::start(&bench, &bench.mount.join("file"))? else { return Ok(()) };
    let program = dynamic(&bench)?;
    inside(&instance, &looker.changes(&program, "file", 20, 1))?;
    let serving = server(&bench, &bench.mount)?;
    let pid = Pid::from_raw(serving.cast_signed()).context("a process")?;
    let write = format!("python3 -c \"{WRITES}\"");
    let timed = || -> Result<Duration> {
        let begun = Instant::now();
        // Not from within: who changes its directory to one of the mount waits for the mount.
        instance.shell("write", &write).run_ok()?;
        Ok(begun.elapsed())
    };
    kill_process(pid, Signal::STOP)?;
    let stopped = timed()?;
    kill_process(pid, Signal::CONT)?;
    // 500 writes, of which each would wait for a second.
    ensure!(
        stopped < Duration::from_secs(6),
        "it took {stopped:?} beside a mount that stands still"
    );
    let said = inside(&instance, &looker.changes(&program, "file", 50, 2))?;
    ensure!(said.is_empty(), "after the pause: {said}");
    ensure!(process::kill(serving), "it has ended");
    let dead = timed()?;
    ensure!(dead < Duration::from_secs(6), "it took {dead:?} beside a dead mount");
    wait_until("the mount is gone", || Ok(!bench.is_mounted()))?;
    drop(looker.running);
    instance.stop()
}
