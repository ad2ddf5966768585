//! The report of a job says what the job did, as JSON and as a page that a browser shows.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, skip};
use serde_json::Value;

/// Files, small reads and writes, a long transfer, and looks at what is not there.
const WORK: &str = "\
import os
os.makedirs('results/many')
for i in range(300):
    with open(f'results/many/f{i}', 'wb') as out:
        out.write(b'x' * 700)
with open('log', 'w', buffering=1) as log:
    for i in range(5000):
        log.write('a line of the log\\n')
with open('large', 'wb', buffering=0) as large:
    for i in range(32):
        large.write(b'y' * (1 << 20))
with open('large', 'rb', buffering=0) as large:
    for i in range(3000):
        large.seek(i * 7919 % 31000 * 1000)
        large.read(512)
for i in range(2000):
    assert not os.path.exists(f'results/none{i}')
";

fn has_python() -> bool {
    skip::unless_installed("Python", &["python3"], "python3")
}

/// A kind of operations, whichever way they went.
fn operations(report: &Value, kind: &str) -> u64 {
    let ways = report["work"]["operations"][kind].as_object();
    ways.map_or(0, |ways| ways.values().filter_map(Value::as_u64).sum())
}

fn sum(values: &Value) -> u64 {
    let fields = values.as_object().map(|fields| fields.values().collect::<Vec<_>>());
    let items = values.as_array().map(|items| items.iter().collect());
    fields.or(items).unwrap_or_default().iter().filter_map(|value| value.as_u64()).sum()
}

fn checked(report: &Value) -> Result<()> {
    ensure!(operations(report, "create") == 302, "{}", report["work"]["operations"]);
    ensure!(operations(report, "write") == 300 + 5000 + 32, "{}", report["work"]["operations"]);
    ensure!(operations(report, "read") == 3000, "{}", report["work"]["operations"]);
    ensure!(operations(report, "stat") >= 2000, "{}", report["work"]["operations"]);
    ensure!(report["work"]["failed"].as_u64() >= Some(2000), "{}", report["work"]["failed"]);
    ensure!(sum(&report["work"]["read_bytes"]) == 3000 * 512, "{}", report["work"]["read_bytes"]);
    let written = 300 * 700 + 5000 * 18 + (32 << 20);
    ensure!(sum(&report["work"]["written_bytes"]) == written, "{}", report["work"]);
    ensure!(report["work"]["reads_by_size"][0] == 3000, "{}", report["work"]["reads_by_size"]);
    ensure!(report["work"]["writes_by_size"][11] == 32, "{}", report["work"]["writes_by_size"]);
    ensure!(report["work"]["reads_in_order"].as_u64() < Some(30), "{}", report["work"]);
    Ok(())
}

/// What is estimated is right within a fifth.
fn is_near(value: &Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|value| (value / expected - 1.0).abs() < 0.2)
}

#[test]
fn a_report_says_what_a_job_did_and_what_stood_out() -> Result<()> {
    if !has_python() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("report")?;
    let file = scratch.join("report.json");
    let mayfly = binary::mayfly()?;
    let job = Job::new(&scratch, "run", &mayfly).args(["run", "--access", "preload", "--report"]);
    let job = job.args([&file]).args(["--", "python3", "-c"]);
    let script = format!("import os\nos.chdir(os.environ['MAYFLY_MOUNT'])\n{WORK}");
    job.args([&script]).run_ok()?;
    let report: Value = serde_json::from_slice(&fs::read(&file)?)?;
    checked(&report)?;
    let kinds: Vec<&str> = report["findings"]
        .as_array()
        .context("findings")?
        .iter()
        .filter_map(|finding| finding["kind"].as_str())
        .collect();
    for kind in ["small-reads", "small-writes", "random-reads", "failures"] {
        ensure!(kinds.contains(&kind), "no {kind:?} among {kinds:?}");
    }
    let process = &report["processes"][0];
    ensure!(process["name"].as_str().is_some_and(|name| name.starts_with("python")), "{process}");
    ensure!(process["busy_seconds"].as_f64() > Some(0.0), "{process}");
    let files = report["busy_files"].as_array().context("files")?;
    let of = |path: &str| files.iter().find(|place| place["path"] == path);
    let log = of("/log").context("no log")?;
    ensure!(is_near(&log["operations"], 5000.0), "{log}");
    let large = of("/large").context("no large")?;
    ensure!(is_near(&large["written_bytes"], f64::from(32 << 20)), "{large}");
    let line = report["line"].as_array().context("line")?;
    let all: f64 = line.iter().filter_map(|span| span["operations"].as_f64()).sum();
    let counted: u64 = ["create", "write", "read", "stat", "close", "open", "mkdir"]
        .iter()
        .map(|kind| operations(&report, kind))
        .sum();
    ensure!((all / counted as f64 - 1.0).abs() < 0.1, "{all} of {counted} in the line");
    Ok(())
}

