//! Files that are mapped: random changes show the same in a mount as on the local file system.
//!
//! A failure names the seed; `apps/mappings.py DIRECTORY SEED STEPS` plays it again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Random, Scratch, Turn, skip};

const STEPS: &str = "600";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/apps/mappings.py");

fn native(scratch: &Scratch, seed: u64) -> Result<Vec<u8>> {
    let directory = scratch.join(format!("native{seed}"));
    fs::create_dir(&directory)?;
    let job = Job::new(scratch, "native", "python3").args([Path::new(SCRIPT), &directory]);
    Ok(job.args([seed.to_string().as_str(), STEPS]).run_ok()?.stdout)
}

fn mounted(scratch: &Scratch, instance: &Instance<'_>, seed: u64) -> Result<Vec<u8>> {
    let script =
        format!(r#"d="$MAYFLY_MOUNT/{seed}"; mkdir "$d" && python3 "$SCRIPT" "$d" {seed} {STEPS}"#);
    let outcome = instance.shell("mounted", &script).env("SCRIPT", SCRIPT).run()?;
    let output = mayfly_testkit::job::tail(scratch, "mounted");
    ensure!(outcome.code == 0, "exit status {}\n{output}", outcome.code);
    Ok(outcome.stdout)
}

fn compare(scratch: &Scratch, instance: &Instance<'_>, seed: u64) -> Result<()> {
    let (here, there) = (native(scratch, seed)?, mounted(scratch, instance, seed)?);
    let (here, there) = (String::from_utf8_lossy(&here), String::from_utf8_lossy(&there));
    for (one, two) in here.lines().zip(there.lines()) {
        ensure!(one == two, "\n  natively:     {one}\n  in the mount: {two}");
    }
    ensure!(here == there, "one output is longer");
    ensure!(here.lines().count() >= 600, "played too little");
    Ok(())
}

#[test]
fn random_mappings_show_what_they_show_on_a_local_disk() -> Result<()> {
    if !skip::unless_installed("mappings", &["python3"], "python3") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("maps")?;
    let instance = Instance::start(&scratch, "maps", &scratch.join("mount"))?;
    let mut random = Random::for_suite("mappings");
    let fresh = (0..5).map(|_| 1_000_000 + random.below(1 << 40));
    for seed in (1..=15).chain(fresh) {
        compare(&scratch, &instance, seed).with_context(|| format!("seed {seed}"))?;
    }
    instance.expect_nothing_held(Duration::from_secs(10))?;
    instance.stop()
}
