//! Unmodified programs leave the same outside when they work in a directory that is shown from
//! there, also while the daemon is killed.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use mayfly_testkit::{Job, Scratch, Turn, skip};
use mayfly_tests::{
    program::{Program, apps_dir, kill_daemons},
    suite,
};

/// Time from one kill to the next.
const PERIOD: Duration = Duration::from_millis(300);

/// A directory with what a script makes there.
fn made_by(scratch: &Scratch, script: Option<&Path>) -> Result<std::path::PathBuf> {
    let directory = scratch.join("origin");
    fs::create_dir(&directory)?;
    if let Some(script) = script {
        let words = ["-c".as_ref(), "cd \"$0\" && . \"$1\"".as_ref(), directory.as_os_str()];
        Job::new(scratch, "made", "bash").args(words).args([script]).run_ok()?;
    }
    Ok(directory)
}

fn compare(scratch: &Scratch, turn: &Turn, program: Option<Program>, kills_min: u32) -> Result<()> {
    // What is missing was said by who looked for it.
    let Some(program) = program else { return Ok(()) };
    let mut kills = Ok(0);
    program.compare(turn, scratch, |over| {
        if kills_min > 0 {
            kills = kill_daemons(scratch, over, || PERIOD);
        }
    })?;
    let kills = kills?;
    ensure!(kills >= kills_min, "only {kills} kills: the program is too short for this test");
    Ok(())
}

fn checkout(scratch: &Scratch) -> Result<Option<Program>> {
    if !skip::unless_installed("checkout", &["git", "gcc", "make"], "git gcc make") {
        return Ok(None);
    }
    let origin = Some(made_by(scratch, Some(&apps_dir().join("checkout_upstream.sh")))?);
    // An index holds inode numbers and times.
    let ignored = &["index"];
    let program = Program::new("checkout", Duration::from_secs(180));
    Ok(Some(Program { origin, ignored, ..program }))
}

#[test]
fn a_checkout_that_is_built_and_pushed_leaves_the_same_outside() -> Result<()> {
    let (turn, scratch) = (Turn::take()?, Scratch::new("tier-checkout")?);
    compare(&scratch, &turn, checkout(&scratch)?, 0)
}

#[test]
fn a_checkout_and_its_build_go_on_while_the_daemon_is_killed() -> Result<()> {
    let (turn, scratch) = (Turn::take()?, Scratch::new("tier-checkout-kills")?);
    compare(&scratch, &turn, checkout(&scratch)?, 3)
}

#[test]
fn a_source_tree_is_configured_and_built_outside_while_the_daemon_is_killed() -> Result<()> {
    let (turn, scratch) = (Turn::take()?, Scratch::new("tier-source")?);
    let program = suite::source_tree(&scratch)?;
    let origin = Some(made_by(&scratch, None)?);
    compare(&scratch, &turn, program.map(|program| Program { origin, ..program }), 3)
}

#[test]
fn openfoam_leaves_the_same_fields_outside() -> Result<()> {
    let (turn, scratch) = (Turn::take()?, Scratch::new("tier-openfoam")?);
    let origin = Some(made_by(&scratch, None)?);
    compare(&scratch, &turn, suite::openfoam().map(|program| Program { origin, ..program }), 0)
}
