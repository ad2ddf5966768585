//! What should not be asked of an instance is refused with a text that helps, and damages nothing.
//!
//! Names, paths and offsets at their limits are among the checks of `calls.rs`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Turn, binary, process, skip};

const PATIENCE: Duration = Duration::from_secs(20);

fn mayfly<'a>(scratch: &'a Scratch, arguments: &[&str]) -> Result<Job<'a>> {
    let label = format!("mayfly-{}", arguments.first().copied().unwrap_or_default());
    let job = Job::new(scratch, &label, binary::mayfly()?).args(arguments);
    Ok(job.deadline(Duration::from_secs(120)))
}

/// `mayfly` with these arguments fails, and its error holds all `words`.
fn refused(scratch: &Scratch, arguments: &[&str], words: &[&str]) -> Result<()> {
    let outcome = mayfly(scratch, arguments)?.run()?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code != 0, "{arguments:?} was not refused\n{error}");
    ensure!(outcome.code < 126, "{arguments:?} ended with {}\n{error}", outcome.code);
    for word in words {
        ensure!(error.contains(word), "{arguments:?} says nothing of {word:?}:\n{error}");
    }
    Ok(())
}

fn output(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).trim().to_owned()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of this suite is text")
}

#[test]
fn a_mount_point_in_use_is_refused() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-mount")?;
    let before = Before::look();
    let (full, file) = (scratch.join("full"), scratch.join("file"));
    fs::create_dir(&full)?;
    fs::write(full.join("something"), "text")?;
    fs::write(&file, "text")?;
    let command = ["--", "touch", "ran"];
    for (mount, words) in [(&full, "is not empty; choose"), (&file, "not a directory")] {
        let arguments = [&["run", "--mount", text(mount)?], &command[..]].concat();
        refused(&scratch, &arguments, &[words, text(mount)?])?;
    }
    ensure!(!scratch.join("ran").exists(), "the command ran");
    ensure!(fs::read(full.join("something"))? == b"text", "the directory was touched");
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn a_second_instance_of_a_name_is_refused_and_the_first_goes_on() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-name")?;
    let instance = Instance::start(&scratch, "twice", &scratch.join("mount"))?;
    instance.shell("write", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
    let words = ["twice", "is running", "--name"];
    refused(&scratch, &["start", "--name", "twice"], &words)?;
    refused(&scratch, &["run", "--name", "twice", "--", "true"], &words)?;
    let read = instance.shell("read", r#"cat "$MAYFLY_MOUNT/file""#).run_ok()?;
    ensure!(output(&read) == "text", "the first instance reads {:?}", output(&read));
    instance.stop()?;
    refused(&scratch, &["stop", "--name", "twice"], &["no instance"])?;
    refused(&scratch, &["env", "--name", "a/b"], &["--name"])
}

#[test]
fn start_cleans_up_after_a_killed_supervisor() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-stale")?;
    let before = Before::look();
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start(&scratch, "stale", &mount)?;
    instance.shell("write", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
    process::kill_supervisor(scratch.mark(), PATIENCE)?;
    refused(&scratch, &["stop", "--name", "stale"], &["is dead", "mayfly start --name stale"])?;
    let instance = Instance::start(&scratch, "stale", &mount)?;
    let names = instance.shell("list", r#"ls -A "$MAYFLY_MOUNT""#).run_ok()?;
    ensure!(output(&names).is_empty(), "the new instance has {:?}", output(&names));
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn what_a_killed_supervisor_was_to_keep_is_kept() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-keep")?;
    let data = scratch.join("data");
    mayfly(&scratch, &["start", "--name", "kept", "--keep", "--data-dir", text(&data)?])?
        .run_ok()?;
    let instance = Instance::named(&scratch, "kept")?;
    instance.shell("write", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
    process::kill_supervisor(scratch.mark(), PATIENCE)?;
    let kept = fs::read_dir(&data)?.next().context("the data are gone")??.path();
    // Whatever is asked of it says the same.
    for arguments in [&["start"][..], &["stop"], &["env"], &["status"], &["shell"]] {
        let arguments = [arguments, &["--name", "kept"]].concat();
        refused(&scratch, &arguments, &["is dead", "mayfly start --reopen", text(&kept)?])?;
    }
    mayfly(&scratch, &["start", "--name", "kept", "--reopen", text(&kept)?])?.run_ok()?;
    let read = instance.shell("read", r#"cat "$MAYFLY_MOUNT/file""#).run_ok()?;
    ensure!(output(&read) == "text", "the file reads {:?}", output(&read));
    instance.stop()
}

#[test]
fn garbage_in_the_run_directory_does_no_harm() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-rundir")?;
    let run = scratch.join("run/mayfly/garbage");
    fs::create_dir_all(run.join("sock"))?;
    fs::create_dir_all(run.join("mnt/deep"))?;
    fs::write(run.join("instance.json"), "{ \"version\": ")?;
    fs::write(run.join("lock"), "x")?;
    fs::write(scratch.join("run/mayfly/file"), "x")?;
    mayfly(&scratch, &["status"])?.run_ok()?;
    refused(&scratch, &["stop", "--name", "garbage"], &["garbage"])?;
    let script = r#"echo text > "$MAYFLY_MOUNT/file" && cat "$MAYFLY_MOUNT/file""#;
    let outcome =
        mayfly(&scratch, &["run", "--name", "garbage", "--", "bash", "-c", script])?.run_ok()?;
    ensure!(output(&outcome) == "text", "{:?}", output(&outcome));
    Ok(())
}

/// Connects as user 65534 to the socket in the working directory, and prints what comes of it.
const STRANGER: &str = r#"
import os, socket, sys
sys.path = []
os.chdir(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(10)
try:
    s.connect("sock")
    try:
        s.send(b"MAYFLY" * 8)
    except OSError:
        pass
    print("bytes", len(s.recv(4096)))
except OSError as error:
    print(type(error).__name__)
"#;

#[test]
fn a_process_of_another_user_gets_no_byte() -> Result<()> {
    if !is_root() {
        skip::note("another user", "only root can start a process of another user");
        return Ok(());
    }
    if !skip::unless_installed("another user", &["python3"], "python3") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-user")?;
    let instance = Instance::start(&scratch, "alone", &scratch.join("mount"))?;
    let run = scratch.join("run/mayfly/alone");
    let stranger = |label: &str| -> Result<String> {
        let job = Job::new(&scratch, label, "python3").args(["-S", "-c", STRANGER, text(&run)?]);
        Ok(output(&job.run_ok()?))
    };
    let shut = stranger("shut")?;
    ensure!(shut == "PermissionError", "the directory let a stranger in: {shut}");
    // With the doors open, the supervisor itself refuses.
    for path in [scratch.path(), &scratch.join("run"), &scratch.join("run/mayfly"), &run] {
        set_mode(path, 0o755)?;
    }
    set_mode(&run.join("sock"), 0o777)?;
    let open = stranger("open")?;
    let refused = ["bytes 0", "ConnectionResetError"].contains(&open.as_str());
    ensure!(refused, "the supervisor answered a stranger: {open}");
    let counts = instance.counts()?;
    ensure!(counts.sessions == 0, "the stranger got a session: {counts:?}");
    instance.shell("own", r#"echo text > "$MAYFLY_MOUNT/file""#).run_ok()?;
    instance.stop()
}

fn is_root() -> bool {
    // The owner of a process's directory in procfs is its user.
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("changing the mode of {}", path.display()))
}

/// Fills the instance with large and then with small files, and looks at what is left of them.
const FILL: &str = r#"
cd "$MAYFLY_MOUNT"
seq 100000 > before; sum=$(md5sum < before); mkdir small
dd if=/dev/zero of=big bs=1M count=100 2> dd.err; echo "dd $?"
grep -c 'No space left' dd.err
[ "$(stat -c %s big)" -lt 67108864 ] && echo "big fits"
n=0; while [ $n -lt 40000 ] && echo "small $n" 2> /dev/null > small/$n; do n=$((n+1)); done
[ $n -lt 40000 ] && echo "small files end too"
torn=0; i=0
while [ $i -lt $n ]; do
    read -r line < small/$i
    [ "$line" = "small $i" ] || torn=$((torn+1))
    i=$((i+1))
done
echo "torn $torn"
[ "$(md5sum < before)" = "$sum" ] && echo intact
rm big && echo removed
rm -r small && echo "removed too"
dd if=/dev/zero of=again bs=1M count=20 2> /dev/null && stat -c %s again
"#;

#[test]
fn a_full_instance_says_enospc_tears_nothing_and_can_be_emptied() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-full")?;
    let arguments = ["run", "--capacity", "64M", "--", "bash", "-c", FILL];
    let outcome = mayfly(&scratch, &arguments)?.run()?;
    let expected = [
        "dd 1",
        "1",
        "big fits",
        "small files end too",
        "torn 0",
        "intact",
        "removed",
        "removed too",
        "20971520",
    ];
    let found = output(&outcome);
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(found.lines().eq(expected), "{found}\n{error}");
    Ok(())
}

#[test]
fn options_that_cannot_be_are_refused_with_what_to_do() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-options")?;
    let before = Before::look();
    let cases: [(&[&str], &[&str]); 14] = [
        (&["--keep", "--durability", "none"], &["--keep", "contradict", "Choose"]),
        (&["--durability", "sync", "--data-dir", "/dev/shm"], &["tmpfs", "--data-dir"]),
        (&["--durability", "twice"], &["none, process, sync"]),
        (&["--chunk-size", "100000"], &["--chunk-size", "power of two"]),
        (&["--chunk-size", "1K"], &["--chunk-size", "64K"]),
        (&["--chunk-size", "many"], &["512K"]),
        (&["--capacity", "1M"], &["--capacity", "64M"]),
        (&["--capacity", "20000000000G"], &["too large"]),
        (&["--times", "some"], &["none, mtime, all"]),
        (&["--locks", "maybe"], &["on or off"]),
        (&["--shards", "0"], &["--shards", "1 to 16"]),
        (&["--shards", "17"], &["--shards", "1 to 16"]),
        (&["--name", "a/b"], &["--name", "letters"]),
        (&["--name", ""], &["--name", "letters"]),
    ];
    for (options, words) in cases {
        let arguments = [&["run"], options, &["--", "touch", "ran"]].concat();
        refused(&scratch, &arguments, words)?;
    }
    refused(&scratch, &["start", "--reopen", "x", "--capacity", "1G"], &["--reopen"])?;
    refused(&scratch, &["start", "--reopen", "x", "--shards", "2"], &["--reopen"])?;
    refused(&scratch, &["start", "--reopen", "nowhere"], &["nowhere"])?;
    ensure!(!scratch.join("ran").exists(), "a command ran");
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn saving_onto_a_full_directory_is_refused_before_the_command_runs() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-save")?;
    let target = scratch.join("target");
    fs::create_dir(&target)?;
    fs::write(target.join("mine"), "text")?;
    let run = |target: &str, words: &[&str]| {
        refused(&scratch, &["run", "--save", target, "--", "touch", "ran"], words)
    };
    run(text(&target)?, &["--save", "not empty"])?;
    run(text(&scratch.join("none/target"))?, &["--save", "there is no"])?;
    run(text(&target.join("mine"))?, &["--save"])?;
    ensure!(!scratch.join("ran").exists(), "the command ran");
    ensure!(fs::read(target.join("mine"))? == b"text", "the target was touched");
    Ok(())
}

/// A tree with what an inode can hold, and its description with every attribute that is kept.
const TREE: &str = r#"
cd "$MAYFLY_MOUNT"
mkdir -p a/b/c; echo small > a/small; seq 300000 > a/b/large; : > a/b/c/empty
ln a/small a/hard; ln -s ../small a/b/link; ln -s nowhere a/dangling
truncate -s 10M a/sparse; echo end >> a/sparse; chmod 640 a/small; chmod 1777 a/b
touch -d 2001-02-03T04:05:06 a/b/large a/b/c; mv a/b/c a/c; echo more >> a/b/large
i=0; while [ $i -lt 300 ]; do echo $i > "a/c/f $i"; i=$((i+1)); done
"#;
const DESCRIBE: &str = r#"
cd "$MAYFLY_MOUNT"
find . -printf '%P %M %n %s %T@ %l\n' | sort
find . -type f -print0 | sort -z | xargs -0 md5sum
"#;

#[test]
fn what_was_kept_comes_back_as_it_was() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-reopen")?;
    let data = scratch.join("data");
    let start = ["start", "--name", "kept", "--keep", "--times", "all", "--data-dir"];
    mayfly(&scratch, &[&start[..], &[text(&data)?]].concat())?.run_ok()?;
    let instance = Instance::named(&scratch, "kept")?;
    instance.shell("make", TREE).run_ok()?;
    let before = output(&instance.shell("describe", DESCRIBE).run_ok()?);
    ensure!(before.lines().count() > 600, "too small a tree:\n{before}");
    for name in ["kept", "renamed"] {
        let named = Instance::named(&scratch, if name == "renamed" { "kept" } else { name })?;
        named.stop()?;
        let kept = fs::read_dir(&data)?.next().context("the data are gone")??.path();
        mayfly(&scratch, &["start", "--name", name, "--reopen", text(&kept)?])?.run_ok()?;
        let again = Instance::named(&scratch, name)?;
        let after = output(&again.shell("describe", DESCRIBE).run_ok()?);
        for (one, two) in before.lines().zip(after.lines()) {
            ensure!(one == two, "after --reopen as {name}\n  before: {one}\n  after:  {two}");
        }
        ensure!(before == after, "a line more or less after --reopen as {name}");
    }
    Instance::named(&scratch, "renamed")?.stop()
}

#[test]
fn the_number_of_shards_is_kept_with_the_data() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-shards")?;
    let data = scratch.join("data");
    let start = ["start", "--name", "kept", "--keep", "--shards", "3", "--data-dir"];
    mayfly(&scratch, &[&start[..], &[text(&data)?]].concat())?.run_ok()?;
    let kept = fs::read_dir(&data)?.next().context("there are data")??.path();
    for _ in 0..2 {
        let shown = mayfly(&scratch, &["status", "--name", "kept"])?.run_ok()?;
        ensure!(output(&shown).contains("shards 3"), "{}", output(&shown));
        for shard in 0..3 {
            let store = kept.join(format!("meta/shard-{shard}/records"));
            ensure!(store.exists(), "there is no {}", store.display());
        }
        Instance::named(&scratch, "kept")?.stop()?;
        mayfly(&scratch, &["start", "--name", "kept", "--reopen", text(&kept)?])?.run_ok()?;
    }
    Instance::named(&scratch, "kept")?.stop()
}

