//! Where things are when nobody says where.

use std::{
    env, fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

/// The user's id, as directories of theirs must be owned by it.
#[must_use]
pub(crate) fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Set by a site for the processes of a job: the parent of the job's run directories.
pub(crate) const RUN_ROOT: &str = "MAYFLY_RUN_ROOT";

/// Parent of the run directories: `$MAYFLY_RUN_ROOT`, else `$XDG_RUNTIME_DIR/mayfly`, else
/// `<tmp>/mayfly-<uid>`.
#[must_use]
pub fn default_run_root() -> PathBuf {
    let chosen = env::var_os(RUN_ROOT).map(PathBuf::from).filter(|dir| dir.is_absolute());
    if let Some(chosen) = chosen {
        return chosen;
    }
    match env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir()) {
        Some(runtime) => runtime.join("mayfly"),
        None => env::temp_dir().join(format!("mayfly-{}", uid())),
    }
}

/// Where prepared images of system libraries are kept: `${XDG_CACHE_HOME:-~/.cache}/mayfly/images`,
/// or a private directory below `<tmp>` for a user without a home.
#[must_use]
pub fn image_cache() -> PathBuf {
    let absolute =
        |name: &str| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    match base {
        Some(base) if is_writable_place(&base) => base.join("mayfly/images"),
        _ => env::temp_dir().join(format!("mayfly-{}/images", uid())),
    }
}

fn is_writable_place(dir: &Path) -> bool {
    rustix::fs::access(existing(dir), rustix::fs::Access::WRITE_OK).is_ok()
}

/// What is there of a path that may be made later.
pub(crate) fn existing(path: &Path) -> &Path {
    path.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"))
}

/// Makes `dir`, which must not be there yet, private to the user; its parents may be there.
pub(crate) fn make_new(dir: &Path) -> Result<()> {
    make_parents(dir)?;
    fs::DirBuilder::new()
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make the directory {}", dir.display()))
}

fn make_parents(dir: &Path) -> Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .with_context(|| format!("cannot make the directory {}", parent.display()))
}

/// Makes `dir` and its parents; `dir` itself is private to the user, and refused when somebody else
/// owns it or may look into it.
pub(crate) fn make_private(dir: &Path) -> Result<()> {
    make_parents(dir)?;
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => check_private(dir),
        Err(error) => {
            Err(error).with_context(|| format!("cannot make the directory {}", dir.display()))
        }
    }
}

fn check_private(dir: &Path) -> Result<()> {
    let found = fs::symlink_metadata(dir)?;
    ensure!(found.is_dir(), "{} is in the way: it is not a directory", dir.display());
    if found.uid() != uid() {
        bail!("{} belongs to user {}; choose another place", dir.display(), found.uid());
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot make {} private", dir.display()))?;
    }
    Ok(())
}
