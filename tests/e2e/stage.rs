//! Trees come in and go out: completely or not at all, and whatever is killed.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Job, Scratch, Turn, binary, process, skip};
use mayfly_tests::stages::{Bench, events, expect_same, has_python, is_one_node, staging, until};
use serde_json::Value;

#[test]
fn what_goes_in_and_out_again_is_the_same_tree() -> Result<()> {
    if !has_python() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-same")?;
    let bench = Bench::start(&scratch, "same", &[])?;
    let (from, to) = (bench.path("from"), bench.path("to"));
    fs::create_dir(&from)?;
    staging(&scratch, &["make", &from])?;
    bench.stage("in", &["--verify", &from, "case"])?;
    bench.stage("out", &["--verify", "case", &to])?;
    expect_same(&bench, "from", "to")?;
    let again = bench.counted(0, "out", &["--changed", "case", &to])?;
    ensure!(again["files"] == 0 && again["unchanged"] == 12, "{again}");
    // A file that only its time tells is copied, and no other.
    bench.instance.shell("touch", "touch -d 2020-01-01 $MAYFLY_MOUNT/case/a/program").run_ok()?;
    let again = bench.counted(0, "out", &["--changed", "case", &to])?;
    ensure!(again["files"] == 1, "{again}");
    bench.instance.stop()
}

#[test]
fn patterns_choose_and_what_the_source_has_not_goes_only_when_asked_for() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-choose")?;
    let bench = Bench::start(&scratch, "choose", &[])?;
    let make = "cd $MAYFLY_MOUNT; mkdir -p r/a/b r/none; for i in x.h5 y.log a/z.h5 a/b/w.h5 \
                a/b/keep.log; do echo $i > r/$i; done; head -c 5000 /dev/zero > r/a/long";
    bench.instance.shell("make", make).run_ok()?;
    let listed = |name: &str| -> Result<String> {
        let find = Job::new(&scratch, "find", "find").args([&bench.path(name)]);
        let out = find.args(["!", "-type", "d", "-printf", "%P\n"]).run_ok()?.stdout;
        let mut names: Vec<&str> = std::str::from_utf8(&out)?.lines().collect();
        names.sort_unstable();
        Ok(names.join(" "))
    };
    bench.stage("out", &["r/**/*.h5", &bench.path("globbed")])?;
    ensure!(listed("globbed")? == "a/b/w.h5 a/z.h5 x.h5", "{}", listed("globbed")?);
    ensure!(!scratch.join("globbed/none").exists(), "a directory without such files was made");
    bench.stage("out", &["--exclude", "*.log", "--exclude", "/a/b/", "r", &bench.path("left")])?;
    ensure!(listed("left")? == "a/long a/z.h5 x.h5", "{}", listed("left")?);
    ensure!(scratch.join("left/none").is_dir(), "an empty directory was not made");
    bench.stage("out", &["--larger", "4K", "r", &bench.path("large")])?;
    ensure!(listed("large")? == "a/long", "{}", listed("large")?);
    fs::write(scratch.join("list"), "a/b/w.h5\na/long\nnone\nnosuch\n")?;
    let list = ["--files-from", &bench.path("list"), "r", &bench.path("listed")];
    let end = bench.counted(3, "out", &list)?;
    ensure!(end["failed"] == 1 && end["files"] == 2, "{end}");
    ensure!(listed("listed")? == "a/b/w.h5 a/long", "{}", listed("listed")?);
    ensure!(scratch.join("listed/none").is_dir(), "a listed directory was not made");
    let dry = bench.counted(0, "out", &["--dry-run", "r", &bench.path("dry/run")])?;
    ensure!(dry["files"] == 6 && !scratch.join("dry").exists(), "{dry}");

    // What is there, and not at the source: kept, told of, gone.
    fs::write(scratch.join("left/own"), "mine")?;
    fs::create_dir_all(scratch.join("left/old/older"))?;
    fs::write(scratch.join("left/old/older/file"), "mine")?;
    fs::write(scratch.join("left/own.log"), "excluded, so not looked at")?;
    let left = bench.path("left");
    bench.stage("out", &["--exclude", "*.log", "r", &left])?;
    ensure!(scratch.join("left/old/older/file").exists());
    let exclude = ["--exclude", "*.log", "--delete"];
    let dry = bench.job("out", &exclude)?.args(["--dry-run", "r", &left]).run_ok()?;
    let dry = String::from_utf8(dry.stdout)?;
    ensure!(dry.contains("left/own\n") && dry.contains("left/old\n"), "{dry}");
    ensure!(scratch.join("left/own").exists(), "a dry run has deleted");
    bench.job("out", &exclude)?.args(["r", &left]).run_ok()?;
    ensure!(listed("left")? == "a/b/w.h5 a/long a/z.h5 own.log x.h5", "{}", listed("left")?);
    bench.instance.stop()
}

