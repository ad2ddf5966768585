//! Which number means which path, and which handle which open file.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Numbers are those of the directory that is shown; its root is 1.
pub(crate) const ROOT: u64 = 1;
/// Of the file with the counts.
pub(crate) const COUNTS: u64 = u64::MAX - 1;

/// What the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Files {
    paths: HashMap<u64, PathBuf>,
    open: HashMap<u64, Arc<File>>,
    last: u64,
}

impl Files {
    /// The path of a number, from the root on.
    pub(crate) fn path(&self, number: u64) -> Option<PathBuf> {
        if number == ROOT { Some(PathBuf::new()) } else { self.paths.get(&number).cloned() }
    }

    pub(crate) fn met(&mut self, number: u64, path: &Path) {
        if number != ROOT {
            self.paths.insert(number, path.to_owned());
        }
    }

    /// A name was moved, and all below it.
    pub(crate) fn moved(&mut self, from: &Path, to: &Path) {
        for path in self.paths.values_mut() {
            if let Ok(below) = path.strip_prefix(from) {
                *path = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
            }
        }
    }

    pub(crate) fn opened(&mut self, file: File) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Arc::new(file));
        self.last
    }

    pub(crate) fn file(&self, handle: u64) -> Option<Arc<File>> {
        self.open.get(&handle).cloned()
    }

    pub(crate) fn closed(&mut self, handle: u64) {
        self.open.remove(&handle);
    }
}
