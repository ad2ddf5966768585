//! Directories of a million entries.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Scratch, Turn};
use mayfly_tests::program::apps_dir;
use serde_json::Value;

const ENTRIES: u64 = 1_000_000;

/// What a listing may take, however long it is, in the process and in the daemon.
const GROWTH_KIB_MAX: u64 = 2048;

/// To make the files, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(5 * 60);

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_listing_of_a_million_entries_takes_no_memory() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("wide")?;
    let before = Before::look();
    let instance = Instance::start(&scratch, "wide", &scratch.join("tmp/mount"))?;
    let program = apps_dir().join("wide.py");
    let daemon = instance.daemon_pid()?;
    let script = format!(
        r#"cd "$MAYFLY_MOUNT" && mkdir wide && cd wide && python3 '{}' {ENTRIES} {daemon}"#,
        program.display()
    );
    let outcome = instance.shell("list", &script).deadline(DEADLINE).run_ok()?;
    let said: Value = serde_json::from_slice(&outcome.stdout).context("no JSON")?;
    let number = |name: &str| said[name].as_u64().with_context(|| format!("{name}: {said}"));
    ensure!(number("failed")? == 0 && number("once")? == ENTRIES, "{said}");
    eprintln!("KiB more while a million entries were listed: {said}");
    ensure!(number("self")? <= GROWTH_KIB_MAX, "the process: {said}");
    ensure!(number("daemon")? <= GROWTH_KIB_MAX, "the daemon: {said}");
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}