#[test]
fn what_the_job_has_made_is_told_from_what_came_in() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-made")?;
    let bench = Bench::start(&scratch, "made", &[])?;
    let early = bench.job("out", &["--since-stage-in", ".", &bench.path("early")])?.run()?;
    ensure!(early.code == 1 && !scratch.join("early").exists(), "status {}", early.code);
    fs::create_dir(scratch.join("from"))?;
    for name in ["kept", "longer", "renamed", "opened"] {
        fs::write(scratch.join("from").join(name), name)?;
    }
    bench.stage("in", &["--cpus", "0", &bench.path("from"), "case"])?;
    let work = "cd $MAYFLY_MOUNT/case; echo more >> longer; mv renamed other; echo new > new
                touch -r kept new; cat opened kept";
    bench.instance.shell("work", work).run_ok()?;
    let end = bench.counted(0, "out", &["--since-stage-in", "case", &bench.path("made")])?;
    ensure!(end["files"] == 3, "{end}");
    let mut names = fs::read_dir(scratch.join("made"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort_unstable();
    ensure!(names == ["longer", "new", "other"], "{names:?}");
    let bad = bench.job("out", &["--cpus", "9999", "case", &bench.path("none")])?.run()?;
    ensure!(bad.code == 1);
    bench.instance.stop()
}

#[test]
fn what_fails_is_named_and_everything_else_goes_on() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-fails")?;
    let bench = Bench::start(&scratch, "fails", &["--capacity", "64M"])?;
    let (from, to) = (scratch.join("from"), bench.path("to"));
    fs::create_dir_all(from.join("sub"))?;
    fs::create_dir_all(scratch.join("to/sub/file/in-the-way"))?;
    for name in ["one", "sub/file", "sub/two"] {
        fs::write(from.join(name), name)?;
    }
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket"))?;
    // It does not fit.
    fs::write(from.join("huge"), vec![1; 128 << 20])?;
    let from = bench.path("from");
    let outcome = bench.job("in", &["--json", &from, "case"])?.run()?;
    let told = events(&outcome)?;
    let of = |kind: &str| told.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    ensure!(outcome.code == 3, "status {}", outcome.code);
    let [failed] = of("failed")[..] else { bail!("{told:?}") };
    ensure!(failed["errno"] == "ENOSPC", "{failed}");
    ensure!(failed["path"].as_str().is_some_and(|path| path.ends_with("/from/huge")), "{failed}");
    ensure!(of("left_out").len() == 1 && of("end")[0]["files"] == 3, "{told:?}");
    let left = "ls -A $MAYFLY_MOUNT/case $MAYFLY_MOUNT/case/sub | xargs";
    let left = bench.instance.shell("left", left).run_ok()?.stdout;
    let left = String::from_utf8(left)?;
    ensure!(left.contains("one sub") && left.contains("file two"), "{left}");
    ensure!(!left.contains("huge") && !left.contains(".mayfly"), "{left}");

    let end = bench.counted(3, "out", &["case", &to])?;
    ensure!(end["failed"] == 1 && end["files"] == 2, "{end}");
    ensure!(fs::read(scratch.join("to/sub/two"))? == b"sub/two");
    let names = fs::read_dir(scratch.join("to/sub"))?.count();
    ensure!(names == 2, "{names} names: something was left");
    let end = bench.counted(3, "out", &["nosuch", &to])?;
    ensure!(end["failed"] == 1, "{end}");
    bench.instance.stop()
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_copied_again() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-changing")?;
    let bench = Bench::start(&scratch, "changing", &[])?;
    fs::write(scratch.join("file"), vec![b'a'; 3 << 20])?;
    let from = bench.path("file");
    let running = bench.job("in", &["--bandwidth", "2M", &from, "copy"])?.start()?;
    let begun = "ls -A $MAYFLY_MOUNT | grep -q '^.mayfly-'";
    until("it is being copied", || Ok(bench.instance.shell("begun", begun).run()?.code == 0))?;
    fs::write(scratch.join("file"), vec![b'b'; 3 << 20])?;
    let outcome = running.wait()?;
    ensure!(outcome.code == 0, "status {}", outcome.code);
    bench.stage("out", &["copy", &bench.path("back")])?;
    let back = fs::read(scratch.join("back"))?;
    ensure!(back.len() == 3 << 20 && back.iter().all(|byte| *byte == b'b'), "a mixture");
    bench.instance.stop()
}

