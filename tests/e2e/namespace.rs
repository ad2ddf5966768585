//! A mount in a user namespace, for who is not root and has no `fusermount3`: the command of
//! `mayfly run` sees it, and nobody else.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, binary, skip};
use mayfly_tests::mount::{Bench, server, wait_until};

/// `None` after saying why.
fn bench(name: &str) -> Result<Option<Bench>> {
    let suite = format!("namespace: {name}");
    if !skip::unless_installed(&suite, &["unshare"], "util-linux") {
        return Ok(None);
    }
    let tried = std::process::Command::new("unshare").args(["-U", "-m", "true"]).output()?;
    if !tried.status.success() {
        skip::note(&suite, "user namespaces are not allowed here");
        return Ok(None);
    }
    Bench::alone(name)
}

fn run<'a>(bench: &'a Bench, options: &[&str], script: &str) -> Result<Job<'a>> {
    let job =
        Job::new(&bench.scratch, "run", binary::mayfly()?).env("MAYFLY_MOUNT_BY", "namespace");
    let job = job.env("MAYFLY", binary::mayfly()?).args(["run", "--name", "apart"]).args(options);
    Ok(job.args(["--mount"]).args([&bench.mount]).args(["--", "bash", "-c", script]))
}

#[test]
fn the_command_of_a_run_has_a_mount_that_nobody_else_sees() -> Result<()> {
    for access in ["fuse", "both", "auto"] {
        let Some(bench) = bench("namespace")? else { return Ok(()) };
        fs::create_dir_all(&bench.mount)?;
        let script = r#"
            cd "$MAYFLY_MOUNT"; echo text > file; mkdir dir
            env -i cat "$MAYFLY_MOUNT/file"
            grep " $MAYFLY_MOUNT " /proc/self/mounts | grep -c fuse.mayfly
            "$MAYFLY" status --name apart | grep -o 'mounted by .*'
            echo in > ../in; while test -e ../in; do sleep 0.05; done
            exit 5"#;
        let saved = bench.scratch.join("saved");
        let save = saved.to_string_lossy().into_owned();
        let running = run(&bench, &["--access", access, "--save", &save], script)?.start()?;
        let sign = bench.mount.with_file_name("in");
        wait_until("the command is there", || Ok(sign.exists()))?;
        ensure!(!bench.is_mounted(), "it is mounted for everybody");
        ensure!(fs::read_dir(&bench.mount)?.next().is_none(), "seen outside");
        fs::remove_file(&sign)?;
        let outcome = running.wait()?;
        let said = String::from_utf8_lossy(&outcome.stdout);
        let said = (outcome.code, said.as_ref());
        ensure!(said == (5, "text\n1\nmounted by namespace\n"), "--access {access}: {said:?}");
        ensure!(fs::read(saved.join("file"))? == b"text\n" && saved.join("dir").is_dir());
        expect_empty(&bench.mount)?;
        fs::remove_dir_all(&bench.mount)?;
        bench.expect_nothing()?;
    }
    Ok(())
}

/// The directory of the user is back.
fn expect_empty(mount: &Path) -> Result<()> {
    ensure!(fs::read_dir(mount)?.next().is_none(), "something is left at the mount point");
    fs::write(mount.join("own"), "").context("the user's directory is not writable any more")
}

#[test]
fn a_killed_fuse_process_leaves_nothing_outside_its_namespace() -> Result<()> {
    let Some(bench) = bench("apart")? else { return Ok(()) };
    let script = r#"
        cd "$MAYFLY_MOUNT"; exec 3> file; echo in > ../in; while test -e ../in; do sleep 0.05; done
        echo x >&3 || echo cut off"#;
    let running = run(&bench, &["--access", "fuse"], script)?.start()?;
    let sign = bench.mount.with_file_name("in");
    wait_until("the command is there", || Ok(sign.exists()))?;
    ensure!(mayfly_testkit::process::kill(server(&bench, &bench.mount)?), "it has ended");
    fs::remove_file(&sign)?;
    let outcome = running.wait()?;
    ensure!(outcome.stdout == b"cut off\n", "the command writes on");
    bench.expect_nothing()
}

#[test]
fn what_others_are_to_see_is_not_mounted_in_a_namespace() -> Result<()> {
    let Some(bench) = bench("refused")? else { return Ok(()) };
    let start = |access| -> Result<_> {
        let job = Job::new(&bench.scratch, "start", binary::mayfly()?);
        let job = job.env("MAYFLY_MOUNT_BY", "namespace").args(["start", "--name", "apart"]);
        job.args(["--access", access, "--mount"]).args([&bench.mount]).run()
    };
    let refused = start("both")?;
    ensure!(refused.code != 0, "an instance for everybody was mounted where nobody sees it");
    ensure!(start("auto")?.code == 0 && !bench.is_mounted(), "auto does without");
    Job::new(&bench.scratch, "stop", binary::mayfly()?)
        .args(["stop", "--name", "apart"])
        .run_ok()?;
    bench.expect_nothing()
}

/// A user has so many inotify instances: a node that gets none looks for closed files by itself.
#[test]
fn a_node_without_an_inotify_instance_learns_of_closes() -> Result<()> {
    let Some(bench) = bench("no-inotify")? else { return Ok(()) };
    let script = r#"
        echo 0 > /proc/sys/user/max_inotify_instances || exit 9
        "$MAYFLY" start --name none --access preload --nodes local:2 --mount "$POINT" || exit 8
        (eval "$("$MAYFLY" env --name none)"; exec bash -c '
            cd "$MAYFLY_MOUNT"; exec 9> f; flock 9; (exec sleep 0.5) & exec 9>&-
            flock -n f true && echo too early
            wait; flock -n f true && echo free >&3
            exec 9> g 8>&9; (exec sleep 0.2) &')
        for turn in $(seq 300); do
            "$MAYFLY" status --name none --json | grep -q "\"open_files\": [1-9]" || break
            sleep 0.1
        done
        "$MAYFLY" status --name none --json | grep -c "\"open_files\": [1-9]" >&3
        "$MAYFLY" stop --name none"#;
    let script = format!("exec 3>&1 > /dev/null 2>&1; {script}");
    let job = Job::new(&bench.scratch, "none", "unshare").env("MAYFLY", binary::mayfly()?);
    let seen = job.env("POINT", bench.mount.clone()).args(["-U", "-r", "bash", "-c", &script]);
    let seen = seen.run_ok()?.stdout;
    ensure!(seen == b"free\n0\n", "{}", String::from_utf8_lossy(&seen));
    bench.expect_nothing()
}
