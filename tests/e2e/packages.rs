//! What a site installs works where it is put, for an ordinary user, and leaves nothing when it is
//! taken away.
//!
//! The packages are made of the binary that the other tests use: how it is built for old C
//! libraries is not looked at here.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Scratch, Turn, binary, skip};
use mayfly_tests::passable::{NOBODY, Passable};

fn make(scratch: &Scratch) -> Result<PathBuf> {
    let out = scratch.join("dist");
    let root = binary::workspace();
    let job = Job::new(scratch, "dist", "env").args([Path::new("-C"), &root]);
    let job = job.args(["cargo", "xtask", "dist", "--binary"]);
    let job = job.args([&binary::mayfly()?, Path::new("--out"), &out]);
    job.deadline(Duration::from_secs(600)).run_ok()?;
    Ok(out)
}

fn ending(directory: &Path, end: &str) -> Result<PathBuf> {
    let mut paths = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    found.with_context(|| format!("no {end} in {}", directory.display()))
}

/// The README's first command, by an ordinary user, with the binary that was installed there.
fn expect_use(scratch: &Scratch, program: &Path) -> Result<()> {
    let home = scratch.join("home");
    fs::create_dir_all(&home)?;
    let Some(_passable) = Passable::make(scratch)? else {
        skip::note("packages: use by another user", "TMPDIR is below a private directory");
        return Ok(());
    };
    let script = "cd \"$MAYFLY_MOUNT\" && echo text > file && cat file";
    let words = ["run", "--", "bash", "-c", script];
    let job = if rustix::process::geteuid().is_root() {
        chown(&home, Some(NOBODY), Some(NOBODY))?;
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        Job::new(scratch, "user", "setpriv").args(user).args([program])
    } else {
        Job::new(scratch, "user", program)
    };
    let job = job.env("HOME", &home).env("TMPDIR", &home).env("XDG_RUNTIME_DIR", "");
    let seen = job.args(words).run()?;
    let told = String::from_utf8_lossy(&seen.stderr);
    ensure!(seen.code == 0 && seen.stdout == b"text\n", "{told}{seen:?}");
    Ok(())
}

#[test]
fn a_tarball_is_unpacked_anywhere_and_used_by_anybody() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tarball")?;
    let packed = ending(&make(&scratch)?, ".tar.gz")?;
    let place = scratch.join("opt");
    fs::create_dir(&place)?;
    let job =
        Job::new(&scratch, "tar", "tar").args(["-xzf"]).args([&packed, Path::new("-C"), &place]);
    job.run_ok()?;
    let prefix = ending(&place, "x86_64")?;
    for below in [
        "share/man/man1/mayfly-run.1",
        "share/bash-completion/completions/mayfly",
        "share/zsh/site-functions/_mayfly",
        "share/doc/mayfly/LICENSE-MIT",
        "share/doc/mayfly/docs/guide/containers.md",
    ] {
        ensure!(prefix.join(below).metadata()?.len() > 100, "{below}");
    }
    expect_use(&scratch, &prefix.join("bin/mayfly"))
}

/// Everything below a root but what the package manager keeps for itself.
fn files_of(root: &Path, directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_its_own = path.strip_prefix(root).is_ok_and(|below| below.starts_with("var"));
        if path.is_dir() && !is_its_own {
            files_of(root, &path, found)?;
        }
        if !is_its_own {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn a_debian_package_is_installed_used_and_removed_without_a_trace() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        skip::note("packages: .deb", "dpkg is root's to use");
        return Ok(());
    }
    if !skip::unless_installed("packages: .deb", &["dpkg", "dpkg-deb"], "dpkg") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("deb")?;
    let package = ending(&make(&scratch)?, ".deb")?;
    let root = scratch.join("root");
    fs::create_dir_all(root.join("var/lib/dpkg/info"))?;
    fs::create_dir_all(root.join("var/lib/dpkg/updates"))?;
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    let dpkg = |name: &str| {
        let job = Job::new(&scratch, name, "dpkg").args(["--force-depends", "--root"]);
        job.args([&root])
    };
    dpkg("install").args(["--install"]).args([&package]).run_ok()?;
    expect_use(&scratch, &root.join("usr/bin/mayfly"))?;
    dpkg("purge").args(["--purge", "mayfly"]).run_ok()?;
    let mut left = Vec::new();
    files_of(&root, &root, &mut left)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

#[test]
fn recipes_install_the_tarball_beside_them_and_no_other() -> Result<()> {
    if !skip::unless_installed("packages: recipes", &["sha256sum", "python3"], "coreutils python3")
    {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("recipes")?;
    let out = make(&scratch)?;
    let tarball = ending(&out, ".tar.gz")?;
    let sum = Job::new(&scratch, "sum", "sha256sum").args([&tarball]).run_ok()?.stdout;
    let sum = String::from_utf8(sum)?.split_whitespace().next().context("a sum")?.to_owned();
    let name = tarball.file_name().context("a name")?.to_string_lossy().into_owned();
    for recipe in [ending(&out, ".eb")?, out.join("spack/packages/mayfly/package.py")] {
        let text = fs::read_to_string(&recipe)?;
        ensure!(text.contains(&sum) && !text.contains('@'), "{}: {text}", recipe.display());
        // Both are Python; the one of EasyBuild only sets variables, of which one is its own.
        let check = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')";
        let job = Job::new(&scratch, "python", "python3").args(["-c", check]);
        job.args([&recipe]).run_ok()?;
    }
    let spack = fs::read_to_string(out.join("spack/packages/mayfly/package.py"))?;
    ensure!(spack.contains(&name), "{spack}");
    let deb = ending(&out, ".deb")?.file_name().context("a name")?.to_string_lossy().into_owned();
    let definition = fs::read_to_string(out.join("mayfly.def"))?;
    ensure!(definition.contains(&deb), "{definition}");
    Ok(())
}