#[test]
fn what_is_open_for_writing_on_any_node_is_skipped_waited_for_or_copied() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-open")?;
    let bench = Bench::start(&scratch, "open", &[])?;
    let others = if is_one_node() { "0" } else { "3" };
    // One that the shell has made, and one that was there.
    let write = "cd $MAYFLY_MOUNT; mkdir -p r; echo whole > r/whole; echo one > r/log; \
                 exec 3>>r/log 4>r/new; echo half >&4; : > open; \
                 while [ -e open ]; do sleep 0.05; done; echo two >&3; echo rest >&4";
    let writer = bench.instance.shell("writer", write).env("MAYFLY_NODE", others).start()?;
    let is_there = |name: &str| -> Result<bool> {
        let look = format!("test -e $MAYFLY_MOUNT/{name}");
        Ok(bench.instance.shell("look", &look).run()?.code == 0)
    };
    until("files are open", || is_there("open"))?;
    let count = "cd $MAYFLY_MOUNT/r; getfattr --only-values -n user.mayfly.writers log new whole";
    if skip::unless_installed("staging", &["getfattr"], "attr") {
        let counts = bench.instance.shell("count", count).run_ok()?.stdout;
        ensure!(counts == b"110", "{}", String::from_utf8_lossy(&counts));
    }
    let end = bench.counted(3, "out", &["r", &bench.path("skip")])?;
    ensure!(end["open"] == 2 && end["files"] == 1 && end["failed"] == 0, "{end}");
    ensure!(fs::read_dir(scratch.join("skip"))?.count() == 1, "something was left");
    bench.stage("out", &["--open", "copy", "r", &bench.path("copy")])?;
    ensure!(fs::read(scratch.join("copy/new"))? == b"half\n");
    let mut waiting = bench.job("out", &["--open", "wait", "r", &bench.path("wait")])?.start()?;
    until("the rest is copied", || Ok(scratch.join("wait/whole").exists()))?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(!waiting.is_over()?, "it did not wait");
    bench.instance.shell("close", "rm $MAYFLY_MOUNT/open").run_ok()?;
    ensure!(writer.wait()?.code == 0 && waiting.wait()?.code == 0);
    ensure!(fs::read(scratch.join("wait/log"))? == b"one\ntwo\n");
    ensure!(fs::read(scratch.join("wait/new"))? == b"half\nrest\n");
    bench.instance.stop()
}

