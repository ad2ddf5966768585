//! What one attempt to make an instance has made so far.
//!
//! A start can fail at every step, also since what it wants to make is there already: the data of
//! an instance that was kept, for one. So a failure undoes what is noted here, and nothing else. A
//! directory is noted when the kernel has made it for this attempt; one that is there is an error.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{config::Config, mount_point, places};

/// See above.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    directories: Vec<PathBuf>,
    has_mount_point: bool,
}

impl Attempt {
    /// Makes what `make` makes of an instance; when it fails, nothing of that stays.
    pub(crate) fn at<T>(
        config: &Config,
        make: impl FnOnce(&mut Attempt) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = Attempt::default();
        let made = make(&mut attempt);
        if made.is_err() {
            attempt.undo(config);
        }
        made
    }

    /// Makes a directory that is the instance's with all that will be in it.
    ///
    /// # Errors
    /// Also when it is there.
    pub(crate) fn directory(&mut self, dir: &Path) -> Result<()> {
        places::make_new(dir)?;
        self.directories.push(dir.to_owned());
        Ok(())
    }

    /// Puts the mount point in its place.
    pub(crate) fn mount_point(&mut self, config: &Config) -> Result<()> {
        mount_point::put(config)?;
        self.has_mount_point = true;
        Ok(())
    }

    fn undo(self, config: &Config) {
        if self.has_mount_point {
            let _ = mount_point::take_away(config);
        }
        for dir in self.directories.iter().rev() {
            let _ = fs::remove_dir_all(dir);
        }
        // It goes with the last instance; others may be in it.
        if let Some(root) = config.run_dir.parent() {
            let _ = fs::remove_dir(root);
        }
    }
}
