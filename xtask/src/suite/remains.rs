//! After all suites: no process, no shared memory and no directory of ours is left.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::process;

/// The variable that all processes of one run carry.
pub(super) const MARK: &str = "MAYFLY_TEST_RUN";

/// The variable that all processes of one of its steps carry besides.
pub(super) const STEP: &str = "MAYFLY_TEST_STEP";

/// How the names of our shared memory begin.
const PREFIX: &str = "mayfly";

/// The temporary directory of this run, which everything in it uses, and what was elsewhere before.
#[derive(Debug)]
pub(super) struct Remains {
    directory: PathBuf,
    before: BTreeSet<PathBuf>,
}

impl Remains {
    /// Makes the directory. Its name is short: the path of a unix socket has 108 bytes.
    pub(super) fn prepare() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("mft-{}", std::process::id()));
        for path in [directory.clone(), directory.join("run")] {
            let made = DirBuilder::new().mode(0o700).create(&path);
            made.with_context(|| format!("creating {}", path.display()))?;
        }
        Ok(Self { directory, before: shared_memory() })
    }

    /// What the commands of this run get.
    pub(super) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("TMPDIR", self.directory.clone()), ("XDG_RUNTIME_DIR", self.directory.join("run"))]
    }

    /// An error that names what the suites left: files, shared memory and every living process of
    /// this run. All of it is then ended and removed.
    pub(super) fn expect_none(&self, mark: &str) -> Result<()> {
        let run = self.directory.join("run");
        let files =
            names(&self.directory).into_iter().chain(names(&run)).filter(|path| *path != run);
        let memory: Vec<PathBuf> = shared_memory().difference(&self.before).cloned().collect();
        let paths = files.chain(memory).map(|path| path.display().to_string());
        let running = process::with_variable(MARK, mark);
        let running =
            running.iter().map(|process| format!("process {}: {}", process.pid, process.command));
        let found: Vec<String> = paths.chain(running).collect();
        end_all(MARK, mark);
        fs::remove_dir_all(&self.directory).context("removing the run's temporary directory")?;
        ensure!(found.is_empty(), "left behind:\n  {}", found.join("\n  "));
        Ok(())
    }
}

/// Ends every process of this run, or of a step: a run that failed leaves the machine as clean as
/// one that did not.
pub(super) fn end_all(variable: &str, value: &str) {
    for process in process::with_variable(variable, value) {
        process::kill(process.pid);
    }
}

fn shared_memory() -> BTreeSet<PathBuf> {
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
    };
    names(Path::new("/dev/shm")).into_iter().filter(is_ours).collect()
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