/// Names at the destination, with the inode that each of them had when it was seen first.
fn inodes(root: &Path, seen: &mut std::collections::BTreeMap<PathBuf, u64>) -> Result<()> {
    let Ok(entries) = fs::read_dir(root) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            inodes(&entry.path(), seen)?;
        } else if !entry.file_name().to_string_lossy().starts_with(".mayfly-") {
            let inode = entry.metadata()?.ino();
            let first = *seen.entry(entry.path()).or_insert(inode);
            ensure!(first == inode, "{:?} was copied twice", entry.path());
        }
    }
    Ok(())
}

#[test]
fn a_stage_that_is_killed_again_and_again_goes_on_where_it_was() -> Result<()> {
    if !has_python() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-killed")?;
    let bench = Bench::start(&scratch, "killed", &[])?;
    let (from, to) = (bench.path("from"), bench.path("to"));
    staging(&scratch, &["many", &from, "3000"])?;
    bench.stage("in", &[&from, "case"])?;
    let (mut seen, mut kills) = (Default::default(), 0);
    let journals =
        || Ok::<_, std::io::Error>(fs::read_dir(scratch.join("state/mayfly/stages"))?.count());
    // To look at what is done takes a request for each file there.
    let (rate, pause) = if is_one_node() { ("2500", 200) } else { ("500", 1500) };
    loop {
        let pace = ["--files-per-second", rate, "case", &to];
        let mut running = bench.job("out", &pace)?.start()?;
        std::thread::sleep(Duration::from_millis(pause));
        if running.is_over()? {
            ensure!(running.wait()?.code == 0);
            break;
        }
        process::kill(running.pid());
        match running.wait()?.code {
            // It was done just before.
            0 => break,
            code => ensure!(code == 137, "status {code}"),
        }
        kills += 1;
        ensure!(kills < 100, "it makes no way");
        inodes(&scratch.join("to"), &mut seen)?;
        if seen.len() == 3000 && journals()? == 0 {
            // It had noted that all is done.
            break;
        }
    }
    ensure!(kills >= 3, "it was killed {kills} times only");
    inodes(&scratch.join("to"), &mut seen)?;
    ensure!(seen.len() == 3000, "{} files", seen.len());
    expect_same(&bench, "from", "to")?;
    ensure!(journals()? == 0, "journals are left of what is done");
    bench.instance.stop()
}

/// The name and the inode of a file that is being copied.
fn half_done(bench: &Bench<'_>, directory: &str) -> Result<String> {
    let find = format!("cd $MAYFLY_MOUNT/{directory} && ls -a | grep '^[.]mayfly-'");
    let found = bench.instance.shell("find", &find).run_ok()?.stdout;
    Ok(String::from_utf8(found)?.trim().to_owned())
}

