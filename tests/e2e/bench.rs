//! `mayfly bench` measures what it says, says what fails, and leaves nothing. How fast anything is
//! is not asserted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Job, Scratch, Turn, binary, process, skip};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);
/// Sizes that end within seconds.
const SMALL: [&str; 10] =
    ["--files", "40", "--tree", "2,2,3", "--size", "256K", "--transfer", "512,64K", "--runs", "2"];

/// A command that measures an instance beside `plain`, in which a file of somebody else lies.
fn bench<'a>(scratch: &'a Scratch, arguments: &[&str]) -> Result<Job<'a>> {
    let plain = scratch.join("plain");
    fs::create_dir(&plain)?;
    fs::write(plain.join("somebody else's"), "text")?;
    let compare = format!("plain={}", plain.display());
    let job = Job::new(scratch, "bench", binary::mayfly()?).args(["bench", "--compare", &compare]);
    Ok(job.args(arguments).deadline(Duration::from_secs(120)))
}

/// Nothing of the run is left, and what is somebody else's is.
fn expect_clean(scratch: &Scratch, before: &Before) -> Result<()> {
    let entries = fs::read_dir(scratch.join("plain"))?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    ensure!(names == ["somebody else's"], "the directory holds {names:?}");
    before.expect_nothing_since(scratch, &[], PATIENCE)
}

fn read(path: &Path) -> Result<Value> {
    serde_json::from_slice(&fs::read(path)?).context("--json wrote no JSON")
}

fn list<'v>(value: &'v Value, field: &str) -> Result<&'v Vec<Value>> {
    value[field].as_array().with_context(|| format!("no list {field}"))
}

fn number(value: &Value, pointer: &str) -> Result<f64> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.with_context(|| format!("no number {pointer} in {value}"))
}

#[test]
fn the_mount_is_measured_beside_the_library_together_with_its_process() -> Result<()> {
    if !skip::unless_mountable("bench of a mount") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("benchm")?;
    let before = Before::look();
    let json = scratch.join("out.json");
    let outcome = bench(&scratch, &SMALL)?
        .args(["--sweep", "access=preload,fuse", "--procs", "1", "--phase", "64K/own"])
        .args(["--json".as_ref(), json.as_os_str()])
        .run_ok()?;
    let report = read(&json)?;
    let labels: Vec<_> =
        list(&report, "targets")?.iter().filter_map(|target| target["label"].as_str()).collect();
    ensure!(labels == ["access=preload", "access=fuse", "plain"], "the targets are {labels:?}");
    let table = String::from_utf8_lossy(&outcome.stdout);
    ensure!(table.contains("64K/own/remove"), "no such phase: {table}");
    let phase = list(&report, "phases")?.first().context("there is a phase")?;
    let peak = |target: usize| number(phase, &format!("/targets/{target}/daemon_peak_bytes"));
    ensure!(peak(1)? > peak(0)? + 1e6, "the mount's process is not counted: {phase}");
    expect_clean(&scratch, &before)
}

#[test]
fn bench_measures_every_phase_on_every_target_and_leaves_nothing() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bench")?;
    let before = Before::look();
    let (json, svg) = (scratch.join("out.json"), scratch.join("out.svg"));
    let outcome = bench(&scratch, &SMALL)?
        .args(["--procs", "1,3"])
        .args(["--json".as_ref(), json.as_os_str(), "--svg".as_ref(), svg.as_os_str()])
        .run_ok()?;
    let report = read(&json)?;
    let mut names = [BTreeSet::new(), BTreeSet::new()];
    for phase in list(&report, "phases")? {
        let procs = number(phase, "/procs")?;
        let name = phase["phase"].as_str().context("a phase has a name")?;
        names[usize::from(procs > 1.0)].insert(name.to_owned());
        expect_plausible(phase).with_context(|| format!("{name} with {procs} processes"))?;
    }
    ensure!(names[0] == names[1], "other phases with more processes");
    let some = ["empty/own/create", "3901/shared/read", "dirs/shared/remove", "tree/stat"];
    let more = ["each/seq/64K/write", "one/random/512/read", "find/walk"];
    for name in some.iter().chain(&more) {
        ensure!(names[0].contains(*name), "no phase {name} in {:?}", names[0]);
        let table = String::from_utf8_lossy(&outcome.stdout);
        ensure!(table.contains(name), "{name} is not in the table");
    }
    let page = fs::read_to_string(&svg)?;
    ensure!(page.starts_with("<svg") && page.contains("find/walk"), "that is no plot");
    expect_clean(&scratch, &before)
}

