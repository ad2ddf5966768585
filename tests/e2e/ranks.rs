//! Several daemons on one host: each process uses that of its local rank, and all see one tree.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, leftovers::Before, process, skip};
use mayfly_tests::hosts::{hosts_of_their_own, template};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(15);
/// Daemons, and ranks.
const DAEMONS: usize = 4;
/// Files that each rank makes.
const FILES: usize = 600;

fn start<'a>(scratch: &'a Scratch, name: &str, options: &[&str]) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    instance.command("start").args(["--daemons", "4"]).args(options).run_ok()?;
    Ok(instance)
}

/// What a script of a program without a rank says.
fn said(instance: &Instance<'_>, script: &str) -> Result<String> {
    let script = format!("cd \"$MAYFLY_MOUNT\"; {script}");
    let outcome = instance.shell("unranked", &script).run_ok()?;
    Ok(String::from_utf8_lossy(&outcome.stdout).trim().to_owned())
}

/// A number that each node has, by the nodes.
fn of_nodes(instance: &Instance<'_>, metric: &str, operation: &str) -> Result<Vec<f64>> {
    let text = instance.command("metrics").args(["--all-nodes"]).run_ok()?.stdout;
    let text = String::from_utf8(text)?;
    let of = |node: usize| {
        let words = [format!("node=\"{node}\""), format!("op=\"{operation}\"")];
        let lines = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
        let lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    Ok((0..DAEMONS).map(of).collect())
}

/// The same of a gauge.
fn gauge(instance: &Instance<'_>, metric: &str) -> Result<Vec<f64>> {
    let text = instance.command("metrics").args(["--all-nodes"]).run_ok()?.stdout;
    let text = String::from_utf8(text)?;
    let of = |node: usize| {
        let word = format!("node=\"{node}\"");
        let found = text
            .lines()
            .find(|line| line.starts_with(&format!("{metric}{{")) && line.contains(&word));
        found.and_then(|line| line.rsplit(' ').next()?.parse().ok()).context("no such sample")
    };
    (0..DAEMONS).map(of).collect()
}

/// By each launcher that is here, with its variable.
fn launchers() -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    let all: [(_, _, &[&str]); 2] = [
        ("mpiexec.mpich", "MPI_LOCALRANKID", &[]),
        ("mpiexec.openmpi", "OMPI_COMM_WORLD_LOCAL_RANK", &["--oversubscribe"]),
    ];
    let there = |launcher: &str| {
        let package = launcher.strip_prefix("mpiexec.").unwrap_or(launcher);
        skip::unless_installed("ranks", &[launcher], package)
    };
    all.into_iter().filter(|(launcher, ..)| there(launcher)).collect()
}

/// Runs `script` as four ranks; `R` is the local rank.
fn ranks(
    instance: &Instance<'_>,
    (launcher, variable, options): (&str, &str, &[&str]),
    script: &str,
) -> Result<String> {
    let options = options.join(" ");
    let script = format!(
        "cd \"$MAYFLY_MOUNT\"; exec {launcher} {options} -n {DAEMONS} bash -c 'R=${variable}; \
         {script}'"
    );
    let job = instance.shell(&format!("ranks-{launcher}"), &script);
    let job = job.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let outcome = job.deadline(Duration::from_secs(120)).run_ok()?;
    Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
}