/// That a part is not copied again is seen by other bytes that are put in its place.
#[test]
fn a_large_file_goes_on_in_the_middle_unless_it_has_changed() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-parts")?;
    let bench = Bench::start(&scratch, "parts", &[])?;
    let from = bench.path("from");
    fs::create_dir(&from)?;
    let mut content = vec![b'x'; 150 << 20];
    fs::write(scratch.join("from/large"), &content)?;
    let state = scratch.join("state/mayfly/stages");
    let noted = || {
        let logs = fs::read_dir(&state).into_iter().flatten().flatten();
        let logs = logs.filter(|log| log.path().extension() == Some("parts".as_ref()));
        logs.filter_map(|log| fs::read_to_string(log.path()).ok()).map(|text| text.len()).sum()
    };
    let begin = || -> Result<()> {
        let before: usize = noted();
        let slowly = ["--streams=1", "--nodes-used=1", "--bandwidth=100M", &from, "case"];
        let running = bench.job("in", &slowly)?.start()?;
        until("two parts are done", || Ok(noted() >= before + 36))?;
        process::kill(running.pid());
        ensure!(running.wait()?.code == 137, "it was done before");
        Ok(())
    };
    let again = || bench.counted(0, "in", &["--streams=1", "--nodes-used=1", &from, "case"]);
    let first_bytes = || -> Result<Vec<u8>> {
        let head =
            "head -c 4 $MAYFLY_MOUNT/case/large; cd $MAYFLY_MOUNT/case; ls -A | grep -vx large";
        Ok(bench.instance.shell("head", &format!("{head}; true")).run_ok()?.stdout)
    };
    begin()?;
    let half = half_done(&bench, "case")?;
    let mark = |half: &str| {
        let dd = format!("printf mark | dd of=$MAYFLY_MOUNT/case/{half} conv=notrunc status=none");
        bench.instance.shell("mark", &dd).run_ok()
    };
    mark(&half)?;
    let counts = again()?;
    ensure!(counts["files"] == 1 && counts["bytes"] == 150 << 20, "{counts}");
    let first = first_bytes()?;
    ensure!(first == b"mark", "it was copied again, or more is left: {first:?}");
    let tail = "cd $MAYFLY_MOUNT/case; tail -c +5 large | cmp - <(tail -c +5 $FROM/large)";
    bench.instance.shell("tail", tail).env("FROM", &from).run_ok()?;

    // What has changed meanwhile is copied from its beginning.
    bench.instance.shell("remove", "rm $MAYFLY_MOUNT/case/large").run_ok()?;
    begin()?;
    mark(&half_done(&bench, "case")?)?;
    content[..3].copy_from_slice(b"new");
    fs::write(scratch.join("from/large"), &content)?;
    again()?;
    ensure!(first_bytes()? == b"newx", "{:?}", first_bytes());

    // Nor is anything left of what is not there any more.
    bench.instance.shell("remove", "rm $MAYFLY_MOUNT/case/large").run_ok()?;
    begin()?;
    fs::rename(scratch.join("from/large"), scratch.join("from/other"))?;
    again()?;
    bench.instance.shell("none", "test \"$(ls -A $MAYFLY_MOUNT/case)\" = other").run_ok()?;
    bench.instance.stop()
}

#[test]
fn daemons_may_die_while_trees_come_in_and_go_out() -> Result<()> {
    if !has_python() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-daemon")?;
    let bench = Bench::start(&scratch, "daemon", &[])?;
    let (from, to) = (bench.path("from"), bench.path("to"));
    let count = if is_one_node() { "3000" } else { "500" };
    staging(&scratch, &["many", &from, count])?;
    let kills = bench.instance.beside_kills(|| {
        let pace = ["--files-per-second", "1500"];
        bench.job("in", &pace)?.args([&from, "case"]).run_ok()?;
        bench.job("out", &pace)?.args(["case", &to]).run_ok().map(drop)
    })?;
    ensure!(kills > 0, "nothing was killed");
    expect_same(&bench, "from", "to")?;
    bench.instance.stop()
}

#[test]
fn the_nodes_of_an_instance_share_a_stage_and_may_die() -> Result<()> {
    if !has_python() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-nodes")?;
    let nodes: &[&str] = if is_one_node() { &["--nodes", "local:3"] } else { &[] };
    let bench = Bench::start(&scratch, "nodes", nodes)?;
    let (from, to) = (bench.path("from"), bench.path("to"));
    staging(&scratch, &["many", &from, "1000"])?;
    let end = bench.counted(0, "in", &[&from, "case"])?;
    let shares = end["nodes"].as_array().context("nodes")?;
    ensure!(shares.len() >= 2 && shares.iter().all(|node| node["files"] != 0), "{end}");
    let alone = bench.counted(0, "in", &["--nodes-used", "1", &from, "alone"])?;
    ensure!(alone["nodes"].as_array().is_some_and(Vec::is_empty), "{alone}");
    let slow = ["--files-per-second", "300", "case", &to];
    let running = bench.job("out", &slow)?.start()?;
    until("it copies", || Ok(scratch.join("to").exists()))?;
    let hands = || {
        process::marked(scratch.mark())
            .into_iter()
            .filter(|process| process.command.contains("__stage-hands"))
    };
    ensure!(hands().count() >= 2, "no processes on other nodes");
    for hand in hands() {
        std::thread::sleep(Duration::from_millis(500));
        process::kill(hand.pid);
    }
    let outcome = running.wait()?;
    ensure!(outcome.code == 0, "{}", String::from_utf8_lossy(&outcome.stderr));
    expect_same(&bench, "from", "to")?;
    until("no process is left", || Ok(hands().count() == 0))?;
    bench.instance.stop()
}

