//! Letting another user through to what a test has made.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use mayfly_testkit::Scratch;

/// Who has nothing.
pub const NOBODY: u32 = 65_534;

/// Directories above the scratch that another user may pass through until this is dropped: a run of
/// all suites has one that is its owner's alone.
#[derive(Debug)]
pub struct Passable {
    changed: Vec<(PathBuf, fs::Permissions)>,
    /// What one changes the other does not put back.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Passable {
    /// `None` where a directory further up keeps others out: that is somebody's choice.
    ///
    /// # Errors
    /// A directory cannot be looked at or changed.
    pub fn make(scratch: &Scratch) -> Result<Option<Passable>> {
        let top = std::env::temp_dir();
        for directory in top.ancestors().skip(1) {
            if fs::metadata(directory)?.permissions().mode() & 0o001 == 0 {
                return Ok(None);
            }
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passable = Passable { changed: Vec::new(), _alone: alone };
        for directory in scratch.path().ancestors().filter(|path| path.starts_with(&top)) {
            let before = fs::metadata(directory)?.permissions();
            if before.mode() & 0o001 == 0 {
                let mode = before.mode() | 0o001;
                fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
                passable.changed.push((directory.to_owned(), before));
            }
        }
        Ok(Some(passable))
    }
}

impl Drop for Passable {
    fn drop(&mut self) {
        for (directory, before) in self.changed.drain(..) {
            // It may be gone with the scratch.
            let _ = fs::set_permissions(directory, before);
        }
    }
}
