//! A directory tree as it is compared: names, types, permission bits, link targets and contents.
//!
//! Not compared: times, owners and inode numbers. Contents are compared by their bytes, so the tree
//! keeps where they are and not what they are.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// How many differences an error lists.
const SHOWN: usize = 20;

/// What lies under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory with its permission bits.
    Directory(u32),
    /// A regular file with its permission bits and size in bytes.
    File(u32, u64),
    /// A symbolic link with its target.
    Link(PathBuf),
    /// A pipe, socket or device, which no program of the suite leaves.
    Other(&'static str),
}

/// A tree on a local file system.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    entries: BTreeMap<PathBuf, Entry>,
}

impl Tree {
    /// Reads the tree under `root`, whose own permission bits do not count.
    pub fn read(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        let mut entries = BTreeMap::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(directory) = pending.pop() {
            let path = root.join(&directory);
            let listing =
                fs::read_dir(&path).with_context(|| format!("listing {}", path.display()))?;
            for item in listing {
                let name = directory.join(item?.file_name());
                let entry = describe(&root.join(&name))?;
                if matches!(entry, Entry::Directory(_)) {
                    pending.push(name.clone());
                }
                entries.insert(name, entry);
            }
        }
        Ok(Self { root, entries })
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Leaves out every file of one of these names, wherever it is.
    pub fn without(mut self, names: &[&str]) -> Self {
        let ignored = |path: &Path| names.iter().any(|name| path.ends_with(name));
        self.entries.retain(|path, _| !ignored(path));
        self
    }

    /// An error that lists the differences, if there are any.
    pub fn expect_same(&self, other: &Self) -> Result<()> {
        let mut differences = Vec::new();
        for (path, entry) in &self.entries {
            match other.entries.get(path) {
                None => differences.push(format!("only in the first: {}", path.display())),
                Some(theirs) if theirs != entry => {
                    differences.push(format!("{}: {entry:?} and {theirs:?}", path.display()));
                }
                Some(_) => differences.extend(self.content_difference(other, path, entry)?),
            }
        }
        let mine = |path: &&PathBuf| !self.entries.contains_key(*path);
        let more = other.entries.keys().filter(mine);
        differences.extend(more.map(|path| format!("only in the second: {}", path.display())));
        let shown = differences.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n  ");
        ensure!(
            differences.is_empty(),
            "{} and {} differ in {} places:\n  {shown}",
            self.root.display(),
            other.root.display(),
            differences.len()
        );
        Ok(())
    }

    fn content_difference(
        &self,
        other: &Self,
        path: &Path,
        entry: &Entry,
    ) -> Result<Option<String>> {
        let Entry::File(_, size) = entry else { return Ok(None) };
        let read = |root: &Path| {
            let path = root.join(path);
            fs::read(&path).with_context(|| format!("reading {}", path.display()))
        };
        let (mine, theirs) = (read(&self.root)?, read(&other.root)?);
        let place = mine.iter().zip(&theirs).position(|(a, b)| a != b);
        Ok(match place {
            Some(at) => Some(format!("{}: byte {at} of {size} differs", path.display())),
            None if mine.len() != theirs.len() => {
                Some(format!("{}: lengths differ", path.display()))
            }
            None => None,
        })
    }
}

fn describe(path: &Path) -> Result<Entry> {
    let metadata =
        fs::symlink_metadata(path).with_context(|| format!("looking at {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o7777;
    let kind = metadata.file_type();
    Ok(if kind.is_dir() {
        Entry::Directory(mode)
    } else if kind.is_file() {
        Entry::File(mode, metadata.len())
    } else if kind.is_symlink() {
        Entry::Link(fs::read_link(path)?)
    } else {
        Entry::Other(other_kind(&metadata))
    })
}

fn other_kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(directory: &Path, content: &str) {
        fs::create_dir_all(directory.join("a/b")).unwrap();
        fs::write(directory.join("a/b/file"), content).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.join("a/link")).unwrap();
    }

    #[test]
    fn equal_trees_are_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            sample(&scratch.path().join(name), "text");
        }
        let one = Tree::read(scratch.path().join("one")).unwrap();
        assert_eq!(one.len(), 4);
        one.expect_same(&Tree::read(scratch.path().join("two")).unwrap()).unwrap();
    }

    #[test]
    fn one_byte_of_content_is_a_difference() {
        let scratch = tempfile::tempdir().unwrap();
        sample(&scratch.path().join("one"), "text");
        sample(&scratch.path().join("two"), "tent");
        let one = Tree::read(scratch.path().join("one")).unwrap();
        let error = one.expect_same(&Tree::read(scratch.path().join("two")).unwrap()).unwrap_err();
        assert!(error.to_string().contains("a/b/file: byte 2 of 4 differs"), "{error}");
    }

    #[test]
    fn modes_and_missing_names_are_differences() {
        let scratch = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            sample(&scratch.path().join(name), "text");
        }
        let two = scratch.path().join("two");
        fs::set_permissions(two.join("a/b/file"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(two.join("a/link")).unwrap();
        let one = Tree::read(scratch.path().join("one")).unwrap();
        let error = one.expect_same(&Tree::read(two).unwrap()).unwrap_err().to_string();
        assert!(error.contains("only in the first: a/link"), "{error}");
        assert!(error.contains("a/b/file: File("), "{error}");
    }
}
