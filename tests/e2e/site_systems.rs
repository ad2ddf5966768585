//! What is shipped for PBS, LSF, Flux and OAR, each with a stand-in that does what the batch
//! system's documents say, on two hosts that are this machine under two names: the job of another
//! user has an instance over both, things are brought in and out, and nothing is left.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use anyhow::{Result, ensure};
use mayfly_testkit::{Job, Scratch, Turn, binary, skip};
use mayfly_tests::passable::Passable;

const SUITE: &str = "site: other batch systems";
/// The instance's nodes, as the job sees them, then how a job whose words mean nothing was refused,
/// and that the reason names them.
fn expected(refused: &str) -> String {
    format!("2 nodes\nrefused with {refused}\n1\n")
}

fn expect(system: &str, refused: &str) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        skip::note(SUITE, "prologs are run by root");
        return Ok(());
    }
    let tools = ["unshare", "setpriv", "python3", "pgrep"];
    if !skip::unless_installed(SUITE, &tools, "util-linux python3 procps") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new(&format!("site-{system}"))?;
    let Some(_passable) = Passable::make(&scratch)? else {
        skip::note(SUITE, "TMPDIR is below a private directory");
        return Ok(());
    };
    let program = scratch.join("mayfly");
    fs::copy(binary::mayfly()?, &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let root = binary::workspace();
    let script = root.join("tests/apps/site").join(format!("{system}.sh"));
    let job = Job::new(&scratch, system, "unshare").args(["--mount", "bash"]).args([script]);
    let job = job.env("SCRATCH", scratch.path()).env("PROGRAM", &program);
    let job = job.env("SHIPPED", root.join("integrations")).deadline(Duration::from_secs(120));
    let outcome = job.run()?;
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let wanted = expected(refused);
    ensure!(outcome.code == 0 && said == wanted, "{}: {said}{told}", outcome.code);
    Ok(())
}

#[test]
fn a_job_of_pbs_has_an_instance_by_its_sites_hook() -> Result<()> {
    expect("pbs", "deleted")
}

#[test]
fn a_job_of_lsf_has_an_instance_by_its_sites_commands() -> Result<()> {
    expect("lsf", "99")
}

#[test]
fn a_job_of_flux_has_an_instance_by_its_sites_prolog() -> Result<()> {
    expect("flux", "job raise --severity=0 --type=mayfly")
}

#[test]
fn a_job_of_oar_has_an_instance_by_its_sites_prologue() -> Result<()> {
    expect("oar", "1")
}