fn expect_plausible(phase: &Value) -> Result<()> {
    let targets = list(phase, "targets")?;
    ensure!(targets.len() == 2, "{} targets", targets.len());
    let done = |target: &Value| -> Result<Vec<(f64, f64)>> {
        let runs = list(target, "runs")?.iter();
        runs.map(|run| Ok((number(run, "/ops")?, number(run, "/bytes")?))).collect()
    };
    let first = done(&targets[0])?;
    ensure!(first.len() == 2 && first[0] == first[1], "the runs differ: {first:?}");
    ensure!(done(&targets[1])? == first, "the targets did not do the same");
    for target in targets {
        let at = |pointer: &str| number(target, pointer);
        ensure!(at("/ops_per_s/min")? > 0.0 && at("/client_peak_bytes")? > 1e5);
        let (p50, p99) = (at("/latency/p50_us")?, at("/latency/p99_us")?);
        ensure!(0.0 < p50 && p50 <= p99 && p99 <= at("/latency/max_us")?, "{target}");
    }
    // The first is the instance: it has a daemon, and a ratio to the directory.
    ensure!(number(&targets[0], "/ratio/median")? > 0.0);
    ensure!(number(&targets[0], "/daemon_peak_bytes")? > 1e5);
    ensure!(targets[1]["ratio"].is_null() && number(&targets[1], "/daemon_cpu_us")? == 0.0);
    Ok(())
}

#[test]
fn the_patterns_of_programs_are_measured_and_their_mean_is_told() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("benchp")?;
    let before = Before::look();
    let json = scratch.join("out.json");
    let outcome = bench(&scratch, &SMALL)?
        .args(["--workload", "patterns", "--procs", "1,2", "--json", &json.display().to_string()])
        .run()?;
    ensure!(outcome.code == 0, "{}", String::from_utf8_lossy(&outcome.stderr));
    let report = read(&json)?;
    let phases = list(&report, "phases")?;
    ensure!(phases.len() >= 60, "{} phases", phases.len());
    for phase in phases {
        expect_plausible(phase).with_context(|| phase["phase"].to_string())?;
    }
    let table = String::from_utf8_lossy(&outcome.stdout);
    let heads = table.lines().find(|line| line.starts_with("processes")).context("no means")?;
    ensure!(heads.ends_with("patterns"), "{heads}");
    expect_clean(&scratch, &before)
}

#[test]
fn a_failing_call_ends_bench_with_phase_path_and_errno() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bench-full")?;
    let before = Before::look();
    let arguments = ["--capacity", "64M", "--size", "128M", "--workload", "data", "--runs", "1"];
    let outcome = bench(&scratch, &arguments)?.run()?;
    let error = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.code == 1, "status {}\n{error}", outcome.code);
    for word in ["each/seq/4K/write", "data.", "ENOSPC"] {
        ensure!(error.contains(word), "nothing of {word} in {error}");
    }
    expect_clean(&scratch, &before)
}

