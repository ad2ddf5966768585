//! `mayfly tier` as a user types it: prefetching.

use std::fs;

use anyhow::{Result, ensure};
use mayfly_testkit::{Scratch, Turn, binary};
use serde_json::Value;

#[path = "tier/bench.rs"]
mod bench;

use bench::{Bench, LARGE_BYTES, is_possible, text};

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
    let none = mount.join("none");
    let outcome = bench.tier(&["prefetch", text(&none)?])?.run()?;
    ensure!(outcome.code == 1, "what is not there was prefetched");
    fs::rename(scratch.join("away"), &bench.outside)?;
    bench.instance.stop()
}
