//! The suites that come from crates.io: `pjdfstest` and `fsx`.
//!
//! Installed below the target directory, under fixed versions, when Debian packages may be
//! installed too. It takes a minute or two, once.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{binary, skip};

use super::{Install, packages};

/// A package whose program has its name.
struct Tool {
    name: &'static str,
    version: &'static str,
    /// A header without which it does not build, and the Debian package that has it.
    needs: Option<(&'static str, &'static str)>,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "pjdfstest",
        version: "0.2.2",
        needs: Some(("/usr/include/sys/acl.h", "libacl1-dev")),
    },
    Tool { name: "fsx", version: "0.3.2", needs: None },
];

/// Installs what is missing, if it may. Never fails: a suite without its program skips itself.
pub(super) fn ensure(install: Install) {
    for tool in TOOLS.iter().filter(|tool| !tool.is_installed()) {
        let Tool { name, version, .. } = tool;
        if install == Install::Never {
            eprintln!("not installed: {name} {version}; its suite will be skipped");
            continue;
        }
        println!("installing {name} {version}");
        if let Err(error) = tool.install() {
            eprintln!("{name} could not be installed, its suite will be skipped: {error:#}");
        }
    }
}

impl Tool {
    /// On `PATH` or below the target directory.
    fn is_installed(&self) -> bool {
        let name = self.name;
        skip::find(name).is_some() || binary::tools_dir().join("bin").join(name).is_file()
    }

    fn install(&self) -> Result<()> {
        if let Some((header, package)) = self.needs
            && !Path::new(header).exists()
        {
            packages::add(&[package]);
        }
        let root = std::path::absolute(binary::tools_dir())?;
        // Apart from the workspace's own files, and gone afterwards.
        let build = root.join("build");
        let mut command = Command::new("cargo");
        command.args(["install", "--quiet", "--locked", "--version", self.version, self.name]);
        command.arg("--root").arg(&root).arg("--target-dir").arg(&build).stdin(Stdio::null());
        // Outside of the workspace: its settings are not for other people's code.
        let status = command.current_dir("/").status().context("starting cargo");
        remove(&build);
        ensure!(status?.success(), "cargo install failed");
        Ok(())
    }
}

fn remove(build: &Path) {
    if build.exists()
        && let Err(error) = std::fs::remove_dir_all(build)
    {
        eprintln!("{} stays: {error}", build.display());
    }
}
