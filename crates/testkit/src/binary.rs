//! Where the `mayfly` command and the suites' own files are.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// The command under test: `MAYFLY_BIN`, or else the release build of this workspace.
pub fn mayfly() -> Result<PathBuf> {
    let path = match std::env::var_os("MAYFLY_BIN") {
        Some(path) => PathBuf::from(path),
        None => target_dir().join("release/mayfly"),
    };
    ensure!(
        path.is_file(),
        "{} does not exist: run `cargo build --release` first, or set MAYFLY_BIN",
        path.display()
    );
    Ok(path)
}

/// The root of the source tree.
pub fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().and_then(Path::parent).expect("crates/testkit is two deep").to_path_buf()
}

/// Where builds go; what suites fetch is kept below it.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Where `cargo xtask test` installs the suites that cargo can install; programs are in `bin`.
pub fn tools_dir() -> PathBuf {
    target_dir().join("test-tools")
}
