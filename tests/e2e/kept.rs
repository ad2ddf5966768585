//! What was kept is still there after a start that was refused, or failed: a clean-up after a
//! failure removes what that attempt has made, and nothing else.

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process};

const PATIENCE: Duration = Duration::from_secs(20);

fn mayfly<'a>(scratch: &'a Scratch, arguments: &[&str]) -> Result<Job<'a>> {
    let label = format!("mayfly-{}", arguments.first().copied().unwrap_or_default());
    let job = Job::new(scratch, &label, binary::mayfly()?).args(arguments);
    Ok(job.deadline(Duration::from_secs(120)))
}

/// `mayfly` with these arguments fails, and its error holds `word`.
fn refused(scratch: &Scratch, arguments: &[&str], word: &str) -> Result<()> {
    let outcome = mayfly(scratch, arguments)?.run()?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code != 0, "{arguments:?} was not refused\n{error}");
    ensure!(error.contains(word), "{arguments:?} says nothing of {word:?}:\n{error}");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of this suite is text")
}

/// All files below a directory, with what is in them.
fn files(directory: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            match fs::symlink_metadata(&path)?.is_dir() {
                true => left.push(path),
                false => drop(found.insert(path.clone(), fs::read(&path)?)),
            }
        }
    }
    Ok(found)
}

/// The data directory of an instance that has ended and was kept, with a file in it.
fn kept(scratch: &Scratch, name: &str, place: &Path) -> Result<PathBuf> {
    mayfly(scratch, &["start", "--name", name, "--keep", "--data-dir", text(place)?])?.run_ok()?;
    let instance = Instance::named(scratch, name)?;
    instance.shell("write", r#"echo precious > "$MAYFLY_MOUNT/file""#).run_ok()?;
    instance.stop()?;
    let entry = fs::read_dir(place)?.next().context("the data are gone")??;
    Ok(entry.path())
}

fn expect_precious(instance: &Instance<'_>) -> Result<()> {
    let read = instance.shell("read", r#"cat "$MAYFLY_MOUNT/file""#).run_ok()?;
    ensure!(read.stdout == b"precious\n", "{:?}", String::from_utf8_lossy(&read.stdout));
    Ok(())
}

/// Takes the data up, reads the file, and ends the instance.
fn expect_whole(scratch: &Scratch, name: &str, data: &Path) -> Result<()> {
    mayfly(scratch, &["start", "--name", name, "--reopen", text(data)?])?.run_ok()?;
    let instance = Instance::named(scratch, name)?;
    expect_precious(&instance)?;
    instance.stop()
}

/// `start --keep`, `stop`, `start` of the same name said that the data were there already and how
/// to take them up; and then the clean-up after this failure removed them.
#[test]
fn a_start_that_finds_kept_data_in_its_way_leaves_them() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("kept-start")?;
    let (place, other) = (scratch.join("data"), scratch.join("other"));
    let data = kept(&scratch, "kp", &place)?;
    let before = files(&data)?;
    let both = format!("{},{}", text(&other)?, text(&place)?);
    let (place, other) = (text(&place)?, text(&other)?);
    let starts: [&[&str]; 8] = [
        &["start", "--data-dir", place],
        &["start", "--keep", "--data-dir", place],
        &["start", "--nodes", "local:2", "--data-dir", place],
        // As a further directory, and as that of the metadata.
        &["start", "--data-dir", &both],
        &["start", "--data-dir", other, "--meta-dir", place],
        &["run", "--data-dir", place, "--", "true"],
        &["run", "--keep", "--data-dir", place, "--", "true"],
        &["run", "--nodes", "local:2", "--data-dir", place, "--", "true"],
    ];
    for start in starts {
        let arguments = [&start[..1], &["--name", "kp"], &start[1..]].concat();
        refused(&scratch, &arguments, "is there already")?;
        ensure!(files(&data)? == before, "{arguments:?} has touched what was kept");
    }
    ensure!(!scratch.join("run/mayfly/kp").exists(), "a run directory is left");
    expect_whole(&scratch, "kp", &data)
}

/// One node of two is refused: what the other one has made goes, what is in the way stays.
#[test]
fn nodes_that_do_not_start_take_only_their_own_with_them() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("kept-nodes")?;
    let place = scratch.join("data");
    let data = kept(&scratch, "pair", &place)?;
    let mut second = data.clone().into_os_string();
    second.push("@1");
    fs::rename(&data, &second)?;
    let before = files(&place)?;
    let start = ["start", "--name", "pair", "--nodes", "local:2", "--data-dir", text(&place)?];
    refused(&scratch, &start, "is there already")?;
    ensure!(files(&place)? == before, "{:?}", files(&place)?.keys());
    ensure!(!data.exists(), "the first node left its directory");
    Ok(())
}

