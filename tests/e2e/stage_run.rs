//! What `mayfly run` takes in and brings out, however it ends.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process, skip};
use mayfly_tests::stages::{Bench, PATIENCE, is_one_node, until};

/// `mayfly run` with what it stages, and its command.
fn run<'a>(scratch: &'a Scratch, options: &[&str], script: &str) -> Result<Job<'a>> {
    let data = scratch.join("data");
    fs::create_dir_all(&data)?;
    let job = Job::new(scratch, "run", binary::mayfly()?)
        .env("XDG_STATE_HOME", scratch.join("state"))
        .args(["run".as_ref(), "--data-dir".as_ref(), data.as_os_str()]);
    Ok(job.args(options).args(["--", "sh", "-c", script]))
}

/// What a run has left.
fn kept(scratch: &Scratch) -> Result<Vec<PathBuf>> {
    fs::read_dir(scratch.join("data"))?.map(|entry| Ok(entry?.path())).collect()
}

#[test]
fn a_run_takes_in_what_it_needs_and_brings_out_its_results() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-run")?;
    fs::create_dir(scratch.join("input"))?;
    fs::write(scratch.join("input/file"), "text")?;
    let text = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let bring = format!("{}:case", text("input"));
    let (first, second) =
        (format!("case/results:{}", text("results")), format!("case/file:{}", text("file")));
    let options = ["--stage-in", &bring, "--stage-out", &first, "--stage-out", &second];
    let script = "cd $MAYFLY_MOUNT/case && mkdir results && cp file results/copy; exit 7";
    let outcome = run(&scratch, &options, script)?.run()?;
    ensure!(outcome.code == 7, "the command's status was not kept: {}", outcome.code);
    ensure!(fs::read(scratch.join("results/copy"))? == b"text");
    ensure!(fs::read(scratch.join("file"))? == b"text");
    ensure!(kept(&scratch)?.is_empty(), "data were left: {:?}", kept(&scratch)?);
    // What cannot be brought in is found out before the command runs.
    let bring = format!("{}:case", text("nosuch"));
    let outcome = run(&scratch, &["--stage-in", &bring], "touch ran; echo ran")?.run()?;
    ensure!(outcome.code == 3 && outcome.stdout.is_empty(), "status {}", outcome.code);
    Ok(())
}

#[test]
fn what_cannot_be_brought_out_is_kept_and_brought_out_later() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-kept")?;
    fs::write(scratch.join("target"), "a file where a directory should be made")?;
    let to = format!("results:{}", scratch.join("target").display());
    let script = "mkdir $MAYFLY_MOUNT/results; echo data > $MAYFLY_MOUNT/results/file";
    let outcome = run(&scratch, &["--stage-out", &to], script)?.run()?;
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code == 3, "status {}: {told}", outcome.code);
    // It named the directory in the instance, with which nothing is wrong.
    let target = format!("{}: open the directory", scratch.join("target").display());
    ensure!(told.contains(&target), "the target is not named: {told}");
    let name = match &kept(&scratch)?[..] {
        [data] if is_one_node() => {
            let data = data.to_str().context("a path of this suite is text")?;
            ensure!(told.contains(&format!("--reopen {data}")), "{told}");
            let start = Instance::named(&scratch, "later")?.command("start");
            start.args(["--reopen", data]).run_ok()?;
            "later"
        }
        [] if is_one_node() => bail!("nothing was kept: {told}"),
        // Several nodes go on.
        _ => {
            let rest = told.rsplit("mayfly stop --name ").next().unwrap_or_default();
            rest.split('`').next().unwrap_or_default()
        }
    };
    let bench = Bench { scratch: &scratch, instance: Instance::named(&scratch, name)? };
    bench.stage("out", &["results", &bench.path("other")])?;
    ensure!(fs::read(scratch.join("other/file"))? == b"data\n");
    bench.instance.stop()
}

#[test]
fn a_run_that_the_batch_system_ends_brings_out_what_there_is() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-term")?;
    let text = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let (first, third) = (format!("r:{}", text("first")), format!("late:{}", text("third")));
    // Several nodes would go on after a failure.
    let second = if is_one_node() { "none:" } else { "r:" }.to_owned() + &text("second");
    let options = ["--stage-out", &first, "--stage-out", &second, "--stage-out", &third];
    let script = "cd $MAYFLY_MOUNT; echo data > r; trap 'echo last > late; exit 9' TERM; echo there
                  while :; do sleep 0.05; done";
    let running = run(&scratch, &options, script)?.start()?;
    until("the command", || Ok(!fs::read(scratch.join("run.out"))?.is_empty()))?;
    process::terminate(running.pid());
    let outcome = running.wait()?;
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    // One of them was not there, which is said, and ends none of the others.
    let expected = if is_one_node() { 3 } else { 9 };
    ensure!(outcome.code == expected, "status {}: {told}", outcome.code);
    ensure!(!is_one_node() || told.contains("none"), "{told}");
    ensure!(fs::read(scratch.join("first"))? == b"data\n");
    ensure!(fs::read(scratch.join("third"))? == b"last\n");
    Ok(())
}

#[test]
fn a_run_that_is_killed_leaves_what_was_to_be_brought_out() -> Result<()> {
    if !is_one_node() {
        skip::note("killed runs", "what several nodes have cannot be kept");
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-lost")?;
    let to = format!(".:{}", scratch.join("target").display());
    let script = "echo data > $MAYFLY_MOUNT/file; echo there; exec sleep 100";
    let running = run(&scratch, &["--stage-out", &to], script)?.start()?;
    let ready = scratch.join("run.out");
    let until = std::time::Instant::now() + PATIENCE;
    while fs::read(&ready)?.is_empty() {
        ensure!(std::time::Instant::now() < until, "the command does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    process::kill(running.pid());
    running.wait()?;
    process::end_marked(scratch.mark(), PATIENCE);
    let [data] = &kept(&scratch)?[..] else { bail!("nothing was kept") };
    let data = data.to_str().context("a path of this suite is text")?;
    Instance::named(&scratch, "after")?.command("start").args(["--reopen", data]).run_ok()?;
    let instance = Instance::named(&scratch, "after")?;
    let found = instance.shell("found", "cat $MAYFLY_MOUNT/file").run_ok()?.stdout;
    ensure!(found == b"data\n", "{}", String::from_utf8_lossy(&found));
    instance.stop()
}
