//! A suite's own directory, and the mark of what it starts.

use std::ffi::OsString;
use std::fs::{DirBuilder, remove_dir_all, rename};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{self, MARK};

/// How the names of suites' directories begin.
pub(crate) const PREFIX: &str = "mft-";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory with room for one suite. When dropped, every marked process is ended and the
/// directory goes; with `MAYFLY_TEST_KEEP` it stays, to be looked at.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    mark: String,
}

impl Scratch {
    /// Makes the directory with `tmp` and `run` inside. Names are short: a unix socket's path has
    /// 108 bytes.
    pub fn new(suite: &str) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{PREFIX}{suite}-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(&mark);
        for path in [directory.clone(), directory.join("tmp"), directory.join("run")] {
            DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .with_context(|| format!("creating {}", path.display()))?;
        }
        Ok(Self { directory, mark })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// A path inside.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    /// What tells this suite's processes from all others: the value of the variable [`MARK`].
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The environment that everything in this scratch runs with, besides the inherited one.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            (MARK, self.mark.clone().into()),
            ("TMPDIR", self.join("tmp").into()),
            ("XDG_RUNTIME_DIR", self.join("run").into()),
            ("LC_ALL", "C".into()),
        ]
    }

    /// Moves a directory inside the scratch aside, so that its path can be used again.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<PathBuf> {
        let (from, to) = (self.join(from), self.join(to));
        rename(&from, &to)
            .with_context(|| format!("renaming {} to {}", from.display(), to.display()))?;
        Ok(to)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        process::end_marked(&self.mark, Duration::from_secs(5));
        unmount_below(&self.directory);
        if std::env::var_os("MAYFLY_TEST_KEEP").is_none() {
            if remove_dir_all(&self.directory).is_ok() {
                return;
            }
            // As root, an instance that did not come to its end leaves its mount point immutable.
            let _ = Command::new("chattr").args(["-R", "-f", "-i"]).arg(&self.directory).output();
            // What could not be removed is in the temporary directory, where the next look finds
            // it.
            let _ = remove_dir_all(&self.directory);
        }
    }
}

/// A test that ends too soon leaves mounts whose process was just killed.
fn unmount_below(directory: &Path) {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    for point in points.filter(|point| Path::new(point).starts_with(directory)) {
        if !Command::new("umount").arg("-l").arg(point).output().is_ok_and(|o| o.status.success()) {
            let _ = Command::new("fusermount3").args(["-uz", point]).output();
        }
    }
}
