//! Mayfly on kernels as old as Enterprise Linux 8's, 4.18: system calls that are newer are answered
//! with ENOSYS, for Mayfly's own processes and for those that it serves.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use mayfly_testkit::{Job, Scratch, Turn, binary, skip};

/// A program that runs another one on such a kernel.
fn old_kernel(scratch: &Scratch) -> Result<Option<PathBuf>> {
    let tools = ["gcc", "git", "python3", "tar"];
    if !skip::unless_installed("old kernels", &tools, "gcc libc6-dev git python3") {
        return Ok(None);
    }
    let program = scratch.join("old");
    let source = binary::workspace().join("tests/apps/kernel/old.c");
    let job = Job::new(scratch, "cc", "gcc").args(["-O1", "-Wall", "-Werror", "-o"]);
    job.args([&program, &source]).run_ok()?;
    Ok(Some(program))
}

#[test]
fn everyday_programs_do_the_same_on_linux_4_18_whichever_way_they_come_in() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("old")?;
    let Some(old) = old_kernel(&scratch)? else { return Ok(()) };
    let script = binary::workspace().join("tests/apps/kernel/work.sh");
    let script = script.display().to_string();
    let native = Job::new(&scratch, "native", &old).args(["sh", "-c"]);
    let native = native.args([format!("cd {} && bash {script}", scratch.join("tmp").display())]);
    let native = native.run_ok()?.stdout;
    // Without a mount no file of another node is mapped for writing.
    let ways: [(&[&str], &[&str]); 2] =
        [(&[], &["preload", "fuse", "auto"]), (&["--nodes", "local:3"], &["fuse", "auto"])];
    for (nodes, accesses) in ways {
        for access in accesses {
            let job = Job::new(&scratch, access, &old).args([binary::mayfly()?]);
            let job = job.args(["run", "--access", access]).args(nodes).args(["--", "sh", "-c"]);
            let outcome = job.args([format!("cd \"$MAYFLY_MOUNT\" && bash {script}")]).run_ok()?;
            let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
            ensure!(outcome.stdout == native, "{access} {nodes:?}: {said}");
        }
    }
    Ok(())
}

/// The supervisor learns of it in another way than on later kernels.
#[test]
fn a_killed_daemon_and_ended_processes_are_noticed_on_linux_4_18() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("old-kill")?;
    let Some(old) = old_kernel(&scratch)? else { return Ok(()) };
    let script = "cd \"$MAYFLY_MOUNT\"; echo before > a
        pkill -9 -f \"mayfly __daemon $MAYFLY_RUN\"
        echo after > b; cat a b; sleep 60 & kill -9 $!; wait
        for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'cat a > /dev/null'; done
        sleep 1; mayfly status --json --name old | grep '\"sessions\"'";
    let path = std::env::var("PATH").unwrap_or_default();
    let program = binary::mayfly()?;
    let directory = program.parent().unwrap_or(&program).display().to_string();
    let job =
        Job::new(&scratch, "run", &old).args([&program]).env("PATH", format!("{directory}:{path}"));
    let outcome = job.args(["run", "--name", "old", "--", "bash", "-c", script]).run_ok()?;
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    ensure!(said.starts_with("before\nafter\n"), "{said}");
    // Those that look are attached themselves, and the ones that have ended are not.
    let sessions = said.rsplit("\"sessions\":").next().unwrap_or_default();
    let sessions: u32 = sessions.trim().trim_end_matches(',').parse()?;
    ensure!(sessions < 8, "{sessions} sessions: {said}");
    Ok(())
}
