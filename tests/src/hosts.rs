//! Hosts that are directories of this machine: what a launcher reaches, without another machine.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Result;
use mayfly_testkit::Scratch;

/// A launcher that gives each host directories of its own, and keeps what is said to it.
///
/// # Errors
/// When it cannot be written.
pub fn hosts_of_their_own(scratch: &Scratch) -> Result<PathBuf> {
    let script = format!(
        r#"#!/bin/sh
host="$1"; shift
case "$host" in nobody) echo "no host of that name" >&2; exit 12;; esac
export XDG_RUNTIME_DIR="{0}/$host/run" TMPDIR="{0}/$host/tmp"
mkdir -p "$XDG_RUNTIME_DIR" "$TMPDIR"
env > "{0}/$host/environment"; echo "$host $PPID" >> "{0}/reached"
tee "{0}/$host/said" | "$@"
"#,
        scratch.path().display()
    );
    let path = scratch.join("reach");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

/// What `--launcher` says for it.
#[must_use]
pub fn template(script: &Path) -> String {
    format!("{} {{host}} {{command}}", script.display())
}