#[test]
fn a_stage_that_is_interrupted_says_how_to_go_on() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-ended")?;
    let bench = Bench::start(&scratch, "ended", &[])?;
    fs::write(scratch.join("file"), vec![b'a'; 8 << 20])?;
    let from = bench.path("file");
    let running = bench.job("in", &["--bandwidth", "2M", &from, "copy"])?.start()?;
    let begun = "ls -A $MAYFLY_MOUNT | grep -q '^.mayfly-'";
    until("it is being copied", || Ok(bench.instance.shell("begun", begun).run()?.code == 0))?;
    process::terminate(running.pid());
    let outcome = running.wait()?;
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code == 3 && told.contains("the same command goes on"), "{told}");
    ensure!(outcome.elapsed < Duration::from_secs(3), "it was not ended");
    let there = bench.instance.shell("there", "ls -A $MAYFLY_MOUNT").run_ok()?.stdout;
    ensure!(there.is_empty(), "{}", String::from_utf8_lossy(&there));
    bench.instance.stop()
}

#[test]
fn a_stage_in_the_background_is_shown_waited_for_and_cancelled() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-back")?;
    let bench = Bench::start(&scratch, "back", &[])?;
    fs::write(scratch.join("file"), vec![b'a'; 2 << 20])?;
    let from = bench.path("file");
    let begin = |to: &str, pace: &str| -> Result<String> {
        let begun = bench.stage("in", &["--background", "--bandwidth", pace, &from, to])?;
        ensure!(begun.elapsed < Duration::from_secs(5), "it was waited for");
        Ok(String::from_utf8(begun.stdout)?.trim().to_owned())
    };
    let states = || -> Result<Vec<String>> {
        let shown = serde_json::from_slice(&bench.stage("status", &["--json"])?.stdout)?;
        let Value::Array(all) = shown else { bail!("{shown}") };
        Ok(all.iter().map(|one| one["state"].as_str().unwrap_or_default().to_owned()).collect())
    };
    let (slow, fast) = (begin("slow", "64K")?, begin("fast", "2M")?);
    ensure!(states()? == ["running", "running"], "{:?}", states()?);
    let status: Value = serde_json::from_slice(&bench.stage("status", &["--json"])?.stdout)?;
    let stat = fs::read_to_string(format!("/proc/{}/stat", status[0]["pid"]))?;
    let nice = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16));
    ensure!(nice == Some("19"), "it does not stand back: {nice:?}");
    let shown = bench.instance.command("status").run_ok()?.stdout;
    let shown = String::from_utf8(shown)?;
    ensure!(shown.lines().filter(|line| line.trim().starts_with("stage ")).count() == 2, "{shown}");
    let all = bench.instance.command("status").args(["--json"]).run_ok()?.stdout;
    let all: Value = serde_json::from_slice(&all)?;
    ensure!(all["stages"].as_array().is_some_and(|stages| stages.len() == 2), "{all}");
    bench.stage("wait", &[&fast])?;
    ensure!(states()? == ["running", "done"], "{:?}", states()?);
    bench.stage("cancel", &[&slow])?;
    ensure!(states()? == ["ended", "done"], "{:?}", states()?);
    ensure!(bench.job("wait", &[&slow])?.run()?.code == 3);
    let unknown = bench.job("wait", &["77"])?.run()?;
    ensure!(unknown.code == 1 && String::from_utf8_lossy(&unknown.stderr).contains("no stage 77"));
    let there = bench.instance.shell("there", "ls -A $MAYFLY_MOUNT").run_ok()?.stdout;
    ensure!(there == b"fast\n", "{}", String::from_utf8_lossy(&there));
    // The end of the instance waits for what was asked for.
    bench.stage("out", &["--background", "--bandwidth", "2M", "fast", &bench.path("out")])?;
    bench.instance.stop()?;
    ensure!(fs::metadata(scratch.join("out"))?.len() == 2 << 20);
    Ok(())
}