#[test]
fn each_rank_has_its_directory_at_its_daemon_and_asks_nobody_for_its_files() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("ranks")?;
    let before = Before::look();
    for launcher in launchers() {
        let instance = start(&scratch, "ranks", &[])?;
        ranks(&instance, launcher, "mkdir of-$R")?;
        let (files, directories) =
            (gauge(&instance, "mayfly_files")?, gauge(&instance, "mayfly_directories")?);
        let work = format!("cd of-$R; for i in $(seq {FILES}); do : > $i; done; rm 1");
        let asked = |operation: &str| of_nodes(&instance, "mayfly_answers_total", operation);
        let opens = asked("open")?;
        ranks(&instance, launcher, &work)?;
        for (node, (files, later)) in
            files.iter().zip(gauge(&instance, "mayfly_files")?).enumerate()
        {
            let made = later - files;
            ensure!(made == FILES as f64 - 1.0, "{launcher:?}: {made} files at node {node}");
        }
        // The root is at the first.
        ensure!(directories == [2.0, 1.0, 1.0, 1.0], "{launcher:?}: {directories:?}");
        // Some are asked for before a directory is delegated, and what shells open at their start.
        for (node, (before, after)) in opens.iter().zip(asked("open")?).enumerate() {
            let opened = after - before;
            ensure!(opened < 100.0, "{launcher:?}: node {node} was asked for {opened} files");
        }
        let submitted = of_nodes(&instance, "mayfly_unawaited_total", "create")?;
        ensure!(submitted.iter().all(|count| *count > FILES as f64 - 100.0), "{submitted:?}");
        let all = ranks(&instance, launcher, "cat /dev/null of-*/*; ls -d of-*/* | wc -l")?;
        let expected = (DAEMONS * (FILES - 1)).to_string();
        ensure!(all.split_whitespace().all(|count| count == expected), "{all}");
        instance.stop()?;
    }
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn who_has_no_rank_uses_the_first_daemon_and_who_is_told_uses_that_one() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("unranked")?;
    let instance = start(&scratch, "unranked", &["--access", "preload"])?;
    for (variables, daemon) in [
        ("A=1", None),
        ("LOCAL_RANK=2", Some("2")),
        ("SLURM_LOCALID=7", Some("3")),
        ("PALS_LOCAL_RANKID=4", None),
        ("FLUX_TASK_LOCAL_ID=1", Some("1")),
        ("LOCAL_RANK=2 MAYFLY_DAEMON=3", Some("3")),
        ("LOCAL_RANK=2 MAYFLY_DAEMON=0", None),
        ("SLURM_LOCALID=0 MPI_LOCALRANKID=1", Some("1")),
    ] {
        let name = variables.replace([' ', '='], "-");
        said(&instance, &format!("{variables} mkdir {name}"))?;
        let made = gauge(&instance, "mayfly_directories")?;
        let expected = daemon.map_or(0, |daemon| daemon.parse().unwrap_or(0));
        said(&instance, &format!("rmdir {name}"))?;
        let left = gauge(&instance, "mayfly_directories")?;
        let at: Vec<bool> = made.iter().zip(&left).map(|(made, left)| made > left).collect();
        ensure!(
            (0..DAEMONS).all(|node| at[node] == (node == expected)),
            "{variables}: made at {at:?}, not at {expected}"
        );
    }
    // `mayfly env --node K` says so, too.
    let env = instance.command("env").args(["--node", "2"]).run_ok()?.stdout;
    let env = String::from_utf8(env)?;
    ensure!(env.contains("MAYFLY_DAEMON='2'") && env.contains("MAYFLY_DAEMONS='4'"), "{env}");
    let first = String::from_utf8(instance.command("env").run_ok()?.stdout)?;
    let mount = |env: &str| env.lines().find(|line| line.contains("_MOUNT=")).map(str::to_owned);
    ensure!(mount(&env) == mount(&first) && !first.contains("MAYFLY_DAEMON="), "{first}");
    instance.stop()
}