/// What a browser makes of a page: its document as text.
fn shown(scratch: &Scratch, page: &Path) -> Result<String> {
    let home = scratch.join("browser");
    fs::create_dir_all(&home)?;
    let job = Job::new(scratch, "chromium", "chromium").env("HOME", &home);
    let job = job.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    let done = job.args([format!("file://{}", page.display())]).run_ok()?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Cells of the row that begins with such a one, as a browser has them.
fn row(document: &str, first: &str) -> Option<Vec<String>> {
    let rows = document.split("<tr>").map(|row| row.split("</tr>").next().unwrap_or_default());
    let cells = |row: &str| -> Vec<String> {
        row.split("<td")
            .skip(1)
            .filter_map(|cell| Some(cell.split_once('>')?.1.split('<').next()?.to_owned()))
            .collect()
    };
    rows.map(cells).find(|cells| cells.first().is_some_and(|cell| cell == first))
}

#[test]
fn the_page_of_a_report_shows_a_browser_the_figures_of_all_nodes() -> Result<()> {
    if !has_python() || !skip::unless_installed("report", &["chromium"], "chromium") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("report-page")?;
    let instance = Instance::named(&scratch, "seen")?;
    instance.command("start").args(["--nodes", "local:2"]).run_ok()?;
    let script = scratch.join("work.py");
    fs::write(&script, WORK)?;
    instance
        .shell("work", &format!("cd \"$MAYFLY_MOUNT\" && python3 {}", script.display()))
        .run_ok()?;
    let page = scratch.join("report.html");
    let page_words = ["--output", &page.to_string_lossy()];
    instance.command("report").args(page_words).run_ok()?;
    let report = instance.command("report").args(["--json"]).run_ok()?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    ensure!(report["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2), "{report}");
    let text = instance.command("report").run_ok()?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.contains("* ") && text.contains("write 5332"), "{text}");
    let document = shown(&scratch, &page)?;
    let create = row(&document, "create").context("no creates on the page")?;
    ensure!(create.get(1).is_some_and(|cell| cell == "302"), "{create:?}");
    let write = row(&document, "write").context("no writes on the page")?;
    ensure!(write.get(1).is_some_and(|cell| cell == "5,332"), "{write:?}");
    let small = row(&document, "up to 512 B").context("no sizes on the page")?;
    ensure!(small.get(1).is_some_and(|cell| cell == "3,000"), "{small:?}");
    ensure!(document.contains("<svg") && document.contains("operations/s"), "no curve");
    ensure!(document.contains("What seen did") && document.contains("/log"), "no head");
    instance.stop()
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_job_begins() -> Result<()> {
    let scratch = Scratch::new("report-where")?;
    let mayfly = binary::mayfly()?;
    let file = scratch.join("none/report.html");
    let job = Job::new(&scratch, "run", &mayfly).args(["run", "--report"]).args([&file]);
    let done = job.args(["--", "touch"]).args([scratch.join("ran")]).run()?;
    ensure!(done.code != 0 && !scratch.join("ran").exists(), "it ran");
    ensure!(String::from_utf8_lossy(&done.stderr).contains("no directory"), "{done:?}");
    Ok(())
}

/// Copies a file by calls of the C library that a profiler wraps.
const COPY: &str = "\
import os
source = os.open('from', os.O_RDONLY)
target = os.open('to', os.O_WRONLY | os.O_CREAT, 0o644)
while piece := os.read(source, 1000):
    os.write(target, piece)
";

#[test]
fn a_profiler_that_wraps_calls_and_strace_work_beside_the_library() -> Result<()> {
    if !has_python() || !skip::unless_installed("report", &["cc", "strace"], "gcc strace") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("profiled")?;
    let library = scratch.join("profiler.so");
    let source = binary::workspace().join("tests/apps/profiler.c");
    let job = Job::new(&scratch, "cc", "cc").args(["-shared", "-fPIC", "-O1", "-o"]);
    job.args([&library]).args([&source]).args(["-ldl"]).run_ok()?;
    let (profile, trace) = (scratch.join("profile"), scratch.join("trace"));
    let script = scratch.join("copy.py");
    fs::write(&script, COPY)?;
    let words = format!(
        "cd \"$MAYFLY_MOUNT\" && head -c 100500 /dev/urandom > from && \
         PROFILE={} LD_PRELOAD=\"{} $LD_PRELOAD\" python3 {script} && cmp from to && rm to && \
         strace -f -o {} python3 {script} && cmp from to && \"$MAYFLY\" report --json",
        profile.display(),
        library.display(),
        trace.display(),
        script = script.display(),
    );
    let mayfly = binary::mayfly()?;
    let job = Job::new(&scratch, "run", &mayfly).args(["run", "--access", "preload", "--"]);
    let done = job.args(["sh", "-c", &words]).env("MAYFLY", &mayfly).run_ok()?;
    let report: Value = serde_json::from_slice(&done.stdout)?;
    ensure!(operations(&report, "write") >= 202, "{}", report["work"]["operations"]);
    let said = fs::read_to_string(&profile)?;
    let line = said.lines().find(|line| line.starts_with("python")).context("no profile")?;
    let numbers: Vec<u64> = line.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
    let [opens, reads, writes, read, written] = numbers[..] else { anyhow::bail!("{said}") };
    ensure!(opens >= 2 && reads >= 102 && writes == 101, "{said}");
    ensure!(read >= 100_500 && written == 100_500, "{said}");
    ensure!(fs::read_to_string(&trace)?.contains("+++ exited with 0 +++"), "no end in the trace");
    Ok(())
}
