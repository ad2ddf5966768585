//! Systems with an older and a newer C library than this machine's: Debian 11's (glibc 2.31) and
//! Debian 13's (2.41). Their programs are served by this machine's instance, and the portable
//! binary, where `cargo xtask dist` has made one, runs there by itself.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, skip};

const SUITE: &str = "other C libraries";
const SYSTEMS: [&str; 2] = ["bullseye", "trixie"];
const DEADLINE: Duration = Duration::from_secs(300);
const PACKAGES: &str = "dash,bash,coreutils,tar,sed,grep,findutils,diffutils,git,python3-minimal,\
                        libpython3-stdlib";

/// What its packages hold, not installed: kept from run to run.
fn root_of(scratch: &Scratch, system: &str) -> Result<Option<PathBuf>> {
    let root = binary::workspace().join("target/test-input/systems").join(system);
    if root.join("usr/bin/git").exists() {
        return Ok(Some(root));
    }
    fs::create_dir_all(root.parent().context("a directory below target")?)?;
    let new = scratch.join(system);
    let job = Job::new(scratch, system, "mmdebstrap").args(["--quiet", "--variant=extract"]);
    let job = job.args(["--mode=root", &format!("--include={PACKAGES}"), system]);
    let made = job.args([&new]).deadline(DEADLINE).run()?;
    if made.code != 0 {
        let told = String::from_utf8_lossy(&made.stderr).into_owned();
        skip::note(SUITE, &format!("{system} is not to be had: {told}"));
        return Ok(None);
    }
    // A directory where the file system is another one's is made anew each time.
    match fs::rename(&new, &root) {
        Ok(()) => Ok(Some(root)),
        Err(_) => Ok(Some(new)),
    }
}

fn is_possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip::note(SUITE, "mmdebstrap unpacks systems as root");
        return false;
    }
    let tools = ["mmdebstrap", "bwrap", "git", "python3"];
    skip::unless_installed(SUITE, &tools, "mmdebstrap bubblewrap git python3")
}

/// bubblewrap with `root` as root.
fn inside<'a>(scratch: &'a Scratch, label: &str, root: &Path) -> Job<'a> {
    let job = Job::new(scratch, label, "bwrap").args(["--clearenv", "--bind"]);
    let job = job.args([root, Path::new("/")]).args(["--proc", "/proc", "--dev", "/dev"]);
    let job = job.args(["--tmpfs", "/tmp", "--setenv", "PATH", "/usr/bin:/bin"]);
    let script = binary::workspace().join("tests/apps/kernel/work.sh");
    let job = job.args(["--setenv", "HOME", "/tmp", "--ro-bind"]).args([&script]);
    job.args(["/work.sh"]).deadline(DEADLINE)
}

#[test]
fn programs_of_an_older_and_a_newer_c_library_do_the_same_in_the_instance() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("libc")?;
    for system in SYSTEMS {
        let Some(root) = root_of(&scratch, system)? else { continue };
        let work = |job: Job<'_>, place: &str| -> Result<String> {
            let outcome =
                job.args(["bash", "-c", &format!("cd {place} && bash /work.sh")]).run()?;
            let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
            ensure!(outcome.code == 0, "{system}: {told}{outcome:?}");
            Ok(String::from_utf8(outcome.stdout)?)
        };
        let native = work(inside(&scratch, "native", &root), "/tmp")?;
        for access in ["preload", "auto"] {
            let instance = Instance::named(&scratch, "libc")?;
            instance.command("start").args(["--access", access]).run_ok()?;
            let words = instance.command("env").args(["--container", "bwrap"]).run_ok()?.stdout;
            let words = String::from_utf8(words)?;
            let job = inside(&scratch, access, &root).args(words.split_whitespace());
            let served = work(job, "\"$MAYFLY_MOUNT\"")?;
            ensure!(served == native, "{system}, {access}: {served}, without: {native}");
            instance.stop()?;
        }
        let Some(portable) = portable()? else {
            skip::note(SUITE, "no portable binary: `cargo xtask dist` makes one");
            continue;
        };
        for access in ["preload", "auto"] {
            let job = inside(&scratch, "portable", &root).args(["--ro-bind"]);
            let job = job.args([&portable, Path::new("/mayfly")]);
            let job = job.args(["--dev-bind-try", "/dev/fuse", "/dev/fuse", "/mayfly", "run"]);
            let job = job.args(["--access", access, "--"]);
            let served = work(job, "\"$MAYFLY_MOUNT\"")?;
            ensure!(served == native, "{system}, {access}, alone: {served}, without: {native}");
        }
    }
    Ok(())
}

/// What `cargo xtask dist` has made.
fn portable() -> Result<Option<PathBuf>> {
    let Ok(made) = fs::read_dir(binary::workspace().join("target/dist")) else { return Ok(None) };
    for entry in made {
        let program = entry?.path().join("bin/mayfly");
        if program.is_file() {
            return Ok(Some(program));
        }
    }
    Ok(None)
}
