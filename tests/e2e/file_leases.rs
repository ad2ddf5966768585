//! Files are opened, read and closed without asking the daemon, and every change that returned is
//! seen; of small files, whose bytes are in their records, and of longer ones, which have objects.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Outcome, Scratch, Turn};

const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a file.
const SMALL: &str = "2000";
const LONG: &str = "40000";

fn requests(instance: &Instance<'_>) -> Result<u64> {
    let status = instance.status()?;
    let count = status["requests"].as_u64();
    count.with_context(|| format!("nothing is said of requests: {status}"))
}

/// With several nodes some directories are other ones'.
fn reads_records() -> bool {
    std::env::var_os("MAYFLY_NODES").is_none()
}

/// Runs parts of `apps/file_leases.py`.
fn run(
    instance: &Instance<'_>,
    scratch: &Scratch,
    (label, width): (&str, &str),
    parts: &str,
) -> Result<Outcome> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/file_leases.py");
    let command =
        r#"at="$MAYFLY_MOUNT/$LABEL"; mkdir "$at" && exec python3 "$PROGRAM" "$at" $PARTS"#;
    let job = instance.shell(label, command).env("PROGRAM", &program).env("LABEL", label);
    job.env("PARTS", parts).env("WIDTH", width).env("SHARED", scratch.join("shared")).run_ok()
}

fn holds(label: &str, parts: &str) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new(label)?;
    let instance = Instance::start(&scratch, label, &scratch.join("mount"))?;
    run(&instance, &scratch, ("small", SMALL), parts)?;
    run(&instance, &scratch, ("long", LONG), parts)?;
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

#[test]
fn what_another_process_changes_is_seen_when_its_call_has_returned() -> Result<()> {
    holds("lent-changes", "changes vanishing each_change")
}

#[test]
fn a_directory_that_was_opened_without_asking_is_one_as_any_other() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("lent-directories")?;
    let instance = Instance::start(&scratch, "lent-directories", &scratch.join("mount"))?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/directory_leases.py");
    let command = r#"mkdir "$MAYFLY_MOUNT/d" && exec python3 "$PROGRAM" "$MAYFLY_MOUNT/d""#;
    instance.shell("directories", command).env("PROGRAM", &program).run_ok()?;
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

#[test]
fn a_description_that_was_leased_is_one_as_any_other() -> Result<()> {
    holds("lent-used", "used many")
}

#[test]
fn threads_do_not_meet_in_what_is_leased() -> Result<()> {
    holds("lent-threads", "threads")
}

#[test]
fn a_killed_process_leaves_nothing_that_was_leased() -> Result<()> {
    holds("lent-killed", "killed")
}

#[test]
fn descriptors_of_objects_are_out_of_sight() -> Result<()> {
    holds("lent-hidden", "hidden")
}

#[test]
fn a_small_file_is_read_without_a_request() -> Result<()> {
    expect_unasked("unasked", SMALL)
}

#[test]
fn a_file_that_has_an_object_is_read_without_a_request() -> Result<()> {
    expect_unasked("unasked-long", LONG)
}

fn expect_unasked(label: &str, width: &str) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new(label)?;
    let instance = Instance::start(&scratch, label, &scratch.join("mount"))?;
    let before = requests(&instance)?;
    run(&instance, &scratch, ("once", width), "unasked")?;
    let asked = requests(&instance)? - before;
    eprintln!("{asked} requests for 4000 files of {width} bytes");
    ensure!(!reads_records() || asked < 400, "{asked} requests: nothing was read without one");
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

#[test]
fn a_daemon_that_is_killed_takes_nothing_from_who_reads() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("klent")?;
    let instance = Instance::start(&scratch, "klent", &scratch.join("mount"))?;
    let parts = "changes each_change many threads";
    let mut rounds = 0..2;
    let kills = instance.beside_kills(|| {
        rounds.try_for_each(|round| {
            let label = format!("r{round}");
            let width = if round % 2 == 0 { LONG } else { SMALL };
            run(&instance, &scratch, (&label, width), parts).map(drop)
        })
    })?;
    eprintln!("the daemon was killed {kills} times");
    ensure!(kills >= 3, "only {kills} kills");
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

/// The records of 65,000 files of 4 KB did not fit what was mapped of them: whatever lay beyond was
/// asked for, for as long as the instance lived.
#[test]
fn many_small_files_are_looked_at_without_a_request() -> Result<()> {
    const MAKE: &str = "import os, sys
for number in range(70_000):
    made = os.open(f'{sys.argv[1]}/{number}', os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(made, b'x' * 4000)
    os.close(made)";
    const LOOK: &str = "import os, sys
assert all(os.stat(f'{sys.argv[1]}/{number}').st_size == 4000 for number in range(70_000))";
    let _turn = Turn::take()?;
    let scratch = Scratch::new("lent-many")?;
    let instance = Instance::start(&scratch, "lent-many", &scratch.join("mount"))?;
    let run = |label: &str, program: &str| {
        let command =
            r#"mkdir -p "$MAYFLY_MOUNT/many"; python3 -c "$PROGRAM" "$MAYFLY_MOUNT/many""#;
        instance.shell(label, command).env("PROGRAM", program).run_ok()
    };
    run("make", MAKE)?;
    let before = requests(&instance)?;
    run("look", LOOK)?;
    let asked = requests(&instance)? - before;
    ensure!(!reads_records() || asked < 7_000, "{asked} requests for 70,000 files");
    instance.stop()
}