#[test]
fn inherited_descriptors_go_on_whatever_daemon_the_rank_of_a_program_is_for() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("inherited")?;
    let instance = start(&scratch, "inherited", &["--access", "preload"])?;
    for (script, expected) in [
        // A shell without a rank opens it, a rank writes to it.
        ("LOCAL_RANK=2 bash -c 'echo one; echo two' > out; cat out", "one\ntwo"),
        // The other way round, with one offset.
        (
            "LOCAL_RANK=1 bash -c 'exec 5> both; echo one >&5; LOCAL_RANK=3 bash -c \"echo two \
             >&5\"; env -u LOCAL_RANK bash -c \"echo three >&5\"; echo four >&5'; cat both",
            "one\ntwo\nthree\nfour",
        ),
        // Through a program that knows of nothing and clears its environment.
        (
            "exec 6> through; LOCAL_RANK=3 env -i LOCAL_RANK=3 bash -c 'echo still >&6'; cat \
             through",
            "still",
        ),
        // A lock of flock goes with the description.
        (
            "exec 7> locked; flock 7; LOCAL_RANK=2 bash -c 'flock -n 7 && echo mine'; \
             LOCAL_RANK=2 bash -c 'exec 7>&-; flock -n locked true || echo theirs'; true",
            "mine\ntheirs",
        ),
        // A working directory belongs to no daemon.
        ("mkdir here; cd here; LOCAL_RANK=2 bash -c 'echo > file; pwd'; ls", "PWD/here\nfile"),
        // Nor does a pipe with a name.
        (
            "mkfifo pipe; LOCAL_RANK=1 bash -c 'echo through > pipe' & LOCAL_RANK=2 cat pipe; wait",
            "through",
        ),
    ] {
        let said = said(&instance, script)?;
        let mount = said_mount(&instance)?;
        ensure!(said.replace(&mount, "PWD") == expected, "{script}: {said}");
    }
    instance.stop()
}

fn said_mount(instance: &Instance<'_>) -> Result<String> {
    let status = instance.status()?;
    let first = status.pointer("/nodes/0/mount").and_then(Value::as_str);
    Ok(first.context("a node has a mount point")?.to_owned())
}

/// Rank 1 opens a file and sends it to rank 3, which knows it by no path.
const SENT: &str = r#"
import os, socket, subprocess, sys
if len(sys.argv) > 1:
    receiver = socket.socket(fileno=int(sys.argv[1]))
    _, sent, _, _ = socket.recv_fds(receiver, 1, 1)
    os.write(sent[0], b"there\n")
else:
    sender, receiver = socket.socketpair()
    opened = os.open("sent", os.O_CREAT | os.O_WRONLY)
    os.write(opened, b"here\n")
    there = dict(os.environ, LOCAL_RANK="3")
    command = [sys.executable, "-c", os.environ["SENT"], str(receiver.fileno())]
    child = subprocess.Popen(command, pass_fds=[receiver.fileno()], env=there)
    socket.send_fds(sender, [b"x"], [opened])
    assert child.wait() == 0
    os.write(opened, b"here again\n")
"#;

