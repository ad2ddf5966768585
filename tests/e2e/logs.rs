//! `mayfly logs`: what nodes have to say, in order of time, and requests that took long.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);
/// `LOG_BYTES_MAX` of the supervisor, and a line.
const LOG_BYTES_MAX: u64 = (1 << 20) + 8192;

/// What `mayfly logs --json` prints with these options.
fn lines(instance: &Instance<'_>, options: &[&str]) -> Result<Vec<Value>> {
    let told = instance.command("logs").args(["--json"]).args(options).run_ok()?;
    let text = String::from_utf8(told.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

/// The first line with these words, as soon as there is one.
fn await_line(instance: &Instance<'_>, options: &[&str], words: &[&str]) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let all = lines(instance, options)?;
        let is_it = |line: &&Value| words.iter().all(|word| text(line, "text").contains(word));
        if let Some(line) = all.iter().find(is_it) {
            return Ok(line.clone());
        }
        ensure!(Instant::now() < deadline, "no line with {words:?}: {all:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn lines_of_all_nodes_are_in_order_of_time_and_a_killed_daemon_is_among_them() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("logs")?;
    let instance = Instance::named(&scratch, "many")?;
    instance.command("start").args(["--nodes", "local:4"]).run_ok()?;
    for node in [2, 0, 3] {
        ensure!(process::kill(instance.daemon_pid_of(node)?), "the daemon is gone");
        let node = node.to_string();
        let ended = await_line(&instance, &["--node", &node], &["ended", "SIGKILL"])?;
        ensure!(text(&ended, "level") == "WARN" && text(&ended, "part") == "supervisor");
        let again = ["--node", &node, "--since", "1m"];
        let deadline = Instant::now() + PATIENCE;
        let serves = |line: &&Value| text(line, "text").contains("the daemon serves");
        while lines(&instance, &again)?.iter().filter(serves).count() < 2 {
            ensure!(Instant::now() < deadline, "the next daemon of node {node} is not told");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let all = lines(&instance, &[])?;
    let times: Vec<&str> = all.iter().map(|line| text(line, "time")).collect();
    ensure!(times.is_sorted() && times.iter().all(|time| time.ends_with('Z')), "{times:?}");
    let nodes = |node: u64| all.iter().filter(|line| line["node"] == node).count();
    ensure!((0..4).all(|node| nodes(node) >= 1), "{all:#?}");
    let bad = lines(&instance, &["--level", "warn"])?;
    ensure!(bad.len() >= 3 && bad.iter().all(|line| text(line, "level") != "INFO"), "{bad:#?}");
    ensure!(lines(&instance, &["--level", "error"])?.is_empty());
    let told = instance.command("logs").run_ok()?.stdout;
    let told = String::from_utf8(told)?;
    let is_line = |line: &str| line.split(' ').nth(2) == Some("node");
    ensure!(told.lines().count() >= all.len() && told.lines().all(is_line), "{told}");
    for (options, words) in [(["--node", "4"], "4 nodes"), (["--level", "bad"], "info, warn")] {
        let refused = instance.command("logs").args(options).run()?;
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(refused.code != 0 && error.contains(words), "{error}");
    }
    instance.stop()?;
    let gone = instance.command("logs").run()?;
    let error = String::from_utf8_lossy(&gone.stderr).into_owned();
    ensure!(gone.code == 1 && error.contains("mayfly status"), "{error}");
    Ok(())
}

fn follow(nodes: &[&str], name: &str) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new(&format!("logs-{name}"))?;
    let instance = Instance::named(&scratch, name)?;
    instance.command("start").args(nodes).run_ok()?;
    let options = ["--follow", "--level", "warn"];
    let mut followed = instance.command("logs").args(options).deadline(3 * PATIENCE).start()?;
    let seen = || fs::read_to_string(scratch.join(format!("{name}-logs.out")));
    std::thread::sleep(Duration::from_millis(500));
    ensure!(!followed.is_over()? && seen()?.is_empty(), "nothing has happened: {}", seen()?);
    ensure!(process::kill(instance.daemon_pid()?), "the daemon is gone");
    let deadline = Instant::now() + PATIENCE;
    while !seen()?.contains("SIGKILL") {
        ensure!(Instant::now() < deadline, "the new line is not seen: {}", seen()?);
        std::thread::sleep(Duration::from_millis(50));
    }
    ensure!(!followed.is_over()?, "it has ended before its instance");
    // A reader of several nodes may meet one that is being started.
    await_line(&instance, &["--node", "0"], &["the daemon serves"])?;
    instance.stop()?;
    let ended = followed.wait()?;
    ensure!(ended.code == 0, "{}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

#[test]
fn new_lines_of_one_node_are_seen_until_the_instance_ends() -> Result<()> {
    follow(&[], "follow")
}

#[test]
fn new_lines_of_several_nodes_are_seen_until_the_instance_ends() -> Result<()> {
    follow(&["--nodes", "local:3"], "followall")
}

/// Asks for a name with the daemon of process `victim` stopped for a while.
fn ask_beside_stopped(instance: &Instance<'_>, victim: u32, script: &str) -> Result<()> {
    let ready = format!(
        ": > \"$MAYFLY_MOUNT/ready\"; kill -STOP {victim}; \
         {{ sleep 1.2; kill -CONT {victim}; }} & {script}; wait; true"
    );
    instance.shell("ask", &ready).run_ok().map(drop)
}

#[test]
fn a_request_that_takes_long_is_told_with_its_path_and_where_the_time_went() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("logs-slow")?;
    let mount = scratch.join("tmp/mount");
    let options = ["--slow", "500ms", "--access", "preload"];
    let instance = Instance::start_with(&scratch, "slow", &mount, &options)?;
    let make = "cd \"$MAYFLY_MOUNT\"; mkdir d; : > d/new$'\\n'x";
    instance.shell("make", make).run_ok()?;
    let victim = instance.daemon_pid()?;
    // A stat may be answered by what the process can see itself.
    ask_beside_stopped(&instance, victim, "chmod 600 \"$MAYFLY_MOUNT/d/new\"$'\\n'\"x\"")?;
    let line = await_line(&instance, &[], &["slow: op=set_attr", "d/new"])?;
    let told = text(&line, "text");
    ensure!(told.contains("d/new\\nx\""), "{told}");
    let number = |key: &str| -> Result<u64> {
        let value = told.split(' ').find_map(|word| word.strip_prefix(key));
        value.and_then(|value| value.parse().ok()).with_context(|| format!("{key} in {told}"))
    };
    let (total, asleep) = (number("total_ms=")?, number("asleep_ms=")?);
    ensure!((500..10_000).contains(&total) && number("pid=")? > 0, "{told}");
    ensure!(asleep + number("served_ms=")? + 2 >= total, "all of it was somewhere: {told}");
    ensure!(text(&line, "level") == "WARN" && text(&line, "part") == "daemon", "{line}");
    // What waits by design is not slow.
    let locks = "cd \"$MAYFLY_MOUNT\"; : > lock; flock lock sleep 1.2 & sleep 0.3; \
                 flock lock true; wait";
    instance.shell("locks", locks).run_ok()?;
    let all = lines(&instance, &[])?;
    ensure!(!all.iter().any(|line| text(line, "text").contains("op=lock")), "{all:#?}");
    instance.stop()
}

#[test]
fn a_request_that_waits_for_another_node_says_for_which() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("logs-other")?;
    let instance = Instance::named(&scratch, "other")?;
    let options = ["--nodes", "local:3", "--slow", "500ms", "--access", "preload"];
    instance.command("start").args(options).args(["--names", "spread"]).run_ok()?;
    let victim = instance.daemon_pid_of(2)?;
    // A third of these names are of node 2.
    let ask = "for i in $(seq 24); do stat \"$MAYFLY_MOUNT/n$i\" 2> /dev/null & done";
    ask_beside_stopped(&instance, victim, ask)?;
    let line = await_line(&instance, &["--node", "0"], &["waits_for=\"node 2\""])?;
    ensure!(text(&line, "text").contains("path=\""), "{line}");
    instance.stop()
}

#[test]
fn without_slow_nothing_is_told() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("logs-off")?;
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start_with(&scratch, "off", &mount, &["--slow", "off"])?;
    let victim = instance.daemon_pid()?;
    ask_beside_stopped(&instance, victim, "chmod 600 \"$MAYFLY_MOUNT/ready\"")?;
    let all = lines(&instance, &["--level", "warn"])?;
    ensure!(all.is_empty(), "{all:#?}");
    instance.stop()?;
    let refused = instance.command("start").args(["--slow", "1ms"]).run()?;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.code != 0 && error.contains("at least 10ms"), "{error}");
    Ok(())
}

/// Each of these writes a line.
fn annoy(socket: &PathBuf, times: usize) -> Result<()> {
    let address = SocketAddrUnix::new(socket)?;
    let mut silent = Vec::new();
    for _ in 0..times {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &address)?;
        // So many the supervisor lets wait.
        if silent.len() < 256 {
            silent.push(socket);
        }
    }
    Ok(())
}

#[test]
fn the_log_of_a_node_is_bounded_and_keeps_the_newest() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("logs-bound")?;
    let instance = Instance::start(&scratch, "bound", &scratch.join("tmp/mount"))?;
    let run_dir = scratch.join("run/mayfly/bound");
    annoy(&run_dir.join("sock"), 30_000)?;
    let older = run_dir.join("log.1");
    let deadline = Instant::now() + PATIENCE;
    while !older.exists() {
        ensure!(Instant::now() < deadline, "the log has not been turned");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Who asks is refused while it has not seen that those have gone.
    let daemon = loop {
        match instance.daemon_pid() {
            Ok(daemon) => break daemon,
            Err(error) => ensure!(Instant::now() < deadline, "{error:#}"),
        }
    };
    ensure!(process::kill(daemon), "the daemon is gone");
    await_line(&instance, &[], &["SIGKILL"])?;
    for name in ["log", "log.1"] {
        let bytes = fs::metadata(run_dir.join(name))?.len();
        ensure!(bytes <= LOG_BYTES_MAX, "{name} has {bytes} bytes");
    }
    let all = lines(&instance, &[])?;
    ensure!((1000..30_000).contains(&all.len()), "{} lines", all.len());
    instance.stop()
}

#[test]
fn stages_are_told_when_they_begin_and_end() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("logs-stage")?;
    let instance = Instance::start(&scratch, "staged", &scratch.join("tmp/mount"))?;
    let tree = scratch.join("tree");
    fs::create_dir(&tree)?;
    fs::write(tree.join("file"), "text")?;
    let copy = Job::new(&scratch, "stage-in", binary::mayfly()?);
    copy.args(["stage", "in", "--name", "staged", &tree.display().to_string(), "d"]).run_ok()?;
    for event in [": began", ": ended"] {
        let line = await_line(&instance, &[], &["tree d", event])?;
        ensure!(text(&line, "part") == "stage" && text(&line, "level") == "INFO", "{line}");
    }
    instance.stop()
}
