//! `mayfly tier` as a user types it: prefetch, pin, unlink, and what goes back by itself.

use std::fs;

use anyhow::{Result, ensure};
use mayfly_testkit::{Scratch, Turn, binary, process};
use serde_json::Value;

#[path = "tier/bench.rs"]
#[allow(dead_code, reason = "each suite uses a part of it")]
mod bench;

use bench::{Bench, LARGE_BYTES, accesses, is_possible, text};

#[test]
fn a_tree_that_was_prefetched_is_read_without_its_origin() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("verbs-prefetch")?;
    let bench = Bench::start(&scratch, "prefetch", &["--validate", "never"])?;
    let mount = scratch.join("prefetch-mnt");
    let mayfly = binary::mayfly()?;
    let fetch = |how: &str| -> Result<Value> {
        let list = "printf '%s\\0' \"$PWD/small\" \"$PWD/dir\"";
        let script = format!("{list} | {} tier prefetch - -0 {how}", text(&mayfly)?);
        Ok(serde_json::from_str(&bench.sh(&script)?)?)
    };
    let done = fetch("--json")?;
    ensure!(done["files"] == 3 && done["fetched_files"] == 3, "{done}");
    ensure!(done["bytes"] == LARGE_BYTES + 6 + 23 && done["directories"] == 2, "{done}");
    ensure!(bench.origin("cached_bytes")? == (LARGE_BYTES + 6 + 23) as u64);
    fs::rename(&bench.outside, scratch.join("away"))?;
    bench.expect("wc -c < dir/large; cat small dir/inner/program | wc -l", "3145728\n3\n")?;
    let done = fetch("--json")?;
    ensure!(done["files"] == 3 && done["fetched_files"] == 0, "{done}");
    let metrics = bench.instance.command("metrics").run_ok()?.stdout;
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    let waited =
        |line: &str| line.starts_with("mayfly_held_seconds_count") && line.contains("origin");
    ensure!(metrics.lines().any(waited), "no wait for an origin is told in:\n{metrics}");
    let fetched = format!("what=\"fetched\"}} {}.0", LARGE_BYTES + 6 + 23);
    for (name, value) in [("moved_bytes_total", fetched.as_str()), ("files", "\"0\"} 8.0")] {
        let is_it = |line: &&str| line.starts_with(&format!("mayfly_tier_{name}{{"));
        let line = metrics.lines().filter(is_it).find(|line| line.ends_with(value));
        ensure!(line.is_some(), "no {name} of {value} in:\n{metrics}");
    }
    let none = mount.join("none");
    let outcome = bench.tier(&["prefetch", text(&none)?])?.run()?;
    ensure!(outcome.code == 1, "what is not there was prefetched");
    fs::rename(scratch.join("away"), &bench.outside)?;
    bench.instance.stop()
}

#[test]
fn what_is_closed_or_synced_or_left_alone_is_outside_as_was_chosen() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("verbs-back")?;
    for access in accesses() {
        let named = |what: &str| format!("{access}-{what}");
        let outside = |name: &str| format!("cat ../{name}-outside/small");
        let name = named("close");
        let bench = Bench::start(&scratch, &name, &["--access", access, "--flush-on-close"])?;
        bench.expect(&format!("echo closed > small; {}", outside(&name)), "closed\n")?;
        let exits = "exec 5>small; exec cat >&5";
        let script = format!("echo left | sh -c '{exits}'; {}", outside(&name));
        bench.expect(&script, "left\n")?;
        bench.instance.stop()?;
        let name = named("sync");
        let bench = Bench::start(&scratch, &name, &["--access", access, "--fsync-origin"])?;
        let script = format!(
            "printf kept > small; {0}; printf synced | dd of=small conv=fsync 2>/dev/null; {0}; \
             printf all >> small; sync small; {0}",
            outside(&name)
        );
        bench.expect(&script, "small\nsyncedsyncedall")?;
        bench.instance.stop()?;
        let name = named("through");
        let bench = Bench::start(&scratch, &name, &["--access", access, "--write-through"])?;
        let script =
            format!("exec 5>small; printf one >&5; {0}; printf two >&5; {0}", outside(&name));
        bench.expect(&script, "oneonetwo")?;
        bench.instance.stop()?;
        let name = named("after");
        let bench = Bench::start(&scratch, &name, &["--access", access, "--flush-after", "300ms"])?;
        let script = format!(
            "exec 5>small; printf slow >&5; for i in $(seq 100); do test \"$({0})\" = slow && \
             break; sleep 0.1; done; {0}",
            outside(&name)
        );
        bench.expect(&script, "slow")?;
        bench.instance.stop()?;
    }
    Ok(())
}

#[test]
fn an_origin_is_unlinked_after_what_was_written_is_back() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("verbs-unlink")?;
    let bench = Bench::start(&scratch, "unlink", &["in=in"])?;
    let mount = scratch.join("unlink-mnt");
    bench.expect("cat in/small; echo ours > in/small", "small\n")?;
    let wrong = bench.tier(&["unlink", text(&mount.join("in/dir"))?])?.run()?;
    ensure!(wrong.code == 1 && wrong.error().contains("no origin is shown"), "{}", wrong.error());
    bench.tier(&["unlink", text(&mount.join("in"))?])?.run_ok()?;
    ensure!(bench.outside("small")? == "ours\n" && bench.outside.join("dir/large").is_file());
    bench.expect("ls in; echo own > in/own; cat in/own", "own\n")?;
    ensure!(
        !bench.outside.join("own").exists() && bench.status()?["origins"] == Value::Array(vec![])
    );
    bench.instance.stop()
}

#[test]
fn what_is_pinned_is_here_after_the_daemon_was_killed() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("verbs-pin")?;
    let bench = Bench::start(&scratch, "pin", &["--validate", "never"])?;
    let dir = scratch.join("pin-mnt/dir");
    bench.tier(&["pin", text(&dir)?])?.run_ok()?;
    ensure!(bench.origin("pinned_files")? == 2, "{}", bench.status()?);
    ensure!(process::kill(bench.instance.daemon_pid()?), "the daemon was not killed");
    bench.tier(&["evict"])?.run_ok()?;
    fs::rename(&bench.outside, scratch.join("away"))?;
    bench.expect("wc -c < dir/large", "3145728\n")?;
    fs::rename(scratch.join("away"), &bench.outside)?;
    bench.tier(&["unpin", text(&dir)?])?.run_ok()?;
    ensure!(bench.origin("pinned_files")? == 0, "{}", bench.status()?);
    bench.instance.stop()
}