#[test]
fn a_directory_of_100_000_files_is_made_listed_and_removed() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-many")?;
    let script = r#"
        cd "$MAYFLY_MOUNT" && mkdir many && cd many
        seq -f 'file-%.0f' 100000 | xargs touch && ls | wc -l && ls -U | sort -u | wc -l
        find . -type f -name 'file-*7' | wc -l
        cd .. && rm -r many && ls -A | wc -l"#;
    let outcome = mayfly(&scratch, &["run", "--", "bash", "-c", script])?.run_ok()?;
    let found = output(&outcome);
    ensure!(found.split_whitespace().eq(["100000", "100000", "10000", "0"]), "{found}");
    Ok(())
}

/// Without a helper that works, what it complained of was passed on as it was: "could not determine
/// username".
#[test]
fn a_mount_helper_that_refuses_is_explained() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-fuse")?;
    let before = Before::look();
    let tools = scratch.join("tools");
    fs::create_dir(&tools)?;
    let helper = tools.join("fusermount3");
    fs::write(
        &helper,
        "#!/bin/sh\necho 'fusermount3: could not determine username' >&2\nexit 1\n",
    )?;
    set_mode(&helper, 0o755)?;
    let path = format!("{}:{}", text(&tools)?, std::env::var("PATH")?);
    let job = mayfly(&scratch, &["run", "--access", "fuse", "--", "true"])?;
    let outcome = job.env("PATH", path).env("MAYFLY_MOUNT_BY", "fusermount3").run()?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code == 1, "{error}");
    for word in ["FUSE cannot be used here", "--access preload", "ask the operator"] {
        ensure!(error.contains(word), "nothing is said of {word:?}: {error}");
    }
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn a_path_of_the_machine_that_was_meant_in_the_instance_is_said_as_it_is_to_be() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("bad-staged")?;
    let mount = scratch.join("mount");
    let instance = Instance::start(&scratch, "staged", &mount)?;
    fs::write(scratch.join("source"), "text")?;
    let stage = |to: &str| -> Result<Outcome> {
        let source = scratch.join("source");
        mayfly(&scratch, &["stage", "in", "--name", "staged", text(&source)?, to])?
            .env("XDG_STATE_HOME", scratch.join("state"))
            .run()
    };
    let outcome = stage("/staged")?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let advice = format!("write {}", text(&mount.join("staged"))?);
    ensure!(outcome.code != 0 && error.contains(&advice), "nothing of {advice:?}: {error}");
    // What it says works.
    for to in [text(&mount.join("staged"))?, "relative"] {
        let outcome = stage(to)?;
        ensure!(outcome.code == 0, "{to}: {}", String::from_utf8_lossy(&outcome.stderr));
    }
    instance.shell("look", r#"cat "$MAYFLY_MOUNT/staged" "$MAYFLY_MOUNT/relative""#).run_ok()?;
    instance.stop()
}