#[test]
fn a_reopen_that_fails_leaves_the_data_and_whoever_is_in_its_way() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("kept-reopen")?;
    let data = kept(&scratch, "kp", &scratch.join("data"))?;
    let full = scratch.join("full");
    fs::create_dir(&full)?;
    fs::write(full.join("mine"), "text")?;
    let mount = scratch.join("mount");
    let other = Instance::start(&scratch, "other", &mount)?;
    other.shell("write", r#"echo precious > "$MAYFLY_MOUNT/file""#).run_ok()?;
    let before = files(&data)?;
    let (data_text, full, mount) = (text(&data)?, text(&full)?, text(&mount)?);
    let attempts: [(&[&str], &str); 3] = [
        (&["--name", "kp", "--mount", full], "not empty"),
        (&["--name", "kp", "--mount", mount], "that of another instance"),
        (&["--name", "other"], "is running"),
    ];
    for (options, word) in attempts {
        refused(&scratch, &[&["start", "--reopen", data_text], options].concat(), word)?;
        ensure!(files(&data)? == before, "{options:?} has touched what was kept");
    }
    let job = mayfly(&scratch, &["start", "--reopen", data_text, "--access", "fuse"])?;
    let outcome = job.env("MAYFLY_MOUNT_BY", "nosuch").run()?;
    ensure!(outcome.code != 0 && files(&data)? == before, "a mount that cannot be");
    ensure!(fs::read(scratch.join("full/mine"))? == b"text", "a full directory was touched");
    expect_precious(&other)?;
    other.stop()?;
    expect_whole(&scratch, "kp", &data)
}

/// The daemon refused the metadata that another one has; but the data directory said by then that
/// it belongs to the instance that had failed.
#[test]
fn data_in_use_are_not_taken_up_a_second_time() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("kept-used")?;
    let data = kept(&scratch, "kp", &scratch.join("data"))?;
    mayfly(&scratch, &["start", "--name", "kp", "--reopen", text(&data)?])?.run_ok()?;
    let said = fs::read(data.join("instance.json"))?;
    let again = ["start", "--name", "again", "--reopen", text(&data)?];
    refused(&scratch, &again, "mayfly stop --name kp")?;
    ensure!(fs::read(data.join("instance.json"))? == said, "the data are said to be another's");
    let instance = Instance::named(&scratch, "kp")?;
    expect_precious(&instance)?;
    instance.stop()?;
    expect_whole(&scratch, "again", &data)
}

/// A start takes the place of a dead instance of its name; one that is refused does not.
#[test]
fn a_refused_start_leaves_what_a_dead_instance_left() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("kept-dead")?;
    let (place, full) = (scratch.join("data"), scratch.join("full"));
    fs::create_dir(&full)?;
    fs::write(full.join("mine"), "text")?;
    let start = ["start", "--name", "dead", "--data-dir", text(&place)?];
    mayfly(&scratch, &start)?.run_ok()?;
    let instance = Instance::named(&scratch, "dead")?;
    instance.shell("write", r#"echo precious > "$MAYFLY_MOUNT/file""#).run_ok()?;
    process::kill_supervisor(scratch.mark(), PATIENCE)?;
    let data = fs::read_dir(&place)?.next().context("the data are gone")??.path();
    refused(&scratch, &[&start[..], &["--capacity", "1M"]].concat(), "64M")?;
    refused(&scratch, &[&start[..], &["--mount", text(&full)?]].concat(), "not empty")?;
    refused(
        &scratch,
        &[&start[..], &["--nodes", "local:2", "--net", "nosuch0"]].concat(),
        "--net",
    )?;
    // Under another name, so that what the dead one left knows nothing of it.
    mayfly(&scratch, &["start", "--name", "heir", "--reopen", text(&data)?])?.run_ok()?;
    let heir = Instance::named(&scratch, "heir")?;
    expect_precious(&heir)?;
    // Nor does clearing up after it, now that the data are another's.
    mayfly(&scratch, &["doctor", "--clean"])?.run()?;
    ensure!(!scratch.join("run/mayfly/dead").exists(), "the dead one was not cleared up");
    expect_precious(&heir)?;
    heir.stop()?;
    expect_whole(&scratch, "heir", &data)
}
