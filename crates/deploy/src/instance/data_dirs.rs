//! `--data-dir`: the directories in which a node keeps files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use mayfly_object::{Further, spread};
use serde::{Deserialize, Serialize};

use super::places;
use crate::Config;

/// Directories that a node may have.
const DIRECTORIES_MAX: usize = 64;
/// Longest name of a class, bytes.
const CLASS_BYTES_MAX: usize = 32;

/// A directory in which a node keeps files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataDir {
    /// What the user calls storage of this kind: `nvme`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Where.
    pub path: PathBuf,
}

impl DataDir {
    /// From `/a`, `/a,/b`, `nvme=/a,/b`.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Vec<DataDir>> {
        let (class, list) = match text.split_once('=') {
            Some((class, list)) if !class.contains('/') => (Some(class), list),
            _ => (None, text),
        };
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        ensure!(
            class.is_none_or(
                |class| (1..=CLASS_BYTES_MAX).contains(&class.len()) && class.bytes().all(fine)
            ),
            "--data-dir {text:?}: the name of a class has up to {CLASS_BYTES_MAX} letters, digits, \
             '-', '_' and '.'"
        );
        let paths = list.split(',').filter(|path| !path.is_empty());
        let found: Vec<DataDir> = paths
            .map(|path| DataDir { class: class.map(str::to_owned), path: path.into() })
            .collect();
        ensure!(!found.is_empty(), "--data-dir {text:?}: name a directory");
        Ok(found)
    }

    /// The same place whatever the working directory.
    pub(super) fn absolute(&self) -> Result<DataDir> {
        Ok(DataDir { class: self.class.clone(), path: crate::instance::absolute(&self.path)? })
    }

    /// The directory of the instance `name` in it.
    pub(super) fn of_instance(&self, name: &str) -> PathBuf {
        self.path.join(format!("mayfly-{}-{name}", places::uid()))
    }
}

/// Refuses too many, and one that stands there twice.
pub(super) fn check(directories: &[PathBuf]) -> Result<()> {
    ensure!(
        directories.len() <= DIRECTORIES_MAX,
        "--data-dir: at most {DIRECTORIES_MAX} directories"
    );
    for (at, directory) in directories.iter().enumerate() {
        ensure!(
            !directories[..at].contains(directory),
            "--data-dir names {} twice",
            directory.display()
        );
    }
    Ok(())
}

fn free_bytes(directory: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(directory)
        .with_context(|| format!("cannot learn the space in {}", directory.display()))?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Deals the objects of a new instance out to its further directories, by their space.
pub(super) fn deal_out(config: &Config) -> Result<()> {
    if config.further.is_empty() {
        return Ok(());
    }
    let mut further = Vec::new();
    for directory in &config.further {
        let free_bytes = free_bytes(&directory.path)?;
        further.push(Further { path: directory.path.join("objects"), free_bytes });
    }
    let own = free_bytes(&config.data_dir)?;
    spread(&config.object_dir, own, &further)
        .with_context(|| format!("cannot spread the objects of {}", config.object_dir.display()))
}

/// Removes the further directories of an instance.
pub(super) fn remove(config: &Config, mut gone: impl FnMut(&Path, std::io::Result<()>)) {
    for directory in &config.further {
        gone(&directory.path, fs::remove_dir_all(&directory.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_may_have_a_class_and_a_path_may_have_its_sign() {
        let found = DataDir::parse("nvme=/a,/b").expect("a good list");
        let class = Some("nvme".to_owned());
        assert_eq!(found[1], DataDir { class: class.clone(), path: "/b".into() });
        assert_eq!((found.len(), &found[0].class), (2, &class));
        let plain = DataDir::parse("/scratch/x=y").expect("a good path");
        assert_eq!(plain, [DataDir { class: None, path: "/scratch/x=y".into() }]);
        for bad in ["", ",", "nvme=", "=/a", "two words=/a"] {
            assert!(DataDir::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_directory_that_stands_there_twice_is_refused() {
        let paths = ["/a", "/b", "/a"].map(PathBuf::from);
        assert!(check(&paths[..2]).is_ok() && check(&paths).is_err());
    }
}
