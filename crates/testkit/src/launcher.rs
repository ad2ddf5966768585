//! Launchers that reach other hosts of a test.

use std::{fs, os::unix::fs::PermissionsExt};

use anyhow::Result;

use crate::Scratch;

/// A launcher that enters the network namespace of the host's name, in which the host has
/// directories of its own: what `--launcher` says for it.
///
/// # Errors
/// When it cannot be written.
pub fn into_namespaces(scratch: &Scratch) -> Result<String> {
    let script = format!(
        r#"#!/bin/sh
host="$1"; shift
export XDG_RUNTIME_DIR="{0}/$host/run" TMPDIR="{0}/$host/tmp"
mkdir -p "$XDG_RUNTIME_DIR" "$TMPDIR"
exec ip netns exec "$host" "$@"
"#,
        scratch.path().display()
    );
    let path = scratch.join("enter");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(format!("{} {{host}} {{command}}", path.display()))
}
