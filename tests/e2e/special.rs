//! Pipes and sockets: where they work, and what is left of them. What single calls do with them is
//! in `calls.rs`, and that they are one on both sides of a mount in `fuse.rs`.

use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, leftovers::Before, skip};

const PATIENCE: Duration = Duration::from_secs(15);

fn on_node(instance: &Instance<'_>, node: usize, script: &str) -> Result<String> {
    let script = format!("cd \"$MAYFLY_MOUNT\"; {script}");
    let job = instance.shell(&format!("on-{node}"), &script).env("MAYFLY_NODE", node.to_string());
    Ok(String::from_utf8_lossy(&job.run_ok()?.stdout).into_owned())
}

const MAKE: &str = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen()";
const CONNECT: &str = "import socket; socket.socket(socket.AF_UNIX).connect('socket')";

#[test]
fn a_pipe_works_on_the_node_that_made_it_and_is_refused_on_others() -> Result<()> {
    if !skip::unless_installed("pipes on nodes", &["python3"], "python3") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("special")?;
    let before = Before::look();
    let instance = Instance::named(&scratch, "special")?;
    instance.command("start").args(["--nodes", "local:3"]).run_ok()?;
    for node in 0..3 {
        let own = format!("mkdir {node}; cd {node}; mkfifo pipe; echo through > pipe & cat pipe");
        ensure!(
            on_node(&instance, node, &own)? == "through\n",
            "node {node} does not reach itself"
        );
        let other = (node + 1) % 3;
        let refused = format!("cd {node}; ls -F; cat pipe 2>&1 | grep -o 'No such device.*'");
        let seen = on_node(&instance, other, &refused)?;
        ensure!(seen == "pipe|\nNo such device or address\n", "node {other}: {seen}");
        let refused = format!("python3 -c \"{CONNECT}\" 2>&1 | grep -o 'Connection refused'");
        on_node(&instance, node, &format!("cd {node}; python3 -c \"{MAKE}\"; {refused}"))?;
        on_node(&instance, other, &format!("cd {node}; {refused}; rm *"))?;
    }
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn removed_pipes_and_sockets_leave_nothing_where_the_kernels_own_are() -> Result<()> {
    if !skip::unless_installed("removed sockets", &["python3"], "python3") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("special")?;
    let instance = Instance::named(&scratch, "special")?;
    // With a mount the kernel's sockets are there.
    instance.command("start").args(["--access", "preload"]).run_ok()?;
    let run = on_node(
        &instance,
        0,
        &format!("mkfifo a b c; ln a d; python3 -c \"{MAKE}\"; echo $MAYFLY_RUN"),
    )?;
    let places = Path::new(run.trim()).join("special");
    let kinds = || -> Result<(usize, usize)> {
        let there = fs::read_dir(&places)?.map(|entry| Ok(entry?.file_type()?));
        let there = there.collect::<Result<Vec<_>>>()?;
        Ok((there.iter().filter(|kind| kind.is_fifo()).count(), there.len()))
    };
    // The socket, and the link that says as what it was bound.
    ensure!(kinds()? == (3, 5), "made: {:?}", kinds()?);
    // `b` is replaced by a file, `d` is another name of `a`.
    on_node(&instance, 0, "rm a; touch file; mv file b; test -p d; rm socket")?;
    wait_until(|| Ok(kinds()? == (2, 2))).with_context(|| format!("left: {:?}", kinds()))?;
    on_node(&instance, 0, "rm -r *")?;
    wait_until(|| Ok(kinds()? == (0, 0))).with_context(|| format!("left: {:?}", kinds()))?;
    instance.stop()
}

fn wait_until(holds: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < deadline, "not so after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn a_saved_tree_has_its_pipes_and_not_its_sockets() -> Result<()> {
    if !skip::unless_installed("saved sockets", &["python3"], "python3") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("special")?;
    let saved = scratch.join("saved");
    let make = format!("cd \"$MAYFLY_MOUNT\"; mkfifo pipe; python3 -c \"{MAKE}\"; echo x > file");
    let arguments = ["--save".as_ref(), saved.as_os_str(), "--".as_ref()];
    let run = Job::new(&scratch, "save", binary::mayfly()?).args(["run"]).args(arguments);
    run.args(["bash", "-ec", &make]).run_ok()?;
    ensure!(fs::symlink_metadata(saved.join("pipe"))?.file_type().is_fifo());
    ensure!(fs::read(saved.join("file"))? == b"x\n" && !saved.join("socket").exists());
    Ok(())
}