#[test]
fn a_copy_is_made_again_and_again_and_there_is_always_a_whole_one() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-every")?;
    let bench = Bench::start(&scratch, "every", &[])?;
    let make = "cd $MAYFLY_MOUNT; mkdir -p r/a; echo one > r/a/file; echo same > r/same";
    bench.instance.shell("make", make).run_ok()?;
    let safe = scratch.join("safe");
    bench.stage("every", &["1s", "r", &bench.path("safe")])?;
    until("a first copy", || Ok(safe.join("a/file").exists()))?;
    let same = fs::metadata(safe.join("same"))?.ino();
    // What has a copy always has one.
    let text = |name: &str| fs::read_to_string(safe.join(name)).unwrap_or_default();
    bench.instance.shell("change", "cd $MAYFLY_MOUNT/r; echo two > a/file; echo > new").run_ok()?;
    until("a second copy", || Ok(text("a/file") == "two\n" && safe.join("new").exists()))?;
    ensure!(fs::metadata(safe.join("same"))?.ino() == same, "what is the same was copied again");
    bench.instance.shell("remove", "rm $MAYFLY_MOUNT/r/new").run_ok()?;
    until("a third copy", || Ok(safe.exists() && !safe.join("new").exists()))?;
    ensure!(text("same") == "same\n");
    // Its process is killed in the middle of a copy: the last whole one stays.
    let status: Value = serde_json::from_slice(&bench.stage("status", &["--json"])?.stdout)?;
    ensure!(status[0]["is_periodic"] == true && status[0]["last_whole"].is_u64(), "{status}");
    let pid = status[0]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    process::kill(pid.context("no process")?);
    until("its end", || {
        let status: Value = serde_json::from_slice(&bench.stage("status", &["--json"])?.stdout)?;
        Ok(status[0]["state"] == "killed")
    })?;
    fs::rename(&safe, scratch.join("safe.old"))?;
    fs::create_dir(scratch.join("safe.next"))?;
    bench.stage("every", &["1s", "r", &bench.path("safe")])?;
    until("a copy after that", || {
        Ok(text("a/file") == "two\n" && !scratch.join("safe.old").exists())
    })?;
    bench.instance.stop()?;
    ensure!(text("a/file") == "two\n");
    until("the end of all processes", || Ok(process::marked(scratch.mark()).is_empty()))
}

#[test]
fn each_file_is_looked_at_once_and_each_directory_read_once() -> Result<()> {
    if !has_python() || !skip::unless_installed("looks", &["strace"], "strace") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stage-looks")?;
    let bench = Bench::start(&scratch, "looks", &[])?;
    let from = bench.path("from");
    staging(&scratch, &["many", &from, "1000"])?;
    let trace = bench.path("trace");
    let calls = "trace=newfstatat,fstat,stat,lstat,statx,getdents64";
    let job = Job::new(&scratch, "strace", "strace")
        .args(["-f", "-y", "-o", &trace, "-e", calls])
        .args([binary::mayfly()?.as_os_str()])
        .args(["stage", "in", "--name", "looks", &from, "case"]);
    job.run_ok()?;
    let trace = fs::read_to_string(&trace)?;
    let of_source = |call: &str| {
        let lines = trace.lines().filter(|line| line.contains(&from));
        lines.filter(|line| line.contains(call)).count()
    };
    let (looks, listings) = (of_source("stat"), of_source("getdents64"));
    // A directory's own look, that of the C library when it is opened, and a read of its end.
    ensure!(looks <= 1000 + 3 * 21, "{looks} looks at 1000 files in 20 directories");
    ensure!(listings <= 2 * 21 + 2, "{listings} reads of 21 directories");
    bench.instance.stop()
}