#[test]
fn a_mounted_instance_has_one_mount_point_and_descriptors_that_are_sent_go_on() -> Result<()> {
    if !skip::unless_mountable("ranks with a mount")
        || !skip::unless_installed("ranks with a mount", &["python3"], "python3")
    {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("ranks-mount")?;
    let before = Before::look();
    let mount = scratch.join("mount");
    let shown = mount.to_str().context("plain text")?;
    let instance = start(&scratch, "mounted", &["--access", "both", "--mount", shown])?;
    let script = "LOCAL_RANK=1 python3 -c \"$SENT\"; cat sent";
    let job = format!("export SENT='{SENT}'; {script}");
    ensure!(said(&instance, &job)? == "here\nthere\nhere again");
    // Without the library, by the first daemon's mount, what ranks make is there.
    said(&instance, "LOCAL_RANK=2 bash -c 'mkdir of-2; echo text > of-2/file'")?;
    ensure!(fs::read_to_string(mount.join("of-2/file"))? == "text\n");
    ensure!(!scratch.join("mount@1").exists());
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn ranks_and_daemons_that_die_take_nothing_from_the_others() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("dying")?;
    let instance = start(&scratch, "dying", &["--access", "preload"])?;
    let made = "mkdir dies; cd dies; for i in $(seq 300); do : > $i; done; exec 8> locked; flock \
                8; kill -9 $$";
    said(&instance, &format!("LOCAL_RANK=2 bash -c '{made}'; true"))?;
    let since = Instant::now();
    let seen = said(&instance, "LOCAL_RANK=1 flock dies/locked ls dies | wc -l")?;
    ensure!(seen == "301" && since.elapsed() < PATIENCE, "{seen} after {:?}", since.elapsed());
    process::kill(instance.daemon_pid_of(2)?);
    let seen =
        said(&instance, "LOCAL_RANK=2 bash -c '> dies/after; ls dies | wc -l'; ls dies | wc -l")?;
    ensure!(seen == "302\n302", "{seen}");
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

#[test]
fn daemons_of_a_host_share_its_space_and_are_told_as_one_host() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("shared-space")?;
    let instance = start(&scratch, "space", &["--capacity", "1G"])?;
    let status = instance.status()?;
    ensure!(status.get("capacity_bytes").and_then(Value::as_u64) == Some(1 << 30), "{status}");
    ensure!(status.get("daemons_per_host").and_then(Value::as_u64) == Some(4), "{status}");
    let text = instance.command("status").run_ok()?.stdout;
    let text = String::from_utf8(text)?;
    ensure!(text.contains("4 nodes, 4 daemons on each host"), "{text}");
    let size = said(&instance, "LOCAL_RANK=3 df --output=size -B1M . | tail -1")?;
    let size: u64 = size.trim().parse()?;
    ensure!((900..=1024).contains(&size), "{size} MiB");
    // More than a daemon's part goes on at the others.
    let long = "LOCAL_RANK=1 head -c 400M /dev/zero > long; stat -c %s long; rm long";
    ensure!(said(&instance, long)? == (400_u64 << 20).to_string());
    instance.stop()?;
    for (options, why) in [
        (&["--capacity", "100M"][..], "at least 64M are needed for each"),
        (&["--access", "fuse"], "--daemons is for programs with the preload library"),
        (&["--nodes", "local:2"], "each host is named once"),
        (&["--nodes", "a,b,a"], "each host is named once"),
        (&["--servers", "@[0-1]"], "all daemons of a host have the same roles"),
    ] {
        let refused = Instance::named(&scratch, "space")?;
        let job = refused.command("start").args(["--daemons", "4"]).args(options);
        let outcome = job.run()?;
        ensure!(outcome.code != 0 && outcome.error().contains(why), "{options:?}: {outcome:?}");
    }
    Ok(())
}

#[test]
fn hosts_that_are_reached_by_a_launcher_have_several_daemons_each() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("ranks-hosts")?;
    let before = Before::look();
    let reach = hosts_of_their_own(&scratch)?;
    let instance = Instance::named(&scratch, "hosts")?;
    let launcher = template(&reach);
    let options = ["--nodes", "a,b", "--daemons", "2", "--launcher", &launcher];
    instance.command("start").args(options).run_ok()?;
    let mayfly = binary::mayfly()?;
    for host in ["a", "b"] {
        let script = format!(
            r#"export XDG_RUNTIME_DIR="{0}/run" TMPDIR="{0}/tmp"
            eval "$("$0" env --name hosts)"; cd "$MAYFLY_MOUNT"
            for rank in 0 1 2; do LOCAL_RANK=$rank mkdir {host}$rank; done"#,
            scratch.join(host).display()
        );
        let job = Job::new(&scratch, &format!("on-{host}"), "bash").args(["-c", &script]);
        job.args([&mayfly]).run_ok()?;
    }
    let made = gauge(&instance, "mayfly_directories")?;
    let status = instance.status()?;
    instance.stop()?;
    // The root is at the first, and rank 2 of each host at its first.
    ensure!(made == [3.0, 1.0, 2.0, 1.0], "{made:?}");
    ensure!(status.get("serving") == Some(&4.into()), "{status}");
    ensure!(fs::read_dir(scratch.join("a/run/mayfly")).map_or(0, Iterator::count) == 0);
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}
