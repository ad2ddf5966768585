//! An instance that shows a directory outside, for the suites of the caching tier.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, binary, process, skip};
use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// More than a small file has.
pub(crate) const LARGE_BYTES: usize = 3 << 20;

/// Whether instances of this suite's environment are those that a test is about.
pub(crate) fn is_possible() -> bool {
    skip::unless_one_node("what one node has of an origin")
}

/// The ways in that this machine has.
pub(crate) fn accesses() -> Vec<&'static str> {
    if !skip::unless_mountable("origins through the mount") {
        return vec!["preload"];
    }
    vec!["preload", "fuse"]
}

/// An instance that shows `outside`.
pub(crate) struct Bench<'a> {
    pub(crate) scratch: &'a Scratch,
    pub(crate) outside: PathBuf,
    pub(crate) instance: Instance<'a>,
}

pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of this suite is text")
}

/// A tree of each kind of file.
pub(crate) fn plant(outside: &Path) -> Result<()> {
    fs::create_dir_all(outside.join("dir/inner"))?;
    fs::write(outside.join("small"), "small\n")?;
    fs::write(outside.join("empty"), "")?;
    let bytes: Vec<u8> = (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect();
    fs::write(outside.join("dir/large"), bytes)?;
    fs::write(outside.join("dir/inner/program"), "#!/bin/sh\necho it runs\n")?;
    fs::set_permissions(outside.join("dir/inner/program"), PermissionsExt::from_mode(0o751))?;
    symlink("dir/inner/program", outside.join("link"))?;
    let old = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(outside.join("small"))?.set_modified(old)?;
    Ok(())
}

impl<'a> Bench<'a> {
    /// Options of `mayfly start`; `ro` and `in=DIRECTORY` are the origin's.
    pub(crate) fn start(scratch: &'a Scratch, name: &str, options: &[&str]) -> Result<Bench<'a>> {
        let outside = scratch.join(format!("{name}-outside"));
        if !outside.exists() {
            plant(&outside)?;
        }
        let instance = Instance::named(scratch, name)?;
        let mount = scratch.join(format!("{name}-mnt"));
        let ro = if options.contains(&"ro") { ",ro" } else { "" };
        let inside = options.iter().find_map(|option| option.strip_prefix("in="));
        let inside = inside.map_or(String::new(), |inside| format!(":{inside}"));
        let origin = format!("{}{inside}{ro}", text(&outside)?);
        let of_origin = |option: &&&str| **option == "ro" || option.starts_with("in=");
        let options = options.iter().filter(|option| !of_origin(option));
        let start = instance.command("start").args(["--mount", text(&mount)?, "--origin", &origin]);
        start.args(options).run_ok()?;
        Ok(Bench { scratch, outside, instance })
    }

    /// What a script prints that works at the mount point.
    pub(crate) fn sh(&self, script: &str) -> Result<String> {
        let script = format!("cd \"$MAYFLY_MOUNT\" && {{ {script}\n}}");
        let outcome = self.instance.shell("job", &script).deadline(PATIENCE).run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
    }

    pub(crate) fn expect(&self, script: &str, wanted: &str) -> Result<()> {
        let got = self.sh(script)?;
        ensure!(got == wanted, "{script}: {got:?}, not {wanted:?}");
        Ok(())
    }

    pub(crate) fn tier(&self, arguments: &[&str]) -> Result<Job<'a>> {
        let job = Job::new(self.scratch, "tier", binary::mayfly()?).arg_tier(arguments);
        Ok(job.args(["--name", self.instance.name()]))
    }

    pub(crate) fn flush(&self) -> Result<String> {
        let outcome = self.tier(&["flush"])?.run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stderr).into_owned())
    }

    pub(crate) fn status(&self) -> Result<Value> {
        let outcome = self.tier(&["status", "--json"])?.run_ok()?;
        Ok(serde_json::from_slice(&outcome.stdout)?)
    }

    pub(crate) fn origin(&self, field: &str) -> Result<u64> {
        let status = self.status()?;
        status["origins"][0][field].as_u64().with_context(|| format!("no {field}: {status}"))
    }

    pub(crate) fn outside(&self, path: &str) -> Result<String> {
        let read = fs::read_to_string(self.outside.join(path));
        read.with_context(|| format!("{path} outside"))
    }

    /// The process that works outside.
    pub(crate) fn keeper(&self) -> Result<u32> {
        let daemon = self.instance.daemon_pid()?;
        let supervisor = process::parent(daemon).context("the daemon has a parent")?;
        keeper_of(supervisor).context("there is no keeper")
    }
}

/// The process that works outside for a node.
pub(crate) fn keeper_of(supervisor: u32) -> Option<u32> {
    let is_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        process::parent(*pid) == Some(supervisor)
            && line.split(|byte| *byte == 0).any(|word| word == b"__tier")
    };
    let entries = fs::read_dir("/proc").ok()?;
    let mut all = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.find(is_it)
}

/// So that `mayfly tier …` reads as it is typed.
pub(crate) trait TierArguments {
    fn arg_tier(self, arguments: &[&str]) -> Self;
}

impl TierArguments for Job<'_> {
    fn arg_tier(self, arguments: &[&str]) -> Self {
        self.args(["tier"]).args(arguments)
    }
}
