//! The files of the repository, as git sees them: committed ones and new ones, nothing ignored.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::binary::workspace;

/// A file of the repository.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Its path below the root.
    pub(crate) path: String,
    /// What it holds.
    pub(crate) bytes: Vec<u8>,
}

impl SourceFile {
    /// Its text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// Whether its name ends so.
    pub(crate) fn is(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
    }

    /// The name of the crate under `crates/` that it belongs to.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// Reads all of them.
pub(crate) fn read() -> Result<Vec<SourceFile>> {
    let root = workspace();
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("tidy asks git for the files of the tree")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let full: PathBuf = root.join(path);
        // Listed by git and removed since: not there, so not wrong.
        if full.is_file() {
            let bytes = fs::read(&full).with_context(|| format!("reading {path}"))?;
            files.push(SourceFile { path: path.to_owned(), bytes });
        }
    }
    files.sort_by(|one, two| one.path.cmp(&two.path));
    files.dedup_by(|one, two| one.path == two.path);
    Ok(files)
}
