//! Telling those who watch files with inotify that a description has ended that could be written
//! to. Processes tell the rest themselves; this end may be that of the last of them.
//!
//! The stand-in of a watched file ([`mayfly_types::mirror`]) is opened for writing and closed. This
//! raises IN_OPEN and IN_CLOSE_WRITE there. It lies in the run directory, in memory.

use std::path::{Path, PathBuf};

use mayfly_types::{
    FileId,
    mirror::{DIRECTORY, FILES, NAMES},
};
use rustix::fs::{Mode, OFlags, open};

/// Where what stands for files lies.
#[derive(Debug)]
pub(in crate::serve) struct Watched(PathBuf);

impl Watched {
    pub(in crate::serve) fn of(run_dir: &Path) -> Watched {
        Watched(run_dir.join(DIRECTORY))
    }

    /// Most files that are written to are not watched.
    pub(in crate::serve) fn tell_written(&self, file: FileId) {
        for kind in [NAMES, FILES] {
            let path = self.0.join(kind).join(format!("{:x}", file.0));
            drop(open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()));
        }
    }
}