#[test]
fn an_interrupted_bench_removes_what_it_made() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bench-stop")?;
    let before = Before::look();
    let running = bench(&scratch, &["--workload", "meta", "--runs", "1000"])?.start()?;
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    // The group's directory is there, so workers are at it.
    let own = scratch.join("plain").join(format!("mayfly-bench-{}", running.pid()));
    while fs::read_dir(&own).map_or(0, Iterator::count) == 0 {
        ensure!(std::time::Instant::now() < deadline, "no phase began");
        std::thread::sleep(Duration::from_millis(5));
    }
    ensure!(process::terminate(running.pid()), "it ended too early");
    let outcome = running.wait()?;
    let error = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.code == 130 && error.contains("interrupted"), "{}: {error}", outcome.code);
    expect_clean(&scratch, &before)
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_made() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bench-bad")?;
    let wrong: [(&[&str], &str); 6] = [
        (&["--only", "/nonexistent"], "/nonexistent"),
        (&["--procs", "0"], "--procs 0"),
        (&["--transfer", "100"], "--transfer 100"),
        (&["--sweep", "colour=red"], "--sweep colour=red"),
        (&["--workload", "games"], "games"),
        (&["--phase", "no such phase"], "--phase"),
    ];
    for (arguments, word) in wrong {
        let job = Job::new(&scratch, "refused", binary::mayfly()?).args(["bench"]).args(arguments);
        let outcome = job.run()?;
        let error = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.code == 1 && error.contains(word), "{arguments:?}: {error}");
    }
    Before::look().expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn a_sweep_measures_an_instance_for_each_value() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bench-sweep")?;
    let before = Before::look();
    let json = scratch.join("out.json");
    bench(&scratch, &SMALL)?
        .args(["--sweep", "times=none,all", "--phase", "find", "--procs", "2"])
        .args(["--scaling".as_ref(), "strong".as_ref(), "--json".as_ref(), json.as_os_str()])
        .run_ok()?;
    let report = read(&json)?;
    let targets = list(&report, "targets")?.iter().map(|target| &target["label"]);
    let labels: Vec<&str> = targets.filter_map(Value::as_str).collect();
    ensure!(labels == ["times=none", "times=all", "plain"], "{labels:?}");
    expect_clean(&scratch, &before)
}

#[test]
fn a_process_is_measured_alone_and_beside_one_that_writes() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bench-beside")?;
    let before = Before::look();
    let json = scratch.join("out.json");
    bench(&scratch, &SMALL)?
        .args(["--workload", "beside", "--procs", "2"])
        .args(["--json".as_ref(), json.as_os_str()])
        .run_ok()?;
    let report = read(&json)?;
    let phases = list(&report, "phases")?;
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["phase"].as_str()).collect();
    ensure!(names == ["beside/alone", "beside/stream"], "{names:?}");
    for (phase, writes) in phases.iter().zip([false, true]) {
        for target in list(phase, "targets")? {
            for run in list(target, "runs")? {
                let (ops, bytes) = (number(run, "/ops")?, number(run, "/bytes")?);
                ensure!(ops >= 1000.0 && (bytes > 0.0) == writes, "{ops} looks, {bytes} bytes");
            }
        }
    }
    expect_clean(&scratch, &before)
}

#[test]
fn what_else_one_node_is_asked_for_is_measured() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bench-bars")?;
    let before = Before::look();
    let json = scratch.join("out.json");
    bench(&scratch, &SMALL)?
        .args(["--workload", "bars", "--procs", "1,2"])
        .args(["--json".as_ref(), json.as_os_str()])
        .run_ok()?;
    let report = read(&json)?;
    let phases = list(&report, "phases")?;
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["phase"].as_str()).collect();
    let wanted = ["idle/rest", "first/stat", "list/create", "list/attributes", "list/remove"];
    ensure!(names == [&wanted[..], &["burners/create"]].concat(), "{names:?}");
    let of =
        |name: &str| phases.iter().find(|phase| phase["phase"] == name).context("there is one");
    for target in list(of("list/attributes")?, "targets")? {
        let listed = number(target, "/runs/0/ops")?;
        ensure!(listed == 40.0, "{listed} entries were listed");
    }
    // To attach takes longer than this; a process that had asked before would need a microsecond.
    let first = number(of("first/stat")?, "/targets/0/latency/p50_us")?;
    ensure!(first > 10.0, "no process needs {first} us for its first call");
    expect_clean(&scratch, &before)
}
