//! What an instance may leave behind after its end, and should not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{Scratch, process};

/// The state of the machine before an instance started.
#[derive(Debug)]
pub struct Before {
    shared_memory: BTreeSet<PathBuf>,
    mounts: BTreeSet<String>,
}

impl Before {
    /// Looks at the machine.
    pub fn look() -> Self {
        Self { shared_memory: shared_memory(), mounts: mounts() }
    }

    /// Everything that is there now, was not before, and belongs to `scratch` or bears our name.
    /// `allowed` are names in the scratch's temporary and run directories that may stay.
    pub fn found_since(&self, scratch: &Scratch, allowed: &[&str]) -> Vec<String> {
        let mut found: Vec<String> = process::marked(scratch.mark())
            .iter()
            .map(|process| format!("process {}: {}", process.pid, process.command))
            .collect();
        let memory = shared_memory();
        let new = memory.difference(&self.shared_memory);
        found.extend(
            new.filter(|path| is_ours(path) && !is_a_strangers(path, scratch.mark()))
                .map(|path| format!("shared memory {}", path.display())),
        );
        let now = mounts();
        let new = now.difference(&self.mounts);
        let ours = new.filter(|mount| is_our_mount(mount, scratch.mark()));
        found.extend(ours.map(|mount| format!("mount {mount}")));
        for directory in ["tmp", "run"] {
            found.extend(names(&scratch.join(directory)).into_iter().filter_map(|path| {
                let name = path.file_name()?.to_str()?;
                (!allowed.contains(&name)).then(|| format!("directory entry {}", path.display()))
            }));
        }
        found
    }

    /// An error that lists what is left. The end of an instance may take up to `patience`.
    pub fn expect_nothing_since(
        &self,
        scratch: &Scratch,
        allowed: &[&str],
        patience: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        let found = loop {
            let found = self.found_since(scratch, allowed);
            if found.is_empty() || Instant::now() > deadline {
                break found;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        ensure!(found.is_empty(), "left behind after {patience:?}:\n  {}", found.join("\n  "));
        Ok(())
    }
}

fn is_ours(path: &Path) -> bool {
    path.to_string_lossy().contains("mayfly")
}

/// Does a living process without our mark use it? Somebody else may run an instance meanwhile.
fn is_a_strangers(path: &Path, mark: &str) -> bool {
    let ours: BTreeSet<u32> = process::marked(mark).iter().map(|process| process.pid).collect();
    process::using(path).into_iter().any(|pid| !ours.contains(&pid))
}

/// A mount in another test's directory is that one's, which may run beside this one.
fn is_our_mount(mount: &str, mark: &str) -> bool {
    let is_anothers = mount.contains(&format!("/{}", crate::scratch::PREFIX));
    mount.contains(mark) || mount.contains("mayfly") && !is_anothers
}

fn shared_memory() -> BTreeSet<PathBuf> {
    names(Path::new("/dev/shm"))
}

fn mounts() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table.lines().map(str::to_owned).collect()
}

fn names(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_ours_unless_it_is_in_another_tests_directory() {
        let ours = |mount: &str| is_our_mount(mount, "mft-names-7-2");
        assert!(ours("mayfly:a /tmp/mft-1/mft-names-7-2/tmp/mount fuse.mayfly rw 0 0"));
        assert!(ours("tmpfs /tmp/mft-names-7-2/h2 tmpfs rw 0 0"));
        assert!(ours("mayfly:a /mnt/somewhere fuse.mayfly rw 0 0"));
        assert!(!ours("mayfly:a /tmp/mft-1/mft-other-7-3/tmp/mount fuse.mayfly rw 0 0"));
        assert!(!ours("tmpfs /tmp/other tmpfs rw 0 0"));
    }
}
