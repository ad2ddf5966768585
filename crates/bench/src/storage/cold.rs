//! `--cold`: what is read must come from the storage and not from memory.
//!
//! Root asks the kernel to drop its caches. Anybody else writes back and gives up the pages of
//! every file's contents; names and attributes stay cached then. What lies in memory anyway (tmpfs)
//! has nothing to be dropped. An instance's own memory, the mapped metadata included, is part of
//! the instance and stays. The report says which of these happened.

use std::{
    fs::{self, File},
    path::Path,
};

use anyhow::{Context, Result};
use nix::{
    fcntl::{PosixFadviseAdvice, posix_fadvise},
    unistd::sync,
};

use super::mounts;

const DROP: &str = "/proc/sys/vm/drop_caches";

/// Empties what it may for files whose contents lie below `storage`; says how.
pub(crate) fn empty_caches(storage: &Path) -> Result<&'static str> {
    if mounts::is_memory(storage) {
        return Ok("in memory: nothing to drop");
    }
    sync();
    if fs::write(DROP, "3").is_ok() {
        return Ok("the kernel's caches dropped");
    }
    evict(storage).with_context(|| format!("evicting {}", storage.display()))?;
    Ok("pages evicted (posix_fadvise), names and attributes still cached")
}

fn evict(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            evict(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_evicted_is_still_there() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("d")).expect("made");
        fs::write(directory.path().join("d/f"), "text").expect("written");
        evict(directory.path()).expect("evicted");
        assert_eq!(fs::read(directory.path().join("d/f")).expect("read"), b"text");
    }
}
